"""Conditions of sparse recovery and rates in numbers: against formulas written out and against runs."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError

DATA, _ = pt.settings.sparse_regression(10, 30, 2, 1, signed=False)


def named(alpha, step=0.05):
    return {one.name: one for one in pt.papers.notes.recovery_hypotheses(DATA, alpha, step, 2)}


def test_conditions_are_their_formulas():
    found = named(1e-6)
    assert found["sample_size"].slack == pytest.approx(10 / (4 * np.log(30) ** 2), rel=1e-12)
    assert found["sample_size"].holds is None
    assert found["small_start"].slack == pytest.approx(np.log(1e6) / np.log(30), rel=1e-12)
    assert found["time_window"].holds
    assert named(1e-1)["time_window"].holds is False
    exact = pt.diagnostics.restricted_isometry(DATA.inputs, 4)
    assert exact.exact
    assert found["restricted_isometry"].slack <= 1 - exact.lower
    assert found["restricted_isometry"].holds is False
    assert abs(found["gaussian_inputs"].slack) < 1.5


def test_signs_are_not_normal_inputs():
    inputs = np.random.default_rng(0).choice([-1.0, 1.0], (20, 10))
    data = pt.Regression(inputs, inputs[:, 0])
    found = {one.name: one for one in pt.papers.notes.recovery_hypotheses(data, 1e-3, 0.1, 1)}
    assert found["gaussian_inputs"].slack == pytest.approx(-2.0, abs=1e-12)


def test_squares_are_told_the_conditions_in_steps_of_their_own_loss():
    setting = pt.Setting(DATA, pt.Squares(1e-4), pt.Squared(0.5), "mean")
    notes = " ".join(pt.predict(setting, pt.gradient_descent(0.05)).notes)
    for name in ("sample_size", "small_start", "time_window holds", "restricted_isometry", "gaussian_inputs"):
        assert name in notes
    assert named(1e-4)["time_window"].offender in notes
    half = pt.Setting(DATA, pt.Squares(1e-4), pt.Squared(1.0), "mean")
    assert named(1e-4, 0.1)["time_window"].offender in " ".join(pt.predict(half, pt.gradient_descent(0.05)).notes)


def test_signed_squares_are_told_what_small_starts_tend_to():
    notes = pt.predict(pt.Setting(DATA, pt.SignedSquares(0.1), pt.Squared()), pt.GradientFlow()).notes
    assert (
        f"alpha^{2 * (1 - pt.references.strict_dual(DATA, pt.references.basis_pursuit(DATA).weight)):.4g}" in notes[0]
    )
    flat = pt.Setting(pt.Regression([[1.0, 1.0, 0.5]], [1.0]), pt.SignedSquares(0.1), pt.Squared())
    assert "not unique" in pt.predict(flat, pt.GradientFlow()).notes[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [pt.Direct(), pt.SignedSquares(0.5), pt.Squares(0.5)], ids=lambda one: type(one).__name__
)
def test_the_rate_is_the_one_at_which_runs_end(model):
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((3, 8))
    setting = pt.Setting(pt.Regression(inputs, inputs @ rng.uniform(0.5, 1.0, 8)), model, pt.Squared(), "sum")
    rate = float(pt.predict(setting, pt.GradientFlow()).rate.split("exp(-")[-1].split()[0])
    times = np.log(np.array([6.0, 8.0]) / rate)
    run = pt.train(setting, pt.GradientFlow(tolerance=1e-9), recorder=pt.flow.Levels("log_time", times))
    fall = (run.log_excess[1] - run.log_excess[2]) / 2  # the excess is a square
    assert fall / 2 == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    ("name", "arguments"), [("alpha", (0.0, 0.1, 1)), ("step", (0.1, -1.0, 1)), ("sparsity", (0.1, 0.1, 0))]
)
def test_bad_arguments_are_named(name, arguments):
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        pt.papers.notes.recovery_hypotheses(DATA, *arguments)
