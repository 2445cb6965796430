"""Memory: what an optimiser carries from step to step, of its steps or of the gradients before a geometry makes steps of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..logspace import Signed, is_signed, signed_log_sum
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
    """A moving average in a unit of its own, e^log_unit, which follows the larger one of what is remembered and what is new."""

    value: PyTree
    log_unit: Float[Array, ""]


class GradientAverage(eqx.Module):
    """M = beta M + (1 - beta) gradient. Gradients may shrink by any factor from step to step: nothing over- or underflows.

    With `nesterov` a step is made of beta M + (1 - beta) gradient, with the M that has seen the gradient.
    """

    beta: Float[Array, "*b"]
    nesterov: bool = eqx.field(static=True)

    def __init__(self, beta: object = 0.9, nesterov: bool = False):
        self.beta, self.nesterov = within(beta, "beta", "GradientAverage", 1.0), nesterov

    def init(self, tangent: PyTree) -> Average:
        none = lambda g: Signed(jnp.full_like(g.log, -jnp.inf), g.sign) if is_signed(g) else jnp.zeros_like(g)
        return Average(jax.tree.map(none, tangent, is_leaf=is_signed), jnp.array(-jnp.inf))

    def mix(self, tangent: PyTree, memory: Average, log_unit: Array) -> Average:
        """The average once it has seen a tangent in units of e^log_unit."""
        kept, added = memory.log_unit + jnp.log(self.beta), log_unit + jnp.log1p(-self.beta)
        unit = jnp.maximum(kept, added)
        unit = jnp.where(jnp.isneginf(unit), 0.0, unit)
        value = jax.tree.map(
            lambda g, m: _sum(m, g, kept - unit, added - unit), tangent, memory.value, is_leaf=is_signed
        )
        return Average(value, unit)

    def look(self, tangent: PyTree, memory: Average, log_unit: Array) -> tuple[Average, Average]:
        """What is remembered, and what a step is made of."""
        memory = self.mix(tangent, memory, log_unit)
        return memory, self.mix(tangent, memory, log_unit) if self.nesterov else memory


def _sum(memory: Array | Signed, new: Array | Signed, kept: Array, added: Array) -> Array | Signed:
    if not (is_signed(memory) and is_signed(new)):
        return jnp.exp(kept) * memory + jnp.exp(added) * new  # pyright: ignore[reportOperatorIssue, reportReturnType]
    logs = jnp.stack([memory.log + kept, new.log + added], axis=-1)
    return Signed(*signed_log_sum(logs, jnp.stack([memory.sign, new.sign], axis=-1)))
