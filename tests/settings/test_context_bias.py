"""First-order theory of a finite context against quadrature, and its thresholds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penchant.errors import ThresholdError
from penchant.papers.attention_regression.setting.context_bias import (
    bias_gradient,
    context_variance,
    loss_bias,
    minimum_bias,
    optimal_scale,
    oracle_shift,
    sample_floor,
    scaled,
    spectral_floor,
    whitened_balance_bias,
    whitened_loss_bias,
)
from penchant.papers.attention_regression.setting.geometry import balanced_point, eigenbasis, hessian
from penchant.papers.attention_regression.setting.problem import AttentionLayer, AttentionRegression
from penchant.papers.attention_regression.setting.sample import gauge_rotation, prescribed_spectrum, spectral_layer

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def scalar(covariance=1.7, planted=0.2, value=0.9, key_query=0.21):
    return AttentionRegression([[covariance]], [[planted]]), AttentionLayer([[value]], [[key_query]])


def test_the_bias_is_not_a_number_beyond_its_threshold_in_any_number_of_directions():
    for size, finite in ((0.7, True), (0.71, False), (1.5, False)):
        for directions in (1, 2, 3):
            below = np.diag([size] * directions + [0.1] * (3 - directions))
            found = whitened_loss_bias(jnp.concatenate([0.3 * jnp.eye(3), jnp.asarray(below)]), 0.1 * jnp.eye(3), False)
            assert np.isfinite(found) == finite, (size, directions)


@pytest.mark.parametrize("include_self", [True, False])
def test_loss_bias_is_the_second_order_delta_method(include_self):
    """One dimension, by quadrature: h = N/D with N, D means over the context, expanded to first order in 1/n."""
    problem, layer = scalar()
    u, v, a, root = 0.9, 0.21, 0.2, np.sqrt(1.7)
    keys, total = root * NODES, 0.0
    for x, weight in zip(root * NODES, WEIGHTS, strict=True):
        tilt = np.exp(v * x * keys)
        mass = WEIGHTS @ tilt
        mean = WEIGHTS @ (tilt * keys) / mass
        centred = tilt * (keys - mean) / mass
        variance, skew = WEIGHTS @ centred**2, -WEIGHTS @ (centred * tilt / mass)
        own = np.exp(v * x * x) / mass * (x - mean) if include_self else 0.0  # the query is one of the n keys
        total += weight * (u**2 * variance + 2 * (u * mean - a * x) * u * (skew + own))
    assert loss_bias(problem, layer, include_self=include_self) == pytest.approx(total, rel=1e-10)


def test_balance_bias_is_half_the_trace_of_the_second_derivative(rng):
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    layer = AttentionLayer(rng.standard_normal((4, 3)), rng.standard_normal((3, 3)))

    def regulariser(covariance):
        product = covariance @ (layer.value.T @ layer.value - layer.key_query @ covariance @ layer.key_query.T)
        return 0.25 * jnp.trace(product @ product)

    second = jax.hessian(regulariser)(problem.covariance)
    sigma = problem.covariance
    moments = jnp.einsum("ik,jl->ijkl", sigma, sigma) + jnp.einsum("il,jk->ijkl", sigma, sigma)
    assert float(whitened_balance_bias(problem.whiten(layer), problem.outputs)) == pytest.approx(
        float(0.5 * jnp.sum(second * moments)), rel=1e-10
    )


def test_context_variance_by_quadrature_in_two_dimensions():
    """E|Psi(x')|^2 with Psi(x') = E_x[U (x' - V x) e^(x'Vx - |Vx|^2/2) x^T] in whitened coordinates."""
    problem = prescribed_spectrum(3, (0.3, 0.1), 4.0, 1)
    point = balanced_point(problem, np.linalg.qr(np.array([[1.0, 2.0], [0.5, -1.0]]))[0])
    upper, below = point[:3], point[3:].T
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel() / weights.sum() ** 2
    turned = grid @ below.T
    tilts = np.exp(grid @ turned.T - np.sum(turned**2, axis=1) / 2) * mass  # rows: x', columns: x
    psi = np.einsum("ab,a,ac->abc", tilts @ grid, np.ones(len(grid)), grid)
    psi = psi - np.einsum("ax,xb,xc->abc", tilts, grid, turned)  # [x', component of x, component of x' - V x]
    total = mass @ np.sum((psi @ upper.T) ** 2, axis=(1, 2))
    assert context_variance(problem) == pytest.approx(total, rel=1e-8)


def test_floors_of_the_scaling_law_problem():
    """Values derived independently: v = 0.03153, v_spec = 0.0314, b_2 = 1.04 and 4.13 in the signed gauges."""
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)
    assert sample_floor(problem) == pytest.approx(0.03153, abs=5e-6)
    assert spectral_floor(problem) == pytest.approx(0.012 + 0.12**2 + 0.005, rel=1e-12)
    assert oracle_shift(problem, "minus").excess == pytest.approx(1.04, abs=0.006)
    assert oracle_shift(problem, "plus").excess == pytest.approx(4.13, abs=0.006)


@pytest.mark.slow
def test_the_oracle_shift_solves_the_stationarity_of_the_biased_loss():
    """Newton on L_reg + (B_1 + R_1)/n from the minimum arrives at W + shift/n up to O(1/n^2), across the manifold."""
    problem, n = prescribed_spectrum(3, (0.05, 0.04), 3.0, 2), 1e5
    start = jnp.asarray(balanced_point(problem, np.diag([1.0, -1.0])))

    def biased(whitened):
        extra = whitened_loss_bias(whitened, problem.target) + whitened_balance_bias(whitened, 3)
        return problem.whitened_excess(whitened) + problem.whitened_regulariser(whitened) + extra / n

    point, derivatives = start, jax.jit(lambda whitened: (jax.grad(biased)(whitened), jax.hessian(biased)(whitened)))
    for _ in range(3):
        slope, second = (found.reshape(10, -1).squeeze() for found in derivatives(point))
        step = np.linalg.pinv(np.asarray(second), rcond=1e-3, hermitian=True) @ np.asarray(slope)
        point = point - step.reshape(5, 2)
    shift = oracle_shift(problem, np.diag([1.0, -1.0]))
    assert float(problem.whitened_excess(point)) * n**2 == pytest.approx(shift.excess, rel=1e-2)


@pytest.mark.parametrize(
    ("m", "sizes"), [(4, (0.05, 0.04, 0.0)), pytest.param(2, (0.05, 0.04, 0.03), marks=pytest.mark.slow)]
)
def test_without_full_rank_the_oracle_shift_is_where_training_settles(m, sizes):
    """Directions of size 0 are flat in the loss: the bias must hold them, and the surrogate of the oracle settles at b_2/n^2."""
    problem, n = prescribed_spectrum(m, sizes, 5.0, 11), 10_000
    point = balanced_point(problem, gauge_rotation(problem, "minus"))
    bias = lambda whitened: whitened_loss_bias(whitened, problem.target) + whitened_balance_bias(whitened, m)
    second = np.asarray(jax.jit(jax.hessian(bias))(jnp.asarray(point))).reshape(point.size, point.size)
    kernel = np.outer(eigenbasis(problem).kernel[:, -1], np.linalg.svd(point)[2][-1]).ravel()  # no gauge, no curvature
    assert np.abs(hessian(problem, point) @ kernel).max() < 1e-12
    assert kernel @ second @ kernel > 0.1
    end, step = jnp.asarray(point), 1 / (4 * sizes[0])
    for _ in range(300):
        end = end - step * (problem.whitened_gradient(end) + bias_gradient(end, problem.target, True) / n)
    assert float(problem.whitened_excess(end)) * n**2 == pytest.approx(oracle_shift(problem, "minus").excess, rel=2e-3)


def test_scale_leaves_the_population_loss_alone_and_restores_a_finite_bias():
    problem = prescribed_spectrum(2, (1.5, 0.75))
    found = optimal_scale(problem)
    layer = problem.unwhiten(scaled(balanced_point(problem), 2, found.factor))
    assert float(problem.excess(layer)) < 1e-28
    assert loss_bias(problem, layer) == pytest.approx(found.bias, rel=1e-10)
    assert (found.factor, found.bias, found.key_norm) == pytest.approx((2.566, 30.35, 0.477), rel=2e-3)
    for factor in (0.97, 1.03):
        other = problem.unwhiten(scaled(balanced_point(problem), 2, factor * found.factor))
        assert loss_bias(problem, other) > found.bias


@pytest.mark.parametrize(("factor", "gauge"), [(1.0, "identity"), (1.0, "plus"), (0.7, "minus"), (3.0, "identity")])
def test_the_bias_of_a_minimum_depends_on_its_sizes_and_scale_alone(factor, gauge):
    problem = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    point = problem.whiten(spectral_layer(problem, gauge))
    layer = problem.unwhiten(scaled(point, 4, factor))
    assert minimum_bias(problem, factor) == pytest.approx(loss_bias(problem, layer), rel=1e-12)


def test_thresholds_are_named_not_returned():
    wild = prescribed_spectrum(2, (1.2, 0.6))
    with pytest.raises(ThresholdError, match="B_1 is infinite"):
        loss_bias(wild, spectral_layer(wild))
    with pytest.raises(ThresholdError, match="v_ctx is infinite"):
        sample_floor(wild)
    with pytest.raises(ThresholdError, match="2 s_1"):
        oracle_shift(prescribed_spectrum(2, (0.6, 0.3)))
