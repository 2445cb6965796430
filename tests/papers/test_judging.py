"""What a direction near the reference must have besides: positive margins, and a reference that is known."""

from dataclasses import replace

import numpy as np
import pytest

import penchant as pt
from penchant.theory.base import Hypothesis, all_hold
from penchant.theory.judge import judge_direction
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


OPPOSED = pt.Setting(NEARLY_OPPOSED, pt.Direct(), pt.Exponential())


@pytest.mark.parametrize(("step", "steps", "why"), [(0.5, 1, "a beginning"), (1e3, 1, "has not doubled")])
def test_a_run_that_has_just_begun_is_not_refuted_by_its_first_gradient(step, steps, why):
    setting = pt.Setting(pt.Classification([[3.0, 0.1], [0.1, 1.0]], [1, 1]), pt.Direct(), pt.Logistic())
    prediction = pt.predict(setting, pt.gradient_descent(step))
    verdict = pt.judge(prediction, pt.train(setting, pt.gradient_descent(step), steps=steps))
    assert "the rival 'first gradient'" in verdict.detail
    assert verdict.outcome is Outcome.undecided
    assert why in verdict.inequality


def test_a_run_that_rests_on_a_rival_is_refuted_and_one_without_steps_says_nothing():
    setting = pt.Setting(pt.Classification([[3.0, 1.0]], [1]), pt.Direct(), pt.Exponential())
    prediction = pt.predict(setting, pt.gradient_descent(0.05))
    verdict = pt.judge(prediction, pt.train(setting, pt.sign_descent(0.05), steps=2000))
    assert verdict.outcome is Outcome.refuted
    assert "the rival 'linf'" in verdict.detail
    still = pt.train(setting, pt.sign_descent(0.05), prediction.reference.weight, steps=0)
    assert "no step was taken" in pt.judge(prediction, still).inequality


def test_a_direction_is_not_confirmed_with_a_margin_well_below_the_best(prediction):
    """1 - corr is quadratic in the angle: 1e-4 of it costs a quarter of the margin here."""
    rule = pt.gradient_descent(1.0)
    verdict, later = (pt.judge(prediction, pt.train(prediction.setting, rule, steps=n)) for n in (300, 3000))
    assert 0 < verdict.measured < 1e-3 < verdict.predicted
    assert verdict.outcome is Outcome.undecided
    assert "margin/norm is 0.71" in verdict.inequality
    assert later.outcome is Outcome.confirmed


def test_one_step_from_a_start_at_the_reference_confirms_nothing():
    setting = pt.Setting(pt.Classification([[3.0, 0.1], [0.1, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
    rule = pt.gradient_descent(1e-3)
    prediction = pt.predict(setting, rule)
    verdict = pt.judge(prediction, pt.train(setting, rule, 3 * prediction.reference.weight, steps=1))
    assert verdict.measured < verdict.predicted
    assert verdict.outcome is Outcome.undecided
    assert "still that of the start" in verdict.inequality


def test_steps_are_long_or_short_for_the_loss_of_their_start():
    short = pt.gradient_descent(0.05)
    by_name = lambda prediction: {one.name: one for one in prediction.hypotheses}
    assert by_name(pt.predict(OPPOSED, short))["step_size"].holds
    far = by_name(pt.predict(OPPOSED, short, [0.0, -20.0]))["step_size"]
    loss = np.exp(-np.asarray(NEARLY_OPPOSED.signed) @ [0.0, -20.0]).mean()
    assert far.slack == pytest.approx(1 - 0.05 * loss * 1.09, rel=1e-12)
    assert far.holds is False
    longest = pt.gradient_descent(1 / 1.09)
    assert by_name(pt.predict(OPPOSED, longest))["step_size"].holds  # equality, to rounding
