"""What a direction near the reference must have besides: positive margins, and a reference that is known."""

from dataclasses import replace

import numpy as np
import pytest

import penchant as pt
from penchant.theorems.base import Hypothesis, all_hold, judge_direction
from penchant.verdict import Outcome

# Two samples that almost oppose each other: the direction is near the maximum margin long before the data are separated.
NEARLY_OPPOSED = pt.Classification([[1.0, 0.05], [-1.0, 0.05], [-1.0, 0.3]], [1, 1, 1])


@pytest.fixture(scope="module")
def prediction():
    return pt.predict(pt.Setting(NEARLY_OPPOSED, pt.Direct(), pt.Logistic()), pt.gradient_descent(1.0))


def test_a_direction_that_misclassifies_is_not_confirmed(prediction):
    run = pt.train(prediction.setting, pt.gradient_descent(1.0), steps=100)
    verdict = pt.judge(prediction, run)
    assert verdict.measured <= verdict.predicted  # near in direction
    assert run.smallest_margin()[-1] < 0
    assert verdict.outcome is Outcome.undecided
    assert "1 of 3 are not positive" in verdict.inequality


def test_the_reference_itself_is_confirmed_unless_it_is_not_known(prediction):
    weight = 7 * prediction.reference.weight
    assert judge_direction(prediction, weight).outcome is Outcome.confirmed
    loose = replace(prediction.reference.bracket, lower=0.99 * prediction.reference.bracket.lower)
    doubtful = replace(prediction, reference=replace(prediction.reference, bracket=loose))
    verdict = judge_direction(doubtful, weight)
    assert verdict.outcome is Outcome.undecided
    assert "known only to a relative 1.0e-02" in verdict.inequality


@pytest.mark.parametrize(
    ("holds", "wanted"), [((True, True), True), ((True, None), None), ((None, False), False), ((), True)]
)
def test_hypotheses_hold_together_fail_or_are_open(holds, wanted):
    assert all_hold([Hypothesis(str(k), one, np.nan) for k, one in enumerate(holds)]) is wanted
