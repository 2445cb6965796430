"""Predictions of the interpolant from the start that training has, and verdicts on runs that end oddly."""

import warnings

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.settings.generators import sparse_regression

DATA, _ = sparse_regression(5, 12, 2, 1)
INPUTS, TARGETS = np.asarray(DATA.inputs), np.asarray(DATA.targets)


def setting(parametrisation, data=DATA):
    return pt.Setting(data, parametrisation, pt.Squared())


def projected(start):
    return start + np.linalg.pinv(INPUTS) @ (TARGETS - INPUTS @ start)


def test_direct_weights_end_at_the_projection_of_their_start(rng):
    start = rng.standard_normal(12)
    prediction = pt.predict(setting(pt.Direct()), pt.GradientFlow(), start)
    assert prediction.reference.weight == pytest.approx(projected(start), abs=1e-12)
    assert prediction.reference.value == pytest.approx(np.linalg.norm(projected(start) - start), abs=1e-12)
    assert [rival.name for rival in prediction.rivals] == ["l2 from 0", "l1"]


def test_the_gram_form_starts_at_its_origin(rng):
    start = rng.standard_normal(12)
    form = setting(pt.settings.Gram(DATA, start))
    assert pt.predict(form, pt.gradient_descent(1e-2)).reference.weight == pytest.approx(projected(start), abs=1e-12)


@pytest.mark.parametrize("parametrisation", [pt.Direct(), pt.SignedSquares(0.1)], ids=["direct", "signed squares"])
def test_a_run_ends_where_the_prediction_from_its_start_is(rng, parametrisation):
    model = setting(parametrisation)
    start = np.exp(rng.standard_normal(model.start().shape))
    prediction = pt.predict(model, pt.GradientFlow(), start)
    run = pt.train(model, pt.GradientFlow(), start)
    assert run.weight() == pytest.approx(prediction.reference.weight, abs=1e-9)
    assert pt.judge(prediction, run).outcome is pt.verdict.Outcome.confirmed
    other = pt.predict(model, pt.GradientFlow()).reference.weight
    assert np.abs(run.weight() - other).max() > 0.1


@pytest.mark.parametrize(("start", "word"), [(np.ones(3), "shape"), (np.full(12, np.nan), "finite")])
def test_a_start_of_the_wrong_kind_is_named(start, word):
    with pytest.raises(ArgumentError, match=f"'start' argument of predict must be .*{word}"):
        pt.predict(setting(pt.Direct()), pt.GradientFlow(), start)


def test_other_data_do_not_depend_on_the_start():
    model = pt.Setting(pt.settings.separable(), pt.Direct(), pt.Exponential())
    assert pt.predict(model, pt.GradientFlow(), np.ones(4)).reference.weight == pytest.approx(
        pt.predict(model, pt.GradientFlow()).reference.weight
    )


@pytest.mark.parametrize("parametrisation", [pt.Direct(), pt.SignedSquares(0.1)], ids=["direct", "signed squares"])
def test_targets_of_zero_are_fitted_at_once(parametrisation):
    model = setting(parametrisation, pt.Regression(INPUTS, np.zeros(5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict = pt.judge(pt.predict(model, pt.GradientFlow()), pt.train(model, pt.GradientFlow()))
    assert verdict.outcome is pt.verdict.Outcome.confirmed


def test_targets_that_nothing_fits_are_predicted_on_the_range_of_the_inputs():
    data = pt.Regression(np.vstack([INPUTS, INPUTS[:1]]), np.append(TARGETS, TARGETS[0] + 1))
    with pytest.warns(pt.errors.PenchantWarning, match="rank 5"):
        prediction = pt.predict(setting(pt.SignedSquares(0.05), data), pt.GradientFlow())
    assert not {hypothesis.name: hypothesis.holds for hypothesis in prediction.hypotheses}["interpolable"]
    run = pt.train(setting(pt.SignedSquares(0.05), data), pt.GradientFlow())
    assert run.weight() == pytest.approx(prediction.reference.weight, abs=1e-9)


def test_a_reference_that_does_not_interpolate_is_not_called_an_interpolant():
    data = pt.Regression(np.vstack([INPUTS, INPUTS[:1]]), np.append(TARGETS, TARGETS[0] + 1))
    with pytest.warns(pt.errors.PenchantWarning, match="rank 5"):
        prediction = pt.predict(setting(pt.Direct(), data), pt.GradientFlow())
    assert prediction.notes[0].startswith("no weight interpolates")
    verdict = pt.judge(prediction, pt.train(setting(pt.Direct(), data), pt.GradientFlow()))
    assert verdict.inequality.startswith("relative distance to the l2 least-squares solution")
    assert not any(
        "no weight interpolates" in note for note in pt.predict(setting(pt.Direct()), pt.GradientFlow()).notes
    )


def test_a_unique_solution_has_no_rivals():
    data = pt.Regression(INPUTS[:, :3], TARGETS)
    with pytest.warns(pt.errors.PenchantWarning, match="unique"):
        prediction = pt.predict(setting(pt.Direct(), data), pt.GradientFlow())
    assert prediction.rivals == ()
    verdict = pt.judge(prediction, pt.train(setting(pt.Direct(), data), pt.GradientFlow()))
    assert verdict.outcome is pt.verdict.Outcome.confirmed
    assert "one solution only" in verdict.detail


def test_a_diverging_run_is_said_to_diverge():
    model = setting(pt.Direct())
    step = 2.01 * 5 / np.linalg.norm(INPUTS, 2) ** 2
    rule = pt.gradient_descent(step)
    run = pt.train(model, rule, steps=20_000)
    assert run.status is pt.training.Status.diverging_step
    assert "stability" in run.ending
    verdict = pt.judge(pt.predict(model, rule), run)
    assert "the run diverges" in verdict.inequality
    assert "step_size" in verdict.detail


def test_large_targets_are_not_a_loss_of_resolution():
    model = setting(pt.Direct(), pt.Regression(INPUTS, 1e14 * TARGETS))
    run = pt.train(model, pt.gradient_descent(5 / np.linalg.norm(INPUTS, 2) ** 2), steps=3_000)
    assert run.weight() == pytest.approx(1e14 * projected(np.zeros(12)), rel=1e-6)


def test_a_start_with_a_zero_entry_has_no_verdict():
    model = setting(pt.SignedSquares(0.1))
    start = np.full((2, 12), 0.1)
    start[0, 3] = 0.0
    run = pt.train(model, pt.gradient_descent(1e-2), start, steps=10)
    verdict = pt.judge(pt.predict(model, pt.gradient_descent(1e-2)), run)
    assert verdict.outcome is pt.verdict.Outcome.undecided
    assert "not positive" in verdict.inequality


def test_coefficients_that_must_vanish_change_the_rate():
    data = pt.Regression([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 2.0]], [1.0, 0.0])
    prediction = pt.predict(setting(pt.Squares(0.1), data), pt.GradientFlow())
    assert prediction.notes[0] == "3 of 4 coefficients are 0 in every nonnegative interpolant"
    run = pt.train(setting(pt.Squares(0.1), data), pt.GradientFlow(), until=pt.LogTimeAbove(15.0))
    late = run.log_time > 8
    slope = np.polyfit(run.log_time[late], run.log_excess[late], 1)[0]
    assert slope == pytest.approx(-2.0, abs=0.05)  # L ~ residual^2 ~ 1/t^2
