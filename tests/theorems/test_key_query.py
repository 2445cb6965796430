"""Key-query theorems on given data: hypotheses, verdicts, a run's own certificates, and figures from another integrator."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.references.nuclear_margin import Nuclear
from penchant.references.polyhedral_margin import L1
from penchant.settings.factored import Factors
from penchant.theorems import key_query_hypotheses as assumptions
from penchant.theorems.key_query import excess
from penchant.theorems.key_query_runs import aligned_run, diagonal_run, direct_run, matrix_run
from penchant.verdict import Outcome


def test_the_flow_on_keys_and_queries_is_confirmed_and_rivals_are_refuted():
    run, _ = matrix_run()
    prediction = pt.predict(run.setting, pt.GradientFlow())
    assert prediction.theorem.name == "theorem-5.1"
    assert {rival.name for rival in prediction.rivals} >= {"frobenius", "first gradient"}
    assert pt.judge(prediction, run).outcome is Outcome.confirmed
    direct, _ = direct_run()
    assert pt.judge(prediction, direct).outcome is Outcome.refuted


def test_a_start_that_separates_nothing_is_undecided():
    setting = matrix_run()[0].setting
    start = Factors(-jnp.eye(5), jnp.eye(5))
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.LogTimeAbove(-20.0), steps=5)
    verdict = pt.judge(pt.predict(setting, pt.GradientFlow()), run)
    assert verdict.outcome is Outcome.undecided
    assert "not separating" in verdict.inequality


def test_aligned_data_cannot_tell_the_norms_apart():
    run, _ = aligned_run()
    prediction = pt.predict(run.setting, pt.GradientFlow())
    assert all(h.holds for h in prediction.hypotheses if h.holds is not None)
    assert pt.judge(prediction, run).outcome is Outcome.undecided


@pytest.mark.parametrize("width", [1, 2])
def test_a_narrow_head_is_reported_with_the_rank_of_the_relaxation(width):
    data = pt.equal_score_tokens(3, 4, 5, 1)  # certified rank 2
    prediction = pt.predict(pt.Setting(data, pt.KeyQuery(width), pt.Exponential()), pt.GradientFlow())
    (found,) = [h for h in prediction.hypotheses if h.name == "wide_enough"]
    assert found.holds == (width >= 2)
    assert "non-convex" in found.detail


def test_pairs_of_tokens_are_found_in_any_order():
    aligned = pt.aligned_tokens(tokens=7, d=8)
    assert assumptions.paired_tokens(aligned.data).holds
    order = np.random.default_rng(0).permutation(7)
    data = aligned.data
    shuffled = pt.TokenSelection(data.tokens[:, order], queries=data.queries, scores=data.scores[:, order])
    assert assumptions.paired_tokens(shuffled).holds
    moved = np.asarray(data.tokens).copy()
    moved[1, int(data.others[1, 0])] += 1e-3
    found = assumptions.paired_tokens(pt.TokenSelection(moved, queries=data.queries, scores=data.scores))
    assert not found.holds
    assert found.offender == "sample 1"


# Measured once with LSODA at tolerance 1e-9 in the accumulated multipliers, an integrator of another kind.
@pytest.mark.parametrize(
    ("margin", "value", "accumulated", "instant"),
    [(1e2, 3.7e-2, 0.144, 4.9e-2), (1e4, 1.3e-3, 0.079, 1.1e-2), (1e6, 1.5e-4, 0.054, 2.2e-3)],
)
def test_diagonal_flow_reproduces_the_figures_of_another_integrator(margin, value, accumulated, instant):
    run, reference = diagonal_run()
    bounds = pt.certificates(run, L1())
    record = int(np.argmin(np.abs(np.log(np.maximum(run.smallest_margin(), 1e-9) / margin))))
    assert bounds.upper[record] / reference.value - 1 == pytest.approx(value, rel=0.05)
    assert 1 - bounds.accumulated[record] / reference.value == pytest.approx(accumulated, rel=0.02)
    assert 1 - bounds.instant[record] / reference.value == pytest.approx(instant, rel=0.05)


@pytest.mark.parametrize(("seed", "values"), [(0, (1.2e-2, 2.3e-3, 1.1e-3)), (1, (1.2e-2, 1.0e-3, 1.9e-4))])
def test_matrix_flow_reproduces_the_figures_of_another_integrator(seed, values):
    run, reference = matrix_run(seed)
    margin = run.smallest_margin()
    for level, value in zip((1e2, 1e4, 1e6), values, strict=True):
        record = int(np.argmin(np.abs(np.log(np.maximum(margin, 1e-9) / level))))
        assert excess(run.setting.data, run.weight(record), reference) == pytest.approx(value, rel=0.06)


def test_certificates_enclose_the_optimum_and_the_window_beats_the_sum():
    run, reference = matrix_run()
    bounds = pt.certificates(run, Nuclear())
    late = bounds.margin > 1
    assert (bounds.lower[late] <= reference.value * (1 + 1e-9)).all()
    assert (bounds.upper[late] >= reference.bracket.lower).all()
    assert bounds.window[-1] > bounds.accumulated[-1]
    assert bounds.gap("instant")[-1] < bounds.gap("accumulated")[-1]


def test_aligned_margins_agree_with_the_closed_form_of_decoupled_samples():
    # Margins of the samples at margin 1e6, from quadrature of the decoupled scalar flows (independent of the flow engine).
    run, aligned = aligned_run()
    margins = run.margins[-1].reshape(3, 4)
    assert np.abs(margins - margins[:, :1]).max() <= 1e-6
    assert np.allclose(np.sort(margins[:, 0] - 1e6), [0.0, 0.15138, 0.15935], atol=2e-4)
    assert aligned.residual(run.at()) <= 1e-12
