"""Studies as data: claims become findings, exhibits become figures, tables and runs."""

from types import SimpleNamespace

import numpy as np

from penchant.exhibits import Figure, Line, Result, Table
from penchant.lab import Lab, Study, claim
from penchant.verdict import at_most


@claim("toy/seed", "arithmetic", "ours", statement="The seed is at most 3.")
def small_seed(lab: Lab, planted: bool):
    return at_most(float(lab.seed), -1.0 if planted else 3.0, "seed")


@claim("toy/both", "arithmetic", "ours")
def both(lab: Lab, planted: bool):
    """One and the seed are at most 3."""
    yield at_most(1.0, 3.0, "one")
    yield at_most(float(lab.seed), -1.0 if planted else 3.0, "seed")


def test_a_claim_that_yields_is_confirmed_by_all_of_its_verdicts():
    assert str(both(Lab())) == "confirmed: one = 1 <= 3; seed = 0 <= 3"
    assert str(both(Lab(), planted=True)) == "refuted: seed = 0 > -1"


def curve(lab: Lab) -> Figure:
    return Figure("curve", "a line", "x", "y", (Line("line", np.arange(2), np.arange(2)),), "")


RUN = SimpleNamespace(save=print)


def several(lab: Lab) -> tuple:
    return Table("first", "", ("a",), (("1",),), ""), {"kept": RUN}, Table("second", "", ("a",), (("2",),), "")


def test_a_study_is_its_claims_and_exhibits_in_order():
    messages = []
    study = Study("toy", "A toy", claims=(small_seed,), exhibits=(several, curve), definitions={"a": "a column"})
    result = study.result(Lab(seed=5, progress=messages.append))
    (found,) = result.findings
    assert (found.statement, found.citation) == (small_seed.statement, small_seed.citation)
    assert found.verdict.outcome.value == "refuted"  # the lab's seed is 5
    assert [table.name for table in result.tables] == ["first", "second"]
    assert [figure.name for figure in result.figures] == ["curve"]
    assert result.runs == {"kept": RUN}
    assert result.definitions == {"a": "a column"}
    assert messages == ["claim toy/seed"]


def test_a_study_may_make_its_result_itself():
    whole = Result((), ())
    assert Study("toy", "A toy", lambda lab: whole).result(Lab()) is whole
