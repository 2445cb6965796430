"""What deep linear networks are told before they train."""

import jax
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, CriticalPointError, DivergedRun, PenchantWarning, StepSizeError
from penchant.optimisers.layerwise import risk_bounds, safe_step
from penchant.settings.generators import strips


def problem(loss=None):
    setting = pt.Setting(strips(0), pt.DeepLinear((8,)), loss or pt.Logistic())
    return setting, pt.settings.ensure_assumption2(setting, setting.start(1, 0.4))


@pytest.mark.parametrize(
    "optimiser", [pt.GradientFlow(), pt.optimisers.LayerDescent(pt.optimisers.SharpStep())], ids=["flow", "descent"]
)
def test_a_start_without_a_gradient_is_refused_also_within_a_batch(optimiser):
    setting, start = problem()
    with pytest.raises(CriticalPointError, match="gradient is exactly 0"):
        pt.train(setting, optimiser, steps=3)
    starts = jax.tree.map(lambda a, b: np.stack([a, b]), start, setting.start())
    with pytest.raises(CriticalPointError):
        pt.train(setting, optimiser, starts, steps=3)


def test_a_flow_to_a_risk_it_has_already_passed_is_refused():
    setting, start = problem()
    with pytest.raises(ArgumentError, match=r"log risk of the start, -0\.38"):
        pt.train(setting, pt.GradientFlow(), start, until=pt.LogExcessBelow(-0.1))


def test_starts_above_the_risk_of_zero_are_announced_once():
    setting, start = problem()
    uphill = (start[0], -start[1])
    both = jax.tree.map(lambda a, b: np.stack([a, b]), start, uphill)
    with pytest.warns(PenchantWarning, match="1 of 2 starts lie above") as caught:
        pt.train(setting, pt.optimisers.LayerDescent(pt.optimisers.SharpStep()), both, steps=2)
    assert len(caught) == 1


def test_steps_whose_constants_do_not_bound_the_risk_are_announced_with_those_that_do():
    setting, start = problem(pt.Exponential())
    beta, slope = risk_bounds(setting, start)
    assert beta == slope == pytest.approx(40 * np.exp(float(pt.read(setting, start).log_excess)))
    with pytest.warns(PenchantWarning, match=f"beta={beta:.6g}"):
        pt.train(setting, pt.optimisers.LayerDescent(pt.optimisers.BallStep()), start, steps=2)
    pt.train(setting, pt.optimisers.LayerDescent(pt.optimisers.BallStep(beta=beta, slope=slope)), start, steps=2)
    tail, there = problem(pt.settings.PolynomialTail(2.0))
    with pytest.warns(PenchantWarning, match="not known for PolynomialTail"):
        pt.train(tail, pt.optimisers.LayerDescent(pt.optimisers.BallStep()), there, steps=2)


def test_a_constant_step_that_diverges_raises_on_request_and_names_a_safe_one():
    setting, start = problem()
    rule = pt.optimisers.LayerDescent(pt.optimisers.ConstantStep(12.0))
    with pytest.raises(StepSizeError, match="step size 12 is too large") as caught:
        pt.train(setting, rule, start, steps=200, throw=True)
    assert caught.value.bound == pytest.approx(safe_step(setting, start))
    bound = float(
        np.exp(
            pt.train(setting, pt.optimisers.LayerDescent(pt.optimisers.SharpStep()), start, steps=1).account[
                "log_step"
            ][-1]
        )
    )
    assert safe_step(setting, start) == pytest.approx(bound, rel=1e-12)
    assert (
        pt.train(
            setting, pt.optimisers.LayerDescent(pt.optimisers.ConstantStep(bound)), start, steps=200, throw=True
        ).status.name
        == "out_of_steps"
    )


def test_any_run_that_cannot_go_on_raises_on_request_with_its_trajectory():
    setting = pt.Setting(pt.settings.local_pair(1.0, 0.1), pt.Direct(), pt.Exponential())
    silent = pt.train(setting, pt.polyak(), steps=50)
    assert silent.status.name == "diverging_step"
    with pytest.raises(DivergedRun, match="Fix: a smaller step, or a cap") as caught:
        pt.train(setting, pt.polyak(), steps=50, throw=True)
    assert np.array_equal(caught.value.run.steps, silent.steps)
    assert pt.train(setting, pt.polyak(cap=1.0), steps=50, throw=True).status.name == "out_of_steps"


def test_margins_that_explode_on_the_wrong_side_are_a_divergence_and_not_a_loss_of_resolution():
    setting, start = problem()
    rule = pt.optimisers.LayerDescent(pt.optimisers.ConstantStep(100.0))
    run = pt.train(setting, rule, start, steps=200)
    assert run.log_excess[-1] > 20
    assert run.status is pt.training.Status.diverging_step
    with pytest.raises(StepSizeError, match="step size 100"):
        pt.train(setting, rule, start, steps=200, throw=True)


def test_a_long_constant_step_on_the_exponential_loss_is_announced():
    setting, start = problem(pt.Exponential())
    for optimiser in (pt.optimisers.LayerDescent(pt.optimisers.ConstantStep(60.0)), pt.gradient_descent(60.0)):
        with pytest.warns(PenchantWarning, match="Assumption 4.*not 60"):
            pt.train(setting, optimiser, start, steps=1)
    pt.train(setting, pt.optimisers.LayerDescent(pt.optimisers.ConstantStep(safe_step(setting, start))), start, steps=1)


def test_wrong_layers_and_entries_are_named():
    setting, (first, second) = problem()
    rule, entry = pt.optimisers.LayerDescent(pt.optimisers.SharpStep()), np.array(second)
    entry[0, 3] = np.nan
    for start, words in (
        ((first, second[:, :5]), r"W2 of shape \(1, 5\)"),
        ((first[:, :1], second), r"W1 of shape \(8, 1\)"),
        ((first,), "1 layers instead of 2"),
        ((first, entry), r"nan in W2 at index \(0, 3\)"),
    ):
        with pytest.raises(ArgumentError, match=words):
            pt.train(setting, rule, start, steps=1)
