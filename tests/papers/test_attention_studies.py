"""Studies of attention from data: the quick ones run, and say what they are known to say."""

import json

import numpy as np
import pytest

from penchant.exhibits import Figure, Line, plain
from penchant.papers import new_lab, studies
from penchant.papers.attention_regression.context import bias_along
from penchant.papers.attention_regression.evidence import sampled_oracle_floors
from penchant.papers.attention_regression.figures.experiment import sign_choices
from penchant.papers.attention_regression.figures.scaling_law import (
    WORDS,
    fixed_data_law,
    flipped,
    grid_figure,
    grid_rows,
    grid_table,
    minibatch_floors,
    perturbed_start,
    two_terms,
)
from penchant.papers.attention_regression.setting.context_bias import oracle_shift, sample_floor
from penchant.papers.attention_regression.setting.geometry import balanced_point, split_gradient
from penchant.papers.attention_regression.setting.sample import attention_experiment, prescribed_spectrum
from penchant.papers.attention_regression.training.population import train_population
from penchant.papers.attention_regression.training.rules import PreconditionedDescent
from penchant.report.page import draw, render, save
from penchant.training.recorders import At

LAB = new_lab()

KNOWN = ("attention-bias", "attention-scaling-law", "attention-regression")


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_a_study_says_what_is_known(tmp_path, name):
    study = next(study for study in studies() if study.name == name)
    result = study.result(new_lab())
    save(study, result, tmp_path, paper="", seed=0, full=False, seconds=1.0)
    assert {finding.verdict.outcome.value for finding in result.findings} == {"confirmed"}
    assert render(tmp_path).read_text().count("<svg") == len(result.figures)
    tables = {table.name: table.rows for table in result.tables}
    if name == "attention-bias":
        slopes = {row[0]: float(row[1]) for row in tables["scales"]}
        assert slopes["1"] - slopes["5"] > 0.3
        assert slopes["5"] == pytest.approx(-1, abs=0.1)
    if name == "attention-scaling-law":
        found = {row[0]: row for row in tables["exponents"]}
        assert float(found["oracle, first order"][1]) == pytest.approx(-2, abs=0.05)
        last = next(row for row in tables["floors"] if row[:2] == ("oracle, first order", 3200))
        assert float(last[2]) == pytest.approx(float(last[4]), rel=0.02)
    if name == "attention-regression":
        floors = {row[0]: float(row[1]) for row in tables["gauges"]}
        assert floors["minus"] <= floors["identity"] <= 0.7 * floors["plus"]
        ends = {row[0]: float(row[4]) for row in tables["excess"]}
        assert ends["two_sided + reg"] <= ends["two_sided, no reg"]
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


@pytest.mark.slow
def test_a_seed_is_the_seed_of_the_data():
    """Seed 0 has the draws of no seed, any other its own, in every part of the scaling law and of the bias."""
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    first, same, other = (fixed_data_law(problem, {40: 2}, 2, *seed)[0][40] for seed in ((), (0,), (1,)))
    assert np.array_equal(first, same)
    assert not np.isclose(first, other).any()
    batches = [minibatch_floors(problem, {10: 1}, 40, "minus", seed)[10] for seed in (0, 1)]
    assert not np.isclose(*batches)
    oracle = [sampled_oracle_floors(LAB, 10, 2, 1, "minus", seed) for seed in (0, 1)]
    assert not np.isclose(*oracle)
    bias = [bias_along(LAB, 0.2, 1.0, (10, 20), 100, seed)[:, 0] for seed in (0, 1)]
    assert not np.isclose(*bias).any()


def test_the_scaling_page_draws_both_terms_and_names_its_surrogate():
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)
    figure = grid_figure({("infinity", "R = 1"): [1.0] * 5, ("200", "R = 1"): [1.0] * 5}, problem)
    (floor,) = (line for line in figure.lines if line.style == "prediction")
    assert floor.y[0] == pytest.approx(sample_floor(problem) / 200 + oracle_shift(problem).excess / 200**2)
    assert "surrogate" in WORDS["oracle, first order"]
    assert "sign convention" in WORDS["gauge"]


def test_errors_are_drawn_as_bars(tmp_path):
    bare = Line("points", np.array([1.0, 2.0]), np.array([1.0, 2.0]), "points")
    barred = Line("points", bare.x, bare.y, "points", np.array([0.1, 0.2]))
    drawn = [draw(plain(Figure("a", "a", "x", "y", (line,), "")), tmp_path / "a.svg") for line in (bare, barred)]
    assert "LineCollection" not in drawn[0]
    assert "LineCollection" in drawn[1]


def test_the_other_sign_of_mode_1_has_its_own_numbers():
    """The gauge identity depends on signs of singular vectors: with the other one b_2 is 1.401, and the trajectory is another."""
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)
    assert oracle_shift(problem, flipped(problem)).excess == pytest.approx(1.401, abs=1e-3)
    start = perturbed_start(problem, flipped(problem))
    run = train_population(problem, PreconditionedDescent("two_sided", 5.0), start, steps=40, recorder=At((5, 10, 20)))
    assert run.excess == pytest.approx([1.204e-3, 1.586e-6, 4.095e-8, 3.227e-11, 2.054e-17], rel=1e-3)
    rows = {(count, name): [1.0] * 5 for count in ("infinity", "200") for name in ("R = 1", "mode 1 flipped")}
    table = grid_table(rows, problem)
    assert [row[:2] for row in table.rows] == list(rows)
    here, there = (two_terms(problem, 200, flipped(problem, sign)) for sign in (1.0, -1.0))
    assert [row[-1] for row in table.rows] == ["0", "0", f"{here:.3g}", f"{there:.3g}"]
    assert here > 1.01 * there
    assert "1.401" in table.caption
    assert "Only with --full: n = 3200" in table.caption


@pytest.mark.slow
def test_the_grid_has_the_known_floors_with_the_other_sign():
    """Five data sets each, from the start with mode 1 flipped: 2.82e-4 at n = 200 and 3.39e-5 at n = 800."""
    rows = grid_rows(LAB)
    assert rows["200", "mode 1 flipped"][3] == pytest.approx(2.82e-4, rel=5e-3)
    assert rows["800", "mode 1 flipped"][3] == pytest.approx(3.39e-5, rel=5e-3)


def test_the_start_of_the_experiment_under_all_signs():
    text = sign_choices(attention_experiment())
    here, low, high = (float(word.rstrip(";")) for word in text.split() if "e-0" in word)
    assert low <= here <= high
    assert low <= 5.604e-6 <= 5.691e-6 <= high * (1 + 1e-3)
