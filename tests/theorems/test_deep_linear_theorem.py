"""The deep linear theorem on the user's own data."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import NotSeparableError
from penchant.optimisers.layerwise import BallStep, LayerDescent, SharpStep
from penchant.settings.deep_linear import DeepLinear
from penchant.settings.generators import blobs, strips
from penchant.settings.network_starts import ensure_assumption2, zero_first
from penchant.settings.user_loss import PolynomialTail, UserLoss
from penchant.theorems.deep_linear import loss_shape, start_below_zero
from penchant.verdict import Outcome


def setting_of(data, loss=None):
    return pt.Setting(data, DeepLinear((4, 4)), loss or pt.Exponential())


def by_name(prediction):
    return {hypothesis.name: hypothesis for hypothesis in prediction.hypotheses}


def test_all_hypotheses_hold_on_the_strips_and_the_rate_names_the_constant():
    prediction = pt.predict(setting_of(strips(0)), pt.GradientFlow())
    assert prediction.theorem.name == "deep-linear-max-margin"
    assert prediction.holds
    assert "0.016815 " in prediction.rate  # margin 0.130455 times offset 0.128895


def test_failing_hypotheses_are_named():
    few = by_name(pt.predict(setting_of(blobs(50, 10, 3)), pt.GradientFlow()))
    assert few["support_spans"].holds is False
    assert "4 directions" in few["support_spans"].offender
    long = by_name(pt.predict(setting_of(pt.Classification([[3.0, 0.0], [0.0, 0.5]], [1, 1])), pt.GradientFlow()))
    assert long["data_norm"].holds is False
    assert long["data_norm"].offender == "sample 0"
    descent = by_name(pt.predict(setting_of(strips(0), pt.Logistic()), LayerDescent(SharpStep())))
    assert descent["steps"].holds is False
    proved = pt.predict(setting_of(strips(0), pt.Logistic()), LayerDescent(BallStep()))
    assert proved.holds
    assert by_name(pt.predict(setting_of(strips(0)), LayerDescent(BallStep())))["smooth_loss"].holds is False


def test_losses_are_sampled():
    assert loss_shape(UserLoss(lambda z: -2 * z, lambda z: np.log(2.0) - 2 * z)).holds
    assert not loss_shape(PolynomialTail(2.0)).holds
    rising = loss_shape(UserLoss(lambda z: z, lambda z: z))
    assert not rising.holds
    assert "margin -50" in rising.offender


def test_optimisers_outside_the_theorem_get_a_conjecture():
    prediction = pt.predict(setting_of(strips(0)), pt.Adam(0.01, 0.0))
    assert prediction.theorem.name == "deep-linear-conjecture"
    assert not prediction.holds


def test_no_prediction_for_data_that_cannot_be_separated():
    with pytest.raises(NotSeparableError):
        pt.predict(setting_of(pt.Classification([[1.0, 0.0], [-1.0, 0.0]], [1, 1])), pt.GradientFlow())


def test_runs_are_judged_and_a_start_above_the_risk_of_zero_is_named():
    setting = setting_of(strips(0))
    prediction = pt.predict(setting, pt.GradientFlow())
    start = ensure_assumption2(setting, setting.start(1, 0.4))
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.LogExcessBelow(-1e3), steps=5000)
    verdict = pt.judge(prediction, run)
    assert verdict.outcome is Outcome.confirmed
    assert "Assumption 2" not in verdict.detail
    uphill = (*start[:-1], -start[-1])
    assert not start_below_zero(setting, uphill).holds
    early = pt.train(setting, pt.GradientFlow(), uphill, until=pt.LogTimeAbove(-5.0), steps=5000)
    assert "Assumption 2" in pt.judge(prediction, early).detail
    assert pt.judge(prediction, early).outcome is not Outcome.confirmed


def test_a_start_at_weight_zero_is_fine_and_a_critical_one_is_not():
    setting = setting_of(strips(0))
    edge = start_below_zero(setting, zero_first(setting, 0, 0.5))
    assert edge.holds
    assert edge.slack == pytest.approx(0.0, abs=1e-14)
    assert "gradient is 0" in start_below_zero(setting, setting.start()).offender
    run = pt.train(setting, pt.GradientFlow(), setting.start(), until=pt.MarginAbove(1.0))
    assert run.status is pt.Status.zero_gradient
