"""Memory: what an optimiser carries from step to step."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .step_rules import within


class NoMemory(eqx.Module):
    """Each step stands alone."""

    def init(self, tangent: PyTree) -> PyTree:
        return None

    def mix(self, step: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        return step, None


class HeavyBall(eqx.Module):
    """V = beta V + step. V is a displacement, in the units of the parameters, so it needs no rescaling."""

    beta: Float[Array, "*b"]

    def __init__(self, beta: object = 0.9):
        self.beta = within(beta, "beta", "HeavyBall", 1.0)

    def init(self, tangent: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, tangent)

    def mix(self, step: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        velocity = jax.tree.map(lambda v, s: self.beta * v + s, memory, step)
        return velocity, velocity
