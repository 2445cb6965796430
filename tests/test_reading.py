"""One look at an objective, against plain float64 where that works and against many digits where it does not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from penchant.problem import read as read_eagerly
from penchant.references.euclidean_margin import max_margin
from penchant.settings.base import Setting
from penchant.settings.generators import local_single, random_tokens, separable, signal_tokens
from penchant.settings.losses import Correlation, Exponential, Logistic
from penchant.settings.parametrisations import Direct, Gram
from problems import exact_descent, features, infimum, loss_and_gradient

read = eqx.filter_jit(read_eagerly)  # one compilation instead of one per operation
LOSSES = (Exponential(), Logistic(), Correlation())
SETTINGS = [
    pytest.param(data, loss, id=f"{name}-{type(loss).__name__}")
    for name, data in (
        ("random", random_tokens(5, 4, 6, 0)),
        ("signal", signal_tokens(4, 3, 12)),
        ("single", local_single()),
    )
    for loss in LOSSES
] + [pytest.param(separable(), loss, id=f"separable-{type(loss).__name__}") for loss in LOSSES[:2]]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("data", "loss"), SETTINGS)
def test_gradient_is_exp_log_scale_times_slope(data, loss, reduction):
    setting = Setting(data, Direct(), loss, reduction)
    weight = np.asarray(setting.start(seed=1, scale=0.5))
    reading = read(setting, jnp.asarray(weight))
    value, gradient = loss_and_gradient(data, weight, type(loss).__name__)
    per = setting.samples if reduction == "mean" else 1
    excess = (value - infimum(data, type(loss).__name__)) / per
    found = np.exp(float(reading.log_scale)) * np.asarray(reading.slope)
    # 5e-16 relative with margins O(1); ten times that for the plain float64 sum it is compared with.
    assert np.abs(found - gradient / per).max() <= 5e-15 * np.abs(gradient / per).max()
    assert float(reading.log_excess) == pytest.approx(
        np.log(excess), abs=1e-13
    )  # L - L* cancels at most three digits here
    assert float(reading.log_gradient_norm) == pytest.approx(np.log(np.linalg.norm(gradient / per)), abs=1e-14)


@pytest.mark.parametrize(("data", "loss"), SETTINGS)
def test_slope_is_the_autodiff_gradient_of_log_excess(data, loss):
    setting = Setting(data, Direct(), loss)
    weight = setting.start(seed=2, scale=0.5)
    reading = read(setting, weight)
    wanted = jax.jit(jax.grad(lambda w: setting.weigh(setting.margins(w)).log_excess))(weight)
    found = np.exp(float(reading.log_scale - reading.log_excess)) * np.asarray(reading.slope)
    assert np.abs(found - wanted).max() <= 2e-15 * np.abs(wanted).max() * 10  # two float64 evaluations of the same sum
    assert float(reading.log_relative_slope) == pytest.approx(np.log(np.linalg.norm(wanted)), abs=1e-14)


@pytest.mark.parametrize(("data", "loss"), SETTINGS)
def test_weights_are_multipliers_of_the_margin_features(data, loss):
    setting = Setting(data, Direct(), loss)
    reading = read(setting, setting.start(seed=3))
    wanted = -np.asarray(reading.weights) @ features(data)
    assert np.abs(np.asarray(reading.slope).ravel() - wanted).max() <= 1e-14 * np.abs(wanted).max()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("scale", [1.0, 36.0, 400.0, 1e6])
@pytest.mark.parametrize("equal_scores", [True, False])
def test_log_excess_and_weights_agree_with_sixty_digits_at_any_margin(loss, scale, equal_scores):
    data = random_tokens(4, 4, 5, 3, equal_scores=equal_scores)
    margins = scale * (1 + 0.01 * np.random.default_rng(0).random(12))
    weighing = eqx.filter_jit(lambda d, m, l: d.weigh(m, l))(data, jnp.asarray(margins), loss)
    log_excess, weights = exact_descent(data, margins, type(loss).__name__)
    # The margins are exact here, so only the rounding of e^-(m - m') remains: eps times the margin.
    assert float(weighing.log_excess) == pytest.approx(log_excess, rel=1e-15, abs=1e-14)
    assert np.abs(np.asarray(weighing.weights) - weights).max() <= 1e-15 * max(10.0, scale)


def exact_direction(data, weight):
    """The slope direction at a weight with margins computed exactly: features are float64 numbers, so are the weights."""
    with mpmath.workdps(60):
        margins = [
            mpmath.fsum(mpmath.mpf(float(a)) * mpmath.mpf(float(b)) for a, b in zip(row, weight.ravel(), strict=True))
            for row in features(data)
        ]
        lowest = min(margins)
        scores, optimal, others = (np.asarray(a) for a in (data.scores, data.optimal, data.others))
        coefficients = []
        for i, row in enumerate(np.array(margins).reshape(others.shape)):
            shares = [mpmath.exp(-(m - lowest)) for m in row]  # e^lowest s, as the optimal share is 1 to sixty digits
            best = mpmath.mpf(float(scores[i, optimal[i]]))
            gaps = [best - mpmath.mpf(float(scores[i, k])) for k in others[i]]
            coefficients += [mpmath.exp(-best) * s * g for s, g in zip(shares, gaps, strict=True)]
        total = sum(coefficients)
        shares = np.array([float(c / total) for c in coefficients])
    direction = -shares @ features(data)
    return direction / np.linalg.norm(direction)


def naive_direction(data, weight):
    gradient = loss_and_gradient(data, weight, "Exponential")[1].ravel()
    size = np.linalg.norm(gradient)
    return gradient / size if size > 0 else gradient


def test_our_direction_is_right_at_margin_1e6_where_the_naive_gradient_fails_from_36():
    data = signal_tokens(4, 3, 12, seed=1)
    best = max_margin(data).weight
    rng = np.random.default_rng(0)
    side = 0.3 * rng.standard_normal(best.shape)  # so that the direction is not the one of the weight itself
    setting = Setting(data, Direct(), Exponential())

    def errors(scale):
        weight = scale * best + side
        exact = exact_direction(data, weight)
        slope = np.asarray(read(setting, jnp.asarray(weight)).slope).ravel()
        return np.linalg.norm(slope / np.linalg.norm(slope) - exact), np.linalg.norm(
            naive_direction(data, weight) - exact
        )

    for scale in (36.0, 40.0, 400.0, 1e6):
        ours, naive = errors(scale)
        assert ours <= 1e-15 * scale + 1e-13, scale  # 2e-16 max(1, margin), measured 5e-11 at 1e6
        assert naive > 1e-2, scale  # measured 0.10 at 36, 1.01 at 40, exactly 0 at 400
    assert errors(20.0)[1] < 1e-6  # the naive gradient is fine before


def test_gram_reads_like_direct():
    data = random_tokens(5, 4, 6, 0)
    setting = Setting(data, Direct(), Logistic())
    origin = np.asarray(setting.start(seed=4))
    gram = Setting(data, Gram(data, origin), Logistic())
    one, other = read(setting, jnp.asarray(origin)), read(gram, gram.start())
    assert np.allclose(one.weights, other.weights, rtol=1e-13, atol=1e-15)
    assert float(one.log_slope_norm) == pytest.approx(float(other.log_slope_norm), abs=1e-13)
    assert float(setting.norm(jnp.asarray(origin))) == pytest.approx(float(gram.norm(gram.start())), rel=1e-13)


def test_zero_gradient_has_log_norm_minus_infinity_and_no_nan():
    data = local_single()
    weighing = data.weigh(jnp.array([0.0, np.inf]), Exponential())
    assert not np.isnan(np.asarray(weighing.weights)).any()
