"""Products as weights: their Jacobians, conserved quantities and flows against finite differences and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import penchant as pt
from penchant.errors import ArgumentError
from penchant.settings.factored import Factors, Pair
from penchant.settings.generators import random_tokens
from penchant.training.status import Status
from problems import attention_loss, infimum

TOKENS = pt.settings.equal_score_tokens(3, 4, 5, seed=1)
DIAGONAL = pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 12, seed=5))
TIGHT = {"tolerance": 1e-9, "margin_tolerance": 1e-7}


def settings():
    uneven = random_tokens(3, 4, 5, 2, queries=np.random.default_rng(0).standard_normal((3, 4)))
    return {
        "key-query": pt.Setting(TOKENS, pt.KeyQuery(), pt.Exponential()),
        "narrow, queries of another dimension": pt.Setting(uneven, pt.KeyQuery(2), pt.Logistic()),
        "hadamard": pt.Setting(DIAGONAL, pt.Hadamard(), pt.Exponential()),
        "plus-minus": pt.Setting(DIAGONAL, pt.settings.PlusMinus(), pt.Exponential()),
        "classification": pt.Setting(pt.settings.separable(6, 4), pt.Hadamard(), pt.Exponential()),
    }


@pytest.mark.parametrize("name", settings())
def test_margins_jacobian_and_gram_agree_with_the_weight(name):
    setting = settings()[name]
    params = setting.start(seed=3, scale=0.7)
    flat, shape = ravel_pytree(params)
    margins = lambda x: setting.data.margins(setting.weight(shape(x)))
    jacobian = np.asarray(jax.jacobian(margins)(flat))
    assert np.allclose(setting.margins(params), margins(flat), rtol=1e-12, atol=1e-12)
    gram = np.asarray(setting.parametrisation.gram(params, setting.data))
    assert np.allclose(gram, jacobian @ jacobian.T, rtol=1e-11, atol=1e-11)
    cotangent = np.random.default_rng(1).standard_normal(len(jacobian))
    pulled = ravel_pytree(setting.linearise(params)[1](jnp.asarray(cotangent)))[0]
    assert np.allclose(pulled, cotangent @ jacobian, rtol=1e-11, atol=1e-11)


def by_scipy(data, key, query, time, diagonal):
    """The flow of the mean loss in physical time with plain numpy gradients."""
    d = key.shape[0]

    def field(_, x):
        k, q = x[: key.size].reshape(key.shape), x[key.size :].reshape(query.shape)
        weight = np.diag(k * q) if diagonal else k @ q.T
        gradient = attention_loss(data, weight, "Exponential")[1] / len(data.tokens)
        if diagonal:
            return -np.concatenate([gradient.diagonal() * q, gradient.diagonal() * k])
        return -np.concatenate([(gradient @ q).ravel(), (gradient.T @ k).ravel()])

    x = solve_ivp(
        field, (0, time), np.concatenate([key.ravel(), query.ravel()]), method="DOP853", rtol=1e-12, atol=1e-13
    ).y[:, -1]
    assert len(x) == key.size + query.size
    return x[: key.size].reshape(key.shape), x[key.size :].reshape(query.shape), d


def test_key_query_flow_agrees_with_scipy_in_physical_time():
    setting = settings()["key-query"]
    start = setting.start(seed=0, scale=0.3)
    run = pt.train(setting, pt.GradientFlow(**TIGHT), start, until=pt.LogTimeAbove(np.log(200.0)), steps=3000)
    assert run.status is Status.reached_target
    key, query, _ = by_scipy(TOKENS, np.asarray(start.key), np.asarray(start.query), 200.0, False)
    # Local tolerance 1e-9 over a few hundred steps.
    assert np.abs(run.at().key - key).max() <= 1e-6 * np.abs(key).max()
    assert np.abs(run.at().query - query).max() <= 1e-6 * np.abs(query).max()
    loss = attention_loss(TOKENS, key @ query.T, "Exponential")[0] / 3 - infimum(TOKENS, "Exponential") / 3
    assert run.log_excess[-1] == pytest.approx(np.log(loss), abs=1e-5)


def test_diagonal_flow_agrees_with_scipy_and_with_its_closed_form():
    start = pt.Hadamard().one_sided(DIAGONAL, 0.5, np.random.default_rng(2))
    run = pt.train(
        settings()["hadamard"], pt.GradientFlow(**TIGHT), start, until=pt.LogTimeAbove(np.log(300.0)), steps=3000
    )
    first, second, _ = by_scipy(DIAGONAL.tokens, np.asarray(start.first), np.asarray(start.second), 300.0, True)
    scale = np.abs(first * second).max()
    assert np.abs(run.weight() - first * second).max() <= 1e-6 * scale
    closed = 0.25 * np.sinh(2 * run.dual[-1] @ np.asarray(DIAGONAL.features()))
    assert np.abs(run.weight() - closed).max() <= 1e-6 * scale


def test_gathered_multipliers_give_the_weight_of_direct_training():
    run = pt.train(pt.Setting(TOKENS, pt.Direct(), pt.Exponential()), pt.GradientFlow(), until=pt.MarginAbove(1e6))
    gathered = np.asarray(TOKENS.adjoint(jnp.asarray(run.dual[-1])))
    assert np.linalg.norm(run.weight() - gathered) <= 1e-11 * np.linalg.norm(gathered)
    assert run.dual[-1].min() >= 0


def test_rotating_the_factors_turns_the_trajectory_and_leaves_the_weight():
    setting = settings()["key-query"]
    start = setting.start(seed=0, scale=0.3)
    turn = np.linalg.qr(np.random.default_rng(5).standard_normal((5, 5)))[0]
    runs = [
        pt.train(setting, pt.GradientFlow(), params, until=pt.MarginAbove(20.0), steps=2000)
        for params in (start, Factors(start.key @ turn, start.query @ turn))
    ]
    assert np.abs(runs[0].weight() - runs[1].weight()).max() <= 1e-9 * np.abs(runs[0].weight()).max()
    assert np.abs(runs[0].at().key @ turn - runs[1].at().key).max() <= 1e-8


def test_zeros_are_stationary_and_the_run_says_so():
    run = pt.train(settings()["key-query"], pt.GradientFlow(), until=pt.MarginAbove(1.0), steps=10)
    assert run.status is Status.zero_gradient


@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (lambda: pt.KeyQuery(0), "width"),
        (lambda: pt.Setting(pt.settings.separable(4, 3), pt.KeyQuery(), pt.Exponential()).start(), "data"),
        (lambda: pt.Setting(TOKENS, pt.Hadamard(), pt.Exponential()).start(), "data"),
        (lambda: pt.Hadamard().one_sided(DIAGONAL, [0.0] + [1.0] * 11, np.random.default_rng(0)), "scale"),
        (lambda: pt.settings.DiagonalTokens(pt.settings.separable(4, 3)), "tokens"),
        (lambda: pt.settings.aligned_tokens(tokens=4), "tokens"),
        (lambda: pt.settings.aligned_tokens(d=3), "d"),
        (lambda: pt.settings.aligned_tokens(shares=(0.0, 1.0, 0.0)), "shares"),
        (lambda: pt.settings.aligned_tokens(shares=((0.0, 0.1, 0.2),) * 3), "shares"),
        (lambda: pt.settings.aligned_tokens().start(0.1, 5, 0), "width"),
        (lambda: pt.settings.equal_score_tokens(3, 1, 5, 0), "length"),
    ],
)
def test_bad_input_is_named(build, argument):
    with pytest.raises(ArgumentError) as caught:
        build()
    assert caught.value.argument == argument


def test_the_twin_stands_for_the_same_weight():
    params = Pair(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    data = pt.Classification([[1.0, 0.0]], [1])
    assert np.allclose(pt.settings.PlusMinus().weight(pt.Hadamard().twin(params), data), [0.5, -6.0])
