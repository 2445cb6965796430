"""Losses of the user's own, and polynomial tails, for which maximum margin is false."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import ArgumentError
from .losses import AbstractLoss


class UserLoss(AbstractLoss):
    """A decreasing positive loss given by log l(z) and log(-l'(z)) as functions of the margin.

    >>> import jax
    >>> loss = UserLoss(lambda z: -2 * z, lambda z: jnp.log(2.0) - 2 * z)          # e^(-2z)
    >>> float(loss.log_value(jnp.array(1e6))), float(loss.value(jnp.array(0.5))) == float(jnp.exp(-1.0))
    (-2000000.0, True)
    """

    log_of_value: Callable[[Array], Array] = eqx.field(static=True)
    log_of_slope: Callable[[Array], Array] = eqx.field(static=True)

    def value(self, z):
        return jnp.exp(self.log_of_value(z))

    def log_value(self, z):
        return self.log_of_value(z)

    def log_slope(self, z):
        return self.log_of_slope(z)

    def log_gap(self, best, log_deficit):
        raise NotImplementedError("a loss of the user's own has no closed form for its excess over a finite infimum")


class PolynomialTail(AbstractLoss):
    """l(z) = (1 + z)^-power for z >= 0 and 1 - power z below: alignment survives, the maximum margin does not.

    >>> loss = PolynomialTail(2.0)
    >>> loss.value(jnp.array([1.0, -1.0])).tolist()
    [0.25, 3.0]
    """

    power: float

    def __init__(self, power: float):
        if not power > 0:
            raise ArgumentError("power", "PolynomialTail", "positive", power)
        self.power = float(power)

    def value(self, z):
        return jnp.exp(self.log_value(z))

    def log_value(self, z):
        right, left = jnp.maximum(z, 0.0), jnp.minimum(z, 0.0)
        return jnp.where(z >= 0, -self.power * jnp.log1p(right), jnp.log1p(-self.power * left))

    def log_slope(self, z):
        return jnp.log(self.power) - (self.power + 1) * jnp.log1p(jnp.maximum(z, 0.0))

    def log_gap(self, best, log_deficit):
        raise NotImplementedError("polynomial tails have no use for a finite infimum here")
