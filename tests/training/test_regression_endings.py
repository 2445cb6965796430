"""How runs on regressions end: settled at a minimum, not at a coordinate that happens to fit; diverging steps; flipped signs."""

import numpy as np
import pytest

import penchant as pt
from penchant.settings.generators import sparse_regression

RULES = {
    "descent": lambda step: pt.gradient_descent(step),
    "heavy ball": lambda step: pt.optimisers.Descent(pt.gradient_descent(step).rule, after=pt.momentum(1.0).after),
    "Adam": lambda step: pt.Adam(1e-2, eps=1e-8),
    "Adam without epsilon": lambda step: pt.Adam(1e-3, eps=0.0),
}


def problem(rng, n=5, d=12):
    data = pt.Regression(rng.standard_normal((n, d)), rng.standard_normal(n))
    return pt.Setting(data, pt.Direct(), pt.Squared(), "sum"), 1 / np.linalg.norm(np.asarray(data.inputs), 2) ** 2


@pytest.mark.parametrize("name", RULES)
def test_runs_end_settled_at_an_interpolant(rng, name):
    setting, step = problem(rng)
    run = pt.train(setting, RULES[name](step), steps=30_000)
    assert run.status is pt.training.Status.settled
    assert run.steps[-1] < 30_000
    assert np.abs(run.margins[-1] - np.asarray(setting.data.targets)).max() <= 1e-13


def test_a_residual_that_is_exactly_zero_does_not_end_adam():
    """The first sample has the target 0 and the start fits it; the others must still be learned."""
    setting = pt.Setting(pt.Regression([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]], [0.0, 1.0]), pt.Direct(), pt.Squared())
    run = pt.train(setting, pt.Adam(1e-2, eps=1e-8), steps=20_000)
    assert run.status is pt.training.Status.settled
    assert run.margins[-1] == pytest.approx([0.0, 1.0], abs=1e-13)


def test_passing_through_the_minimum_is_not_an_end():
    """One sample with dyadic numbers: heavy ball hits the target exactly with a velocity that carries it on."""
    setting = pt.Setting(pt.Regression([[1.0]], [1.0]), pt.Direct(), pt.Squared())
    rule = pt.optimisers.Descent(pt.gradient_descent(1.0).rule, after=pt.momentum(1.0, beta=0.5).after)
    run = pt.train(setting, rule, steps=3, recorder=pt.training.Every())
    assert run.margins[1, 0] == 1.0
    assert run.margins[2, 0] != 1.0


def test_normalised_steps_end_where_they_hit_the_target_exactly():
    setting = pt.Setting(pt.Regression([[1.0]], [1.0]), pt.Direct(), pt.Squared())
    run = pt.train(setting, pt.normalised_descent(0.25), steps=10)
    assert run.status is pt.training.Status.settled
    assert run.steps[-1] == 4


def test_a_target_asked_for_is_reached_before_rounding(rng):
    setting, step = problem(rng)
    run = pt.train(setting, pt.gradient_descent(step), until=pt.LogExcessBelow(-20.0))
    assert run.status is pt.training.Status.reached_target
    assert -25 < run.log_excess[-1] <= -20


def test_the_flow_ends_settled_and_says_so(rng):
    setting, _ = problem(rng)
    run = pt.train(setting, pt.GradientFlow())
    assert run.status is pt.training.Status.settled
    assert "minimum" in run.status.message


def test_zero_is_still_a_critical_point_of_square_models():
    data, _ = sparse_regression(4, 8, 2, 0)
    setting = pt.Setting(data, pt.SignedSquares(0.1), pt.Squared())
    run = pt.train(setting, pt.gradient_descent(0.1), np.zeros((2, 8)), steps=5)
    assert run.status is pt.training.Status.zero_gradient


def test_steps_beyond_the_edge_of_stability_end_as_diverging_and_the_hypothesis_said_so(rng):
    setting, step = problem(rng)
    rule = pt.gradient_descent(2.5 * step)
    hypotheses = {hypothesis.name: hypothesis for hypothesis in pt.predict(setting, rule).hypotheses}
    assert not hypotheses["step_size"].holds
    assert hypotheses["step_size"].slack == pytest.approx(2 - 2.5, abs=1e-9)
    run = pt.train(setting, rule, steps=5_000)
    assert run.status in (pt.training.Status.diverging_step, pt.training.Status.resolution_exhausted)


def test_a_parameter_that_changed_sign_leaves_the_verdict_open():
    """One long step takes w- through 0; training then interpolates all the same, outside the theorem."""
    setting = pt.Setting(pt.Regression([[1.0, 0.3]], [2.0]), pt.SignedSquares(1.0), pt.Squared(), "sum")
    rule = pt.gradient_descent(0.27)
    run = pt.train(setting, rule, steps=5_000)
    assert run.params.min() < 0
    verdict = pt.judge(pt.predict(setting, rule), run)
    assert verdict.outcome is pt.verdict.Outcome.undecided
    assert "through 0" in verdict.inequality


def test_tiny_starts_leave_zero_by_descent_and_say_where_float64_ends():
    """w+ w- hardly leaves the square of the start: 1e-200 is within reach of float64, 1e-400 is not."""
    data = pt.Regression([[1.0, 0.5]], [1.0])
    rule = pt.gradient_descent(0.05)
    small, smaller = (
        pt.train(pt.Setting(data, pt.SignedSquares(alpha), pt.Squared()), rule, steps=20_000)
        for alpha in (1e-100, 1e-200)
    )
    assert small.weight() == pytest.approx([1.0, 0.0], abs=1e-6)
    assert small.status is pt.training.Status.settled
    assert smaller.status is pt.training.Status.coordinate_underflow
    assert "GradientFlow" in smaller.ending


def test_the_gradient_norm_of_a_tiny_start_is_known():
    setting = pt.Setting(pt.Regression([[3.0, 4.0]], [1.0]), pt.Squares(1e-200), pt.Squared())
    reading = pt.read(setting, setting.start())
    assert float(reading.log_slope_norm) == pytest.approx(np.log(2 * 5.0) - 200 * np.log(10), rel=1e-13)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::penchant.errors.PenchantWarning")
def test_the_flow_from_a_tiny_start_ends_by_itself_and_is_confirmed():
    """From 1e-30 the slowest coefficients relax just above rounding; from 1e-200 parameters underflow without harm."""
    rng = np.random.default_rng(7)
    inputs, weight = rng.standard_normal((5, 12)), np.zeros(12)
    weight[[1, 4]] = [2.0, -1.0]
    data = pt.Regression(inputs, inputs @ weight)
    for alpha, ending in ((1e-30, pt.training.Status.settled), (1e-200, pt.training.Status.resolution_exhausted)):
        setting = pt.Setting(data, pt.SignedSquares(alpha), pt.Squared())
        run = pt.train(setting, pt.GradientFlow())
        assert run.status is ending
        assert len(run) < 1_000
        assert run.weight() == pytest.approx(
            pt.references.minimum_potential(data, pt.settings.q_alpha(alpha, 12)).weight, abs=1e-8
        )
        verdict = pt.judge(pt.predict(setting, pt.GradientFlow()), run)
        assert verdict.outcome is pt.verdict.Outcome.confirmed
        assert "coincides with: l1" in verdict.detail


def test_a_start_whose_rounding_hides_the_targets_is_not_at_its_infimum():
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((3, 6))
    data = pt.Regression(inputs, inputs @ np.abs(rng.standard_normal(6)))
    run = pt.train(pt.Setting(data, pt.Squares(1e60), pt.Squared()), pt.GradientFlow())
    assert np.abs(run.margins[-1] - np.asarray(data.targets)).max() > 1e90
    assert run.status is pt.training.Status.resolution_exhausted
    assert "smaller `alpha`" in run.ending
