"""The nuclear-norm reference against CVXPY, closed forms and invariances; the l1 reference of diagonal data."""

import sys

import cvxpy as cp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, NotSeparableError, PenchantWarning
from penchant.norms import L1, Nuclear
from penchant.settings.generators import random_tokens
from penchant.theory.uniqueness import certified_rank
from problems import features


def by_cvxpy(data):
    rows = features(data)
    scale = np.abs(rows).max()
    weight = cp.Variable(data.weight_shape)
    problem = cp.Problem(cp.Minimize(cp.norm(weight, "nuc")), [rows / scale @ cp.vec(weight, order="C") >= 1])
    return problem.solve(solver="CLARABEL") / scale


def spread_tokens(decades, seed):
    """Five samples whose queries differ in length by factors up to 10^(2 decades)."""
    data, rng = pt.settings.equal_score_tokens(5, 4, 6, seed), np.random.default_rng(seed)
    queries = np.asarray(data.queries) * 10 ** rng.uniform(-decades, decades, (5, 1))
    return pt.TokenSelection(data.tokens, queries=queries, scores=data.scores)


@pytest.mark.parametrize("size", [(1, 3, 2), (2, 2, 6), (3, 4, 5), (6, 5, 10), (8, 4, 4)])
@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_cvxpy_and_certifies_itself(size, seed):
    data = pt.settings.equal_score_tokens(*size, seed) if size != (8, 4, 4) else random_tokens(8, 4, 6, seed)
    found = pt.references.nuclear_margin(data)
    assert 0 <= found.bracket.gap <= 1e-9
    assert found.value == pytest.approx(by_cvxpy(data), rel=1e-6)
    assert np.linalg.norm(found.weight, "nuc") == pytest.approx(found.value, rel=1e-12)
    assert (features(data) @ found.weight.ravel()).min() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("seed", [16, 1])
def test_crowded_samples_are_solved_to_the_end(seed):
    data = pt.settings.equal_score_tokens(10, 4, 6, seed)  # 30 pairs in 36 dimensions, 20 of them active
    found = pt.references.nuclear_margin(data)
    assert 0 <= found.bracket.gap <= 1e-9
    assert found.value == pytest.approx(by_cvxpy(data), rel=1e-6)
    sizes = np.linalg.svd(found.weight, compute_uv=False)
    assert certified_rank(data, found) == (sizes > 1e-6 * sizes[0]).sum()


@pytest.mark.parametrize("decades", [1.0, 2.0, 4.0])
def test_queries_of_very_different_length_are_solved_to_the_end(decades):
    for seed in range(6):
        found = pt.references.nuclear_margin(spread_tokens(decades, seed))
        assert found.certified
        assert found.bracket.gap <= 1e-8
    data = spread_tokens(min(decades, 2.0), 1)  # beyond, the cone solver is not accurate
    assert pt.references.nuclear_margin(data).value == pytest.approx(by_cvxpy(data), rel=1e-6)


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e8])
def test_one_sample_may_outweigh_the_other(ratio):
    data = pt.settings.aligned_tokens(lengths=(1.0, 1.0), query_lengths=(1.0, ratio), shares=(0.0, 0.0), d=4).data
    assert pt.references.nuclear_margin(data).value == pytest.approx(1 + 1 / ratio, rel=1e-9)


def test_a_solution_that_is_not_certified_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules["penchant.references.pair_program"], "_ROUNDS", 3)
    data = pt.settings.equal_score_tokens(3, 4, 5, 1)
    with pytest.warns(PenchantWarning, match="could not certify"):
        found = pt.references.nuclear_margin(data)
    assert not found.certified
    assert found.bracket.lower <= 1.0016436 <= found.bracket.upper  # what it does say is true


@pytest.mark.parametrize("seed", range(8))
def test_margins_without_weight_have_no_multiplier(seed):
    data = pt.settings.equal_score_tokens(3, 4, 5, seed)
    found = pt.references.nuclear_margin(data)
    reached = features(data) @ found.weight.ravel()
    assert (found.support == (reached < 1 + 1e-6)).all()
    assert (found.dual[~found.support] == 0).all()


def test_the_certificate_is_not_the_solvers_own():
    # Weak duality by hand: sum(lam) / |sum lam Z|_op from plain arrays.
    data = pt.settings.equal_score_tokens(3, 4, 5, 1)
    found = pt.references.nuclear_margin(data)
    assert found.dual.min() >= 0
    pull = (found.dual @ features(data)).reshape(5, 5)
    assert found.dual.sum() / np.linalg.norm(pull, 2) == pytest.approx(found.value, rel=1e-6)


def test_aligned_data_have_their_closed_form():
    aligned = pt.settings.aligned_tokens()
    assert pt.references.nuclear_margin(aligned.data).value == pytest.approx((1 / aligned.strengths).sum(), rel=1e-6)


def test_longer_queries_need_a_smaller_matrix():
    data = pt.settings.equal_score_tokens(3, 4, 5, 1)
    longer = pt.TokenSelection(data.tokens, queries=3 * data.queries, scores=data.scores)
    assert pt.references.nuclear_margin(longer).value == pytest.approx(
        pt.references.nuclear_margin(data).value / 3, rel=1e-6
    )


def test_many_more_dimensions_than_samples_cost_nothing_in_accuracy():
    found = pt.references.nuclear_margin(pt.settings.equal_score_tokens(2, 3, 60, 0))
    assert found.bracket.gap <= 1e-6
    assert certified_rank(pt.settings.equal_score_tokens(2, 3, 60, 0), found) <= 2


@pytest.mark.parametrize(("seed", "rank"), [(0, 1), (5, 1), (6, 1), (1, 2)])
def test_rank_is_certified_by_the_dual(seed, rank):
    data = pt.settings.equal_score_tokens(3, 4, 5, seed)
    found = pt.references.nuclear_margin(data)
    assert certified_rank(data, found) == rank
    sizes = np.linalg.svd(found.weight, compute_uv=False)
    assert sizes[rank:].sum() <= 1e-3 * sizes.sum()  # what the certificate says of every optimal matrix


@pytest.mark.parametrize("gap", [1e300, 1.0, 0.0, -1e-9, float("nan")])
def test_a_gap_that_certifies_nothing_is_refused(gap):
    data = pt.settings.equal_score_tokens(2, 3, 4, 0)
    for call in (pt.references.nuclear_margin, lambda data, gap: pt.references.norm_margin(data, L1(), gap)):
        with pytest.raises(ArgumentError, match="a number between 0 and 1"):
            call(data, gap)


def test_contradictory_samples_have_a_proof():
    tokens = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    data = pt.TokenSelection(tokens, queries=np.ones((2, 2)), scores=[[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(NotSeparableError) as caught:
        pt.references.nuclear_margin(data)
    assert np.abs(caught.value.weights @ features(data)).max() <= 1e-9


def test_a_diagonal_failure_says_that_a_full_matrix_would_do():
    data = pt.settings.equal_score_tokens(4, 4, 5, 9)
    with pytest.raises(NotSeparableError, match="separable by a full matrix, not by a diagonal one") as caught:
        pt.references.diagonal_margin(pt.settings.DiagonalTokens(data))
    assert np.abs(caught.value.weights @ np.asarray(pt.settings.DiagonalTokens(data).features())).max() <= 1e-9
    assert pt.references.nuclear_margin(data).value > 0
    assert "on sample 3 token 1" in str(caught.value)  # the largest of the weights
    assert caught.value.weights.argmax() // 3 == 3


def test_diagonal_reference_agrees_with_cvxpy():
    data = pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 12, 5))
    weight = cp.Variable(12)
    value = cp.Problem(cp.Minimize(cp.norm1(weight)), [np.asarray(data.features()) @ weight >= 1]).solve()
    assert pt.references.diagonal_margin(data).value == pytest.approx(value, rel=1e-7)
    assert pt.references.diagonal_margin(data).bracket.gap <= 1e-12


def test_the_norm_and_its_dual():
    matrix = np.diag([3.0, -2.0])
    assert Nuclear().value(matrix) == pytest.approx(5.0)
    assert Nuclear().dual(matrix) == pytest.approx(3.0)
