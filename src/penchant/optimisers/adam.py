"""Adam, with accumulators that never underflow."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..problem import Reading
from .base import Move
from .memory import Average, GradientAverage
from .step_rules import positive, within


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
    coordinatewise = True
    combines = False

    def __init__(self, step: object, eps: object, b1: float = 0.9, b2: float = 0.999):
        self.step, self.eps = positive(step, "step", "Adam"), within(eps, "eps", "Adam", jnp.inf)
        self.b1, self.b2 = (float(within(value, name, "Adam", 1.0)) for name, value in (("b1", b1), ("b2", b2)))

    def init(self, tangent: PyTree) -> tuple[Average, Average]:
        return GradientAverage(self.b1).init(tangent[0]), GradientAverage(self.b2).init(tangent[0])

    def move(self, reading: Reading, memory: tuple[Average, Average], count: Array) -> Move:
        mean = GradientAverage(self.b1).mix(reading.slope, memory[0], reading.log_scale)
        squares = jax.tree.map(lambda g: g * g, reading.slope)
        square = GradientAverage(self.b2).mix(squares, memory[1], reading.log_scale, 2)
        tilt, spread = 1 - self.b1 ** (count + 1.0), 1 - self.b2 ** (count + 1.0)
        eps = jnp.where(self.eps > 0, self.eps * jnp.exp(-reading.log_scale), 0.0)

        def displace(m: Array, v: Array) -> Array:
            """A coordinate whose gradient has always been 0 does not move, for eps = 0 as for every eps > 0."""
            return jnp.where(v == 0, 0.0, self.step * (m / tilt) / (jnp.sqrt(jnp.where(v == 0, 1.0, v) / spread) + eps))

        displacement = jax.tree.map(displace, mean.value, square.value)
        no = jnp.zeros((), bool)
        return Move(displacement, -self.step * reading.weights, (mean, square), self.step, no, no)


def exact_adam(step: object) -> Adam:
    """Adam with eps = 0, which never turns into gradient descent."""
    return Adam(step, 0.0)
