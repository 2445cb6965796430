"""The limit covariance of sample gradients: against derivatives of the gradient by the masses of a discretised law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penchant.errors import ArgumentError, ThresholdError
from penchant.papers.attention_regression.setting.context_bias import gradient_covariance
from penchant.papers.attention_regression.setting.context_sums import context_sums
from penchant.papers.attention_regression.setting.measured_bias import gradient_draws, scatter
from penchant.papers.attention_regression.setting.problem import AttentionLayer
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum, spectral_layer

PROBLEM = prescribed_spectrum(3, (0.06, 0.04), 3.0, 5, 2e-3)
AWAY = AttentionLayer([[0.4, 0.1], [-0.2, 0.3], [0.1, -0.5]], [[0.3, -0.2], [0.1, 0.25]])


def by_masses(problem, layer, nodes=20):
    """Covariance of the derivative of the gradient by the masses of the rows; noise in the targets is added by its definition."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = jnp.asarray(np.stack(np.meshgrid(points, points), -1).reshape(-1, 2))
    mass = jnp.asarray(np.outer(weights, weights).ravel() / weights.sum() ** 2)
    whitened, m = problem.whiten(layer), problem.outputs
    upper, below = whitened[:m], whitened[m:].T

    def loss(blocks, mass):
        tilted = jnp.exp(grid @ blocks[1].T @ grid.T) * mass[None]  # attention of every node (rows) over the law
        means = tilted @ grid / tilted.sum(axis=1, keepdims=True)
        return mass @ jnp.sum((means @ blocks[0].T - grid @ problem.target.T) ** 2, axis=1)

    def gradient(mass):
        by_upper, by_below = jax.grad(loss)((upper, below), mass)
        return jnp.concatenate([by_upper, by_below.T]).ravel()

    rows = np.asarray(jax.jit(jax.jacrev(gradient))(mass)).T
    rows = rows - np.asarray(mass) @ rows
    total = (rows.T * np.asarray(mass)) @ rows
    for i, j in np.ndindex(m, 2):  # a unit of noise in output i for covariate j
        unit = np.zeros((m, 2))
        unit[i, j] = 1.0
        move = -2 * np.concatenate([unit @ np.asarray(below).T, unit.T @ np.asarray(upper)]).ravel()
        total += float(problem.noise) * np.outer(move, move)
    return total


@pytest.mark.parametrize("layer", [spectral_layer(PROBLEM, "plus"), AWAY], ids=["minimum", "away"])
def test_the_limit_is_the_covariance_of_the_influence_of_rows(layer):
    expected = by_masses(PROBLEM, layer)
    found = np.asarray(gradient_covariance(PROBLEM, layer))
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-9 * expected.max())
    alone = np.asarray(gradient_covariance(PROBLEM, layer, keys=False))
    assert np.trace(alone) < 0.9 * np.trace(found)


def test_draws_are_whitened_gradients_of_samples():
    draws = gradient_draws(PROBLEM, AWAY, 30, 3, seed=1)
    first, second = jax.random.split(jax.random.split(jax.random.key(1), 3)[2])
    inputs = jax.random.normal(first, (30, 2)) @ PROBLEM.root
    targets = inputs @ PROBLEM.planted.T + jnp.sqrt(PROBLEM.noise) * jax.random.normal(second, (30, 3))
    sums = context_sums(inputs, targets, AWAY.value, AWAY.key_query)
    back = np.asarray(PROBLEM.inverse_root)
    expected = np.concatenate([sums.value @ back, (back @ np.asarray(sums.key_query) @ back).T])
    assert draws[2] == pytest.approx(np.sqrt(30) * expected, rel=1e-9)


def test_scatter_is_the_trace_of_the_covariance(rng):
    draws = rng.standard_normal((50, 3, 2)) + 5.0
    whole = np.cov(draws.reshape(50, 6).T)
    axis = np.eye(6)[2]
    assert scatter(draws).mean == pytest.approx(np.trace(whole), rel=1e-12)
    assert scatter(draws, axis).mean == pytest.approx(whole[2, 2], rel=1e-12)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: gradient_covariance(PROBLEM, AttentionLayer(np.ones((3, 2)), 9 * np.eye(2))), ThresholdError),
        (
            lambda: gradient_covariance(
                prescribed_spectrum(8, [0.05] * 7), AttentionLayer(np.ones((8, 7)), 0.1 * np.eye(7))
            ),
            ArgumentError,
        ),
        (lambda: gradient_draws(PROBLEM, AWAY, 1, 5), ArgumentError),
    ],
)
def test_bad_input_is_named(call, error):
    with pytest.raises(error):
        call()
