"""Leaning tokens: what they promise about the decoder program, by an independent solver, and the bound on near-orthogonality."""

import cvxpy as cp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.papers.self_attention.theorems import (
    decoder_support,
    long_optimal_tokens,
    near_orthogonal,
    short_joint_steps,
)


def decoder_by_cvxpy(inputs):
    u = cp.Variable(inputs.shape[1])
    constraint = inputs @ u >= 1
    cp.Problem(cp.Minimize(cp.sum_squares(u)), [constraint]).solve(solver=cp.CLARABEL)
    return np.asarray(u.value), np.asarray(constraint.dual_value)


@pytest.mark.parametrize("seed", range(3))
def test_only_the_last_sample_does_not_support_the_decoder(seed):
    data = pt.settings.leaning_tokens(length=1.0, seed=seed)
    inputs = np.asarray(data.decoder().signed)
    u, dual = decoder_by_cvxpy(inputs)
    assert (inputs @ u)[-1] > 1.05
    assert dual[-1] < 1e-6 * dual.max() < 1e-2 * dual[:-1].min()
    found = pt.theory.joint_references(data)
    assert list(np.flatnonzero(~found.decoder.support)) == [5]
    assert not decoder_support(found).holds


@pytest.mark.parametrize("seed", range(7))
def test_every_other_condition_holds_or_is_missed_by_as_little_as_possible(seed):
    data = pt.settings.leaning_tokens(seed=seed)
    assert long_optimal_tokens(data).holds
    assert short_joint_steps(24.9, data).holds
    assert 1 < 1 - near_orthogonal(data).slack < 1.6


def at_the_bound(n, seed):
    """Tokens with random inner products and lengths, scaled so that C3 holds with equality."""
    rng = np.random.default_rng(seed)
    products = np.tril(rng.uniform(-1, 1, (2 * n, 2 * n)), -1)
    lengths = rng.uniform(1.0, 1.5, n)
    gram = np.diag(np.concatenate([lengths**2, np.full(n, 0.2)]))
    gram += (products + products.T) * lengths.min() ** 2 / (2 * n * np.abs(products).max())
    values, vectors = np.linalg.eigh(gram)
    tokens = vectors * np.sqrt(np.maximum(values, 0.0))
    return pt.JointTokens(np.stack([tokens[:n], tokens[n:]], axis=1), rng.choice([-1.0, 1.0], n), np.zeros(n, int))


def left_out_margin(data):
    """The largest margin that the shortest decoder with margins >= 1 of all other samples gives to a sample."""
    inputs = np.asarray(data.decoder().signed)
    found = []
    for sample in range(len(inputs)):
        others = pt.Classification(np.delete(inputs, sample, axis=0), np.ones(len(inputs) - 1))
        found.append(float(inputs[sample] @ pt.references.max_margin(others).weight))
    return max(found)


@pytest.mark.parametrize("n", [3, 6, 12])
@pytest.mark.parametrize("seed", range(3))
def test_near_orthogonality_implies_that_every_sample_supports_the_decoder(n, seed):
    """Under C3 the decoder of the others gives a sample a margin of at most (n-1)/(n+2) < 1; leaning tokens beyond 1/(2n-3) do not."""
    lean = lambda size: pt.settings.leaning_tokens(n, min(size, 0.9 / (n - 2)), 1.0, seed)
    for data in (lean(1 / (2 * n)), at_the_bound(n, seed)):
        assert left_out_margin(data) <= (n - 1) / (n + 2)
    assert left_out_margin(lean(1.2 / (2 * n - 3))) > (n - 1) / (n + 2)


@pytest.mark.parametrize("n", [3, 5, 9])
def test_equal_inner_products_attain_the_bound_on_a_left_out_margin(n):
    """All products equal to 1/(2n): the margin of the last sample is exactly (n-1)/(n+2)."""
    lean = 1 / (2 * n)
    gram = (1 + lean) * np.eye(n) - lean
    gram[-1, :-1] = gram[:-1, -1] = lean
    optimal = np.linalg.cholesky(gram)
    data = pt.JointTokens(np.stack([optimal, 0.1 * optimal], axis=1), np.ones(n), np.zeros(n, int))
    assert left_out_margin(data) == pytest.approx((n - 1) / (n + 2), rel=1e-10)


@pytest.mark.parametrize("bad", [{"n": 2}, {"lean": 0.0}, {"lean": 0.25}, {"length": 0.0}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(ArgumentError, match=next(iter(bad))):
        pt.settings.leaning_tokens(**bad)
