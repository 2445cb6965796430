"""Attention sums over a sample: the blocked forms against the definition, against mpmath where softmax saturates, and in memory."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.special import softmax

from penchant.errors import ArgumentError, PenchantWarning
from penchant.papers.attention_regression.setting.context_sums import _blocked, context_sums, log_weights

FORMS = ("auto", "two_pass")


def data(rng, n=157, d=4, m=6, logits=1.0):
    x, y = rng.standard_normal((n, d)), rng.standard_normal((n, m))
    return x, y, rng.standard_normal((m, d)), logits * rng.standard_normal((d, d))


def loss_by_definition(x, y, u, v, rows, include_self=True):
    logits = x @ v.T @ x.T
    if not include_self:
        np.fill_diagonal(logits, -np.inf)
    return np.mean(np.sum((softmax(logits, axis=1)[rows] @ x @ u.T - y[rows]) ** 2, axis=1))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("logits", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("form", FORMS)
def test_blocked_forms_agree_with_the_differentiated_definition(rng, form, logits, include_self):
    arrays = data(rng, logits=logits)
    dense = context_sums(*arrays, form="dense", include_self=include_self)
    found = context_sums(*arrays, form=form, include_self=include_self, blocks=(32, 48))  # neither divides 157
    for ours, exact in zip(jax.tree.leaves(found), jax.tree.leaves(dense), strict=True):
        assert np.abs(ours - exact).max() <= 1e-13 * np.abs(exact).max()


@pytest.mark.parametrize("include_self", [True, False])
def test_the_dense_form_has_the_value_and_the_differences_of_the_definition(rng, include_self):
    x, y, u, v = data(rng, n=23)
    rows = np.array([3, 0, 22, 7])
    found = context_sums(x, y, u, v, queries=rows, form="dense", include_self=include_self)
    loss = lambda u, v: loss_by_definition(x, y, u, v, rows, include_self)
    assert float(found.loss) == pytest.approx(loss(u, v), rel=1e-14)
    step = 1e-6
    for _ in range(5):
        by_u, by_v = rng.standard_normal(u.shape), rng.standard_normal(v.shape)
        difference = (loss(u + step * by_u, v + step * by_v) - loss(u - step * by_u, v - step * by_v)) / (2 * step)
        slope = np.sum(found.value * by_u) + np.sum(found.key_query * by_v)
        assert float(slope) == pytest.approx(difference, rel=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_some_rows_as_queries(rng, form):
    x, y, u, v = data(rng)
    rows = rng.choice(157, 41, replace=False)
    found = context_sums(x, y, u, v, queries=rows, form=form, blocks=(16, 64))
    assert float(found.loss) == pytest.approx(loss_by_definition(x, y, u, v, rows), rel=1e-13)
    dense = context_sums(x, y, u, v, queries=rows, form="dense")
    assert np.abs(found.key_query - dense.key_query).max() <= 1e-13 * np.abs(dense.key_query).max()


def test_more_than_sixteen_columns_take_two_passes(rng):
    arrays = data(rng, n=90, d=20, logits=0.2)
    dense, found = context_sums(*arrays, form="dense"), context_sums(*arrays, blocks=(32, 32))
    assert np.abs(found.key_query - dense.key_query).max() <= 1e-13 * np.abs(dense.key_query).max()


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
    for form in ("auto", "two_pass"):
        found = context_sums(x, y, u, v, form=form)
        assert np.abs(found.key_query - exact).max() <= bound * np.abs(exact).max()


def test_a_gradient_far_below_rounding_of_the_second_moment(rng):
    """Two keys, all weight on one: the covariance is e^-80 of the second moment, and still has all its digits."""
    x, y = np.array([[1.0, 0.5], [3.0, -0.25]]), np.array([[0.3], [0.7]])
    u, v = np.array([[1.0, 2.0]]), 10.0 * np.array([[4.0, 0.0], [0.0, 1.0]])
    exact = exact_key_query_gradient(x, y, u, v)
    assert np.abs(exact).max() < 1e-25
    found = context_sums(x, y, u, v)
    assert np.abs(found.key_query - exact).max() <= 1e-12 * np.abs(exact).max()


def test_log_weights_are_finite_where_weights_underflow(rng):
    x, v = rng.standard_normal((12, 2)), 400.0 * rng.standard_normal((2, 2))
    found = np.asarray(log_weights(x, v))
    assert np.isfinite(found).all()
    assert found.min() < -800
    assert np.exp(found).sum(axis=1) == pytest.approx(1.0, rel=1e-13)
    alone = np.asarray(log_weights(x, v, include_self=False))
    assert np.isneginf(np.diag(alone)).all()


def test_the_order_of_the_samples_does_not_matter(rng):
    x, y, u, v = data(rng)
    order = rng.permutation(157)
    first, second = context_sums(x, y, u, v, blocks=(64, 32)), context_sums(x[order], y[order], u, v, blocks=(64, 32))
    assert float(second.loss) == pytest.approx(float(first.loss), rel=1e-13)
    assert np.abs(second.key_query - first.key_query).max() <= 1e-13 * np.abs(first.key_query).max()


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_stays_single(rng, form):
    arrays = data(rng, logits=0.3)
    exact = context_sums(*arrays, form="dense")
    found = context_sums(*(jnp.asarray(array, jnp.float32) for array in arrays), form=form, blocks=(64, 64))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
    assert np.abs(found.key_query - exact.key_query).max() <= 1e-5 * np.abs(exact.key_query).max()


def working_memory(n):
    x, y, u, v = (jnp.zeros(shape) for shape in ((n, 5), (n, 3), (3, 5), (5, 5)))
    compiled = _blocked.lower(x, y, u, v, jnp.arange(n), True, "auto", (128, 128)).compile()
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
        ({"form": "quick"}, "form"),
        ({"blocks": (0, 8)}, "blocks"),
    ],
)
def test_bad_calls_name_the_argument(change, word):
    call = {"x": np.ones((4, 3)), "y": np.ones((4, 2)), "u": np.ones((2, 3)), "v": np.ones((3, 3))} | change
    options = {name: call.pop(name) for name in ("form", "blocks") if name in call}
    with pytest.raises(ArgumentError, match=word):
        context_sums(*call.values(), **options)


def test_a_dense_matrix_of_many_rows_is_warned_of_and_a_context_without_keys_refused(monkeypatch):
    monkeypatch.setattr("penchant.papers.attention_regression.setting.context_sums.DENSE_LIMIT", 5)
    with pytest.warns(PenchantWarning, match="6 x 6 matrices"):
        context_sums(jnp.zeros((6, 1)), jnp.zeros((6, 1)), jnp.ones((1, 1)), jnp.ones((1, 1)), form="dense")
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
