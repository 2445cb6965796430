"""Studies of attention from data: the quick ones run, and say what they are known to say."""

import json

import numpy as np
import pytest

from penchant.report.figures import draw
from penchant.report.page import render
from penchant.settings.attention_curvature import balanced_point
from penchant.settings.attention_regression_generators import prescribed_spectrum
from penchant.settings.context_bias import oracle_shift, sample_floor
from penchant.studies.attention_scaling import WORDS, _Floors, _grid_figure, within
from penchant.studies.attention_time_scales import split_gradient
from penchant.studies.base import Figure, Line, plain, save
from penchant.studies.catalogue import STUDIES

KNOWN = {
    "attention-time-scales": ["confirmed", "confirmed", "confirmed", "refuted"],
    "attention-beyond-a3": ["refuted", "confirmed", "confirmed", "confirmed"],
    "attention-bias": ["confirmed"] * 6,
    "attention-scaling-law": [*["confirmed"] * 4, "undecided", *["confirmed"] * 2],  # too few data sets for 35 %
    "attention-regression": ["confirmed"] * 6,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_a_study_says_what_is_known(tmp_path, name):
    study = next(study for study in STUDIES if study.name == name)
    result = study.run(0, False, lambda text: None)
    save(study, result, tmp_path, seed=0, full=False, seconds=1.0)
    assert [finding.verdict.outcome.value for finding in result.findings] == KNOWN[name]
    assert render(tmp_path).read_text().count("<svg") == len(result.figures)
    saved = json.loads((tmp_path / name / "study.json").read_text())
    assert [table["title"] for table in saved["tables"]] == [table.title for table in result.tables]


def test_a_gradient_is_split_along_and_across_the_minima(rng):
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    point = balanced_point(problem)
    skew = rng.standard_normal((3, 3))
    along = point @ (skew - skew.T)
    tangential, normal = split_gradient(point, along)
    assert tangential == pytest.approx(np.linalg.norm(along), rel=1e-12)
    assert normal < 1e-14
    symmetric = point @ np.diag([1.0, 2.0, 3.0])  # orthogonal to every W Omega because W'W commutes with it here
    tangential, normal = split_gradient(point, symmetric)
    assert tangential < 1e-14
    assert normal == pytest.approx(np.linalg.norm(symmetric), rel=1e-12)


def test_one_dimension_has_no_gauge_to_turn():
    assert split_gradient(np.ones((3, 1)), np.full((3, 1), 2.0)) == (0.0, pytest.approx(2 * np.sqrt(3)))


def test_a_gap_within_its_error_of_the_bound_decides_nothing():
    verdicts = [within(gap, 0.05, 0.35, "gap").outcome.value for gap in (0.29, 0.31, 0.44, 0.46)]
    assert verdicts == ["confirmed", "undecided", "undecided", "refuted"]


def test_the_two_term_law_fails_on_floors_twice_as_high():
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    level = sample_floor(problem) / 400 + oracle_shift(problem).excess / 400**2
    scatter = level * np.linspace(-0.1, 0.1, 11)
    gap, error = _Floors(problem, {}, {400: 2 * level + scatter}, {}, 1.0, 1.0).two_terms_off()
    assert gap == pytest.approx(1.0)
    assert error == pytest.approx(np.std(scatter / level, ddof=1) / np.sqrt(11))
    assert within(gap, error, 0.35, "gap").outcome.value == "refuted"


def test_the_scaling_page_draws_both_terms_and_names_its_surrogate():
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)
    figure = _grid_figure({"infinity": [1.0] * 5, "200": [1.0] * 5}, problem)
    (floor,) = (line for line in figure.lines if line.style == "prediction")
    assert floor.y[0] == pytest.approx(sample_floor(problem) / 200 + oracle_shift(problem).excess / 200**2)
    assert "surrogate" in WORDS["oracle"]
    assert "sign convention" in WORDS["gauge"]


def test_errors_are_drawn_as_bars(tmp_path):
    bare = Line("points", np.array([1.0, 2.0]), np.array([1.0, 2.0]), "points")
    barred = Line("points", bare.x, bare.y, "points", np.array([0.1, 0.2]))
    drawn = [draw(plain(Figure("a", "a", "x", "y", (line,), "")), tmp_path / "a.svg") for line in (bare, barred)]
    assert "LineCollection" not in drawn[0]
    assert "LineCollection" in drawn[1]
