"""Noisy descent: the update itself against a plain loop, the identity of products, and bad input."""

import numpy as np
import pytest

from penchant.errors import ArgumentError, StepSizeError
from penchant.settings.generators import sparse_regression
from penchant.training.noise import label_noise, quadratic_noise, sample_noise

DATA, _ = sparse_regression(6, 10, 2, 3)
START = np.full((2, 10), 0.4)


def test_without_noise_and_on_the_full_batch_it_is_plain_descent():
    inputs, targets, (plus, minus) = np.asarray(DATA.inputs), np.asarray(DATA.targets), START.copy()
    for _ in range(50):
        slope = (inputs @ (plus**2 - minus**2) - targets) @ inputs / 6
        plus, minus = plus - 0.02 * 2 * slope * plus, minus + 0.02 * 2 * slope * minus
    run = label_noise(DATA, START, step=0.02, deviation=0.0, steps=[50], batch=None)
    assert np.exp(run.log_params[-1, 0]) == pytest.approx(np.stack([plus, minus]), rel=1e-12)


def test_products_follow_their_own_account():
    run = label_noise(DATA, START, step=0.01, deviation=0.5, steps=[10, 1000], chains=20, batch=2)
    assert run.product_drift() <= 1e-12
    assert (run.log_product[-1] < run.log_product[1]).all()
    assert run.steps.tolist() == [0, 10, 1000]


def test_chains_differ_and_seeds_repeat():
    first = label_noise(DATA, START, step=0.01, deviation=0.5, steps=[100], chains=3, seed=1)
    again = label_noise(DATA, START, step=0.01, deviation=0.5, steps=[100], chains=3, seed=1)
    assert np.array_equal(first.log_params, again.log_params)
    assert np.ptp(first.log_params[-1, :, 0, 0]) > 0


def test_too_long_a_step_is_an_error_not_a_nan():
    with pytest.raises(StepSizeError):
        label_noise(DATA, START, step=2.0, deviation=5.0, steps=[200])


@pytest.mark.parametrize(("name", "value"), [("step", 0.0), ("deviation", -1.0), ("chains", 0)])
def test_bad_arguments_are_named(name, value):
    arguments = {"step": 0.01, "deviation": 0.1, "chains": 1, name: value}
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        label_noise(DATA, START, steps=[1], **arguments)


def test_a_start_with_a_zero_is_refused():
    with pytest.raises(ArgumentError, match="'start'"):
        label_noise(DATA, np.zeros((2, 10)), step=0.01, deviation=0.1, steps=[1])


def test_noise_free_quadratic_and_consistent_samples_end_at_the_minimum(rng):
    assert quadratic_noise(np.eye(2), np.zeros((2, 2)), 0.5, 10, 3).tolist() == [[0.0, 0.0]] * 3
    inputs = rng.standard_normal((4, 4))
    ends = sample_noise(inputs, inputs @ np.ones(4), 0.5 / (inputs**2).sum(axis=1).max(), 200_000, 1)
    assert np.abs(ends - 1).max() <= 1e-6
