"""The studies of attention regression: every finding holds, and the page is made from what was saved."""

import json

import pytest

from penchant.papers import new_lab
from penchant.papers.attention_regression.figures import population
from penchant.papers.attention_regression.figures.population import GAUGE, SEED, SIZES, steps_needed
from penchant.papers.attention_regression.setting.geometry import GEOMETRIES
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
from penchant.papers.attention_regression.theorems import asymptotic_factor
from penchant.papers.attention_regression.training.steps import OptimalStep
from penchant.report.page import render, save
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
@pytest.mark.parametrize("study", population.STUDIES, ids=lambda one: one.name)
def test_every_finding_holds_and_becomes_a_page(study, tmp_path):
    result = study.result(new_lab())
    assert [one.verdict.outcome for one in result.findings] == [Outcome.confirmed] * len(result.findings)
    save(study, result, tmp_path, paper="", seed=0, full=False, seconds=1.0)
    assert render(tmp_path).read_text().count('class="plot"') == len(result.figures)
    saved = json.loads((tmp_path / study.name / "study.json").read_text())
    assert set(saved["runs"]) == set(result.runs)
    if study.name == "attention-rates":
        rows = {(row[0], row[1]): row for row in result.tables[0].rows}
        assert {key: row[5] for key, row in rows.items()} == TABULATED
        for predicted, found in ((1 - float(row[3]), 1 - float(row[4])) for row in rows.values()):
            assert found == pytest.approx(predicted, rel=2e-2)
        recursion = next(table for table in result.tables if table.name == "perturbed")
        assert all(float(row[-1]) <= 1 for row in recursion.rows)


@pytest.mark.parametrize(("condition", "name"), TABULATED)
def test_tabulated_steps(condition, name):
    problem, geometry = prescribed_spectrum(6, SIZES, float(condition), SEED), GEOMETRIES[name]
    factor = asymptotic_factor(problem, geometry, OptimalStep(GAUGE).constant(problem, geometry), GAUGE)
    assert steps_needed(factor) == TABULATED[condition, name]
