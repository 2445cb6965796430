"""Rules that move an attention layer: structure-aware descent, which is geometry x step rule x regulariser, and what it is compared with.

Bound to a problem, a rule has `init(layer) -> memory` and `update(gradient, memory, layer) -> (change, memory)`; the change is added to the layer.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ....errors import ArgumentError
from ....optimisers.base import Optimiser
from ....problem import Reading
from ..setting.context_bias import scaled
from ..setting.geometry import AbstractGeometry, Euclidean, geometry_of
from ..setting.problem import (
    BALANCE,
    AbstractBalance,
    AttentionLayer,
    AttentionRegression,
    ScaleFreeBalance,
    Unregularised,
    limit_logits,
)
from .steps import AttentionStep, ResolvedStep, step_of

_PROMISE = 0.1  # share of the decrease to first order that a step must keep: curvature up to 1.8 / step passes
_LONGER = 1.1  # by which adaptive steps recover after each one that was kept: one bad region is not paid for later
_ABOVE = 1.01  # of the first objective: what steps under a logit limit, which are not steepest descent, may reach
_ROUNDING = 1e3  # units in the last place that a sum over all samples may lose


class LayerRule(eqx.Module):
    """An optimiser of the engine on the blocks of a layer: it knows nothing of the problem and descends the loss alone.

    `LayerRule(Adam(0.03, eps=1e-8))`, and any optax transformation as `LayerRule(OptaxDescent(...))`.
    """

    optimiser: Optimiser

    structured: ClassVar[bool] = False
    geometry: ClassVar[AbstractGeometry] = Euclidean()
    balance: ClassVar[AbstractBalance] = Unregularised()

    def bind(self, problem: AttentionRegression) -> "LayerRule":
        """The rule as a function of gradient and layer."""
        return self

    def limited(self, layer: AttentionLayer) -> AttentionLayer:
        """The layer at the scale where training starts."""
        return layer

    def size(self, whitened: Float[Array, "rows d"]) -> Array:
        """The step size, not a number for rules that have none."""
        return jnp.asarray(getattr(self.optimiser, "step", jnp.nan))

    def constant(self, problem: AttentionRegression) -> float:
        """Not a number: a stability limit applies to plain descent only."""
        return float("nan")

    def factor(self, memory: PyTree) -> Array:
        """What a safeguard has made of the step size."""
        return jnp.ones(())

    def tried_on(self, rows: str) -> bool:
        return False

    def words(self, problem: AttentionRegression, factor: float) -> str:
        """The step size, and where it came from."""
        return f"{float(self.size(jnp.zeros((1, 1)))):.4g}, as given"

    def init(self, layer: AttentionLayer) -> tuple[PyTree, Array]:
        return self.optimiser.init((layer, None)), jnp.zeros(())

    def update(self, gradient: AttentionLayer, memory: PyTree, layer: AttentionLayer) -> tuple[AttentionLayer, PyTree]:
        zero, none = jnp.zeros(()), jnp.zeros(0)
        move = self.optimiser.move(Reading(zero, zero, gradient, none, none, zero, layer), *memory)
        return jax.tree.map(jnp.negative, move.displacement), (move.memory, memory[1] + 1)


class StructuredRule(eqx.Module):
    """Structure-aware descent on one problem: its covariance preconditions, and the balance is added to the gradient.

    Its memory is the factor on the step size: 1 until a safeguarded run shortens it.
    """

    problem: AttentionRegression
    resolved: ResolvedStep
    geometry: AbstractGeometry
    balance: AbstractBalance
    logit_limit: Float[Array, ""] | None

    def _blocks(self, whitened: Float[Array, "rows d"]) -> tuple[Array, Array]:
        return whitened[: self.problem.outputs], whitened[self.problem.outputs :]

    def _held(self, whitened: Float[Array, "rows d"]) -> Float[Array, "rows d"]:
        """W at the scale that keeps the logit limit."""
        if self.logit_limit is None:
            return whitened
        return jnp.concatenate(limit_logits(*self._blocks(whitened), self.logit_limit))

    def size(self, whitened: Float[Array, "rows d"]) -> Array:
        """The step size of the rule, at the scale at which steps are measured."""
        scale = self.balance.scale(*self._blocks(whitened))
        return self.resolved.size(scaled(whitened, self.problem.outputs, 1 / scale))

    def init(self, layer: AttentionLayer) -> Array:
        return jnp.ones(())

    def factor(self, memory: Array) -> Array:
        return memory

    def total(self, gradient: AttentionLayer, layer: AttentionLayer) -> AttentionLayer:
        """The gradient with that of the balance."""
        pull = self.problem.by_layer(self.problem.whitened_pull(self.problem.whiten(layer), self.balance))
        return jax.tree.map(jnp.add, gradient, pull)

    def limited(self, layer: AttentionLayer) -> AttentionLayer:
        """The layer at the scale that keeps the logit limit."""
        if self.logit_limit is None:
            return layer
        return self.problem.unwhiten(self._held(self.problem.whiten(layer)))

    def update(self, gradient: AttentionLayer, memory: Array, layer: AttentionLayer) -> tuple[AttentionLayer, Array]:
        whitened = self.problem.whiten(layer)
        direction = self.geometry.precondition(self.total(gradient, layer), self.problem.covariance)
        scale, size = self.balance.scale(*self._blocks(whitened)), memory * self.size(whitened)
        change = AttentionLayer(-size * scale**2 * direction.value, -size / scale**2 * direction.key_query)
        if self.logit_limit is None:
            return change, memory
        limited = self.limited(jax.tree.map(jnp.add, layer, change))
        return jax.tree.map(jnp.subtract, limited, layer), memory

    def objective(self, loss: Array, layer: AttentionLayer) -> Array:
        """Loss of the source plus balance: what the steps descend."""
        return loss + self.problem.regulariser(layer, self.balance)

    def allowed(
        self, objective: Array, first: Array, gradient: AttentionLayer, change: AttentionLayer, layer: AttentionLayer
    ) -> Array:
        """The largest objective at which a change is kept."""
        rounding = _ROUNDING * jnp.finfo(objective.dtype).eps * jnp.abs(objective)
        if self.logit_limit is not None:
            return jnp.maximum(_ABOVE * first, objective) + rounding
        total = self.total(gradient, layer)
        slope = jnp.sum(total.value * change.value) + jnp.sum(total.key_query * change.key_query)
        return objective + _PROMISE * slope + rounding

    def recovered(self, factor: Array) -> Array:
        """The factor after a step that was kept."""
        return jnp.minimum(1.0, _LONGER * factor) if self.resolved.adaptive else factor


class PreconditionedDescent(eqx.Module):
    """Structure-aware descent on a layer: theta - step * precondition(gradient of loss + regulariser).

    **Arguments:** `geometry`, "two_sided", "left" or "euclidean"; `step`, a number or one of "default", "optimal", "theory",
    "adaptive"; `balance`, the regulariser (`Balance()`, `ScaleFreeBalance()`, or `Unregularised()`, with which "euclidean" is plain descent); `logit_limit`, the largest
    operator norm of the whitened V: on a sample before the first step, and after each one, scale is moved from V to U until it holds. With a limit the default
    regulariser is the scale-free one, as the other would undo what the limit does. Steps with the scale-free one are those of
    the balanced layer, carried to the scale c of (c U, V/c): the same steps are stable at every c.
    """

    geometry: AbstractGeometry
    step: AttentionStep
    balance: AbstractBalance
    logit_limit: float | None = None

    def __init__(
        self,
        geometry: str | AbstractGeometry = "two_sided",
        step: AttentionStep | str | float | int = "default",
        balance: AbstractBalance | None = None,
        logit_limit: float | None = None,
    ):
        if logit_limit is not None and not 0 < logit_limit < jnp.inf:
            raise ArgumentError("logit_limit", "PreconditionedDescent", "positive and finite", logit_limit)
        self.geometry = geometry_of(geometry) if isinstance(geometry, str) else geometry
        own = BALANCE if logit_limit is None else ScaleFreeBalance()
        self.step, self.balance = step_of(step), own if balance is None else balance
        self.logit_limit = None if logit_limit is None else float(logit_limit)

    def bind(self, problem: AttentionRegression) -> StructuredRule:
        """The rule on one problem; step sizes are arrays, so that another one does not compile again."""
        limit = None if self.logit_limit is None else jnp.asarray(self.logit_limit)
        resolved = self.step.resolve(problem, self.geometry)
        return StructuredRule(problem, resolved, self.geometry, self.balance, limit)

    @property
    def structured(self) -> bool:
        """Whether a regulariser holds the scale, so that the curvature at the minima says how training ends."""
        return not isinstance(self.balance, Unregularised)

    def constant(self, problem: AttentionRegression) -> float:
        """The step size, not a number where it is adaptive."""
        return self.step.constant(problem, self.geometry)

    def tried_on(self, rows: str) -> bool:
        """Whether steps are tried before they are kept: on samples, where the library chooses them."""
        return self.step.tried_on(rows)

    def words(self, problem: AttentionRegression, factor: float) -> str:
        """The step size, where it came from, and what the safeguard made of it."""
        return self.step.words(self.constant(problem) * factor, factor)


Rule = PreconditionedDescent | LayerRule


def step_warning(problem: AttentionRegression, rule: Rule) -> str:
    """Empty, or why a constant step is above the stability limit near the minima; rules of the engine have no limit."""
    step, geometry = rule.constant(problem), rule.geometry
    limit = float(1 / (2 * problem.sizes[0] * geometry.stretch(problem.spread[-1])))
    if not step > limit:  # also for adaptive steps, which are not a number
        return ""
    every = " of every gauge (near some, longer steps are stable)" * geometry.columns
    return f"the step {step:.3g} is above the stability limit {limit:.3g} near the minima{every}"
