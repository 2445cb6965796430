"""What a finite context does, measured: bias by Monte Carlo over fresh samples, with control variates and standard errors.

Label noise adds exactly m sigma^2 to the expected loss and nothing to the expected gradient, so the samples have none.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from .context_sums import context_sums, log_weights
from .problem import AttentionLayer, AttentionRegression

_ENTRIES = 2**18  # attention weights in flight: a few megabytes


class Estimate(eqx.Module):
    """A mean with its standard error."""

    mean: float
    error: float

    @staticmethod
    def of(values: Array | np.ndarray) -> "Estimate":
        """From independent measurements."""
        values = np.asarray(values)
        return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def away(self, predicted: float) -> float:
        """Distance to a prediction in standard errors."""
        return abs(self.mean - predicted) / self.error


def extrapolated(small: Estimate, large: Estimate) -> Estimate:
    """From estimates at n and 2n, the value without its term in 1/n."""
    return Estimate(2 * large.mean - small.mean, float(np.hypot(2 * large.error, small.error)))


def _keys(owner: str, count: int, draws: int, seed: int) -> Array:
    """A random key for each of `draws` samples of size `count`."""
    for name, value in (("count", count), ("draws", draws)):
        if value < 2:
            raise ArgumentError(name, owner, "at least 2", value)
    return jax.random.split(jax.random.key(seed), draws)


def loss_bias_samples(
    problem: AttentionRegression,
    layer: AttentionLayer,
    count: int,
    draws: int,
    *,
    seed: int = 0,
    include_self: bool = True,
) -> np.ndarray:
    """n (empirical loss - population loss) of `draws` fresh samples of size n = `count`, less a control variate of mean 0: B_1 up to O(1/n)."""
    keys = _keys("loss_bias_samples", count, draws, seed)
    size = max(1, min(draws, _ENTRIES // count**2))
    return np.asarray(_loss_samples(problem, layer, keys, count, include_self, size))


@partial(jax.jit, static_argnames=("count", "include_self", "size"))
def _loss_samples(
    problem: AttentionRegression, layer: AttentionLayer, keys: Array, count: int, include_self: bool, size: int
) -> Float[Array, "draws"]:
    slip = layer.value @ problem.covariance @ layer.key_query - problem.planted

    def one(key: Array) -> Array:
        inputs = jax.random.normal(key, (count, problem.inputs)) @ problem.root
        means = jnp.exp(log_weights(inputs, layer.key_query, include_self=include_self)) @ inputs
        residual = means @ layer.value.T - inputs @ problem.planted.T
        return jnp.sum(residual**2) - jnp.sum((inputs @ slip.T) ** 2)

    return jax.lax.map(one, keys, batch_size=size)


def extrapolated_loss_bias(
    problem: AttentionRegression, layer: AttentionLayer, count: int, draws: int, *, include_self: bool = True
) -> Estimate:
    """B_1 from samples of size n and 2n, so that the O(1/n) term drops out."""
    found = (
        loss_bias_samples(problem, layer, (seed + 1) * count, draws, seed=seed, include_self=include_self)
        for seed in (0, 1)
    )
    return extrapolated(*map(Estimate.of, found))


def gradient_bias_samples(
    problem: AttentionRegression, layer: AttentionLayer, count: int, draws: int, *, seed: int = 0
) -> np.ndarray:
    """n (empirical - population gradient) by W (whitened) of `draws` fresh samples: draws x (m + d) x d."""
    return np.asarray(_gradient_samples(problem, layer, _keys("gradient_bias_samples", count, draws, seed), count))


@partial(jax.jit, static_argnames=("count",))
def _gradient_samples(
    problem: AttentionRegression, layer: AttentionLayer, keys: Array, count: int
) -> Float[Array, "draws rows d"]:
    slip = layer.value @ problem.covariance @ layer.key_query - problem.planted
    back = problem.inverse_root

    def one(key: Array) -> Array:
        inputs = jax.random.normal(key, (count, problem.inputs)) @ problem.root
        sums = context_sums(inputs, inputs @ problem.planted.T, layer.value, layer.key_query)
        # The gradient of the control variate tr(E Sigma_n E') has the population's as its mean.
        seen = inputs.T @ inputs / count
        value = sums.value - 2 * slip @ seen @ layer.key_query.T @ problem.covariance
        key_query = sums.key_query - 2 * problem.covariance @ layer.value.T @ slip @ seen
        return count * jnp.concatenate([value @ back, (back @ key_query @ back).T])

    return jax.lax.map(one, keys)
