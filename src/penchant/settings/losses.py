"""Losses as functions of a margin, in logarithms.

A loss is used in two ways. On separable data its infimum is 0 and `log_value` is all there is to know. In attention the
margin can only reach the best score, and the excess over that is `log_gap`, written without cancellation.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ArgumentError
from ..logspace import log_expm1_ratio, log_softplus, softplus


class AbstractLoss(eqx.Module):
    """A decreasing loss l(z) of a margin z."""

    @abstractmethod
    def value(self, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """l(z) itself; may underflow, use it for reporting only."""

    @abstractmethod
    def log_value(self, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """log l(z)."""

    @abstractmethod
    def log_slope(self, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """log(-l'(z))."""

    @abstractmethod
    def log_gap(self, best: Float[Array, "*s"], log_deficit: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """log(l(best - deficit) - l(best)), where the deficit is known only by its logarithm."""


def _log_expm1(log_x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    return log_x + log_expm1_ratio(jnp.exp(log_x))


class Exponential(AbstractLoss):
    """l(z) = e^-z."""

    def value(self, z):
        return jnp.exp(-z)

    def log_value(self, z):
        return -z

    def log_slope(self, z):
        return -z

    def log_gap(self, best, log_deficit):
        return -best + _log_expm1(log_deficit)


class Logistic(AbstractLoss):
    """l(z) = log(1 + e^-z)."""

    def value(self, z):
        return softplus(-z)

    def log_value(self, z):
        return log_softplus(-z)

    def log_slope(self, z):
        return -softplus(z)

    def log_gap(self, best, log_deficit):
        # l(b - d) - l(b) = log(1 + x) with x = sigmoid(-b) (e^d - 1), and log log1p(x) is log_softplus of log x.
        return log_softplus(-softplus(best) + _log_expm1(log_deficit))


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

    def log_gap(self, best, log_deficit):
        raise NotImplementedError("the squared loss is not a decreasing function of a margin")
