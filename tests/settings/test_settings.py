"""Settings: margins, adjoints, Gram matrices, losses, infima, starts, generators."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import penchant as pt
from penchant.settings.classification import add_bias
from penchant.settings.generators import local_pair, local_single, random_tokens, separable, signal_tokens
from problems import features, losses

DATA = {
    "classification": separable(7, 3),
    "tokens": random_tokens(3, 4, 5, 0),
    "own queries": random_tokens(3, 3, 4, 1, queries=np.eye(3, 6) + 0.1),
}
LOSSES = {"Exponential": pt.Exponential(), "Logistic": pt.Logistic(), "Correlation": pt.settings.Correlation()}


@pytest.mark.parametrize("name", DATA)
def test_margins_adjoint_and_gram_are_one_linear_map(name, rng):
    data, z = DATA[name], features(DATA[name])
    weight, c = rng.standard_normal(data.weight_shape), rng.standard_normal(len(z))
    assert np.allclose(data.margins(jnp.asarray(weight)), z @ weight.ravel(), rtol=1e-13, atol=1e-14)
    assert np.allclose(data.adjoint(jnp.asarray(c)).ravel(), c @ z, rtol=1e-13, atol=1e-14)
    assert np.allclose(data.gram(), z @ z.T, rtol=1e-13, atol=1e-14)
    assert data.constrained().all()


def test_margins_are_logit_differences_from_the_optimal_token(rng):
    data = DATA["tokens"]
    weight = jnp.asarray(rng.standard_normal(data.weight_shape))
    logits = np.asarray(data.logits(weight))
    margins = np.asarray(data.margins(weight)).reshape(3, 3)
    for i, best in enumerate(np.asarray(data.optimal)):
        assert np.allclose(margins[i], logits[i, best] - np.delete(logits[i], best), rtol=1e-13)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(np.exp(data.log_attention(jnp.asarray(margins.ravel()))), shares, rtol=1e-12)


def test_scores_and_head_describe_the_same_data():
    tokens, labels, head = np.asarray(DATA["tokens"].tokens), np.array([1, -1, 1]), np.arange(1.0, 6.0)
    one = pt.TokenSelection(tokens, labels, head)
    other = pt.TokenSelection(tokens, scores=labels[:, None] * (tokens @ head))
    assert np.array_equal(one.scores, other.scores)
    assert np.array_equal(one.optimal, other.optimal)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_agree_with_their_formula(name):
    z = np.linspace(-5, 5, 21)
    value, slope = losses(name)
    assert np.allclose(LOSSES[name].value(jnp.asarray(z)), value(z), rtol=1e-14)
    assert np.allclose(np.exp(LOSSES[name].log_slope(jnp.asarray(z))), -slope(z), rtol=1e-14)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("log_deficit", [-1e6, -800.0, -40.0, -3.0, 0.0, 2.0])
@pytest.mark.parametrize("best", [-2.0, 0.0, 3.0, 900.0])
def test_log_gap_agrees_with_many_digits(name, log_deficit, best):
    with mpmath.workdps(60):
        b, d = mpmath.mpf(best), mpmath.exp(mpmath.mpf(log_deficit))
        gap = {
            "Exponential": lambda: mpmath.exp(-b) * mpmath.expm1(d),
            "Logistic": lambda: mpmath.log1p(mpmath.expm1(d) / (1 + mpmath.exp(b))),
            "Correlation": lambda: d,
        }[name]()
        wanted = float(mpmath.log(gap))
    found = float(LOSSES[name].log_gap(jnp.array(best), jnp.array(log_deficit)))
    assert found == pytest.approx(wanted, abs=1e-14 * max(10.0, abs(best), abs(log_deficit)))


@pytest.mark.parametrize("name", LOSSES)
def test_infimum_of_attention_is_approached_and_not_attained(name):
    data = DATA["tokens"]
    setting = pt.Setting(data, pt.Direct(), LOSSES[name], "sum")
    infimum = setting.infimum()
    assert infimum.value == pytest.approx(losses(name)[0](np.asarray(data.scores).max(axis=1)).sum(), rel=1e-14)
    assert not infimum.attained
    assert pt.Setting(data, pt.Direct(), LOSSES[name]).infimum().value == pytest.approx(infimum.value / 3, rel=1e-14)


def test_mean_and_sum_differ_by_log_n():
    margins = jnp.arange(7.0)
    mean, total = (
        pt.Setting(DATA["classification"], pt.Direct(), pt.Logistic(), reduction).weigh(margins)
        for reduction in ("mean", "sum")
    )
    assert float(total.log_excess - mean.log_excess) == pytest.approx(np.log(7), abs=1e-15 * 10)
    assert np.array_equal(mean.weights, total.weights)


def test_the_exponential_loss_at_zero_is_the_number_of_samples():
    setting = pt.Setting(separable(), pt.Direct(), pt.Exponential(), "sum")
    assert float(setting.weigh(setting.margins(setting.start())).log_excess) == pytest.approx(np.log(30), rel=1e-12)


def test_signed_squares_predict_by_stacked_inputs(rng):
    data, _ = pt.settings.sparse_regression(5, 12, 2, 3)
    point, inputs = rng.uniform(0.5, 1.5, (2, 12)), np.asarray(data.inputs)
    found = pt.Setting(data, pt.SignedSquares(1.0), pt.Squared()).margins(jnp.asarray(point))
    assert np.allclose(found, np.hstack([inputs, -inputs]) @ point.ravel() ** 2, rtol=1e-13, atol=1e-13)


def test_starts_are_reproducible_and_scaled():
    setting = pt.Setting(DATA["tokens"], pt.Direct(), pt.Exponential())
    assert not np.asarray(setting.start()).any()
    one = np.asarray(setting.start(seed=3, scale=0.5))
    assert np.array_equal(one, setting.start(seed=3, scale=0.5))
    assert np.allclose(one, 0.5 * np.random.default_rng(3).standard_normal((5, 5)), rtol=1e-15)


def test_gram_keeps_norm_and_weight_of_its_origin(rng):
    data = DATA["tokens"]
    origin = rng.standard_normal(data.weight_shape)
    gram = pt.settings.Gram(data, origin)
    z = features(data)
    inside = np.linalg.pinv(z) @ (z @ origin.ravel())
    assert float(gram.frozen) == pytest.approx(np.sum((origin.ravel() - inside) ** 2), rel=1e-11)
    assert float(gram.norm(gram.zeros(data))) == pytest.approx(np.linalg.norm(origin), rel=1e-13)
    assert np.array_equal(gram.weight(gram.zeros(data), data), origin)


def test_add_bias_appends_a_constant_column():
    assert add_bias([[1.0, 2.0], [3.0, 4.0]], 0.5).tolist() == [[1.0, 2.0, 0.5], [3.0, 4.0, 0.5]]


@pytest.mark.parametrize("antipodal", [False, True])
@pytest.mark.parametrize("position", ["random", "first", "not_first"])
def test_signal_tokens_have_score_one_and_zero_and_orthogonal_noise(antipodal, position):
    data = signal_tokens(8, 4, 10, 2.0, 0.3, 7, antipodal=antipodal, position=position)
    scores, optimal = np.asarray(data.scores), np.asarray(data.optimal)
    assert np.allclose(np.sort(scores, axis=1), [0.0, 0.0, 0.0, 1.0], rtol=0, atol=1e-15)
    best = np.asarray(data.tokens)[np.arange(8), optimal]
    assert np.allclose(np.linalg.norm(best, axis=1), 2.0)
    noise = np.delete(np.asarray(data.tokens).reshape(-1, 10), np.arange(8) * 4 + optimal, axis=0)
    assert not (noise @ best.T).any()
    assert {"random": True, "first": (optimal == 0).all(), "not_first": (optimal > 0).all()}[position]


def test_local_examples_have_the_stated_scores():
    assert np.allclose(local_pair(1.0, 0.1).scores, [[0, 1], [0, 0.1]], rtol=0, atol=1e-15)
    assert np.allclose(local_single().scores, [[0, 1, 0.9]], rtol=0, atol=1e-15)


def test_equal_scores_generator_satisfies_its_assumption():
    data = random_tokens(6, 4, 3, 0, equal_scores=True)
    assert np.array_equal(np.sort(np.asarray(data.scores), axis=1), np.tile([0.0, 0.0, 0.0, 1.0], (6, 1)))
