"""Monte Carlo of the context bias, and exponents with intervals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penchant.diagnostics.rates import exponent
from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting.context_bias import (
    Estimate,
    extrapolated,
    gradient_bias_samples,
    loss_bias,
)
from penchant.papers.attention_regression.setting.context_sums import context_sums
from penchant.papers.attention_regression.setting.problem import AttentionLayer
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum

PROBLEM = prescribed_spectrum(3, (0.05, 0.03), 2.0, 1)
LAYER = AttentionLayer([[0.3, 0.1], [0.0, 0.2], [0.1, -0.2]], [[0.2, 0.1], [-0.1, 0.3]])


@partial(jax.jit, static_argnames=("count", "draws", "include_self"))
def loss_bias_samples(layer, count, draws, seed, include_self=True):
    """n (empirical - population loss) of fresh samples, less a control variate of mean 0."""
    slip = layer.value @ PROBLEM.covariance @ layer.key_query - PROBLEM.planted

    def one(key):
        inputs = jax.random.normal(key, (count, 2)) @ PROBLEM.root
        targets = inputs @ PROBLEM.planted.T
        found = context_sums(inputs, targets, layer.value, layer.key_query, include_self=include_self)
        return count * found.loss - jnp.sum((inputs @ slip.T) ** 2)

    return jax.lax.map(one, jax.random.split(jax.random.key(seed), draws))


@pytest.mark.slow
@pytest.mark.parametrize("include_self", [True, False])
def test_the_loss_is_biased_by_its_constant_over_n(include_self):
    """Without the term in 1/n, from n and 2n."""
    found = (Estimate.of(loss_bias_samples(LAYER, n, 20_000, n, include_self)) for n in (25, 50))
    assert extrapolated(*found).away(loss_bias(PROBLEM, LAYER, include_self=include_self)) < 4


def test_gradient_samples_average_to_the_bias_of_the_loss_along_a_direction():
    """The same mean by finite differences of the loss bias with common random numbers."""
    samples = np.asarray(gradient_bias_samples(PROBLEM, LAYER, 20, 6, 5))
    step = 1e-5
    whitened = np.asarray(PROBLEM.whiten(LAYER))
    direction = np.random.default_rng(0).standard_normal(whitened.shape)
    moved = (PROBLEM.unwhiten(jnp.asarray(whitened + sign * step * direction)) for sign in (1, -1))
    ends = [np.asarray(loss_bias_samples(one, 20, 6, 5)) for one in moved]
    slope = (ends[0] - ends[1]) / (2 * step)
    assert np.sum(samples * direction, axis=(1, 2)) == pytest.approx(slope, rel=1e-6)


def test_estimates_carry_their_error(rng):
    values = rng.standard_normal(400)
    found = Estimate.of(values)
    assert (found.mean, found.error) == pytest.approx((values.mean(), values.std(ddof=1) / 20))
    assert found.away(found.mean + 3 * found.error) == pytest.approx(3.0)


@pytest.mark.parametrize("runs", [(4, 4, 3), (6, 6), (40, 30, 16)])
def test_exponents_have_intervals_that_cover(runs, rng):
    """Scatter of chi-squared with 4 degrees of freedom, which resampling so few measurements covers in 82 to 87 of 100 cases."""
    sizes, trials = (50, 100, 200)[: len(runs)], 2000
    draws = lambda: {n: rng.chisquare(4, count) / n**1.5 for n, count in zip(sizes, runs, strict=True)}
    found = (exponent(draws()) for _ in range(trials))
    hits = np.mean([one.low <= -1.5 <= one.high for one in found])
    assert 0.93 <= hits <= 0.975  # four standard errors are 0.02


def test_exponents_without_scatter_are_exact():
    found = exponent({n: np.full(3, 5 / n**2) for n in (10, 20, 40)})
    assert (found.low, found.high) == pytest.approx((-2.0, -2.0), abs=1e-12)


def test_bad_measurements_are_named():
    with pytest.raises(ArgumentError, match="two sizes"):
        exponent({100: np.ones(3)})
    with pytest.raises(ArgumentError, match="two measurements"):
        exponent({100: np.ones(3), 200: np.ones(1)})
    with pytest.raises(ArgumentError, match="positive"):
        exponent({100: np.ones(3), 200: np.array([1.0, -1.0])})
