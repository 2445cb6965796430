"""Memory: what an optimiser carries from step to step, of its steps or of the gradients before a geometry makes steps of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .step_rules import within


class HeavyBall(eqx.Module):
    """V = beta V + step. V is a displacement, in the units of the parameters, so it needs no rescaling."""

    beta: Float[Array, "*b"]

    def __init__(self, beta: object = 0.9):
        self.beta = within(beta, "beta", "HeavyBall", 1.0)

    def init(self, tangent: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, tangent)

    def mix(self, step: PyTree, memory: PyTree) -> PyTree:
        return jax.tree.map(lambda v, s: self.beta * v + s, memory, step)


class Average(eqx.Module):
    """A moving average in units of its own: the value times exp(log_scale), or exp(2 log_scale) where squares are averaged."""

    value: PyTree
    log_scale: Float[Array, ""]


class GradientAverage(eqx.Module):
    """M = beta M + (1 - beta) gradient, in the units of the latest gradient: what is remembered is multiplied by exp(old scale - new scale)."""

    beta: Float[Array, "*b"]

    def __init__(self, beta: object = 0.9):
        self.beta = within(beta, "beta", "GradientAverage", 1.0)

    def init(self, tangent: PyTree) -> Average:
        return Average(jax.tree.map(jnp.zeros_like, tangent), jnp.array(jnp.inf))

    def mix(self, tangent: PyTree, memory: Average, log_scale: Array, power: int = 1) -> Average:
        """`power` is that of the gradient in the tangent."""
        begun = jnp.isfinite(memory.log_scale)
        unit = jnp.where(begun, jnp.exp(jnp.where(begun, memory.log_scale, 0.0) - log_scale) ** power, 0.0)
        value = jax.tree.map(lambda m, g: self.beta * unit * m + (1 - self.beta) * g, memory.value, tangent)
        return Average(value, log_scale)
