"""Studies of deep linear networks end with every finding confirmed."""

import pytest

from penchant.studies.catalogue import STUDIES
from penchant.verdict import Outcome

LONG = ("deep-linear", "deep-linear-laws", "deep-linear-no-span", "step-rules", "deep-linear-basin", "nonlinear-layers")


def confirmed(name):
    result = next(study for study in STUDIES if study.name == name).run(0, False, lambda text: None)
    assert result.figures
    for finding in result.findings:
        assert finding.verdict.outcome is Outcome.confirmed, finding
    return {table.name: table for table in result.tables}


def test_the_escape_times_from_the_saddle_are_the_published_ones():
    rows = dict(confirmed("saddle-escape")["escape"].rows)
    assert rows["1e-04"] == "8.957"
    assert rows["1e-08"] == "18.167"


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_long_study_ends_well(name):
    if name == "nonlinear-layers":
        pytest.importorskip("torch")
    tables = confirmed(name)
    if name == "deep-linear-basin":
        assert tables["times"].rows[0][:4] == (200, 132, "1.000", "7.71")
