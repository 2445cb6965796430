"""The studies of attention regression: every finding holds, and the page is made from what was saved."""

import json

import numpy as np
import pytest

from penchant.papers import new_lab
from penchant.papers.attention_regression.figures import (
    ablation as attention_ablation,
)
from penchant.papers.attention_regression.figures import (
    covariates as attention_covariates,
)
from penchant.papers.attention_regression.figures import (
    gradient_noise as attention_gradient_noise,
)
from penchant.papers.attention_regression.figures import (
    landscape as attention_landscape,
)
from penchant.papers.attention_regression.figures import (
    rates as attention_regression_rates,
)
from penchant.papers.attention_regression.figures.rates import GAUGE, SEED, SIZES, steps_needed
from penchant.papers.attention_regression.figures.scaling_law import value_table
from penchant.papers.attention_regression.setting.geometry import GEOMETRIES
from penchant.papers.attention_regression.setting.problem import Balance, Unregularised
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
from penchant.papers.attention_regression.theorems import asymptotic_factor
from penchant.papers.attention_regression.training.rules import OptimalStep
from penchant.report.page import render
from penchant.report.save import save
from penchant.verdict import Outcome

TABULATED = {  # steps for 1e-10 of the excess at the optimal step: condition, geometry -> steps
    ("1", "two_sided"): 29,
    ("1", "left"): 29,
    ("1", "euclidean"): 29,
    ("10", "two_sided"): 29,
    ("10", "left"): 158,
    ("10", "euclidean"): 324,
    ("100", "two_sided"): 29,
    ("100", "left"): 1532,
    ("100", "euclidean"): 9701,
    ("1000", "two_sided"): 29,
    ("1000", "left"): 15226,
    ("1000", "euclidean"): 207696,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [
        attention_regression_rates.STUDIES[0],
        attention_landscape.STUDIES[0],
        attention_gradient_noise.STUDIES[0],
        attention_covariates.STUDIES[0],
        attention_ablation.STUDIES[0],
    ],
    ids=lambda one: one.name,
)
def test_every_finding_holds_and_becomes_a_page(study, tmp_path):
    result = study.result(new_lab())
    assert [one.verdict.outcome for one in result.findings] == [Outcome.confirmed] * len(result.findings)
    save(study, result, tmp_path, paper="", seed=0, full=False, seconds=1.0)
    assert render(tmp_path).read_text().count("<svg") == len(result.figures)
    saved = json.loads((tmp_path / study.name / "study.json").read_text())
    assert set(saved["runs"]) == set(result.runs)
    if study.name == "attention-rates":
        rows = {(row[0], row[1]): row[5] for row in result.tables[0].rows}
        assert rows == TABULATED


@pytest.mark.parametrize(("condition", "name"), TABULATED)
def test_tabulated_steps(condition, name):
    problem, geometry = prescribed_spectrum(6, SIZES, float(condition), SEED), GEOMETRIES[name]
    factor = asymptotic_factor(problem, geometry, OptimalStep(GAUGE).constant(problem, geometry), GAUGE)
    assert steps_needed(factor) == TABULATED[condition, name]


def test_the_gauge_decides_the_rate_of_plain_descent_only():
    rows, finding = attention_regression_rates._gauges(prescribed_spectrum(6, SIZES, 100.0, SEED))
    assert finding.verdict.outcome is Outcome.confirmed
    assert rows[0][1:] == (29, 29, 29)
    assert rows[2][1] < 1700 < 49_000 < rows[2][3]


def test_a_seed_whose_step_is_too_large_says_so():
    _, findings, runs = attention_regression_rates._from_random(1)
    assert any("two_sided diverges after 4 steps" in one.statement for one in findings)
    assert runs["two_sided-adaptive"].excess[-1] < 1e-3


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_local_factor_is_the_known_one_with_the_regulariser(geometry):
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    gauge = -np.asarray(problem.right).T
    known = asymptotic_factor(problem, GEOMETRIES[geometry], 0.7, gauge)
    found = attention_ablation.local_factor(problem, GEOMETRIES[geometry], Balance(), 0.7)
    assert found == pytest.approx(known**2, rel=1e-10)


def test_without_the_regulariser_the_gauge_of_the_loss_has_no_rate():
    """Two-sided: the curvatures of |UV - M|^2 are 2 (s_i + s_j) and 2 s_j, without the regulariser's own."""
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    found = attention_ablation.local_factor(problem, GEOMETRIES["two_sided"], Unregularised(), 4.0)
    assert found == pytest.approx(max(abs(1 - 4.0 * curvature) for curvature in (2 * 0.03, 4 * 0.05)) ** 2, rel=1e-10)


def test_what_training_is_worth_is_tabulated_with_its_paired_interval():
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    start = {100: np.array([3.0, 5.0, 9.0, 4.0]) * 1e-4, 400: np.array([3.0, 5.0, 9.0, 4.0]) * 1e-5}
    shift = np.array([1.5, 1.6, 1.7, 1.6]) * 1e-4
    table, verdict = value_table(problem, start, {n: one + shift * (100 / n) ** 2 for n, one in start.items()})
    assert verdict.outcome is Outcome.confirmed
    assert table.rows[0][3].startswith("0.00016 [")
    _, worse = value_table(problem, start, {n: one - shift for n, one in start.items()})
    assert worse.outcome is Outcome.refuted
