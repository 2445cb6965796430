"""Samples of attention regressions: estimates, spectral starts, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting.sample import (
    AttentionSample,
    draw_sample,
    map_errors,
    prescribed_spectrum,
    spectral_layer,
)

PROBLEM = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11, 1e-3)


def test_estimates_are_least_squares_and_uncentred(rng):
    sample = draw_sample(PROBLEM, 60, rng)
    x, y = np.asarray(sample.inputs), np.asarray(sample.targets)
    planted = np.linalg.solve(x.T @ x, x.T @ y).T
    assert np.asarray(sample.estimated.covariance) == pytest.approx(x.T @ x / 60, rel=1e-14)
    assert np.abs(sample.estimated.planted - planted).max() < 1e-13
    assert float(sample.estimated.noise) == pytest.approx(np.sum((y - x @ planted.T) ** 2) / (4 * 57), rel=1e-12)


def test_ridge_makes_few_samples_usable(rng):
    inputs, targets = rng.standard_normal((2, 3)), rng.standard_normal((2, 4))
    with pytest.raises(ArgumentError, match="ridge"):
        AttentionSample(inputs, targets)
    found = AttentionSample(inputs, targets, ridge=0.1).estimated
    covariance = inputs.T @ inputs / 2 + 0.1 * np.eye(3)
    assert np.asarray(found.planted) == pytest.approx(targets.T @ inputs / 2 @ np.linalg.inv(covariance), rel=1e-12)


@pytest.mark.parametrize(("gauge", "sign"), [("plus", 1), ("minus", -1)])
def test_signed_gauges_are_roots_of_the_whitened_map(gauge, sign):
    """R = +-Q' makes the whitened V the root of (M'M)^(1/2), up to the sign: no singular vectors needed."""
    layer = spectral_layer(PROBLEM, gauge)
    root, target = np.asarray(PROBLEM.root), np.asarray(PROBLEM.target)
    expected = np.real(sqrtm(np.real(sqrtm(target.T @ target))))
    assert root @ np.asarray(layer.key_query) @ root == pytest.approx(sign * expected, abs=1e-10)


@pytest.mark.parametrize("gauge", ["identity", "plus", "minus"])
def test_the_spectral_layer_of_the_truth_is_a_minimum(gauge):
    layer = spectral_layer(PROBLEM, gauge)
    gradient = PROBLEM.gradient(layer)
    assert float(PROBLEM.excess(layer) + PROBLEM.regulariser(layer)) < 1e-30  # squares of the rounding of U and V
    assert max(float(jnp.abs(gradient.value).max()), float(jnp.abs(gradient.key_query).max())) < 1e-16


def test_draws_are_a_function_of_the_generator():
    first, second = (draw_sample(PROBLEM, 20, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first.targets, second.targets)
    assert not np.array_equal(first.targets, draw_sample(PROBLEM, 20, np.random.default_rng(4)).targets)


def test_the_draws_do_not_depend_on_the_noise():
    """Without noise the inputs of every sample of a sequence are those with noise, and the targets are exact."""
    quiet = prescribed_spectrum(4, (0.05, 0.04, 0.03), 5.0, 11)
    streams = [np.random.default_rng(3) for _ in range(2)]
    for _ in range(2):
        noisy, clean = (draw_sample(one, 20, rng) for one, rng in zip((PROBLEM, quiet), streams, strict=True))
        assert np.array_equal(noisy.inputs, clean.inputs)
        assert np.array_equal(clean.targets, np.asarray(clean.inputs) @ np.asarray(quiet.planted).T)


@pytest.mark.parametrize(
    ("inputs", "targets", "word"),
    [
        (np.ones((5, 2)), np.ones((4, 2)), "targets"),
        (np.ones((5, 2)), np.ones(5), "targets"),
        (np.full((5, 2), np.nan), np.ones((5, 2)), "inputs"),
        (np.ones((5, 2)), np.ones((5, 2)), "positive definite"),  # two equal columns
    ],
)
def test_bad_data_are_named(inputs, targets, word):
    with pytest.raises(ArgumentError, match=word):
        AttentionSample(inputs, targets)


def test_bad_options_are_named(rng):
    with pytest.raises(ArgumentError, match="gauge"):
        spectral_layer(PROBLEM, "left")
    with pytest.raises(ArgumentError, match="ridge"):
        AttentionSample(rng.standard_normal((5, 2)), rng.standard_normal((5, 2)), ridge=-1.0)


def test_standard_errors_of_the_map_are_the_scatter_over_noise(rng):
    sample = draw_sample(PROBLEM, 50, rng)
    inputs = np.asarray(sample.inputs)
    noise = np.sqrt(1e-3) * rng.standard_normal((50, 4000))
    maps = np.linalg.lstsq(inputs, noise, rcond=None)[0]  # errors of 4000 outputs, columns of A in rows
    scale = np.sqrt(1e-3 / float(sample.estimated.noise))  # the sample has its own estimate of the noise
    assert map_errors(sample) * scale == pytest.approx(maps.std(axis=1), rel=0.05)
    assert np.isnan(map_errors(AttentionSample(inputs[:3], np.asarray(sample.targets)[:3]))).all()


@pytest.mark.parametrize("inputs", [np.ones((5, 2)), np.ones((1, 2))])
def test_a_singular_covariance_is_an_assumption_that_fails(inputs):
    with pytest.raises(ArgumentError, match="A1"):
        AttentionSample(inputs, np.ones((len(inputs), 2)))
