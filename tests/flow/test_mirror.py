"""The dual flow: against a general integrator, against closed forms, from tiny starts, and as a trajectory."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import penchant as pt
from penchant.case import make_case
from penchant.errors import ArgumentError
from penchant.flow.mirror import follow_dual
from penchant.settings.generators import sparse_regression
from penchant.settings.potentials import q_alpha

DATA, TRUTH = sparse_regression(6, 12, 2, 1)
INPUTS, TARGETS = np.asarray(DATA.inputs), np.asarray(DATA.targets)


def test_signed_squares_follow_the_parameter_flow():
    setting = pt.Setting(DATA, pt.SignedSquares(0.3), pt.Squared(0.7), "mean")
    scale = 0.7 / 6

    def field(_, state):
        slope = 2 * scale * (INPUTS @ (state[:12] ** 2 - state[12:] ** 2) - TARGETS) @ INPUTS
        return np.concatenate([-slope * state[:12], slope * state[12:]])

    exact = solve_ivp(field, (0, 0.5), np.full(24, 0.3), method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    run = pt.train(setting, pt.GradientFlow(), recorder=pt.flow.Levels("log_time", [np.log(0.5)]))
    assert np.ravel(run.at(1)) == pytest.approx(exact, rel=1e-6)  # the integrator's 1e-8 per step


def test_squares_follow_the_parameter_flow():
    data = pt.Regression(INPUTS, INPUTS @ np.abs(TRUTH))
    setting = pt.Setting(data, pt.Squares(0.2), pt.Squared(), "sum")
    field = lambda _, beta: -2 * ((INPUTS @ beta**2 - np.asarray(data.targets)) @ INPUTS) * beta
    exact = solve_ivp(field, (0, 0.1), np.full(12, 0.2), method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    run = pt.train(setting, pt.GradientFlow(), recorder=pt.flow.Levels("log_time", [np.log(0.1)]))
    assert run.at(1) == pytest.approx(exact, rel=1e-6)


def test_a_start_of_1e_100_reaches_the_sparse_solution():
    setting = pt.Setting(DATA, pt.SignedSquares(1e-100), pt.Squared(), "sum")
    run = pt.train(setting, pt.GradientFlow())
    assert run.weight() == pytest.approx(pt.references.basis_pursuit(DATA).weight, abs=1e-5)


@pytest.mark.parametrize("make", [pt.Squares, pt.SignedSquares], ids=lambda make: make.__name__)
def test_a_run_certifies_itself(make):
    data = pt.Regression(INPUTS, INPUTS @ np.abs(TRUTH))
    setting = pt.Setting(data, make(0.1), pt.Squared())
    run = pt.train(setting, pt.GradientFlow())
    prediction = pt.predict(setting, pt.GradientFlow())
    case = make_case(prediction, run)
    assert case.verdict.outcome is pt.verdict.Outcome.confirmed
    (found,) = case.brackets.values()
    assert found.lower == pytest.approx(prediction.reference.value, rel=1e-8)
    assert found.upper == pytest.approx(prediction.reference.value, rel=1e-8)


def test_gradient_descent_stops_where_no_rounding_is_left_and_adam_is_refuted(rng):
    data = pt.Regression(rng.standard_normal((5, 12)), rng.standard_normal(5))
    setting = pt.Setting(data, pt.Direct(), pt.Squared(), "sum")
    step = 1 / np.linalg.norm(np.asarray(data.inputs), 2) ** 2
    prediction = pt.predict(setting, pt.gradient_descent(step))
    for rule, outcome in (
        (pt.gradient_descent(step), pt.verdict.Outcome.confirmed),
        (pt.Adam(1e-2, eps=1e-8), pt.verdict.Outcome.refuted),
    ):
        assert pt.judge(prediction, pt.train(setting, rule, steps=20_000)).outcome is outcome


def test_a_start_off_zero_is_judged_by_its_own_projection(rng):
    start = rng.standard_normal(12)
    setting = pt.Setting(DATA, pt.Direct(), pt.Squared(), "sum")
    run = pt.train(setting, pt.GradientFlow(), start)
    assert run.weight() == pytest.approx(pt.references.minimum_norm(DATA, start).weight, abs=1e-8)
    assert pt.judge(pt.predict(setting, pt.GradientFlow(), start), run).outcome is pt.verdict.Outcome.confirmed


def test_events_that_regression_does_not_know_are_refused():
    setting = pt.Setting(DATA, pt.Direct(), pt.Squared())
    with pytest.raises(ArgumentError, match="'until'"):
        pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(10.0))
    with pytest.raises(ArgumentError, match="'setting'"):
        follow_dual(pt.Setting(pt.Classification([[1.0]], [1]), pt.Direct(), pt.Exponential()))


def test_the_flow_stops_at_the_level_asked_for():
    setting = pt.Setting(DATA, pt.SignedSquares(0.1), pt.Squared())
    run = pt.train(setting, pt.GradientFlow(), until=pt.LogExcessBelow(-10.0))
    assert run.log_excess[-1] <= -10.0 < run.log_excess[-2]


def test_the_tolerance_counts_and_what_does_not_is_said():
    data, _ = sparse_regression(4, 8, 2, 1)
    setting = pt.Setting(data, pt.SignedSquares(0.1), pt.Squared())
    reference = pt.references.minimum_potential(data, q_alpha(0.1, 8)).weight
    loose, usual = (pt.train(setting, pt.GradientFlow(tolerance=tolerance)) for tolerance in (1e-3, 1e-7))
    assert len(loose) < 0.5 * len(usual)
    assert usual.weight() == pytest.approx(reference, abs=1e-9)
    with pytest.warns(pt.errors.PenchantWarning, match=r"clock \(RelativeDrop\), order"):
        pt.train(setting, pt.GradientFlow(pt.flow.RelativeDrop(), order=8), steps=3)


def test_a_jacobian_beyond_float64_ends_the_flow_in_words():
    rows = [
        [2979.997835798155, 3426.687682383587, 2292.6829854112916],
        [6.071367320124037, 6.980932080890317, 4.670517636302676],
    ]
    data = pt.Regression(rows, [11153.20599783994, 10211.060665168678])
    setting = pt.Setting(data, pt.settings.SignedPowers(1e60, 3), pt.Squared(), "sum")
    run = pt.train(setting, pt.GradientFlow(), until=pt.LogExcessBelow(-20.0))
    assert run.status is pt.training.Status.resolution_exhausted
