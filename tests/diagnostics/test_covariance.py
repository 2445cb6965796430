"""Covariances of noisy descent against SciPy's Lyapunov solvers and plain iteration; restricted isometry against enumeration."""

import sys
from itertools import combinations

import numpy as np
import pytest
from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov

from penchant.diagnostics.noise import diffusion_covariance, noisy_covariance, sample_covariance
from penchant.diagnostics.sparsity import restricted_isometry
from penchant.errors import ArgumentError, PenchantWarning, StepSizeError


def matrices(rng, d=4):
    first, second = rng.standard_normal((2, d, d))
    return first @ first.T / d + 0.1 * np.eye(d), second @ second.T


def test_stationary_covariance_is_scipys(rng):
    hessian, noise = matrices(rng)
    step = 1 / np.linalg.eigvalsh(hessian)[-1]
    exact = solve_discrete_lyapunov(np.eye(4) - step * hessian, step**2 * noise)
    assert noisy_covariance(hessian, noise, step) == pytest.approx(exact, rel=1e-10)
    assert diffusion_covariance(hessian, noise, step) == pytest.approx(
        solve_continuous_lyapunov(hessian, step * noise), rel=1e-10
    )


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
def test_transient_is_the_iteration_also_past_the_edge_of_oscillation(rng, steps):
    hessian, noise = matrices(rng)
    step = 1.8 / np.linalg.eigvalsh(hessian)[-1]  # some 1 - step * lambda are negative
    move, found = np.eye(4) - step * hessian, np.zeros((4, 4))
    for _ in range(steps):
        found = move @ found @ move + step**2 * noise
    assert noisy_covariance(hessian, noise, step, steps) == pytest.approx(found, rel=1e-11)


def test_flat_directions_walk_and_have_no_stationary_covariance():
    hessian = np.diag([1.0, 0.0])
    assert noisy_covariance(hessian, np.eye(2), 0.1, 50)[1, 1] == pytest.approx(0.01 * 50, rel=1e-12)
    found = noisy_covariance(hessian, np.eye(2), 0.1)
    assert found[0] == pytest.approx([0.1 / 1.9, 0.0], rel=1e-12)  # the curved direction does not see the walk
    assert np.isposinf(found[1, 1])
    assert noisy_covariance(hessian, hessian, 0.1)[1, 1] == 0.0


def test_walks_along_a_tilted_flat_direction_have_their_signs():
    tilted = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])  # flat along (1, -1, 0)
    found = noisy_covariance(tilted, np.eye(3), 0.5)
    assert np.isposinf(found[[0, 1], [0, 1]]).all()
    assert np.isneginf(found[0, 1])
    assert found[2] == pytest.approx([0.0, 0.0, 1 / 3], abs=1e-12)


@pytest.mark.parametrize(("curvature", "step", "exact"), [(1e-9, 1e-6, 500.0), (1e-7, 1e-8, 0.05), (1e-30, 1.0, 5e29)])
def test_small_curvatures_are_not_flat(curvature, step, exact):
    assert noisy_covariance([[curvature]], [[1.0]], step)[0, 0] == pytest.approx(exact, rel=1e-6)
    beside = noisy_covariance(np.diag([1.0, curvature]), np.eye(2), step)
    assert beside[1, 1] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("load", [1e-18, 0.3, 1.0, 1.7, 2 - 1e-12])
@pytest.mark.parametrize("steps", [0, 1, 7, 8])
def test_one_dimension_is_the_geometric_sum(load, steps):
    total = sum((1 - load) ** (2 * k) for k in range(steps))
    assert noisy_covariance([[load]], [[1.0]], 1.0, steps)[0, 0] == pytest.approx(total, rel=1e-11)


@pytest.mark.parametrize("steps", [-3, 2.5, np.nan])
def test_steps_are_counted(steps):
    with pytest.raises(ArgumentError, match="'steps'"):
        noisy_covariance([[1.0]], [[1.0]], 0.5, steps)


def test_noise_has_the_shape_of_the_hessian():
    for owner in (noisy_covariance, diffusion_covariance):
        with pytest.raises(ArgumentError, match="'noise'"):
            owner(np.eye(2), np.eye(3), 0.5)


def test_single_sample_covariance_is_the_fixed_point_of_its_recursion(rng):
    inputs, targets, step = rng.standard_normal((9, 3)), rng.standard_normal(9), 0.05
    residual = targets - inputs @ np.linalg.lstsq(inputs, targets)[0]
    found = sample_covariance(inputs, targets, step)
    again = np.zeros((3, 3))
    for x, e in zip(inputs, residual, strict=True):
        move = np.eye(3) - step * np.outer(x, x)
        again += (move @ found @ move + (step * e) ** 2 * np.outer(x, x)) / 9
    assert found == pytest.approx(again, rel=1e-11)


def test_the_matrix_free_system_is_the_dense_one(rng, monkeypatch):
    inputs, targets = rng.standard_normal((15, 6)), rng.standard_normal(15)
    step = 0.5 / (inputs**2).sum(axis=1).max()
    dense = sample_covariance(inputs, targets, step)
    monkeypatch.setattr("penchant.diagnostics.noise._DENSE", 0)
    with pytest.warns(PenchantWarning, match="36 unknowns"):
        found = sample_covariance(inputs, targets, step)
    assert found == pytest.approx(dense, rel=1e-10, abs=1e-12 * np.abs(dense).max())
    with pytest.warns(PenchantWarning), pytest.raises(StepSizeError):
        sample_covariance(inputs, targets, 5.0)


def test_large_systems_solve_their_recursion(rng):
    n, d = 200, 90
    inputs, targets = rng.standard_normal((n, d)) * np.geomspace(1, 0.1, d), rng.standard_normal(n)
    step = 0.3 / (inputs**2).sum(axis=1).max()
    residual = targets - inputs @ np.linalg.lstsq(inputs, targets)[0]
    with pytest.warns(PenchantWarning, match="8100 unknowns"):
        found = sample_covariance(inputs, targets, step)
    again = np.zeros((d, d))
    for x, e in zip(inputs, residual, strict=True):
        move = np.eye(d) - step * np.outer(x, x)
        again += (move @ found @ move + (step * e) ** 2 * np.outer(x, x)) / n
    source = step**2 / n * (inputs * residual[:, None] ** 2).T @ inputs
    assert np.abs(found - again).max() <= 1e-11 * np.abs(source).max()


@pytest.mark.filterwarnings("ignore::penchant.errors.PenchantWarning")
def test_the_edge_of_stability_is_the_same_in_both_forms(rng, monkeypatch):
    """Bisect for the largest step with a stationary covariance, with directions of very different curvature."""
    inputs, targets = rng.standard_normal((20, 5)) * np.geomspace(1, 1e-3, 5), rng.standard_normal(20)

    def edge():
        low, high = 0.0, 5.0
        for _ in range(25):
            middle = (low + high) / 2
            try:
                sample_covariance(inputs, targets, middle)
                low = middle
            except StepSizeError:
                high = middle
        return low

    dense = edge()
    monkeypatch.setattr("penchant.diagnostics.noise._DENSE", 0)
    assert edge() == pytest.approx(dense, rel=1e-5)


def test_directions_without_inputs_do_not_move(rng):
    inputs = np.column_stack([rng.standard_normal((9, 2)), np.zeros(9)])
    targets = rng.standard_normal(9)
    found = sample_covariance(inputs, targets, 0.05)
    assert np.abs(found[2]).max() <= 1e-18
    assert found[:2, :2] == pytest.approx(sample_covariance(inputs[:, :2], targets, 0.05), rel=1e-11)
    consistent = rng.standard_normal((3, 5))
    assert np.abs(sample_covariance(consistent, consistent @ np.ones(5), 0.05)).max() <= 1e-28


def test_unstable_steps_are_refused(rng):
    with pytest.raises(StepSizeError):
        noisy_covariance([[2.0]], [[1.0]], 1.0)
    with pytest.raises(StepSizeError):
        sample_covariance(rng.standard_normal((9, 3)), rng.standard_normal(9), 5.0)
    with pytest.raises(ArgumentError, match="'step'"):
        sample_covariance(rng.standard_normal((9, 3)), rng.standard_normal(9), 0.0)
    with pytest.raises(ArgumentError, match="'targets'"):
        sample_covariance(rng.standard_normal((9, 3)), rng.standard_normal(8), 0.1)


@pytest.mark.parametrize(
    ("hessian", "noise", "name"),
    [
        ([[1.0, 2.0], [0.0, 1.0]], np.eye(2), "hessian"),
        (np.eye(2), [[1.0, 2.0], [2.0, 1.0]], "noise"),
        (-np.eye(2), np.eye(2), "hessian"),
    ],
)
def test_matrices_that_are_no_covariances_are_named(hessian, noise, name):
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        noisy_covariance(hessian, noise, 0.1)


def enumerate_all(inputs, sparsity):
    excess = inputs.T @ inputs / len(inputs) - np.eye(inputs.shape[1])
    return max(
        np.abs(np.linalg.eigvalsh(excess[np.ix_(t, t)])).max()
        for t in map(list, combinations(range(len(excess)), sparsity))
    )


def test_bounds_hold_and_small_cases_are_exact(rng, monkeypatch):
    inputs = rng.standard_normal((8, 10))
    for sparsity in (1, 2, 3):
        truth = enumerate_all(inputs, sparsity)
        assert restricted_isometry(inputs, sparsity).lower == pytest.approx(truth, rel=1e-12)
        monkeypatch.setattr(sys.modules["penchant.diagnostics.sparsity"], "_ENUMERATED", 0)
        bounds = restricted_isometry(inputs, sparsity)
        monkeypatch.undo()
        assert not bounds.exact
        assert bounds.lower <= truth * (1 + 1e-12) <= bounds.upper * (1 + 2e-12)
        assert len(bounds.support) == sparsity


@pytest.mark.parametrize("sparsity", [0, 11, 2.5, "x"])
def test_impossible_sparsity_is_refused(rng, sparsity):
    with pytest.raises(ArgumentError, match="'sparsity'"):
        restricted_isometry(rng.standard_normal((8, 10)), sparsity)
