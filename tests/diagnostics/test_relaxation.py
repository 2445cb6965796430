"""Transients, correlations in time and excess loss of noisy quadratics, against plain iteration and SciPy's matrix exponential."""

import numpy as np
import pytest
from scipy.linalg import expm

import penchant as pt
from penchant.errors import ArgumentError, StepSizeError


@pytest.fixture
def pair(rng):
    first, second = rng.standard_normal((2, 3, 3))
    return first @ first.T / 3 + 0.1 * np.eye(3), second @ second.T


def test_the_transient_is_the_integral_of_its_flow(pair):
    hessian, noise = pair
    step, time, count = 0.05, 1.3, 4000
    points, weights = np.polynomial.legendre.leggauss(count // 40)
    middle = time * (points + 1) / 2
    exact = sum(
        w * time / 2 * expm(-hessian * s) @ (step * noise) @ expm(-hessian * s)
        for s, w in zip(middle, weights, strict=True)
    )
    assert pt.diagnostics.diffusion_transient(hessian, noise, step, time) == pytest.approx(exact, rel=1e-12)
    late = pt.diagnostics.diffusion_transient(hessian, noise, step, 1e4)
    assert late == pytest.approx(pt.diagnostics.diffusion_covariance(hessian, noise, step), rel=1e-12)
    flat = pt.diagnostics.diffusion_transient(np.diag([1.0, 0.0]), np.eye(2), step, 7.0)
    assert flat[1, 1] == pytest.approx(step * 7.0, rel=1e-14)


def test_lags_are_powers_of_one_step(pair):
    hessian, noise = pair
    step = 1.2 / np.linalg.eigvalsh(hessian)[-1]
    settled = pt.diagnostics.noisy_covariance(hessian, noise, step)
    move = np.linalg.matrix_power(np.eye(3) - step * hessian, 4)
    assert pt.diagnostics.lag_covariance(hessian, noise, step, 4) == pytest.approx(move @ settled, rel=1e-12)
    size = np.sqrt(np.diag(settled))
    assert pt.diagnostics.lag_correlation(hessian, noise, step, 4) == pytest.approx(
        move @ settled / np.outer(size, size), rel=1e-12
    )


def test_what_is_flat():
    """The eigenvalues of a diagonal matrix are exact, however small; those of a full one are 0 below rounding."""
    hessian, step = np.diag([1.0, 5e-15]), 0.1
    exact = np.trace(hessian @ pt.diagnostics.noisy_covariance(hessian, np.eye(2), step)) / 2
    assert exact == pytest.approx(0.1 / (2 * 1.9) + 0.1 / 4, rel=1e-12)
    assert pt.diagnostics.diffusion_covariance(hessian, np.eye(2), step)[1, 1] == pytest.approx(step / 1e-14, rel=1e-12)
    full = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) / 14
    with pytest.raises(ArgumentError, match="positive definite"):
        pt.diagnostics.diffusion_covariance(full, np.eye(3), step)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: pt.diagnostics.diffusion_transient(np.eye(2), np.eye(3), 0.1, 1.0), "noise"),
        (lambda: pt.diagnostics.diffusion_transient(np.eye(2), np.eye(2), 0.1, -1.0), "time"),
        (lambda: pt.diagnostics.lag_covariance(np.eye(2), np.eye(2), 0.1, -1), "lag"),
        (lambda: pt.diagnostics.lag_covariance(np.diag([1.0, 0.0]), np.eye(2), 0.1, 1), "hessian"),
        (lambda: pt.diagnostics.lag_correlation(np.eye(2), np.diag([1.0, 0.0]), 0.1, 1), "noise"),
        (lambda: pt.diagnostics.lag_covariance(np.eye(2), np.eye(2), 0.0, 1), "step"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        call()


def test_unstable_steps_have_no_covariance():
    with pytest.raises(StepSizeError):
        pt.diagnostics.noisy_covariance([[2.0]], [[1.0]], 1.0)
