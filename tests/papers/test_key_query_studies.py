"""The key-query studies: what they draw, and that their excess is not an error of the integration."""

from dataclasses import replace

import numpy as np
import pytest

import penchant as pt
from penchant.commands.claims import find_study
from penchant.papers import PAPERS, new_lab
from penchant.papers.key_query.evidence import flow_to
from penchant.settings.generators import equal_score_tokens
from penchant.theory.judge import excess

LAB = new_lab()

(OURS,) = [paper for paper in PAPERS if paper.name == "key_query"]


@pytest.mark.slow
@pytest.mark.parametrize("study", OURS.studies, ids=lambda study: study.name)
def test_every_study_draws_finite_curves_and_full_tables(study):
    """The findings are claims, which have tests of their own."""
    result = replace(study, claims=()).result(LAB)
    for line in (line for figure in result.figures for line in figure.lines):
        assert len(line.x) == len(line.y) > 1
        assert np.isfinite(line.y).all()
        assert (np.diff(line.x) >= -1e-6).all()  # on a plateau log t stands still to the 1e-7 of a step
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert all("upper" in (run.account or {}) for run in result.runs.values())


@pytest.mark.parametrize("name", ["init-scale", "large-start", "width", "basin", "starts", "steps"])
def test_a_study_that_was_taken_in_is_found_by_its_old_name(name):
    assert find_study(f"key-query-{name}")[1].name == "key-query"


@pytest.mark.slow
def test_what_is_left_of_the_excess_at_margin_1e8_is_not_an_error_of_the_integration():
    data = equal_score_tokens(6, 5, 10, 0, gap=1.0)
    setting, reference = pt.Setting(data, pt.KeyQuery(), pt.Exponential()), pt.references.nuclear_margin(data)
    tight = pt.GradientFlow(tolerance=1e-10, margin_tolerance=1e-6, order=6)
    runs = [flow_to(setting, setting.start(1, 1e-3), 1e8, (1e7,), flow) for flow in (pt.GradientFlow(), tight)]
    loose, exact = (excess(data, run.weight(), reference) for run in runs)
    assert loose == pytest.approx(exact, rel=1e-3)
