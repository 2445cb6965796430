"""Monte Carlo of the context bias, and exponents with intervals."""

import jax
import numpy as np
import pytest

from penchant.diagnostics.rates import exponent
from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting.context_bias import Estimate, gradient_bias_samples, loss_bias_samples
from penchant.papers.attention_regression.setting.context_sums import context_sums
from penchant.papers.attention_regression.setting.problem import AttentionLayer
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum

PROBLEM = prescribed_spectrum(3, (0.05, 0.03), 2.0, 1)
LAYER = AttentionLayer([[0.3, 0.1], [0.0, 0.2], [0.1, -0.2]], [[0.2, 0.1], [-0.1, 0.3]])


def test_samples_are_the_scaled_loss_of_fresh_data_less_a_variate_of_mean_zero():
    values = loss_bias_samples(PROBLEM, LAYER, 30, 4, seed=2)
    slip = np.asarray(LAYER.value @ PROBLEM.covariance @ LAYER.key_query - PROBLEM.planted)
    for key, value in zip(jax.random.split(jax.random.key(2), 4), values, strict=True):
        inputs = np.asarray(jax.random.normal(key, (30, 2)) @ PROBLEM.root)
        loss = context_sums(inputs, inputs @ np.asarray(PROBLEM.planted).T, LAYER.value, LAYER.key_query).loss
        assert value == pytest.approx(30 * float(loss) - np.sum((inputs @ slip.T) ** 2), rel=1e-10)


def test_gradient_samples_average_to_the_bias_of_the_loss_along_a_direction():
    """The same mean by finite differences of the loss bias with common random numbers."""
    samples = gradient_bias_samples(PROBLEM, LAYER, 20, 6, seed=5)
    step = 1e-5
    whitened = np.asarray(PROBLEM.whiten(LAYER))
    direction = np.random.default_rng(0).standard_normal(whitened.shape)
    ends = [
        loss_bias_samples(
            PROBLEM, PROBLEM.unwhiten(jax.numpy.asarray(whitened + sign * step * direction)), 20, 6, seed=5
        )
        for sign in (1, -1)
    ]
    slope = (ends[0] - ends[1]) / (2 * step)
    assert np.sum(samples * direction, axis=(1, 2)) == pytest.approx(slope, rel=1e-6)


def test_estimates_carry_their_error():
    values = loss_bias_samples(PROBLEM, LAYER, 10, 400)
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
    with pytest.raises(ArgumentError, match="count"):
        loss_bias_samples(PROBLEM, LAYER, 1, 4)
