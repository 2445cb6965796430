"""Arithmetic on logarithms: every exp of a log quantity in penchant goes through here.

On separable data the loss is `exp(-margin)` with margins up to 1e12, so nothing below may form the loss itself.
Values and first derivatives are explicit and agree with mpmath to 1e-14 relative (see `tests/test_logspace.py`).

Importing this module switches JAX to float64: in float32 the answers of the library would be wrong, not merely rough.
"""

from typing import NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .errors import ArgumentError

jax.config.update("jax_enable_x64", True)

_TINY = -690.0  # log of the smallest size that a signed number keeps as a float
_DECIDED = 1e-13  # of the sizes of all terms: a sum below this may have the sign of its rounding
_SMALL = 1e-5  # below this the quadratic series is exact to rounding: the first term left out is of order 1e-15


def check_float64() -> None:
    """Raise where somebody has switched JAX back to float32 since."""
    if jnp.result_type(float) != jnp.float64:
        raise ArgumentError("jax_enable_x64", "jax", "True", "False", "jax.config.update('jax_enable_x64', True)")


def softplus(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(1 + e^x)."""
    return jnp.logaddexp(x, 0.0)


@jax.custom_jvp
def log_softplus(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log log(1 + e^x): the logistic loss of margin -x, in logarithms; x - e^x/2 far to the left."""
    left = x < 0
    u = jnp.exp(jnp.where(left, x, -1.0))
    small = u < _SMALL
    ratio = jnp.where(small, -u / 2 + 5 * u * u / 24, jnp.log(jnp.log1p(u) / jnp.where(small, 1.0, u)))
    return jnp.where(left, x + ratio, jnp.log(softplus(jnp.where(left, 0.0, x))))


def softplus_elasticity(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """sigmoid(x) / softplus(x), the derivative of `log_softplus`: 1 far to the left, 1/x far to the right."""
    left = x < 0
    u = jnp.exp(jnp.where(left, x, -1.0))
    small = u < _SMALL
    safe = jnp.where(small, 1.0, u)
    near = jnp.where(small, 1 - u / 2 + 5 * u * u / 12, safe / ((1 + safe) * jnp.log1p(safe)))
    right = jnp.where(left, 0.0, x)
    return jnp.where(left, near, jax.nn.sigmoid(right) / softplus(right))


@log_softplus.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return log_softplus(x), softplus_elasticity(x) * dx


@jax.custom_jvp
def log_expm1_ratio(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log((e^x - 1)/x) for x >= 0: what turns log x into log(e^x - 1)."""
    half = jnp.where(x > 30, 1.0, x) / 2
    square = half * half
    series = square * (1 / 6 - square * (1 / 180 - square * (1 / 2835 - square / 37800)))
    direct = jnp.log(jnp.sinh(half) / jnp.where(x > 0, half, 1.0))
    far = jnp.where(x > 30, x, 31.0)
    return jnp.where(x > 30, far + jnp.log1p(-jnp.exp(-far)) - jnp.log(far), half + jnp.where(x < 0.1, series, direct))


def expm1_elasticity(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """1/(1 - e^-x) - 1/x, the derivative of `log_expm1_ratio`: 1/2 at 0, 1 at infinity."""
    near = x < 0.25
    square = jnp.where(near, x, 0.0) ** 2
    odd = 1 / 12 - square * (1 / 720 - square * (1 / 30240 - square * (1 / 1209600 - square / 47900160)))
    safe = jnp.where(near, 1.0, x)
    return jnp.where(near, 0.5 + x * odd, -1 / jnp.expm1(-safe) - 1 / safe)


@log_expm1_ratio.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return log_expm1_ratio(x), expm1_elasticity(x) * dx


def log_sum(log_terms: Float[Array, "... k"]) -> Float[Array, "..."]:
    """log of a sum of exponentials along the last axis; terms of -inf count as zero."""
    return jax.scipy.special.logsumexp(log_terms, axis=-1)


def signed_log_sum(log_terms: Float[Array, "... k"], signs: Float[Array, "... k"]) -> tuple[Array, Array]:
    """(log|S|, sign S) of S = sum of signs * exp(log_terms) along the last axis; log 0 is -inf."""
    top = jnp.max(log_terms, axis=-1, keepdims=True)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    total = jnp.sum(signs * jnp.exp(log_terms - top), axis=-1)
    zero = total == 0
    log_size = jnp.where(zero, -jnp.inf, jnp.log(jnp.where(zero, 1.0, jnp.abs(total)))) + top[..., 0]
    return log_size, jnp.sign(total)


class Signed(NamedTuple):
    """Numbers by their logarithms and signs: e^-1000 of its neighbours has a sign all the same. A sign of 0 is undecided, or that of 0."""

    log: Array
    sign: Array


def is_signed(value: object) -> TypeGuard[Signed]:
    return isinstance(value, Signed)


def to_signed(tree: PyTree) -> PyTree:
    """Every array of a tree by logarithms and signs."""
    log = lambda leaf: jnp.where(leaf == 0, -jnp.inf, jnp.log(jnp.where(leaf == 0, 1.0, jnp.abs(leaf))))
    return jax.tree.map(lambda leaf: Signed(log(leaf), jnp.sign(leaf)), tree)


def to_floats(tree: PyTree) -> PyTree:
    """The same as floats; what would underflow keeps its sign."""
    float_of = lambda one: one.sign * jnp.exp(jnp.maximum(one.log, _TINY)) if is_signed(one) else one
    return jax.tree.map(float_of, tree, is_leaf=is_signed)


def signed_matmul(log_weights: Float[Array, "n k"], signs: Float[Array, "n k"], rows: Float[Array, "n d"]) -> Signed:
    """(signs exp(log_weights))' rows, entry by entry with a sign of its own: a positive and a negative sum of logarithms where floats
    lose an entry. Where both agree to 1e-13 the sign is undecided.
    """
    top = jnp.max(log_weights)
    floats = jnp.exp(log_weights - top)
    total = (signs * floats).T @ rows
    most = jnp.outer(jnp.sum(jnp.abs(signs) * floats, axis=0), jnp.max(jnp.abs(rows), axis=0))  # never below a size
    in_floats = lambda found: Signed(jnp.log(jnp.abs(found)) + top, jnp.sign(found))

    def with_sizes() -> Signed:
        size = (jnp.abs(signs) * floats).T @ jnp.abs(rows)
        decided = jnp.where(jnp.abs(total) > _DECIDED * size, total, 0.0)
        lost = jnp.any((size == 0) & jnp.any(rows != 0, axis=0, keepdims=True))
        return jax.lax.cond(lost, in_logs, lambda: in_floats(decided))

    def in_logs() -> Signed:
        logs = jnp.log(jnp.abs(rows))[:, None, :] + log_weights[:, :, None]
        sides = signs[:, :, None] * jnp.sign(rows)[:, None, :]
        parts = (jnp.moveaxis(jnp.where(sides * one > 0, logs, -jnp.inf), 0, -1) for one in (1.0, -1.0))
        plus, minus = (log_sum(part) for part in parts)
        high = jnp.maximum(plus, minus)
        apart = jnp.where(jnp.isneginf(high), 0.0, jnp.abs(plus - minus))
        log = high + jnp.log(-jnp.expm1(-apart))
        decided = apart > _DECIDED
        return Signed(jnp.where(decided, log, -jnp.inf), jnp.where(decided, jnp.sign(plus - minus), 0.0))

    sure = jnp.all(jnp.abs(total) > _DECIDED * most)
    return jax.lax.cond(sure, lambda: in_floats(total), with_sizes)
