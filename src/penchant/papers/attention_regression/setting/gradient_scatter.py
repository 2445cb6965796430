"""The scatter of the gradient of the sample loss, measured: fresh samples with noise in their targets, and standard errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from .measured_bias import Estimate
from .problem import AttentionLayer, AttentionRegression


def gradient_draws(
    problem: AttentionRegression, layer: AttentionLayer, count: int, draws: int, *, seed: int = 0
) -> np.ndarray:
    """sqrt(n) times the gradient of the loss of `draws` fresh samples of size n = `count`, by W (whitened): draws x (m + d) x d."""
    for name, value in (("count", count), ("draws", draws)):
        if value < 2:
            raise ArgumentError(name, "gradient_draws", "at least 2", value)
    problem.check_layer(layer, "gradient_draws")
    keys = jax.random.split(jax.random.key(seed), draws)
    return np.asarray(_gradients(problem.whiten(layer), problem.target, problem.noise, keys, count))


@partial(jax.jit, static_argnames="count")
def _gradients(
    whitened: Float[Array, "rows d"], target: Float[Array, "m d"], noise: Float[Array, ""], keys: Array, count: int
) -> Float[Array, "draws rows d"]:
    """Dense attention of small samples, in whitened coordinates throughout."""
    m, d = target.shape
    upper, below = whitened[:m], whitened[m:].T

    def one(key: Array) -> Array:
        first, second = jax.random.split(key)
        inputs = jax.random.normal(first, (count, d))
        targets = inputs @ target.T + jnp.sqrt(noise) * jax.random.normal(second, (count, m))
        weights = jax.nn.softmax(inputs @ below.T @ inputs.T, axis=1)
        means = weights @ inputs
        residual = means @ upper.T - targets
        pull = residual @ upper
        spread = (weights * (pull @ inputs.T)) @ inputs - means * jnp.sum(means * pull, axis=1, keepdims=True)
        return 2 / jnp.sqrt(count) * jnp.concatenate([residual.T @ means, inputs.T @ spread])

    return jax.lax.map(one, keys)


def scatter(draws: np.ndarray, direction: np.ndarray | None = None) -> Estimate:
    """The trace of the covariance of draws (leading axis), or the variance along a unit vector, with its standard error."""
    centred = (draws - draws.mean(axis=0)).reshape(len(draws), -1)
    squares = (centred**2).sum(axis=1) if direction is None else (centred @ np.ravel(direction)) ** 2
    share = len(draws) / (len(draws) - 1)
    return Estimate(float(share * squares.mean()), float(squares.std(ddof=1) / np.sqrt(len(draws))))


def extrapolated(small: Estimate, large: Estimate) -> Estimate:
    """From estimates at n and 2n, the value without its term in 1/n.

    >>> extrapolated(Estimate(3.0, 0.3), Estimate(2.0, 0.2))
    Estimate(mean=1.0, error=0.5)
    """
    return Estimate(2 * large.mean - small.mean, float(np.hypot(2 * large.error, small.error)))
