"""Verdicts: three values, the inequality, and undecided wherever a number is missing."""

import numpy as np
import pytest

from penchant.verdict import HEADLINES, Outcome, Verdict, all_of, at_least, at_most, close


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (at_most(1.0, 1.0, "gap"), Outcome.confirmed),
        (at_most(1.1, 1.0, "gap"), Outcome.refuted),
        (at_most(np.nan, 1.0, "gap"), Outcome.undecided),
        (at_most(1.0, np.nan, "gap"), Outcome.undecided),
        (at_least(1.0, 1.0, "slack"), Outcome.confirmed),
        (at_least(0.9, 1.0, "slack"), Outcome.refuted),
        (at_least(np.nan, 1.0, "slack"), Outcome.undecided),
        (close(1.01, 1.0, 0.02, "constant"), Outcome.confirmed),
        (close(1.03, 1.0, 0.02, "constant"), Outcome.refuted),
        (close(-1.0, 1.0, 0.02, "constant"), Outcome.refuted),
        (close(np.nan, 1.0, 0.02, "constant"), Outcome.undecided),
        (close(0.01, 0.0, 0.02, "zero"), Outcome.confirmed),
    ],
)
def test_inequality_decides(verdict, outcome):
    assert verdict.outcome is outcome
    assert str(verdict).startswith(outcome.value)


def test_the_text_holds_the_inequality_that_was_true():
    assert str(at_most(2.0, 1.0, "gap")) == "refuted: gap = 2 > 1"
    assert str(at_least(2.0, 1.0, "slack")) == "confirmed: slack = 2 >= 1"


def test_all_of_reports_the_worst():
    good, bad, unknown = at_most(0.0, 1.0, "a"), at_most(2.0, 1.0, "b"), at_most(np.nan, 1.0, "c")
    assert all_of(good, unknown, bad) is bad
    assert all_of(good, unknown) is unknown
    assert all_of(good, good).outcome is Outcome.confirmed
    assert all_of(good) is good
    assert all_of().outcome is Outcome.undecided  # no evidence is none


def test_a_conjunction_is_decided_by_all_its_inequalities():
    found = all_of(at_least(5.0, 1.0, "margin", "seed 3"), at_most(0.5, 1.0, "exponent", "seed 3"))
    assert found.inequality == "margin = 5 >= 1; exponent = 0.5 <= 1"
    assert (found.predicted, found.measured, found.detail) == ((1.0, 1.0), (5.0, 0.5), "seed 3")


@pytest.mark.parametrize(
    ("outcome", "hypotheses", "headline"),
    [
        (Outcome.confirmed, "hold", "confirmed"),
        (Outcome.confirmed, "open", "confirmed"),
        (Outcome.confirmed, "fail", "beyond the theorem"),
        (Outcome.refuted, "hold", "refuted"),
        (Outcome.refuted, "open", "undecided"),  # a counterexample only if the hypotheses do hold
        (Outcome.refuted, "fail", "outside the theorem"),
        (Outcome.undecided, "hold", "undecided"),
        (Outcome.undecided, "fail", "undecided"),
    ],
)
def test_a_headline_is_made_of_both_facts(outcome, hypotheses, headline):
    verdict = Verdict(outcome, "gap = 2 > 1", detail="seed 3", hypotheses=hypotheses)
    assert (verdict.headline, headline in HEADLINES) == (headline, True)
    assert str(verdict) == f"{headline}: gap = 2 > 1 (seed 3)"
    assert len(verdict.lines()) == (1 if hypotheses == "hold" else 2)
    assert f"<b>{headline}</b>: gap = 2 &gt; 1" in verdict._repr_html_()
