"""Every claim of every paper: its evidence has the verdict the ledger expects, and its twin is refuted."""

from pathlib import Path

import pytest

from penchant import papers
from penchant.commands.verify import became
from penchant.lab import Claim, claims_in
from penchant.papers import PAPERS, new_lab, theorems
from penchant.verdict import Outcome

LABS = {paper.name: new_lab() for paper in PAPERS}


def marks(paper, claim):
    """One worker per paper, because claims of a paper share their runs."""
    group = pytest.mark.xdist_group(paper.name)
    return (group, pytest.mark.slow) if claim.slow else group


GROUPED = [
    pytest.param(paper, claim, id=claim.name, marks=marks(paper, claim)) for paper in PAPERS for claim in paper.claims
]


@pytest.mark.parametrize(("paper", "claim"), GROUPED)
def test_evidence_has_the_expected_verdict_and_the_planted_falsehood_is_refuted(paper, claim):
    verdict = claim(LABS[paper.name])
    assert verdict.outcome is claim.expected, verdict
    twin = claim(LABS[paper.name], planted=True)
    assert twin.outcome is Outcome.refuted, twin


def test_names_are_unique_and_every_entry_is_sourced():
    names = [claim.name for claim in papers.claims()]
    assert len(set(names)) == len(names)
    assert all(claim.statement and claim.citation for claim in papers.claims())
    assert all(theorem.name and theorem.statement and theorem.citation for theorem in theorems())


def test_a_sentence_that_does_not_hold_names_the_one_that_does():
    known = {claim.name: claim for claim in papers.claims()}
    for claim in known.values():
        if claim.expected is Outcome.refuted:
            assert known[claim.repair].expected is Outcome.confirmed, claim.name
        else:
            assert not claim.repair


def test_old_ids_lead_to_claims_that_are_there():
    known = {claim.name for claim in papers.claims()}
    for now, before in became().items():
        assert not now or now in known, now
        assert not known & {*before}, now


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_every_file_of_a_paper_that_holds_claims_or_studies_is_listed(paper):
    folder = Path(papers.__file__).parent / paper.name
    for file in folder.rglob("*.py"):
        place = ".".join(file.relative_to(folder).with_suffix("").parts)
        if "__init__" in place:
            continue
        module = paper.module(place)
        own = [c for c in claims_in(module) if isinstance(c, Claim) and c.check.__module__ == module.__name__]
        assert not own or place in paper.claim_files, place
        assert not hasattr(module, "STUDIES") or place in paper.study_files, place
