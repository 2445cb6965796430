"""Every claim of the catalogue: its evidence has the verdict the ledger expects, and its twin is refuted."""

import pytest

from penchant.theorems.catalogue import CLAIMS, THEOREMS
from penchant.verdict import Outcome


# One worker per paper: claims of a paper share their runs.
GROUPED = [pytest.param(claim, id=claim.name, marks=pytest.mark.xdist_group(claim.paper)) for claim in CLAIMS]


@pytest.mark.parametrize("claim", GROUPED)
def test_evidence_has_the_expected_verdict_and_the_planted_falsehood_is_refuted(claim):
    verdict = claim.check(False)
    assert verdict.outcome is claim.expected, verdict
    twin = claim.check(True)
    assert twin.outcome is Outcome.refuted, twin


def test_names_are_unique_and_every_entry_is_sourced():
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert all(claim.statement and claim.citation and claim.paper for claim in CLAIMS)
    assert all(theorem.name and theorem.statement and theorem.citation for theorem in THEOREMS)
