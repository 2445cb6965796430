"""Arbitrary data: a typed error or a right answer, never a bare traceback or a wrong number."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import penchant as pt
from penchant.errors import NotSeparableError, PenchantError
from problems import features, infimum, loss_and_gradient, token_features

ENTRIES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5]),
    st.floats(-10, 10, allow_subnormal=False),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 1e-300]),
)
TAME = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.0]), st.floats(-4, 4, allow_subnormal=False).map(lambda x: round(x, 3))
)
DTYPES = st.sampled_from([np.float64, np.float32, np.int64, bool, object, complex, "U3"])


def arrays(shape, entries):
    size = int(np.prod(shape))
    return st.lists(entries, min_size=size, max_size=size).map(lambda values: np.array(values, float).reshape(shape))


@st.composite
def any_array(draw, dimensions):
    """Arrays that are mostly of the right rank, sometimes of another dtype, or not arrays at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([None, "data", 3.0, [], [[1.0], [1.0, 2.0]], {"a": 1}]))
    rank = draw(st.sampled_from([dimensions] * 4 + [1, 2, 3]))
    shape = draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    found = draw(arrays(shape, ENTRIES))
    with np.errstate(all="ignore"):
        return found.astype(draw(DTYPES)) if draw(st.booleans()) else found


def made(kind, *arguments, **options):
    """The data, or None where they were refused with a typed error; anything else is a failure. Fewer digits are a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pt.errors.PenchantWarning)
            return kind(*arguments, **options)
    except PenchantError:
        return None


def real(value, dimensions):
    """Independent of the library: whether a value is a real, finite, non-empty array of this rank and moderate size."""
    try:
        found = np.asarray(value)
    except ValueError:
        return False
    if found.dtype.kind not in "biuf" or found.ndim != dimensions or not found.size:
        return False
    found = found.astype(float)
    return bool(np.isfinite(found).all() and np.abs(found).max() <= 1e100)


def signs(value, count):
    return real(value, 1) and len(value) == count and bool((np.abs(np.asarray(value, float)) == 1).all())


@hypothesis_settings(max_examples=200)
@given(inputs=any_array(2), labels=any_array(1))
def test_classification_is_made_exactly_from_valid_arguments(inputs, labels):
    valid = real(inputs, 2) and np.any(inputs) and signs(labels, len(inputs))
    data = made(pt.Classification, inputs, labels)
    assert (data is not None) == bool(valid)
    assert data is None or np.array_equal(data.signed, np.asarray(labels, float)[:, None] * np.asarray(inputs, float))


def valid_tokens(tokens, labels, head, queries, ties):
    if not (real(tokens, 3) and np.shape(tokens)[1] >= 2 and signs(labels, len(tokens))):
        return False
    if not (real(head, 1) and len(head) == np.shape(tokens)[2]):
        return False
    x = np.asarray(tokens, float)
    q = x[:, 0] if queries is None else queries
    if not (real(q, 2) and len(q) == len(x) and np.asarray(q, float).any(axis=1).all()):
        return False
    scores = np.asarray(labels, float)[:, None] * (x @ np.asarray(head, float))
    best = (scores >= scores.max(axis=1, keepdims=True) - 1e-9 * np.abs(scores).max()).sum(axis=1)
    return bool((best == 1).all() or (ties == "keep" and (best < scores.shape[1]).all()))


@hypothesis_settings(max_examples=200)
@given(
    tokens=any_array(3),
    labels=any_array(1),
    head=any_array(1),
    queries=st.none() | any_array(2),
    ties=st.sampled_from(["raise", "keep"]),
)
def test_token_selection_is_made_exactly_from_valid_arguments(tokens, labels, head, queries, ties):
    data = made(pt.TokenSelection, tokens, labels, head, queries=queries, ties=ties)
    assert (data is not None) == valid_tokens(tokens, labels, head, queries, ties)


@hypothesis_settings(max_examples=200)
@given(tokens=arrays((2, 3, 2), TAME), labels=arrays((2,), st.sampled_from([1.0, -1.0])), head=arrays((2,), TAME))
def test_scores_and_optimal_tokens_are_those_of_the_definition(tokens, labels, head):
    data = made(pt.TokenSelection, tokens, labels, head, ties="keep")
    assert (data is not None) == valid_tokens(tokens, labels, head, None, "keep")
    assume(data is not None)
    scores = labels[:, None] * (tokens @ head)
    assert np.array_equal(data.scores, scores)
    assert np.array_equal(np.asarray(data.scores)[[0, 1], np.asarray(data.optimal)], scores.max(axis=1))


@st.composite
def small_classification(draw):
    n, d = draw(st.integers(1, 4)), 2
    inputs = draw(arrays((n, d), TAME))
    if n > 1 and draw(st.booleans()):
        inputs[-1] = inputs[0]  # a duplicated row
    return pt.Classification(inputs, draw(arrays((n,), st.sampled_from([1.0, -1.0]))))


@st.composite
def small_tokens(draw):
    n, length = draw(st.integers(1, 2)), draw(st.integers(2, 3))
    tokens = draw(arrays((n, length, 2), TAME))
    if draw(st.booleans()):
        tokens[0, -1] = tokens[0, 0]  # a duplicated token
    scores = draw(arrays((n, length), TAME))
    return pt.TokenSelection(tokens, scores=scores, ties=draw(st.sampled_from(["raise", "keep"])))


def data_or_reject(draw, strategy):
    try:
        return draw(strategy)
    except PenchantError:
        reject()


@pytest.mark.parametrize("strategy", [small_classification(), small_tokens()], ids=["classification", "tokens"])
@hypothesis_settings(max_examples=50)
@given(draws=st.data())
def test_max_margin_is_certified_or_proved_infeasible(strategy, draws):
    data = data_or_reject(draws.draw, strategy)
    rows = features(data)[data.constrained()]
    longest = np.linalg.norm(rows, axis=1).max()
    try:
        found = pt.references.max_margin(data)
    except NotSeparableError as error:
        q = error.weights[data.constrained()]
        assert q.min() >= 0
        assert q.sum() == pytest.approx(1, abs=1e-9)
        assert np.linalg.norm(q @ rows) <= 1e-8 * longest  # the proof, from the features alone
    else:
        reached = rows @ found.weight.ravel()
        dual = found.dual[data.constrained()]
        assert reached.min() >= 1 - 1e-9
        assert dual.min() >= 0
        lower = dual.sum() / np.linalg.norm(dual @ rows)  # weak duality, from the features alone
        assert lower <= found.value * (1 + 1e-9)
        assert found.value <= lower * (1 + 1e-6)


@pytest.mark.parametrize("strategy", [small_classification(), small_tokens()], ids=["classification", "tokens"])
@hypothesis_settings(max_examples=40)
@given(draws=st.data())
def test_a_short_run_equals_the_plain_loop(strategy, draws):
    data = data_or_reject(draws.draw, strategy)
    setting = pt.Setting(data, pt.Direct(), pt.Exponential(), "sum")
    run = pt.train(setting, pt.gradient_descent(0.01), steps=5)
    weight = np.zeros(data.weight_shape)
    for _ in range(int(run.steps[-1])):
        weight = weight - 0.01 * loss_and_gradient(data, weight, "Exponential")[1]
    scale = max(np.abs(weight).max(), 1e-12)
    assert np.abs(run.weight() - weight).max() <= 1e-9 * scale
    value = loss_and_gradient(data, weight, "Exponential")[0]
    # Tied scores count as equal to 1e-9, so the excess does too.
    assert np.exp(run.log_excess[-1]) == pytest.approx(value - infimum(data, "Exponential"), rel=1e-9, abs=1e-8 * value)
    assert run.status.name in ("out_of_steps", "zero_gradient")


def test_features_of_the_tests_agree_with_the_adjoint():
    data = pt.TokenSelection(np.arange(12.0).reshape(2, 3, 2) ** 1.5 + 1, scores=[[0.0, 1.0, 0.5], [2.0, 0.0, 1.0]])
    wanted = token_features(np.asarray(data.tokens), np.asarray(data.queries), [1, 0])
    assert np.allclose(np.asarray(data.gram()), wanted @ wanted.T, rtol=1e-12)
