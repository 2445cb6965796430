"""The order of the extrapolation and the clock of risk levels: closed forms, and errors that fall as they should."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.alignment import clock_error, conservation_drift
from penchant.errors import ArgumentError, PenchantWarning
from penchant.problem import read
from penchant.settings.deep_linear import balanced, ensure_assumption2, imbalance_constant


def one_sample(depth, margin=0.6):
    setting = pt.Setting(pt.Classification([[margin, 0.0]], [1]), pt.DeepLinear((2,) * (depth - 1)), pt.Exponential())
    return setting, balanced(setting, 0, np.array([0.5, 0.0]))


def time_to(margin, depth, first, gamma):
    """t = 1/(L g^(2/L)) int e^s s^(2/L - 2) ds, to fifteen digits."""
    with mpmath.workdps(30):
        value = mpmath.quad(lambda s: mpmath.exp(s) * s ** (mpmath.mpf(2) / depth - 2), [first, 1, margin])
        return float(value / (depth * mpmath.mpf(gamma) ** (mpmath.mpf(2) / depth)))


def fine(order=6, tolerance=1e-10):
    return pt.GradientFlow(pt.flow.RelativeDrop(), tolerance=tolerance, margin_tolerance=100 * tolerance, order=order)


@pytest.mark.parametrize(("depth", "order"), [(2, 6), (3, 3)])
def test_one_sample_takes_the_time_of_its_closed_form(depth, order):
    setting, start = one_sample(depth)
    run = pt.train(setting, fine(order, 1e-9), start, until=pt.LogExcessBelow(-12.0), steps=20_000)
    assert run.status is pt.training.Status.reached_target
    predicted = time_to(run.margins[-1, 0], depth, run.margins[0, 0], 0.6)
    assert np.exp(run.log_time[-1]) == pytest.approx(predicted, rel=1e-7)  # a hundred steps, each to 1e-9


@pytest.mark.slow
def test_a_higher_order_needs_fewer_steps_for_the_same_path():
    setting, start = one_sample(2)
    runs = [pt.train(setting, fine(order), start, until=pt.LogExcessBelow(-1e3), steps=20_000) for order in (4, 6)]
    assert runs[1].steps[-1] < 0.7 * runs[0].steps[-1]
    np.testing.assert_allclose(runs[0].weight(), runs[1].weight(), rtol=1e-8)
    for run in runs:
        assert abs(clock_error(run)) < 1e-4
        # Increments are extrapolated: of what is conserved only rounding is lost, a few units in the last place a step.
        size = float(np.sum(run.at()[0] ** 2))
        assert conservation_drift(run).max() < 100 * np.finfo(float).eps * size * np.sqrt(run.steps[-1])


@pytest.mark.parametrize("order", [1, 9])
def test_orders_out_of_range_are_refused(order):
    with pytest.raises(ArgumentError, match="'order'"):
        pt.GradientFlow(order=order)


def test_the_clock_error_is_refused_for_runs_without_that_clock():
    setting, start = one_sample(2)
    run = pt.train(setting, fine(), start, steps=1)
    run.header["optimiser"]["clock"] = {"kind": "RelativeArc"}
    with pytest.raises(ArgumentError, match="Got RelativeArc"):
        clock_error(run)
    descent = pt.train(setting, pt.gradient_descent(0.1), start, steps=1)
    with pytest.raises(ArgumentError, match="no flow"):
        clock_error(descent)


def test_a_flow_that_loses_what_it_must_keep_is_stopped_and_one_that_keeps_it_is_not():
    setting = pt.Setting(pt.Classification([[0.6, 0.3], [0.5, -0.4]], [1, 1]), pt.DeepLinear((3,)), pt.Exponential())
    start = ensure_assumption2(setting, setting.start(0, 0.5))
    until = (pt.LogExcessBelow(-1e3), pt.training.Inaccurate(1e-3))
    coarse = pt.train(
        setting, pt.GradientFlow(pt.flow.RelativeDrop(), tolerance=1e-5), start, until=until, steps=20_000
    )
    assert coarse.status is pt.training.Status.inaccurate
    assert coarse.log_excess[-1] > -1e3
    assert conservation_drift(coarse)[-1] > 1e-8 * (1 + imbalance_constant(start)) or abs(clock_error(coarse)) > 1e-6
    assert pt.train(setting, fine(), start, until=until, steps=20_000).status is pt.training.Status.reached_target
    with pytest.raises(ArgumentError, match="Inaccurate"):
        pt.train(setting, pt.gradient_descent(0.1), start, steps=1, until=pt.training.Inaccurate())


def test_log_slope_keeps_its_digits_where_the_loss_is_e_to_the_minus_a_million():
    setting = pt.Setting(pt.Classification([[0.3, 0.0]], [1]), pt.Direct(), pt.Exponential())
    sizes = 3e6 * (1 + np.linspace(0, 1e-3, 50))
    found = [float(read(setting, jnp.array([size, 0.0])).log_relative_slope) for size in sizes]
    np.testing.assert_allclose(found, np.log(0.3), rtol=1e-14)


def test_a_level_that_float64_cannot_resolve_is_announced():
    setting, start = one_sample(2)
    with pytest.warns(PenchantWarning, match="knows margins only to 2e-07"):
        pt.train(setting, fine(), start, until=pt.LogExcessBelow(-1e9), steps=1)
