"""The joint gradient against automatic differentiation and against 60-digit arithmetic, and the generator against its recipe."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from penchant.errors import ArgumentError, DegenerateSample
from penchant.problem import read
from penchant.settings.base import Setting
from penchant.settings.joint import JointTokens, TokenGram, joint_setting, marked_tokens, normal_start
from penchant.settings.losses import Correlation, Exponential, Logistic
from penchant.settings.parametrisations import Direct

DATA = marked_tokens(4, 3, 6, 0.5, 2.0, seed=3)


def dense(data, coefficients_u, coefficients_W):
    u = jnp.einsum("nt,ntd->d", coefficients_u, data.tokens)
    W = jnp.einsum("nt,ntd,ne->de", coefficients_W, data.tokens, data.queries)
    return u, W


def plain_loss(data, loss, u, W):
    share = jax.nn.softmax(jnp.einsum("ntd,de,ne->nt", data.tokens, W, data.queries), axis=1)
    outputs = data.labels * jnp.einsum("nt,ntd,d->n", share, data.tokens, u)
    return jnp.mean(loss.value(outputs))


@pytest.mark.parametrize("loss", [Exponential(), Logistic()])
def test_both_blocks_agree_with_automatic_differentiation(loss, rng):
    gram = TokenGram(DATA)
    point = gram.point(*(jnp.asarray(rng.standard_normal((4, 3))) for _ in range(2)))
    u, W = dense(DATA, point.u.coefficients, point.W.coefficients)
    reading = read(Setting(DATA, gram, loss), point)
    value, (by_u, by_W) = jax.value_and_grad(lambda u, W: plain_loss(DATA, loss, u, W), argnums=(0, 1))(u, W)
    gradient = reading.scaled(reading.slope, jnp.exp(reading.log_scale))
    ours_u, ours_W = dense(DATA, gradient.u.coefficients, gradient.W.coefficients)
    np.testing.assert_allclose(reading.log_excess, np.log(value), rtol=1e-12)
    np.testing.assert_allclose(ours_u, by_u, rtol=1e-11, atol=1e-13 * np.abs(by_u).max())
    np.testing.assert_allclose(ours_W, by_W, rtol=1e-11, atol=1e-13 * np.abs(by_W).max())
    u_block, W_block = reading.blocks()
    np.testing.assert_allclose(jnp.exp(W_block.log_gradient_norm), jnp.linalg.norm(by_W), rtol=1e-12)
    both = np.hypot(jnp.linalg.norm(by_u), jnp.linalg.norm(by_W))
    np.testing.assert_allclose(jnp.exp(reading.log_gradient_norm), both, rtol=1e-12)
    np.testing.assert_allclose(jnp.exp(u_block.log_gradient_norm), jnp.linalg.norm(by_u), rtol=1e-12)
    np.testing.assert_allclose(gram.norms(point), (jnp.linalg.norm(u), jnp.linalg.norm(W)), rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 40.0, 4000.0])
def test_the_attention_block_survives_saturation_on_tokens_that_are_not_optimal(scale, rng):
    """Scores and logits are random, so attention saturates on whatever token leads; the reference has 60 digits."""
    gram = TokenGram(DATA)
    start = gram.point(*(jnp.asarray(rng.standard_normal((4, 3))) for _ in range(2)))
    point = gram.point(start.u.coefficients, scale * start.W.coefficients)
    _, block = read(Setting(DATA, gram, Exponential()), point).blocks()
    assert np.any(point.W.image.argmax(axis=1) != point.u.image.argmax(axis=1))
    with mp.workdps(60):
        rows = []
        for logits, scores in zip(np.asarray(point.W.image), np.asarray(point.u.image), strict=True):
            share = [mp.e ** (mp.mpf(float(a)) - mp.mpf(float(logits.max()))) for a in logits]
            share = [s / sum(share) for s in share]
            gamma = [mp.mpf(float(g)) for g in scores]
            output = sum(s * g for s, g in zip(share, gamma, strict=True))
            rows.append(
                [
                    mp.e ** (-output) * s * sum(w * (g - h) for w, h in zip(share, gamma, strict=True)) / 4
                    for s, g in zip(share, gamma, strict=True)
                ]
            )
        top = max(abs(value) for row in rows for value in row)
        exact = np.array([[float(value / top) for value in row] for row in rows])
        log_top = float(mp.log(top))
    ours = -np.asarray(block.slope.coefficients)
    np.testing.assert_allclose(ours / np.abs(ours).max(), exact, atol=1e-12 * max(1.0, scale / 10))
    np.testing.assert_allclose(block.log_scale + np.log(np.abs(ours).max()), log_top, rtol=1e-12)


def test_a_zero_decoder_has_a_silent_attention_block():
    gram = TokenGram(DATA)
    reading = read(Setting(DATA, gram, Exponential()), gram.point(jnp.zeros((4, 3)), jnp.ones((4, 3))))
    assert np.isneginf(reading.log_norms[1])
    assert not np.asarray(reading.blocks()[1].slope.coefficients).any()
    assert np.isfinite(reading.log_gradient_norm)


def test_the_generator_draws_in_the_documented_order():
    rng = np.random.default_rng(7)
    normal = rng.standard_normal(5)
    tokens = 0.2 * rng.standard_normal((3, 4, 5))
    where = rng.integers(0, 4, 3)
    tokens[np.arange(3), where] *= 2.5
    data = marked_tokens(3, 4, 5, 0.2, 2.5, seed=7)
    assert np.array_equal(data.tokens, tokens)
    assert np.array_equal(data.optimal, where)
    assert np.array_equal(data.labels, np.sign(tokens[np.arange(3), where] @ normal))
    assert np.array_equal(data.queries, tokens[:, 0])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tokens": np.ones((4, 1, 6))}, ArgumentError),
        ({"tokens": np.full((4, 3, 6), np.nan)}, ArgumentError),
        ({"labels": np.array([0, 1, 0, 1])}, ArgumentError),
        ({"optimal": np.array([0, 1, 2, 3])}, ArgumentError),
        ({"optimal": np.array([0.0, 1.0, 2.0, 0.0])}, ArgumentError),
        ({"queries": np.zeros((4, 6))}, DegenerateSample),
        ({"queries": np.ones((4, 5))}, ArgumentError),
    ],
)
def test_bad_data_is_named(change, error):
    good = {"tokens": DATA.tokens, "labels": DATA.labels, "optimal": DATA.optimal, "queries": DATA.queries}
    with pytest.raises(error):
        JointTokens(**{**good, **change})


def test_a_loss_without_infimum_is_refused():
    with pytest.raises(ArgumentError, match="loss"):
        DATA.check_loss(Correlation())


def test_a_joint_setting_starts_where_its_parametrisation_says_and_has_no_single_weight():
    drawn = normal_start(DATA, 1, 0.5)
    zero, setting = joint_setting(DATA), joint_setting(DATA, drawn)
    assert not zero.parametrisation.named(zero.start(), DATA)["u"].any()
    np.testing.assert_array_equal(setting.weight(setting.start()), drawn.W)
    assert setting.infimum().value == 0
    with pytest.raises(ArgumentError, match="JointTokens"):
        setting.margins(setting.start())


def test_joint_data_name_their_parametrisation():
    with pytest.raises(ArgumentError, match=r"TokenGram.*\n.*joint_setting\(data\)"):
        Setting(DATA, Direct(), Logistic())
