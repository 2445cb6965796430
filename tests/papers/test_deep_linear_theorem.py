"""The deep linear theorem on the user's own data."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import NotSeparableError, PenchantError, PenchantWarning
from penchant.optimisers.layerwise import BallStep, LayerDescent, SharpStep
from penchant.settings.deep_linear import DeepLinear, balanced, deep_linear, ensure_assumption2, zero_first
from penchant.settings.generators import blobs, strips
from penchant.settings.losses import PolynomialTail, UserLoss
from penchant.theory.families import linear
from penchant.theory.families.layers import start_below_zero
from penchant.theory.families.linear import loss_shape
from penchant.theory.judge import judge_direction, with_margin
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
    with pytest.warns(PenchantWarning, match="rank 6 of 10"):
        few = by_name(pt.predict(setting_of(blobs(50, 10, 3)), pt.GradientFlow()))
    assert few["support_spans"].holds is False
    assert "4 directions" in few["support_spans"].offender
    with pytest.warns(PenchantWarning, match="norm 3"):
        longer = setting_of(pt.Classification([[3.0, 0.0], [0.0, 0.5]], [1, 1]))
    long = by_name(pt.predict(longer, pt.GradientFlow()))
    assert long["data_norm"].holds is False
    assert long["data_norm"].offender == "sample 0"
    descent = by_name(pt.predict(setting_of(strips(0), pt.Logistic()), LayerDescent(SharpStep())))
    assert descent["steps"].holds is False
    proved = pt.predict(setting_of(strips(0), pt.Logistic()), LayerDescent(BallStep()))
    assert proved.holds
    summed = pt.Setting(strips(0), DeepLinear((4, 4)), pt.Logistic(), "sum")  # 40 times as steep
    assert by_name(pt.predict(summed, LayerDescent(BallStep())))["steps"].holds is False
    assert by_name(pt.predict(summed, LayerDescent(BallStep(beta=10.0, slope=40.0))))["steps"].holds
    assert by_name(pt.predict(setting_of(strips(0)), LayerDescent(BallStep())))["smooth_loss"].holds is False


class Rising(PolynomialTail):
    def log_value(self, z):
        return -jnp.abs(z + 40)

    def log_slope(self, z):
        return -jnp.abs(z + 40)


def test_losses_are_sampled():
    assert loss_shape(UserLoss(lambda z: -2 * z, lambda z: np.log(2.0) - 2 * z)).holds
    assert loss_shape(UserLoss(lambda z: -0.05 * z, lambda z: np.log(0.05) - 0.05 * z)).holds  # slow, but exponential
    for power in (2.0, 80.0):  # -l'/l halves as the margin doubles, whatever the power
        assert loss_shape(PolynomialTail(power)).slack == pytest.approx(0.1 - 0.5, abs=2e-3)
    assert not loss_shape(
        UserLoss(lambda z: -jnp.sqrt(z + 60), lambda z: -jnp.sqrt(z + 60) - jnp.log(4 * (z + 60)) / 2)
    ).holds
    rising = loss_shape(Rising(1.0))
    assert not rising.holds
    assert "margin -50" in rising.offender


def test_optimisers_outside_the_theorem_get_a_conjecture():
    names = {
        "deep-linear-conjecture": (pt.normalised_descent(0.01), "l2"),
        "steepest-layers-conjecture": (pt.Adam(0.01, 0.0), "linf"),
    }
    for name, (rule, norm) in names.items():
        prediction = pt.predict(setting_of(strips(0)), rule)
        assert (prediction.theorem.name, prediction.reference.norm) == (name, norm)
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
    with pytest.warns(PenchantWarning, match="above the risk of weight 0"):
        early = pt.train(setting, pt.GradientFlow(), uphill, until=pt.LogTimeAbove(-5.0), steps=5000)
    assert "Assumption 2" in pt.judge(prediction, early).detail
    assert pt.judge(prediction, early).outcome is not Outcome.confirmed


def test_a_start_at_weight_zero_is_fine_and_a_critical_one_is_not():
    setting = setting_of(strips(0))
    edge = start_below_zero(setting, zero_first(setting, 0, 0.5))
    assert edge.holds
    assert edge.slack == pytest.approx(0.0, abs=1e-14)
    assert "gradient is 0" in start_below_zero(setting, setting.start()).offender


def idle_pair(widths):
    data = pt.Classification([[0.5, 0.0], [0.5, 0.5]], [1, 1])
    with pytest.warns(PenchantWarning, match="Assumption 3"):
        return pt.predict(pt.Setting(data, DeepLinear(widths), pt.Exponential()), pt.GradientFlow())


def test_a_support_vector_without_weight_slows_the_predicted_rate_and_fails_the_hypotheses():
    prediction = idle_pair((4, 4))
    assert "sin(angle) ~ (-log R)^(-0.333), with a factor that depends on the start" in prediction.rate
    failed = by_name(prediction)
    assert failed["support_spans"].holds is False
    assert failed["support_spans_data"].holds is False
    assert "sample 1 has no dual weight" in failed["generic_support"].offender
    np.testing.assert_allclose(np.abs(failed["support_spans"].evidence), [[0.0, 1.0]], atol=1e-14)
    assert "sin(angle) ~ 1 log(-log R) / (-log R)" in idle_pair(()).rate


def test_small_data_that_once_had_no_geometry_are_predicted():
    one = pt.predict(
        pt.Setting(pt.Classification([[0.5], [0.7]], [1, 1]), DeepLinear((4,)), pt.Exponential()), pt.GradientFlow()
    )
    assert one.holds
    assert one.rate.startswith("sin(angle) = 0: there is one direction")
    even = pt.Classification([[0.5, 0.5], [0.5, -0.5]], [1, 1])
    assert "falls faster than 1 / (-log R)" in pt.predict(setting_of(even), pt.GradientFlow()).rate


def test_no_rate_is_promised_for_a_slow_tail():
    assert pt.predict(setting_of(strips(0), PolynomialTail(2.0)), pt.GradientFlow()).rate.startswith("unknown")


@pytest.mark.parametrize("parametrisation", [DeepLinear((6,)), pt.Direct()], ids=["deep", "linear"])
def test_a_polynomial_tail_is_refuted_by_the_direction_it_has_instead(parametrisation):
    setting = pt.Setting(strips(2, n=8), parametrisation, PolynomialTail(2.0))
    start = setting.start(1, 0.5)
    start = ensure_assumption2(setting, start) if isinstance(parametrisation, DeepLinear) else start
    prediction = pt.predict(setting, pt.GradientFlow())
    assert by_name(prediction)["loss"].holds is False
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.LogExcessBelow(-25.0), steps=5000)
    verdict = pt.judge(prediction, run)
    assert verdict.measured < 1e-3  # the maximum margin is near, and still not the limit
    assert verdict.outcome is Outcome.refuted
    assert "polynomial tail" in verdict.detail


def test_a_direction_without_its_margin_is_not_yet_confirmed():
    setting, rule = setting_of(strips(0)), LayerDescent(SharpStep(beta=40.0, slope=40.0))
    prediction = pt.predict(setting, rule)
    best = prediction.reference.weight / np.linalg.norm(prediction.reference.weight)
    judged, turned = {}, {}
    for angle in (0.05, 1e-4):
        turned[angle] = np.cos(angle) * best + np.sin(angle) * np.array([-best[1], best[0]])
        judged[angle] = with_margin(judge_direction(prediction, turned[angle]), prediction, turned[angle])
    assert all(verdict.measured <= verdict.predicted for verdict in judged.values())  # near enough in direction
    assert judged[1e-4].outcome is Outcome.confirmed
    assert judged[0.05].outcome is Outcome.undecided
    assert "of its maximum" in judged[0.05].inequality
    one_step = pt.train(setting, rule, balanced(setting, 0, 9 * turned[1e-4]), steps=1)
    assert "still that of the start" in pt.judge(prediction, one_step).inequality


def test_support_vectors_that_span_the_data_but_not_the_space_hold_the_relaxed_assumption_only():
    flat = pt.Classification([[0.5, 0.5, 0.0], [0.5, -0.4, 0.0], [0.9, 0.0, 0.0]], [1, 1, 1])
    with pytest.warns(PenchantWarning, match="Assumption 3"):
        found = by_name(pt.predict(setting_of(flat), pt.GradientFlow()))
    assert (found["support_spans"].holds, found["support_spans_data"].holds) == (False, True)
    assert (found["generic_support"].holds, found["support_spans"].exactness) == (False, "numerical")


def test_a_start_adds_its_hypotheses_and_the_constants_of_the_exponential_loss_below_it():
    setting = setting_of(strips(0))
    start = ensure_assumption2(setting, setting.start(1, 0.4))
    risk = float(np.exp(pt.read(setting, start).log_excess))
    found = by_name(pt.predict(setting, LayerDescent(BallStep()), start))
    assert found["start"].holds
    assert f"n R_0 = {40 * risk:.6g}" in found["smooth_below_start"].detail
    assert found["smooth_below_start"].holds is False
    enough = LayerDescent(BallStep(beta=40 * risk, slope=40 * risk))
    assert by_name(pt.predict(setting, enough, start))["smooth_below_start"].holds
    assert by_name(pt.predict(setting, pt.GradientFlow(), setting.start(1, 40.0)))["start"].holds is False
    for rule, holds in (
        (SharpStep(), False),
        (SharpStep(beta=40 * risk, slope=40 * risk), True),
        (pt.optimisers.LineSearch(setting), None),  # has no constants to compare
        (pt.optimisers.ConstantStep(60.0), None),
    ):
        one = by_name(pt.predict(setting, LayerDescent(rule), start))["smooth_below_start"]
        assert one.holds is holds
        assert not np.isposinf(one.slack)


def test_the_divisor_of_the_inputs_is_noted_with_the_margin_they_had():
    setting = deep_linear([[3.0, 0.0], [0.0, 4.0]], [1, 1], (3,), pt.Logistic(), normalise=True)
    assert pt.predict(setting, pt.GradientFlow()).notes == (
        "inputs were divided by 4; as given their maximum margin is 2.4",
    )


def test_a_rival_that_no_program_finds_is_left_out_with_a_word(monkeypatch):
    def fail(data, norm):
        raise PenchantError(f"The {norm.name} program was not solved.")

    monkeypatch.setattr(linear, "polyhedral_margin", fail)
    thin = pt.Classification([[1.0, 1e-9], [-1.0, 1e-9]], [1, 1])
    with pytest.warns(PenchantWarning, match="Not among the rivals: The l1 program"):
        prediction = pt.predict(setting_of(thin), pt.GradientFlow())
    assert prediction.reference.margin == pytest.approx(1e-9)
    assert "l1" not in {rival.name for rival in prediction.rivals}


def test_rivals_that_have_the_direction_of_the_reference_are_named_and_do_not_decide():
    prediction = pt.predict(setting_of(strips(0)), pt.GradientFlow())
    verdict = judge_direction(prediction, prediction.reference.weight)
    assert verdict.outcome is Outcome.confirmed
    assert "on these data the reference coincides with: l1, linf" in verdict.detail
    assert prediction.separation == pytest.approx(0.0198368, abs=1e-7)  # that of the first gradient
