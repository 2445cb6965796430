"""logspace against mpmath: values and first derivatives, from margins of -1e3 to 1e12."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from penchant.logspace import (
    expm1_elasticity,
    log_expm1_ratio,
    log_softplus,
    log_sum,
    signed_log_sum,
    softplus,
    softplus_elasticity,
)

DIGITS = 60
# Rounding x alone moves f(x) by |x f'(x)| eps, so near a zero of f the error is relative to that and not to |f|.
TOLERANCE = 1e-14

SIZES = np.concatenate(
    [
        np.geomspace(1e-12, 1e12, 97),
        np.linspace(0.01, 40.0, 400),
        [9.9e-6, 1.01e-5, 0.0999, 0.1001, 0.2499, 0.2501, 29.99, 30.01],
    ]
)
WHOLE_LINE = np.sort(np.concatenate([SIZES[SIZES <= 1e3], -SIZES, [0.0]]))  # x = -margin, margins from -1e3 to 1e12


def exact(function, points):
    with mpmath.workdps(DIGITS):
        return np.array([float(function(mpmath.mpf(float(x)))) for x in points])


def exact_log_softplus(x):
    return mpmath.log(mpmath.log1p(mpmath.exp(x))) if x > -1e4 else x - mpmath.exp(x) / 2


def exact_softplus_elasticity(x):
    return 1 / ((1 + mpmath.exp(-x)) * mpmath.log1p(mpmath.exp(x))) if x > -1e4 else 1 - mpmath.exp(x) / 2


def exact_log_expm1_ratio(x):
    return mpmath.log(mpmath.expm1(x) / x) if x < 1e4 else x - mpmath.log(x)


def exact_expm1_elasticity(x):
    return 1 / (1 - mpmath.exp(-x)) - 1 / x if x < 1e4 else 1 - 1 / x


CASES = {
    "log_softplus": (log_softplus, exact_log_softplus, exact_softplus_elasticity, WHOLE_LINE),
    "log_expm1_ratio": (log_expm1_ratio, exact_log_expm1_ratio, exact_expm1_elasticity, SIZES),
    "softplus": (
        softplus,
        lambda x: mpmath.log1p(mpmath.exp(x)),
        lambda x: 1 / (1 + mpmath.exp(-x)),
        WHOLE_LINE[WHOLE_LINE > -700],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_value_agrees_with_mpmath_to_1e_14(name):
    function, reference, slope, points = CASES[name]
    wanted, derivative = exact(reference, points), exact(slope, points)
    error = np.abs(np.asarray(function(jnp.asarray(points))) - wanted)
    scale = np.maximum(np.abs(wanted), np.abs(points * derivative))
    worst = int(np.argmax(error / scale))
    assert error[worst] <= TOLERANCE * scale[worst], f"at x = {points[worst]!r}: {error[worst] / scale[worst]:.2g}"


@pytest.mark.parametrize("name", CASES)
def test_derivative_agrees_with_mpmath_to_1e_14(name):
    function, _, slope, points = CASES[name]
    wanted = exact(slope, points)
    with mpmath.workdps(DIGITS):  # conditioning of the derivative itself, |x f''(x)|
        curvature = np.array(
            [float(mpmath.diff(slope, mpmath.mpf(float(x)))) if 1e-6 < abs(x) < 600 else 0.0 for x in points]
        )
    error = np.abs(np.asarray(jax.vmap(jax.grad(function))(jnp.asarray(points))) - wanted)
    scale = np.maximum(np.abs(wanted), np.abs(points * curvature))
    worst = int(np.argmax(error / scale))
    assert error[worst] <= TOLERANCE * scale[worst], f"at x = {points[worst]!r}: {error[worst] / scale[worst]:.2g}"


@pytest.mark.parametrize(
    ("elasticity", "function", "points"),
    [(softplus_elasticity, log_softplus, WHOLE_LINE), (expm1_elasticity, log_expm1_ratio, SIZES)],
)
def test_elasticity_is_the_gradient(elasticity, function, points):
    assert np.array_equal(elasticity(jnp.asarray(points)), jax.vmap(jax.grad(function))(jnp.asarray(points)))


def test_log_expm1_ratio_at_zero_is_zero_with_slope_one_half():
    assert float(log_expm1_ratio(jnp.array(0.0))) == 0.0
    assert float(jax.grad(log_expm1_ratio)(jnp.array(0.0))) == 0.5


def test_forward_and_reverse_derivatives_agree_under_jit():
    points = jnp.linspace(-50.0, 50.0, 101)
    forward = jax.jit(jax.vmap(jax.jacfwd(log_softplus)))(points)
    assert np.array_equal(forward, jax.jit(jax.vmap(jax.grad(log_softplus)))(points))


def test_log_sum_counts_minus_infinity_as_zero_and_does_not_underflow():
    assert float(log_sum(jnp.array([-1e6, -jnp.inf, -1e6]))) == pytest.approx(-1e6 + np.log(2), rel=1e-15)
    assert float(log_sum(jnp.array([-jnp.inf, -jnp.inf]))) == -np.inf


@pytest.mark.parametrize("shift", [0.0, -1e3, 1e3, -1e9])
def test_signed_log_sum_agrees_with_mpmath_under_cancellation(shift, rng):
    terms, signs = rng.normal(size=8), rng.choice([-1.0, 1.0], 8)
    found, sign = signed_log_sum(jnp.asarray(terms + shift), jnp.asarray(signs))
    with mpmath.workdps(DIGITS):
        parts = [mpmath.exp(mpmath.mpf(t) - mpmath.mpf(shift)) for t in terms + shift]
        total = mpmath.fsum(s * p for s, p in zip(signs, parts, strict=True))
        cancellation = float(mpmath.fsum(parts) / abs(total))
        wanted = float(mpmath.log(abs(total))) + shift
    assert abs(float(found) - wanted) <= 1e-15 * (10 * cancellation + abs(shift))  # ten terms' rounding, amplified
    assert float(sign) == float(mpmath.sign(total))


def test_signed_log_sum_of_cancelling_terms_is_zero_with_sign_zero():
    found, sign = signed_log_sum(jnp.array([[-5.0, -5.0], [-jnp.inf, -jnp.inf]]), jnp.array([[1.0, -1.0], [1.0, 1.0]]))
    assert np.array_equal(found, [-np.inf, -np.inf])
    assert np.array_equal(sign, [0.0, 0.0])
