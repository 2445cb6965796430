"""Losses as functions of a margin, in logarithms.

A loss is used in two ways. On separable data its infimum is 0 and `log_value` is all there is to know. In attention the
margin can only reach the best score, and the excess over that is `log_gap`, written without cancellation.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError
from ..logspace import log_expm1_ratio, log_softplus, log_sum, softplus

# where a derivative is tried, off the corners that losses usually have
_MARGINS = np.array([-2.3, -0.7, 0.3, 1.1, 3.7, 17.3, -311.3, -41.3, 23.3, 41.3, 311.3, 3e3, 1e5])
_FAR = 20.0  # margins beyond which a formula may overflow or underflow: what is left of it is tried
_APART = 1e-5 * np.maximum(1.0, np.abs(_MARGINS))  # of the difference quotient, which is then good to 1e-9
_WRONG = 1e-4  # relative error beyond which a derivative is not that of the loss


class AbstractLoss(eqx.Module):
    """A decreasing loss l(z) of a margin z; `kind` names the ones that theorems speak about."""

    kind: ClassVar[str] = ""

    @abstractmethod
    def log_value(self, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """log l(z)."""

    @abstractmethod
    def log_slope(self, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """log(-l'(z))."""

    def value(self, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """l(z) itself; may underflow, use it for reporting only."""
        return jnp.exp(self.log_value(z))

    def log_gap(self, best: Float[Array, "*s"], log_deficit: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """log(l(best - deficit) - l(best)), where the deficit is known only by its logarithm."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form for its excess over a finite infimum")


def _log_expm1(log_x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    return log_x + log_expm1_ratio(jnp.exp(log_x))


class Exponential(AbstractLoss):
    """l(z) = e^-z."""

    kind = "exponential"

    def log_value(self, z):
        return -z

    def log_slope(self, z):
        return -z

    def log_gap(self, best, log_deficit):
        return -best + _log_expm1(log_deficit)


class Logistic(AbstractLoss):
    """l(z) = log(1 + e^-z)."""

    kind = "logistic"

    def value(self, z):
        return softplus(-z)

    def log_value(self, z):
        return log_softplus(-z)

    def log_slope(self, z):
        return -softplus(z)

    def log_gap(self, best, log_deficit):
        # l(b - d) - l(b) = log(1 + x) with x = sigmoid(-b) (e^d - 1), and log log1p(x) is log_softplus of log x.
        return log_softplus(-softplus(best) + _log_expm1(log_deficit))


class CrossEntropy(AbstractLoss):
    """l(z) = log(1 + sum_c e^-z_c) of the margins of one sample over every other class, along the last axis: for `Multiclass`.

    >>> loss = CrossEntropy()
    >>> float(loss.log_value(jnp.array([1e6, 1e6]))), loss.log_slope(jnp.array([0.0, 0.0])).round(9).tolist()   # log 2 - 1e6, log 1/3
    (-999999.3068528194, [-1.098612289, -1.098612289])
    """

    kind = "cross-entropy"

    def value(self, z):
        return softplus(log_sum(-z))

    def log_value(self, z):
        return log_softplus(log_sum(-z))

    def log_slope(self, z):
        """Of every margin."""
        return -z - softplus(log_sum(-z))[..., None]


class Correlation(AbstractLoss):
    """l(z) = -z: no infimum on separable linear data, but a finite one in attention, where margins are bounded."""

    def value(self, z):
        return -z

    def log_value(self, z):
        raise NotImplementedError("-z has no logarithm")

    def log_slope(self, z):
        return jnp.zeros_like(z)

    def log_gap(self, best, log_deficit):
        return log_deficit


class Squared(AbstractLoss):
    """l(r) = scale * r^2 / 2 of a residual r: for `Regression`, where the infimum is attained."""

    scale: float

    def __init__(self, scale: float = 1.0):
        if not (0 < scale < float("inf")):
            raise ArgumentError("scale", "Squared", "positive and finite", scale)
        self.scale = float(scale)

    def value(self, z):
        return self.scale * z**2 / 2

    def log_value(self, z):
        return jnp.log(self.scale / 2) + 2 * jnp.log(jnp.abs(z))

    def log_slope(self, z):
        raise NotImplementedError("the squared loss is not a decreasing function of a margin")


class UserLoss(AbstractLoss):
    """A decreasing positive loss given by log l(z) and log(-l'(z)) as functions of the margin, tried on each other at a few margins.

    >>> import jax
    >>> loss = UserLoss(lambda z: -2 * z, lambda z: jnp.log(2.0) - 2 * z)          # e^(-2z)
    >>> float(loss.log_value(jnp.array(1e6))), float(loss.value(jnp.array(0.5))) == float(jnp.exp(-1.0))
    (-2000000.0, True)
    """

    log_of_value: Callable[[Array], Array] = eqx.field(static=True)
    log_of_slope: Callable[[Array], Array] = eqx.field(static=True)

    def __check_init__(self):
        at = ("slope", _MARGINS), ("value", _MARGINS), ("value", _MARGINS + _APART), ("value", _MARGINS - _APART)
        slope, value, *ends = (self._tried(f"log_of_{name}", margins) for name, margins in at)
        with np.errstate(over="ignore", invalid="ignore"):
            found, exact = -np.exp(slope - value), (ends[0] - ends[1]) / (2 * _APART)
            rounding = 8 * np.finfo(float).eps * (1 + np.abs(value)) / _APART
            right = np.abs(found - exact) <= _WRONG * np.abs(exact) + rounding
        lost = (np.abs(_MARGINS) > _FAR) & ~np.isfinite([slope, value, *ends]).all(axis=0)
        bad = np.flatnonzero(~(right | lost))
        if len(bad):
            k = bad[0]
            text = f"{found[k]:.6g} where the difference quotient of log l is {exact[k]:.6g}, at margin {_MARGINS[k]:g}"
            fix = "for l = e^(-2z): UserLoss(lambda z: -2 * z, lambda z: jnp.log(2.0) - 2 * z)"
            required = "log(-l') of the loss l = e^log_of_value"
            raise ArgumentError("log_of_slope", "UserLoss", required, f"l'/l = {text}", fix)

    def _tried(self, name: str, margins: np.ndarray) -> np.ndarray:
        try:
            found = getattr(self, name)(jnp.asarray(margins))
        except Exception as error:
            wanted, text = "a function of an array of margins", f"{type(error).__name__}: {error}"
            raise ArgumentError(name, "UserLoss", wanted, f"one that raises {text}") from error
        if np.shape(found) != margins.shape:
            raise ArgumentError(name, "UserLoss", "a function that returns one number for each margin", repr(found))
        return np.asarray(found)

    def log_value(self, z):
        return self.log_of_value(z)

    def log_slope(self, z):
        return self.log_of_slope(z)


class PolynomialTail(AbstractLoss):
    """l(z) = (1 + z)^-power for z >= 0 and 1 - power z below: alignment survives, the maximum margin does not."""

    power: float

    def __init__(self, power: float):
        if not power > 0:
            raise ArgumentError("power", "PolynomialTail", "positive", power)
        self.power = float(power)

    def log_value(self, z):
        right, left = jnp.maximum(z, 0.0), jnp.minimum(z, 0.0)
        return jnp.where(z >= 0, -self.power * jnp.log1p(right), jnp.log1p(-self.power * left))

    def log_slope(self, z):
        return jnp.log(self.power) - (self.power + 1) * jnp.log1p(jnp.maximum(z, 0.0))
