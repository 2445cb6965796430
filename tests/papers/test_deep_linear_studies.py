"""Studies of deep linear networks end with every finding confirmed."""

import pytest

from penchant.papers import new_lab, studies
from penchant.papers.deep_linear.laws import time
from penchant.verdict import Outcome

LONG = (
    "deep-linear",
    "deep-linear-laws",
    "deep-linear-basin",
)


def named(name):
    return next(study for study in studies() if study.name == name)


def confirmed(name, seed=0):
    result = named(name).result(new_lab(seed))
    assert result.figures
    for finding in result.findings:
        assert finding.verdict.outcome is Outcome.confirmed, finding
    return {table.name: table for table in result.tables}


@pytest.mark.slow
def test_claims_follow_the_seed_of_a_study():
    """The law of time is the same for every start, and the flow that shows it another."""
    labs = [new_lab(seed) for seed in (0, 7)]
    found = [time(lab) for lab in labs]
    assert [one.outcome for one in found] == [Outcome.confirmed] * 2
    assert found[0].measured != found[1].measured


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_long_study_ends_well(name):
    tables = confirmed(name)
    if name == "deep-linear-basin":
        rows = dict(tables["escape"].rows)
        assert rows["1e-04"] == "8.957"
        assert rows["1e-08"] == "18.167"
        # Rounding of 1e-15 is a thousandth of this perturbation, and moves the time by as much.
        assert float(rows["1e-12"]) == pytest.approx(27.378, abs=4e-3)
    if name == "deep-linear":
        assert tables["angles"].rows[4][2:] == ("0.003821", "0.99965", "9.6e-41")
        assert confirmed(name, seed=7)["angles"].rows[4][2] != "0.003821"
