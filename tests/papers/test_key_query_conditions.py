"""Conditions of the key-query theorems on awkward data: unequal scores, other shapes, other losses and optimisers, narrow heads."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.errors import NotSeparableError
from penchant.papers.key_query import hypotheses as assumptions
from penchant.papers.key_query.theorems import dual_spectrum
from penchant.settings.factored import Factors
from penchant.theory.selections import equal_scores, unique_optimal

RNG = np.random.default_rng(0)
TOKENS, QUERIES = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((3, 5))
SCORES = np.array([[6.0, 5.9, 0.0, 0.0], [0.0, 6.0, 5.9, 0.0], [0.0, 0.0, 6.0, 5.8]])


def setting_of(tokens, scores, queries=QUERIES, loss=None, ties="raise"):
    data = pt.TokenSelection(tokens, queries=queries, scores=scores, ties=ties)
    return pt.Setting(data, pt.KeyQuery(), loss or pt.Exponential())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_initial_loss_is_compared_with_the_second_best_token(reduction):
    data = setting_of(TOKENS, SCORES).data
    setting = pt.Setting(data, pt.KeyQuery(), pt.Exponential(), reduction)
    found = assumptions.initial_loss(setting, data, setting.start())
    excess = np.exp(-SCORES.mean(axis=1)) - np.exp(-6.0)  # uniform attention at the start
    plateau = min(np.exp(-5.9) - np.exp(-6.0), np.exp(-5.8) - np.exp(-6.0))
    assert found.slack == pytest.approx(np.log(plateau / excess.sum()), rel=1e-9)
    assert not found.holds
    assert found.offender == "sample 0 token 1"


def test_a_tied_token_is_not_a_wrong_one():
    scores = np.array([[6.0, 6.0, 0.0, 0.0], [0.0, 6.0, 0.0, 0.0], [0.0, 0.0, 6.0, 0.0]])
    setting = setting_of(TOKENS, scores, ties="keep")
    found = assumptions.initial_loss(setting, setting.data, setting.start())
    excess = np.exp(-scores.mean(axis=1)) - np.exp(-6.0)
    assert found.slack == pytest.approx(np.log((1 - np.exp(-6.0)) / excess.sum()), rel=1e-9)


def test_one_sample_may_start_above_its_second_best_token():
    single = setting_of(TOKENS[:1], SCORES[:1], QUERIES[:1])
    assert not assumptions.initial_loss(single, single.data, single.start()).holds
    alike = setting_of(TOKENS[:1], [[6.0, 0.0, 0.0, 0.0]], QUERIES[:1])
    assert assumptions.initial_loss(alike, alike.data, alike.start()).slack == np.inf


@pytest.mark.parametrize("columns", [1, 3])
def test_queries_of_another_dimension_are_predicted_and_called_not_parallel(columns):
    scores = np.where(SCORES == 6.0, 6.0, 0.0)
    setting = setting_of(TOKENS[:2], scores[:2], QUERIES[:2, :columns])
    prediction = pt.predict(setting, pt.GradientFlow())
    (found,) = [one for one in prediction.hypotheses if one.name == "parallel_queries"]
    assert (found.holds, found.offender) == (False, "every sample")
    assert f"5 dimensions, queries {columns}" in found.detail


def test_an_optimal_token_of_zero_is_named_without_a_number_that_is_none():
    scores = np.where(SCORES == 6.0, 6.0, 0.0)
    shifted = TOKENS.copy()
    shifted[1] -= TOKENS[1, 1]  # the optimal token of sample 1 becomes 0, all margins stay
    here, there = setting_of(TOKENS, scores), setting_of(shifted, scores)
    prediction = pt.predict(there, pt.GradientFlow())
    assert prediction.reference.value == pytest.approx(pt.references.nuclear_margin(here.data).value, rel=1e-6)
    found = {one.name: one for one in prediction.hypotheses}
    assert found["parallel_queries"].offender == "sample 1"
    assert "is 0" in found["parallel_queries"].detail
    assert all(np.isfinite(one.slack) for one in prediction.hypotheses if one.holds is not None)
    assert assumptions.aligned_start(there.data, there.start(0, 0.1)).offender == "sample 1"


def test_pairs_around_an_optimal_token_of_zero_are_still_pairs():
    tokens = np.array([[[0.0, 0.0], [1.0, 2.0], [-1.0, -2.0]]])
    assert assumptions.paired_tokens(pt.TokenSelection(tokens, queries=[[1.0, 0.0]], scores=[[1.0, 0.0, 0.0]])).holds


def test_zero_factors_are_no_aligned_start():
    setting = setting_of(TOKENS, SCORES)
    found = assumptions.aligned_start(setting.data, setting.start())
    assert (found.holds, found.slack, found.offender) == (False, -1.0, "K = Q = 0")


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_theorems_are_about_the_exponential_loss(diagonal):
    tokens = pt.settings.equal_score_tokens(4, 4, 12, 5) if diagonal else pt.settings.equal_score_tokens(3, 4, 5, 1)
    data, model = (pt.settings.DiagonalTokens(tokens), pt.Hadamard()) if diagonal else (tokens, pt.KeyQuery())
    for loss, holds in ((pt.Exponential(), True), (pt.Logistic(), False)):
        prediction = pt.predict(pt.Setting(data, model, loss), pt.GradientFlow())
        (found,) = [one for one in prediction.hypotheses if one.name == "exponential_loss"]
        assert found.holds is holds
        assert ("exponential_loss" in prediction.remarks) is not holds


def test_what_cannot_be_checked_is_not_called_outside_the_hypotheses():
    data = pt.settings.aligned_tokens().data
    prediction = pt.predict(pt.Setting(data, pt.KeyQuery(), pt.Exponential()), pt.GradientFlow())
    assert any(one.holds is None for one in prediction.hypotheses)
    assert "outside" not in prediction.remarks


def test_descent_on_diagonals_has_a_conjecture_and_a_verdict():
    data = pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 12, 5))
    setting = pt.Setting(data, pt.Hadamard(), pt.Exponential())
    prediction = pt.predict(setting, pt.normalised_descent(0.05))
    assert prediction.theorem.name == "diagonal-conjecture"
    assert prediction.reference.norm == "l1"
    assert [one.name for one in prediction.hypotheses if one.holds is False] == ["optimiser_covered"]
    start = pt.Hadamard().one_sided(data, 1.0, np.random.default_rng(0))
    run = pt.train(setting, pt.normalised_descent(0.05), start, steps=20)
    assert "optimiser_covered" in pt.judge(prediction, run).detail


@pytest.mark.slow
def test_a_narrow_run_is_told_apart_from_the_optimum_by_its_dual_matrix():
    data = pt.settings.equal_score_tokens(3, 4, 5, 1)  # the nuclear solution has rank 2
    best = pt.references.nuclear_margin(data)
    assert dual_spectrum(data, best.weight, best.dual)[0] == pytest.approx(1.0, abs=1e-5)
    narrow = pt.Setting(data, pt.KeyQuery(1), pt.Exponential())
    run = pt.train(narrow, pt.GradientFlow(), narrow.start(101, 0.1), until=pt.MarginAbove(1e4), steps=2000)
    sizes = dual_spectrum(data, run.weight(), run.weights[-1])
    assert np.abs(sizes - 1).min() <= 1e-2  # a limit of width 1 ...
    assert sizes[0] > 1.1  # ... that a second column would improve
    verdict = pt.judge(pt.predict(narrow, pt.GradientFlow()), run)
    assert "wide_enough" in verdict.detail
    assert "above 1" in verdict.detail
    assert dual_spectrum(data, -run.weight(), run.weights[-1]) is None


def test_aligned_starts_with_zero_factors_do_not_divide_by_zero():
    start = Factors(jnp.zeros((5, 5)), jnp.zeros((5, 5)))
    run = pt.train(setting_of(TOKENS, np.where(SCORES == 6.0, 6.0, 0.0)), pt.GradientFlow(), start, steps=1)
    assert "aligned_start" in pt.judge(pt.predict(run.setting, pt.GradientFlow()), run).detail


@pytest.mark.parametrize("size", [(3, 4, 5, 0), (4, 4, 5, 9), (4, 4, 12, 5)])
def test_generic_data_meet_assumptions_1_and_2(size):
    data = pt.settings.equal_score_tokens(*size)
    assert unique_optimal(data).holds
    assert pt.references.max_margin(data).margin > 1e-3  # a matrix selects the optimal tokens
    assert equal_scores(data).holds
    uneven = np.asarray(data.scores) + 0.01 * np.arange(size[1])
    assert not equal_scores(pt.TokenSelection(data.tokens, queries=data.queries, scores=uneven)).holds


def test_a_matrix_may_select_what_no_diagonal_does():
    with pytest.raises(NotSeparableError):
        pt.references.diagonal_margin(pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 5, 9)))


@pytest.mark.parametrize("condition", ["orthogonal_optimal", "parallel_queries", "paired_tokens"])
def test_aligned_data_meet_assumption_4_and_generic_data_do_not(condition):
    holds = getattr(assumptions, condition)
    assert holds(pt.settings.aligned_tokens().data).slack >= 0
    assert not holds(pt.settings.equal_score_tokens(3, 5, 6, 1)).holds
