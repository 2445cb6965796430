"""Key-query theorems on given data: hypotheses, verdicts, a run's own certificates, and the runs themselves against SciPy."""

import dataclasses

import jax.numpy as jnp
import key_query_oracles as oracles
import numpy as np
import pytest

import penchant as pt
from penchant.norms import Nuclear
from penchant.papers import new_lab
from penchant.papers.key_query import hypotheses as assumptions
from penchant.papers.key_query.evidence import (
    W0,
    aligned_run,
    diagonal_run,
    direct_run,
    matrix_run,
    precise_aligned_run,
)
from penchant.settings.factored import Factors
from penchant.theory.judge import judge_value
from penchant.verdict import Outcome

LAB = new_lab()


def test_the_flow_on_keys_and_queries_is_confirmed_and_rivals_are_refuted():
    run, _ = matrix_run(LAB)
    prediction = pt.predict(run.setting, pt.GradientFlow())
    assert prediction.theorem.name == "theorem-5.1"
    assert {rival.name for rival in prediction.rivals} >= {"frobenius", "first gradient"}
    assert pt.judge(prediction, run).outcome is Outcome.confirmed
    direct, _ = direct_run(LAB)
    assert judge_value(prediction, direct.weight()).outcome is Outcome.refuted


def test_nothing_is_decided_against_a_reference_that_is_not_certified():
    run, _ = matrix_run(LAB)
    prediction = pt.predict(run.setting, pt.GradientFlow())
    loose = dataclasses.replace(prediction.reference.bracket, lower=0.99 * prediction.reference.value)
    doubtful = dataclasses.replace(
        prediction, reference=dataclasses.replace(prediction.reference, bracket=loose)
    )  # the same weight and value, known to 1e-2 only
    verdict = pt.judge(doubtful, run)
    assert verdict.outcome is Outcome.undecided
    assert "known only to a relative 1.0e-02" in verdict.inequality
    direct = judge_value(doubtful, direct_run(LAB)[0].weight())
    assert direct.outcome is Outcome.undecided  # nor is a rival recognised


def test_a_start_that_separates_nothing_is_undecided():
    setting = matrix_run(LAB)[0].setting
    start = Factors(-jnp.eye(5), jnp.eye(5))
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.LogTimeAbove(-20.0), steps=5)
    verdict = pt.judge(pt.predict(setting, pt.GradientFlow()), run)
    assert verdict.outcome is Outcome.undecided
    assert "not separating" in verdict.inequality


def test_a_run_that_settles_on_wrong_tokens_is_refuted():
    data = pt.settings.DiagonalTokens(pt.settings.contrary_pair((6.0, 1.0), (-3.0, 0.0)))
    setting = pt.Setting(data, pt.Hadamard(), pt.Exponential())
    start = pt.Hadamard().one_sided(data, 0.1, np.random.default_rng(0))
    run = pt.train(setting, pt.GradientFlow(), start, until=(pt.MarginAbove(1e6), pt.training.Stalled()))
    verdict = pt.judge(pt.predict(setting, pt.GradientFlow()), run)
    assert verdict.outcome is Outcome.refuted
    assert "local direction of tokens [0, 1] (locally optimal)" in verdict.detail


def test_a_rival_in_the_direction_of_the_reference_is_named_and_decides_nothing():
    run, _ = aligned_run(LAB)
    prediction = pt.predict(run.setting, pt.GradientFlow())
    assert all(h.holds for h in prediction.hypotheses if h.holds is not None)
    verdict = pt.judge(prediction, run)
    assert verdict.outcome is Outcome.confirmed
    assert "on these data the reference coincides with: frobenius" in verdict.detail


def test_a_rival_of_the_same_norm_in_another_direction_leaves_the_verdict_open():
    run, _ = matrix_run(LAB)
    prediction = pt.predict(run.setting, pt.GradientFlow())
    same = dataclasses.replace(prediction.rivals[0], weight=prediction.reference.weight, separation=1e-3)
    verdict = pt.judge(dataclasses.replace(prediction, rivals=(same, *prediction.rivals[1:])), run)
    assert verdict.outcome is Outcome.undecided
    assert "cannot tell them apart" in verdict.inequality


@pytest.mark.parametrize("width", [1, 2])
def test_a_narrow_head_is_reported_with_the_rank_of_the_relaxation(width):
    data = pt.settings.equal_score_tokens(3, 4, 5, 1)  # certified rank 2
    prediction = pt.predict(pt.Setting(data, pt.KeyQuery(width), pt.Exponential()), pt.GradientFlow())
    (found,) = [h for h in prediction.hypotheses if h.name == "wide_enough"]
    assert found.holds == (width >= 2)
    assert "non-convex" in found.detail


def test_pairs_of_tokens_are_found_in_any_order():
    aligned = pt.settings.aligned_tokens(tokens=7, d=8)
    assert assumptions.paired_tokens(aligned.data).holds
    order = np.random.default_rng(0).permutation(7)
    data = aligned.data
    shuffled = pt.TokenSelection(data.tokens[:, order], queries=data.queries, scores=data.scores[:, order])
    assert assumptions.paired_tokens(shuffled).holds
    moved = np.asarray(data.tokens).copy()
    moved[1, int(data.others[1, 0])] += 1e-3
    found = assumptions.paired_tokens(pt.TokenSelection(moved, queries=data.queries, scores=data.scores))
    assert not found.holds
    assert found.offender == "sample 1"


def plain(data):
    """What the oracles need of token data with equal non-optimal scores."""
    deficits = np.asarray(data.deficits())
    return np.asarray(data.differences()), np.asarray(data.queries), deficits[:, 0], np.asarray(data.best_scores())


def at_margin(run, level):
    """The record at a margin."""
    return int(np.argmin(np.abs(np.log(np.maximum(run.smallest_margin(), 1e-9) / level))))


@pytest.mark.slow
def test_diagonal_flow_agrees_with_lsoda_in_the_accumulated_multipliers():
    run, _ = diagonal_run(LAB)
    differences, queries, gap, best = plain(run.setting.data.tokens)
    features = (differences * queries[:, None]).reshape(12, 12)
    levels = (1e2, 1e4, 1e6)
    found = oracles.diagonal_flow(features, (4, 3), gap, best, 1.0, levels)
    for level, (weight, phi, weights) in zip(levels, found, strict=True):
        record = at_margin(run, level)
        # LSODA's tolerance 1e-9 is on phi, and w is its exponential: 1e-9 * phi.
        assert np.abs(run.weight(record) - weight).max() <= 1e-5 * np.abs(weight).max()
        assert np.allclose(2 * run.dual[record], phi, rtol=1e-5, atol=1e-5)
        shares = run.weights[record] / run.weights[record].sum()
        assert np.allclose(shares, weights / weights.sum(), atol=1e-3)  # e^-margin: margins of 1e6 agree to about 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_matrix_flow_agrees_with_lsoda(seed):
    run, _ = matrix_run(LAB, seed)
    start, levels = run.at(0), (1e2, 1e4)
    key, query = np.asarray(start.key), np.asarray(start.query)
    found = oracles.matrix_flow(*plain(run.setting.data), key, query, levels)
    for level, (weight, phi) in zip(levels, found, strict=True):
        record = at_margin(run, level)
        assert np.abs(run.weight(record) - weight).max() <= 1e-5 * np.abs(weight).max()
        assert np.allclose(2 * run.dual[record], phi, rtol=1e-4, atol=1e-4)


def test_certificates_enclose_the_optimum_and_the_window_beats_the_sum():
    run, reference = matrix_run(LAB)
    bounds = pt.theory.certificates(run, Nuclear())
    late = bounds.margin > 1
    assert (bounds.lower[late] <= reference.value * (1 + 1e-9)).all()
    assert (bounds.upper[late] >= reference.bracket.lower).all()
    assert bounds.window[-1] > bounds.accumulated[-1]
    assert bounds.gap("instant")[-1] < bounds.gap("accumulated")[-1]


@pytest.mark.slow
def test_aligned_margins_agree_with_quadrature_of_the_decoupled_samples():
    run, aligned = precise_aligned_run(LAB)
    _, _, gap, best = plain(aligned.data)
    wanted = oracles.aligned_margins(aligned.strengths, W0[:3], gap, best, 4, 1e6)
    margins = run.margins[-1].reshape(3, 4)
    assert np.abs(margins - margins[:, :1]).max() <= 1e-7  # absolute, of 1e6
    assert np.abs(margins[:, 0] - wanted).max() <= 1e-7
    assert aligned.residual(run.at()) <= 1e-12
