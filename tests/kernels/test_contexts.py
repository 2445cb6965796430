"""The kernels, interpreted, against the definition with every weight written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penchant.papers.attention_regression.kernels import contexts, exp2


def problem(queries, keys, width, scale, dtype):
    draw = np.random.default_rng(3).standard_normal
    arrays = draw((queries, width)) * scale, draw((keys, width)), draw((queries, width))
    return [jnp.asarray(array, dtype) for array in arrays]


def by_definition(queries, keys, pulls):
    queries, keys, pulls = (np.asarray(array, float) for array in (queries, keys, pulls))
    weights = jax.nn.softmax(queries @ keys.T, axis=1)
    means = weights @ keys
    offsets = keys[None] - np.asarray(means)[:, None]
    slopes = np.einsum("qk,qki,qkj,qj->qi", weights, offsets, offsets, pulls)
    return np.asarray(means), slopes


def distance(found, expected):
    return np.linalg.norm(np.asarray(found, float) - expected) / np.linalg.norm(expected)


SIZES = [(64, 128, 16), (70, 131, 5), (5, 1, 3), (65, 600, 20)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("dtype", "slices", "bound"), [(jnp.float64, 3, 2e-14), (jnp.float32, 3, 3e-6), (jnp.float32, 2, 3e-4)]
)
def test_contexts_follow_the_definition(size, dtype, slices, bound):
    queries, keys, pulls = problem(*size, 0.4, dtype)
    found = contexts(queries, keys, lambda mean, pull: pull, pulls, slices=slices, interpret=True)
    expected = by_definition(queries, keys, pulls)
    assert distance(found[0], expected[0]) < bound
    if size[1] > 1:
        assert distance(found[1], expected[1]) < bound
    else:
        assert np.abs(found[1]).max() < bound  # attention over one key has no slope


def test_the_pull_sees_the_mean_and_its_rows():
    queries, keys, targets = problem(40, 90, 6, 0.4, jnp.float64)
    found = contexts(queries, keys, lambda mean, target: mean - target, targets, interpret=True)
    means, _ = by_definition(queries, keys, targets)
    assert distance(found[1], by_definition(queries, keys, means - np.asarray(targets))[1]) < 2e-14


def test_three_slices_keep_what_two_lose():
    queries, keys, pulls = problem(64, 128, 16, 0.4, jnp.float32)
    expected = by_definition(queries, keys, pulls)[1]
    errors = [
        distance(contexts(queries, keys, lambda mean, pull: pull, pulls, slices=slices, interpret=True)[1], expected)
        for slices in (2, 3)
    ]
    assert errors[0] > 5 * errors[1]


def test_logits_of_a_thousand_do_not_overflow():
    queries, keys, pulls = problem(64, 64, 4, 400.0, jnp.float64)
    means, slopes = contexts(queries, keys, lambda mean, pull: pull, pulls, interpret=True)
    assert np.abs(queries @ keys.T).max() > 1000
    expected = by_definition(queries, keys, pulls)
    assert distance(means, expected[0]) < 1e-13
    assert distance(slopes, expected[1]) < 1e-9


def test_exponential_to_the_last_bits():
    value = -np.linspace(0, 1000, 100_001)
    assert np.max(np.abs(np.asarray(exp2(jnp.asarray(value))) / np.exp2(value) - 1)) < 4.5e-16
    assert float(exp2(jnp.zeros(()))) == 1.0
