"""Attention sums over a sample: the blocked forms against the definition, against mpmath where softmax saturates, and in memory."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.special import softmax

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting import context_sums as module
from penchant.papers.attention_regression.setting.context_sums import Sums, context_sums


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of five queries of 157, so that the last one is padded."""
    monkeypatch.setattr(module, "_LOGITS", 900)
    jax.clear_caches()


def data(rng, n=157, d=4, m=6, logits=1.0):
    x, y = rng.standard_normal((n, d)), rng.standard_normal((n, m))
    return x, y, rng.standard_normal((m, d)), logits * rng.standard_normal((d, d))


def loss_by_definition(x, y, u, v, rows, include_self=True):
    logits = x @ v.T @ x.T
    if not include_self:
        np.fill_diagonal(logits, -np.inf)
    return np.mean(np.sum((softmax(logits, axis=1)[rows] @ x @ u.T - y[rows]) ** 2, axis=1))


def definition(x, y, u, v, rows=None, include_self=True):
    """The definition, differentiated."""
    rows = np.arange(len(x)) if rows is None else rows

    def loss(u, v):
        logits = x @ v.T @ x.T
        logits = logits if include_self else jnp.where(jnp.eye(len(x), dtype=bool), -jnp.inf, logits)
        return jnp.mean(jnp.sum((jax.nn.softmax(logits, axis=1)[rows] @ x @ u.T - y[rows]) ** 2, axis=1))

    value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(jnp.asarray(u), jnp.asarray(v))
    return Sums(value, *gradients)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("logits", [0.1, 1.0, 30.0])
def test_blocks_agree_with_the_differentiated_definition(rng, small_blocks, logits, include_self):
    arrays = data(rng, logits=logits)
    exact, found = definition(*arrays, include_self=include_self), context_sums(*arrays, include_self=include_self)
    for ours, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert np.abs(ours - wanted).max() <= 1e-13 * np.abs(wanted).max()


def test_some_rows_as_queries(rng, small_blocks):
    x, y, u, v = data(rng)
    rows = rng.choice(157, 41, replace=False)
    found, exact = context_sums(x, y, u, v, queries=rows), definition(x, y, u, v, rows)
    assert float(found.loss) == pytest.approx(loss_by_definition(x, y, u, v, rows), rel=1e-13)
    assert np.abs(found.key_query - exact.key_query).max() <= 1e-13 * np.abs(exact.key_query).max()


def test_of_several_largest_weights_one_is_the_peak():
    """Equal keys: every weight is a quarter, and the covariance is 0."""
    found = context_sums(np.ones((4, 2)), np.zeros((4, 1)), np.ones((1, 2)), np.eye(2))
    assert float(found.loss) == pytest.approx(4.0, rel=1e-15)
    assert not np.any(found.key_query)


def exact_key_query_gradient(x, y, u, v):
    """The gradient in 80 digits, from the definition with explicit covariances."""
    mpmath.mp.dps = 80
    n, d = x.shape
    rows = [mpmath.matrix(row.tolist()) for row in x]
    value, turn = mpmath.matrix(u.tolist()), mpmath.matrix(v.tolist())
    total = mpmath.zeros(d, d)
    for i in range(n):
        turned = turn * rows[i]
        weights = [mpmath.exp((rows[j].T * turned)[0]) for j in range(n)]
        mass = mpmath.fsum(weights)
        mean = mpmath.zeros(d, 1)
        for weight, row in zip(weights, rows, strict=True):
            mean += weight / mass * row
        push = value.T * (value * mean - mpmath.matrix(y[i].tolist()))
        for weight, row in zip(weights, rows, strict=True):
            gap = row - mean
            total += (weight / mass * (gap.T * push)[0]) * gap * rows[i].T
    return np.array((2 * total / n).tolist(), float)


@pytest.mark.parametrize("size", [3.0, 60.0])
def test_a_saturated_softmax_keeps_its_digits(rng, size):
    x, y, u, v = data(rng, n=9, d=2, m=3, logits=size)
    exact = exact_key_query_gradient(x, y, u, v)
    # the conditioning of exp: logits of size z carry z ulps into the weights
    bound = 1e-14 * max(10.0, np.abs(x @ v.T @ x.T).max())
    found = context_sums(x, y, u, v)
    assert np.abs(found.key_query - exact).max() <= bound * np.abs(exact).max()


def test_a_gradient_far_below_rounding_of_the_second_moment(rng):
    """Two keys, all weight on one: the covariance is e^-80 of the second moment, and still has all its digits."""
    x, y = np.array([[1.0, 0.5], [3.0, -0.25]]), np.array([[0.3], [0.7]])
    u, v = np.array([[1.0, 2.0]]), 10.0 * np.array([[4.0, 0.0], [0.0, 1.0]])
    exact = exact_key_query_gradient(x, y, u, v)
    assert np.abs(exact).max() < 1e-25
    found = context_sums(x, y, u, v)
    assert np.abs(found.key_query - exact).max() <= 1e-12 * np.abs(exact).max()


def test_the_order_of_the_samples_does_not_matter(rng):
    x, y, u, v = data(rng)
    order = rng.permutation(157)
    first, second = context_sums(x, y, u, v), context_sums(x[order], y[order], u, v)
    assert float(second.loss) == pytest.approx(float(first.loss), rel=1e-13)
    assert np.abs(second.key_query - first.key_query).max() <= 1e-13 * np.abs(first.key_query).max()


def test_single_precision_stays_single(rng):
    arrays = data(rng, logits=0.3)
    exact, found = definition(*arrays), context_sums(*(jnp.asarray(array, jnp.float32) for array in arrays))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
    assert np.abs(found.key_query - exact.key_query).max() <= 1e-5 * np.abs(exact.key_query).max()


def working_memory(n):
    x, y, u, v = (jnp.zeros(shape) for shape in ((n, 5), (n, 3), (3, 5), (5, 5)))
    compiled = module._sums.lower(x, y, u, v, jnp.arange(n), True).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_working_memory_does_not_grow_like_the_square():
    small, large = working_memory(2048), working_memory(16384)
    assert large - small < 16384 * 5 * 8 * 4  # a few copies of the inputs, where 16384^2 doubles are 2 GB


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"y": np.zeros((5, 2))}, "targets"),
        ({"v": np.zeros((3, 2))}, "key_query"),
        ({"u": np.zeros((3, 3))}, "value"),
    ],
)
def test_bad_calls_name_the_argument(change, word):
    call = {"x": np.ones((4, 3)), "y": np.ones((4, 2)), "u": np.ones((2, 3)), "v": np.ones((3, 3))} | change
    with pytest.raises(ArgumentError, match=word):
        context_sums(*call.values())


def test_a_context_without_keys_is_refused():
    with pytest.raises(ArgumentError, match="include_self"):
        context_sums(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.ones((1, 1)), jnp.ones((1, 1)), include_self=False)


@pytest.mark.parametrize(
    ("queries", "found"),
    [
        ([3, 99], "3 to 99"),
        ([-1, 3], "-1 to 3"),
        ([], "shape"),
        ([[1, 2]], "shape"),
        ([1.0, 2.0], "float64"),
        (np.ones(23, bool), "flatnonzero"),
        (["first"], "queries"),
    ],
)
def test_queries_that_are_no_rows_are_refused(rng, queries, found):
    with pytest.raises(ArgumentError, match="queries") as error:
        context_sums(*data(rng, n=23), queries=queries)
    assert "0 to 22" in str(error.value)
    assert found in str(error.value)
