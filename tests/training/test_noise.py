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


def test_squares_without_noise_are_plain_descent_on_the_mean_loss():
    inputs, targets, beta = np.asarray(DATA.inputs), np.asarray(DATA.targets), START[0].copy()
    for _ in range(50):
        beta = beta - 0.02 * 2 * ((inputs @ beta**2 - targets) @ inputs / 6) * beta
    run = label_noise(DATA, START[0], step=0.02, deviation=0.0, steps=[50], batch=None)
    assert np.exp(run.log_params[-1, 0, 0]) == pytest.approx(beta, rel=1e-12)
    assert run.weight()[0] == pytest.approx(beta**2, rel=1e-12)


def test_squares_under_noise_behave_as_if_they_had_started_from_a_smaller_square():
    """log beta^2 has moved by `log_product` and, up to third order in the step, by a combination of the inputs."""
    run = label_noise(DATA, START[0], step=0.005, deviation=0.5, steps=[2000], chains=20)
    left = 2 * (run.log_params[-1, :, 0] - run.log_params[0, :, 0]) - run.log_product[-1]
    basis = np.linalg.svd(np.asarray(DATA.inputs), full_matrices=False)[2]
    off = np.linalg.norm(left - left @ basis.T @ basis, axis=1)
    assert (off <= 0.02 * np.linalg.norm(run.log_product[-1], axis=1)).all()
    whole = 2 * (run.log_params[-1, :, 0] - run.log_params[0, :, 0])
    assert (np.linalg.norm(whole - whole @ basis.T @ basis, axis=1) > 10 * off).all()


def test_products_follow_their_own_account():
    run = label_noise(DATA, START, step=0.01, deviation=0.5, steps=[10, 1000], chains=20, batch=2)
    product = run.log_params.sum(axis=2)
    assert np.abs(product - product[0] - run.log_product).max() <= 1e-12
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


@pytest.mark.parametrize("shape", [(3, 10), (9,), (1, 1, 2, 10), ()])
def test_starts_of_no_square_model_are_refused(shape):
    with pytest.raises(ArgumentError, match="'start'"):
        label_noise(DATA, np.full(shape, 0.4), step=0.01, deviation=0.1, steps=[1])


def test_a_start_with_a_zero_is_refused():
    with pytest.raises(ArgumentError, match="'start'"):
        label_noise(DATA, np.zeros((2, 10)), step=0.01, deviation=0.1, steps=[1])


def test_noise_free_quadratic_and_consistent_samples_end_at_the_minimum(rng):
    assert quadratic_noise(np.eye(2), np.zeros((2, 2)), 0.5, 10, 3).tolist() == [[0.0, 0.0]] * 3
    inputs = rng.standard_normal((4, 4))
    ends = sample_noise(inputs, inputs @ np.ones(4), 0.5 / (inputs**2).sum(axis=1).max(), 200_000, 1)
    assert np.abs(ends - 1).max() <= 1e-6
