"""Flows that start on a plateau, and what is recorded when a run ends between levels."""

import jax
import numpy as np
import pytest
from scipy.special import expi

import penchant as pt
from penchant.flow import flow
from penchant.training.status import Status


@pytest.mark.slow
def test_a_start_that_attends_to_wrong_tokens_is_left_in_the_end():
    setting = pt.Setting(pt.settings.equal_score_tokens(3, 4, 5, 1), pt.KeyQuery(), pt.Exponential())
    start = setting.start(0, 8 / np.sqrt(5))
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.MarginAbove(100.0), steps=3000)
    assert run.status is Status.reached_target
    wrong = np.log(2 / 3 * -np.expm1(-6.0))  # two of three samples on a token that scores 6 less
    assert abs(run.log_excess[0] - wrong) <= 1e-9
    one = np.log(1 / 3 * -np.expm1(-6.0))  # the next plateau: one sample still wrong
    held = run.log_time[np.abs(run.log_excess - one) <= 1e-3]
    assert held.max() > 100  # it stands there at time e^100, to a thousandth
    assert np.diff(run.log_excess).max() <= 1e-9


def test_the_last_point_is_recorded_also_between_levels():
    setting = pt.Setting(pt.settings.separable(), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), steps=7, recorder=pt.flow.Levels("margin", ()))
    whole = pt.train(setting, pt.GradientFlow(), steps=7)
    assert run.steps.tolist() == [0, 7]
    assert np.array_equal(run.weight(), whole.weight())


@pytest.mark.parametrize("until", [pt.LogTimeAbove(1e4), pt.MarginAbove(1e6)])
def test_partly_separable_data_settle(until):
    """Two samples contradict each other and the third can be separated: its pull falls below the rounding of theirs."""
    data = pt.Classification([[1, 0], [1, 0], [0, 1]], [1, -1, 1])
    run = pt.train(pt.Setting(data, pt.Direct(), pt.Exponential()), pt.GradientFlow(), until=until)
    assert run.status is Status.settled
    assert run.steps[-1] < 200
    assert run.margins[-1, 2] == pytest.approx(-np.log(np.finfo(float).eps), abs=2)


@pytest.mark.parametrize("seed", [3, 6])
def test_random_data_that_are_partly_separable_settle(seed):
    """Samples 0 and 1 contradict each other; where the pull of the others is below what rounding knows of theirs, no step leads anywhere."""
    rng = np.random.default_rng(seed)
    inputs, labels = rng.standard_normal((8, 4)), np.sign(rng.standard_normal(8))
    inputs[:3, 2:], inputs[1], labels[:2] = 0, [*inputs[0, :2], 0, 0], (1, -1)
    inputs[3:, 2] = labels[3:] * np.abs(inputs[3:, 2])
    setting = pt.Setting(pt.Classification(inputs, labels), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e5))
    assert run.status is Status.settled
    assert run.steps[-1] < 2000
    assert "log L " in str(run)  # L* is not known
    assert "log(L - L*)" not in str(run)


@pytest.mark.parametrize("scale", [1e-3, 1e-8, 1e-30, 1e-100])
def test_a_small_start_leaves_the_saddle_in_time(scale):
    """w = ab from a = b on one sample: w' = 2w e^-w, so 2t = Ei(w) - Ei(w_0), which grows like the logarithm of the start."""
    setting = pt.Setting(pt.Classification([[1.0]], [1]), pt.DeepLinear((1,)), pt.Exponential())
    start = jax.tree.map(lambda leaf: leaf + scale, setting.start())
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.MarginAbove(1.0))
    assert run.status is Status.reached_target
    exact = (expi(1.0) - np.euler_gamma - 2 * np.log(scale)) / 2
    assert np.exp(run.log_time[-1]) == pytest.approx(exact, rel=1e-4)


def test_a_flow_without_a_budget_has_one(monkeypatch):
    monkeypatch.setattr(flow, "FLOW_STEPS", 5)
    setting = pt.Setting(pt.settings.separable(), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), until=pt.MarginAbove(1e6))
    assert run.status is Status.out_of_steps
    assert "`steps=` asks for more" in run.ending
    assert "steps=" not in pt.train(setting, pt.gradient_descent(0.1), steps=5).ending


def test_records_beyond_their_memory_are_thinned(monkeypatch):
    setting = pt.Setting(pt.settings.separable(), pt.Direct(), pt.Exponential())
    whole = pt.train(setting, pt.GradientFlow(), steps=30)
    record = (whole.margins[0], whole.weights[0], whole.dual[0], whole.params[0], np.zeros(7))
    monkeypatch.setattr(flow, "_KEPT", 10 * flow._bytes(record))
    run = pt.train(setting, pt.GradientFlow(), steps=30)
    stride = run.header["integrator"]["recorded_every"]
    kept = np.append(np.arange(0, 30, stride), 30)
    assert stride > 1
    assert run.steps.tolist() == kept.tolist()
    np.testing.assert_array_equal(run.margins, whole.margins[kept])
    np.testing.assert_array_equal(run.params, whole.params[kept])
