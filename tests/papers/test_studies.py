"""Studies run, save and render; what they save can be rendered again from the files alone."""

import json

import numpy as np
import pytest

from penchant.exhibits import DEFINITIONS, Finding, Result
from penchant.lab import Study
from penchant.papers import new_lab, studies
from penchant.report.formulas import typeset
from penchant.report.page import render, report, save
from penchant.settings.generators import separable
from penchant.verdict import Outcome, Verdict, at_most

QUICK = [pytest.param(name, marks=pytest.mark.slow) for name in ("max-margin", "key-query-aligned")]


@pytest.mark.parametrize("name", QUICK)
def test_a_study_becomes_a_page_with_its_data_next_to_it(tmp_path, name):
    study = next(study for study in studies() if study.name == name)
    messages = []
    result = study.result(new_lab(progress=messages.append))
    save(study, result, tmp_path, paper="", seed=0, full=False, seconds=1.0)
    page = render(tmp_path).read_text()
    assert messages
    assert page.count('class="plot"') == len(result.figures)
    for figure in result.figures:
        rows = (tmp_path / name / f"{figure.name}.csv").read_text().splitlines()
        assert len(rows) == 1 + sum(len(line.x) for line in figure.lines)
    assert all(str(typeset(finding.statement)) in page for finding in result.findings)
    saved = json.loads((tmp_path / name / "study.json").read_text())
    assert [row["verdict"]["outcome"] for row in saved["findings"]] == [
        row.verdict.outcome.value for row in result.findings
    ]


def test_names_are_unique():
    assert len({study.name for study in studies()}) == len(studies())


def test_verdicts_alone_make_a_page(tmp_path):
    page = report([at_most(1.0, 2.0, "gap"), Finding("A sentence.", at_most(3.0, 2.0, "gap"), "Someone")], tmp_path)
    text = page.read_text()
    assert "confirmed" in text
    assert "A sentence." in text


def test_generators_are_functions_of_their_seed():
    assert np.array_equal(separable(seed=1).signed, separable(seed=1).signed)
    assert not np.array_equal(separable(seed=1).signed, separable(seed=2).signed)


def test_a_page_defines_what_it_mentions(tmp_path):
    finding = Finding("The margin grows.", Verdict(Outcome.confirmed, "1 <= 2"))
    result = Result((finding,), (), (), {}, {**DEFINITIONS, "floor": "where it settles"})
    folder = save(
        Study("some", "Some", lambda lab: result), result, tmp_path, paper="", seed=0, full=False, seconds=0.0
    )
    assert set(json.loads((folder / "study.json").read_text())["definitions"]) == {"margin", "floor"}
