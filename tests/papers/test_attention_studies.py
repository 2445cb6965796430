"""Studies of attention from data: the quick ones run, and say what they are known to say."""

import json

import numpy as np
import pytest

from penchant.exhibits import Figure, Line, plain
from penchant.papers import new_lab, studies
from penchant.papers.attention_regression.evidence import scaling_problem
from penchant.papers.attention_regression.figures import _grid_rows
from penchant.papers.attention_regression.setting.context_bias import oracle_shift, sample_floor
from penchant.report.figures import draw
from penchant.report.page import render, save

LAB = new_lab()


@pytest.mark.slow
def test_the_study_says_what_is_known(tmp_path):
    study = next(study for study in studies() if study.name == "attention-regression")
    result = study.result(new_lab())
    save(study, result, tmp_path, paper="", seed=0, full=False, seconds=1.0)
    assert {finding.verdict.outcome.value for finding in result.findings} == {"confirmed"}
    assert render(tmp_path).read_text().count('class="plot"') == len(result.figures)
    tables = {table.name: table.rows for table in result.tables}
    ends = {row[0]: float(row[4]) for row in tables["excess"]}
    assert ends["two_sided + reg"] <= ends["two_sided, no reg"]
    saved = json.loads((tmp_path / study.name / "study.json").read_text())
    assert [table["title"] for table in saved["tables"]] == [table.title for table in result.tables]


def test_errors_are_drawn_as_bars(tmp_path):
    bare = Line("points", np.array([1.0, 2.0]), np.array([1.0, 2.0]), "points")
    barred = Line("points", bare.x, bare.y, "points", np.array([0.1, 0.2]))
    drawn = [
        draw(plain(Figure("a", "a", "x", "y", (line,), "")), tmp_path / "a.svg").read_text() for line in (bare, barred)
    ]
    assert "LineCollection" not in drawn[0]
    assert "LineCollection" in drawn[1]


@pytest.mark.slow
def test_the_grid_settles_at_its_floor():
    """Five data sets each scatter by less than a factor 2 about v/n + b_2/n^2."""
    problem, rows = scaling_problem(LAB, 1e-3), _grid_rows(LAB)
    for count in (200, 800):
        floor = sample_floor(problem) / count + oracle_shift(problem).excess / count**2
        assert 0.5 < rows[str(count)][-1] / floor < 2
    assert rows["infinity"][-1] < 1e-12
