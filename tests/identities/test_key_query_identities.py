"""Identities and invariances of key-query attention, against plain numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.norms import L1
from penchant.papers import new_lab
from penchant.papers.key_query.evidence import precise_diagonal_run
from penchant.problem import read
from penchant.settings.factored import Factors, Pair
from penchant.theory.judge import certificates
from problems import attention_loss

DATA = pt.settings.equal_score_tokens(3, 4, 5, 1)
DIAGONAL = pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 12, 5))


def test_energy_is_lost_at_the_rate_of_the_hyperbolic_metric(rng):
    scales, u = rng.uniform(0.5, 1.5, 12), 0.3 * rng.standard_normal(12)
    plus, minus = scales * np.exp(u / 2), scales * np.exp(-u / 2)  # where the flow from (5) stands after gathering u
    params = pt.Hadamard().twin(Pair(jnp.asarray(plus), jnp.asarray(minus)))  # the rotation is its own inverse
    weight = np.asarray(params.first * params.second)
    assert np.allclose(weight, scales**2 * np.sinh(u), rtol=1e-12)
    gradient = attention_loss(DIAGONAL.tokens, np.diag(weight), "Exponential")[1].diagonal() / 4
    rate = 2 * (np.sqrt(weight**2 + scales**4) * gradient**2).sum()
    reading = read(pt.Setting(DIAGONAL, pt.Hadamard(), pt.Exponential()), params)
    assert np.exp(2 * reading.log_gradient_norm) == pytest.approx(rate, rel=1e-12)


def test_shifting_the_tokens_of_a_sample_changes_no_margin_and_no_reference(rng):
    shift = rng.standard_normal((3, 1, 5))
    moved = pt.TokenSelection(np.asarray(DATA.tokens) + shift, queries=DATA.queries, scores=DATA.scores)
    weight = jnp.asarray(rng.standard_normal((5, 5)))
    assert np.allclose(moved.margins(weight), DATA.margins(weight), rtol=1e-12, atol=1e-12)
    assert pt.references.nuclear_margin(moved).value == pytest.approx(
        pt.references.nuclear_margin(DATA).value, rel=1e-6
    )


def test_permuted_samples_and_tokens_permute_the_multipliers_only(rng):
    samples, tokens = rng.permutation(3), rng.permutation(4)
    rows = np.asarray(DATA.tokens)[samples][:, tokens]
    moved = pt.TokenSelection(rows, queries=DATA.queries[samples], scores=DATA.scores[samples][:, tokens])
    params = Factors(*(jnp.asarray(rng.standard_normal((5, 5))) for _ in range(2)))
    first, second = (read(pt.Setting(data, pt.KeyQuery(), pt.Exponential()), params) for data in (DATA, moved))
    assert np.allclose(first.slope.key, second.slope.key, rtol=1e-12, atol=1e-14)
    assert np.allclose(np.sort(first.weights), np.sort(second.weights), rtol=1e-12)
    assert first.log_excess == pytest.approx(float(second.log_excess), rel=1e-13)


def test_transposed_pairs_swap_keys_and_queries(rng):
    tokens, queries = rng.standard_normal((3, 2, 4)), rng.standard_normal((3, 5))
    scores = np.array([[1.0, 0.0]] * 3)
    data = pt.TokenSelection(tokens, queries=queries, scores=scores)
    turned = np.stack(
        [queries, np.zeros((3, 5))], axis=1
    )  # one pair a sample: the query is the token that wins against 0
    swapped = pt.TokenSelection(turned, queries=tokens[:, 0] - tokens[:, 1], scores=scores)
    key, query = jnp.asarray(rng.standard_normal((4, 3))), jnp.asarray(rng.standard_normal((5, 3)))
    first = read(pt.Setting(data, pt.KeyQuery(3), pt.Exponential()), Factors(key, query))
    second = read(pt.Setting(swapped, pt.KeyQuery(3), pt.Exponential()), Factors(query, key))
    assert np.allclose(first.margins, second.margins, rtol=1e-13)
    assert np.allclose(first.slope.key, second.slope.query, rtol=1e-12, atol=1e-15)
    assert np.allclose(first.slope.query, second.slope.key, rtol=1e-12, atol=1e-15)


def test_diagonal_factors_do_not_stay_diagonal_but_their_diagonals_move_as_one_thinks(rng):
    first, second = rng.standard_normal((2, 5))
    both = Factors(jnp.asarray(np.diag(first)), jnp.asarray(np.diag(second)))
    whole = read(pt.Setting(DATA, pt.KeyQuery(5), pt.Exponential()), both)
    pair = Pair(jnp.asarray(first), jnp.asarray(second))
    part = read(pt.Setting(pt.settings.DiagonalTokens(DATA), pt.Hadamard(), pt.Exponential()), pair)
    assert np.allclose(np.diag(whole.slope.key), part.slope.first, rtol=1e-12)
    assert np.allclose(np.diag(whole.slope.query), part.slope.second, rtol=1e-12)
    off = np.asarray(whole.slope.key) - np.diag(np.diag(whole.slope.key))
    assert np.linalg.norm(off) > 0.1 * np.linalg.norm(whole.slope.key)


@pytest.mark.slow
def test_the_gap_of_the_diagonal_flow_is_a_part_of_the_spread_and_a_part_of_the_slack():
    """(|w|_1 - <w, u>/|u|_inf + sum phi_k (m_k - margin)/|u|_inf)/margin, with u = arcsinh(w/w_0^2) of the weight alone and w_0 = 1."""
    run = precise_diagonal_run(new_lab())
    bounds = certificates(run, L1())
    for record in range(1, len(run)):
        weight, margin = run.weight(record), float(run.margins[record].min())
        pull = np.arcsinh(weight)
        slack = 2 * run.dual[record] @ (run.margins[record] - margin)
        parts = np.abs(weight).sum() - (weight @ pull - slack) / np.abs(pull).max()
        gap = bounds.upper[record] - bounds.accumulated[record]
        assert gap == pytest.approx(parts / margin, abs=1e-11 * bounds.upper[record])
