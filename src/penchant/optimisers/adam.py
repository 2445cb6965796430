"""Adam, with accumulators that never underflow."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..errors import ArgumentError
from ..problem import Reading
from .base import Move


class AdamMemory(eqx.Module):
    """First and second moments of the gradient in the units of the latest one, exp(log_scale)."""

    mean: PyTree
    square: PyTree
    log_scale: Float[Array, ""]


class Adam(eqx.Module):
    """Adam, exact after the gradient has underflowed.

    The accumulators live in today's units: they are multiplied by exp(old scale - new scale) before each update, and
    epsilon is divided by the scale. `eps` has no default: with eps > 0 Adam turns into gradient descent with momentum
    once the gradient is smaller than eps, with eps = 0 it never does.

    **Reference:** Kingma and Ba, *Adam: a method for stochastic optimization*, 2015.
    """

    step: Float[Array, "*b"]
    eps: Float[Array, "*b"]
    b1: float = eqx.field(static=True)
    b2: float = eqx.field(static=True)

    def __init__(self, step: object, eps: object, b1: float = 0.9, b2: float = 0.999):
        if not bool(jnp.all(jnp.asarray(step) > 0)):
            raise ArgumentError("step", "Adam", "positive", step)
        if not bool(jnp.all(jnp.asarray(eps) >= 0)):
            raise ArgumentError("eps", "Adam", "nonnegative", eps)
        for name, value in (("b1", b1), ("b2", b2)):
            if not 0 <= value < 1:
                raise ArgumentError(name, "Adam", "in [0, 1)", value)
        self.step, self.eps, self.b1, self.b2 = jnp.asarray(step, float), jnp.asarray(eps, float), b1, b2

    @property
    def coordinatewise(self) -> bool:
        return True

    def init(self, tangent: PyTree) -> AdamMemory:
        params, _ = tangent
        return AdamMemory(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))

    def move(self, reading: Reading, memory: AdamMemory, count: Any) -> Move:
        unit = jnp.exp(memory.log_scale - reading.log_scale)
        unit = jnp.where(count == 0, 0.0, unit)
        mean = jax.tree.map(lambda m, g: self.b1 * unit * m + (1 - self.b1) * g, memory.mean, reading.slope)
        square = jax.tree.map(lambda v, g: self.b2 * unit**2 * v + (1 - self.b2) * g * g, memory.square, reading.slope)
        age = count + 1.0
        tilt, spread, eps = (
            1 - self.b1**age,
            1 - self.b2**age,
            jnp.where(self.eps > 0, self.eps * jnp.exp(-reading.log_scale), 0.0),
        )

        def displace(m: Array, v: Array) -> Array:
            """A coordinate whose gradient has always been 0 does not move, for eps = 0 as for every eps > 0."""
            return jnp.where(v == 0, 0.0, self.step * (m / tilt) / (jnp.sqrt(jnp.where(v == 0, 1.0, v) / spread) + eps))

        displacement = jax.tree.map(displace, mean, square)
        no = jnp.zeros((), bool)
        return Move(
            displacement, -self.step * reading.weights, AdamMemory(mean, square, reading.log_scale), self.step, no, no
        )
