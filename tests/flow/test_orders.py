"""The order of the extrapolation and the clock of risk levels: closed forms, and errors that fall as they should."""

import mpmath
import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.alignment import clock_error, conservation_drift
from penchant.errors import ArgumentError, PenchantWarning
from penchant.settings.network_starts import balanced, ensure_assumption2


def one_sample(depth, margin=0.6):
    setting = pt.Setting(pt.Classification([[margin, 0.0]], [1]), pt.DeepLinear((2,) * (depth - 1)), pt.Exponential())
    return setting, balanced(setting, 0, np.array([0.5, 0.0]))


def time_to(margin, depth, first, gamma):
    """t = 1/(L g^(2/L)) int e^s s^(2/L - 2) ds, to fifteen digits."""
    with mpmath.workdps(30):
        value = mpmath.quad(lambda s: mpmath.exp(s) * s ** (mpmath.mpf(2) / depth - 2), [first, 1, margin])
        return float(value / (depth * mpmath.mpf(gamma) ** (mpmath.mpf(2) / depth)))


@pytest.mark.parametrize("order", [3, 6])
@pytest.mark.parametrize("depth", [2, 3])
def test_one_sample_takes_the_time_of_its_closed_form(order, depth):
    setting, start = one_sample(depth)
    flow = pt.GradientFlow(pt.RelativeDrop(), tolerance=1e-9, margin_tolerance=1e-8, order=order)
    run = pt.train(setting, flow, start, until=pt.LogExcessBelow(-12.0), steps=20_000)
    assert run.status is pt.Status.reached_target
    predicted = time_to(run.margins[-1, 0], depth, run.margins[0, 0], 0.6)
    assert np.exp(run.log_time[-1]) == pytest.approx(predicted, rel=1e-7)  # ten times the accumulated tolerance


def test_a_higher_order_needs_fewer_steps_and_drifts_no_more():
    setting = pt.Setting(pt.separable(8, 3), pt.DeepLinear((3,)), pt.Exponential())
    start = ensure_assumption2(setting, setting.start(1, 0.5))
    runs = {}
    for order in (4, 6):
        flow = pt.GradientFlow(pt.RelativeDrop(), tolerance=1e-11, margin_tolerance=1e-9, order=order)
        runs[order] = pt.train(setting, flow, start, until=pt.LogExcessBelow(-1e3), steps=20_000)
    assert runs[6].steps[-1] < 0.6 * runs[4].steps[-1]
    for run in runs.values():
        assert conservation_drift(run).max() < 1e-9
        assert abs(clock_error(run)) < 1e-6
    np.testing.assert_allclose(runs[4].weight(), runs[6].weight(), rtol=1e-8)


def test_extrapolated_increments_leave_only_rounding_in_what_is_conserved():
    setting, start = one_sample(2)
    flow = pt.GradientFlow(pt.RelativeDrop(), tolerance=1e-12, margin_tolerance=1e-10, order=6)
    run = pt.train(setting, flow, start, until=pt.LogExcessBelow(-1e4), steps=20_000)
    size = float(np.sum(run.at()[0] ** 2))
    assert conservation_drift(run).max() < 100 * np.finfo(float).eps * size * np.sqrt(run.steps[-1])


@pytest.mark.parametrize("order", [1, 9, 2.0])
def test_orders_out_of_range_are_refused(order):
    with pytest.raises(ArgumentError, match="'order'"):
        pt.GradientFlow(order=order)


def test_the_clock_error_is_refused_for_other_clocks():
    setting, start = one_sample(2)
    run = pt.train(setting, pt.GradientFlow(), start, steps=3)
    with pytest.raises(ArgumentError, match="RelativeDrop"):
        clock_error(run)
    descent = pt.train(setting, pt.gradient_descent(0.1), start, steps=3)
    with pytest.raises(ArgumentError, match="no flow"):
        clock_error(descent)


def test_a_level_that_float64_cannot_resolve_is_announced():
    setting, start = one_sample(2)
    with pytest.warns(PenchantWarning, match="knows margins only to 2e-07"):
        pt.train(setting, pt.GradientFlow(), start, until=pt.LogExcessBelow(-1e9), steps=1)
