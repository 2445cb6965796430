"""Studies of noise and interpolation are functions of the seed of their lab: other data, other noise, findings on these data."""

import numpy as np
import pytest

from penchant.papers import new_lab
from penchant.papers.notes import figures
from penchant.papers.notes import noise as noise_claims
from penchant.papers.notes.noise import agree, continued, limit_of, signals
from penchant.verdict import Outcome


def _study(name):
    return next(study for study in figures.STUDIES if study.name == name)


@pytest.mark.slow
def test_label_noise_uses_its_seed_everywhere(monkeypatch):
    """A few short chains: the seed is what is tested."""
    monkeypatch.setattr(noise_claims, "CHECKPOINTS", (20, 60))
    monkeypatch.setattr(noise_claims, "CONTINUED", ((0.05, 200),))
    monkeypatch.setattr(noise_claims, "chains", lambda lab: (5, 3))
    monkeypatch.setattr(figures, "chains", lambda lab: (5, 3))
    first, second = (_study("label-noise").result(new_lab(seed)) for seed in (0, 1))
    for one, other in zip(first.figures, second.figures, strict=True):
        moved = [not np.array_equal(a.y, b.y) for a, b in zip(one.lines, other.lines, strict=True)]
        assert moved[0], one.name
    for one, other in zip(first.findings, second.findings, strict=True):
        assert str(one.verdict) != str(other.verdict)


def test_a_page_defines_the_words_of_sparse_recovery():
    """Every short name on the page is in its list of definitions."""
    definitions = _study("sparse-recovery").definitions
    for term in ("signal r_t", "noise", "interpolant"):
        assert any(term in name for name in definitions), term


def test_claims_on_covariances_draw_from_their_seed():
    first, second = (noise_claims.one_dimension(new_lab(seed)) for seed in (0, 1))
    assert first.measured != second.measured


def test_a_continued_run_ends_at_the_program_of_its_last_parameters(rng):
    data = signals(15, True)
    for rows in (1, 2):
        if rows == 1:
            data = type(data)(data.inputs, np.asarray(data.inputs) @ rng.uniform(0.5, 1.0, 30))
        logs = np.log(rng.uniform(0.6, 0.9, (3, rows, 30)))
        for start, end in zip(logs, continued(data, logs), strict=True):
            assert end == pytest.approx(limit_of(data, start), abs=0.02)


@pytest.mark.parametrize(("shift", "outcome"), [(0.0, "confirmed"), (3.2, "undecided"), (8.0, "refuted")])
def test_agreement_is_joint_over_records_and_leaves_room_for_chance(rng, shift, outcome):
    values = rng.standard_normal((5, 400))
    values = (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, ddof=1, keepdims=True)
    assert agree(values, np.full(5, shift / 20), "mean").outcome is Outcome(outcome)
