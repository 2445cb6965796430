"""A `PreconditionedDescent` bound to a problem, and the safeguard that samples need.

Steps from the sizes bound the curvature of the population. A sample curves more: heavy tails, few rows, inputs off centre. So on
samples the steps that the library chooses itself are halved until the objective of the source falls as its slope promises.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..setting.balance import AbstractBalance, limit_logits
from ..setting.context_bias import scaled
from ..setting.geometry import AbstractGeometry
from ..setting.problem import AttentionLayer, AttentionRegression
from .layer_rules import AbstractAttentionRule
from .preconditioned import AdaptiveStep, DefaultStep, PreconditionedDescent, ResolvedStep
from .sources import AbstractSource, FullSample, Minibatch

_PROMISE = 0.1  # share of the decrease to first order that a step must keep: curvature up to 1.8 / step passes
_LONGER = (
    1.1  # by which adaptive steps recover after each one that was kept, so that one bad region is not paid for later
)
_ABOVE = 1.01  # of the first objective: what steps under a logit limit, which are not steepest descent, may reach
_ROUNDING = 1e3  # units in the last place that a sum over all samples may lose


class StructuredRule(AbstractAttentionRule):
    """The covariance of the problem preconditions, and the balance is added to the gradient.

    Its memory is the factor on the step size: 1 until a safeguarded run shortens it.
    """

    problem: AttentionRegression
    resolved: ResolvedStep
    geometry: AbstractGeometry
    balance: AbstractBalance
    logit_limit: Float[Array, ""] | None
    recovers: bool = eqx.field(static=True)

    def init(self, layer):
        return jnp.ones(())

    def size(self, whitened: Float[Array, "rows d"]) -> Array:
        """The step size of the rule, at the scale at which steps are measured."""
        m = self.problem.outputs
        scale = self.balance.scale(whitened[:m], whitened[m:])
        return self.resolved.size(scaled(whitened, m, 1 / scale))

    def total(self, gradient: AttentionLayer, layer: AttentionLayer) -> AttentionLayer:
        """The gradient with that of the balance."""
        problem, whitened = self.problem, self.problem.whiten(layer)
        upper, lower = self.balance.gradient(whitened[: problem.outputs], whitened[problem.outputs :])
        return AttentionLayer(
            gradient.value + upper @ problem.root, gradient.key_query + problem.root @ lower.T @ problem.root
        )

    def limited(self, layer: AttentionLayer) -> AttentionLayer:
        """The layer at the scale that keeps the logit limit."""
        if self.logit_limit is None:
            return layer
        whitened, m = self.problem.whiten(layer), self.problem.outputs
        return self.problem.unwhiten(jnp.concatenate(limit_logits(whitened[:m], whitened[m:], self.logit_limit)))

    def update(self, gradient, memory, layer):
        problem, m = self.problem, self.problem.outputs
        whitened = problem.whiten(layer)
        direction = self.geometry.precondition(self.total(gradient, layer), problem.covariance)
        scale, size = self.balance.scale(whitened[:m], whitened[m:]), memory * self.size(whitened)
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
        return jnp.minimum(1.0, _LONGER * factor) if self.recovers else factor


def bind(rule: PreconditionedDescent | AbstractAttentionRule, problem: AttentionRegression) -> AbstractAttentionRule:
    """The rule as a function of gradient and layer."""
    if isinstance(rule, AbstractAttentionRule):
        return rule
    limit = None if rule.logit_limit is None else jnp.asarray(rule.logit_limit)
    resolved = rule.step.resolve(problem, rule.geometry)
    return StructuredRule(
        problem, resolved, rule.geometry, rule.balance, limit, recovers=isinstance(rule.step, AdaptiveStep)
    )


def safeguarded(rule: PreconditionedDescent | AbstractAttentionRule, source: AbstractSource) -> bool:
    """Whether steps are tried before they are kept: on samples, where the library chooses them.

    A constant step on minibatches is not, as one bad batch would shorten all later steps.
    """
    if not isinstance(rule, PreconditionedDescent):
        return False
    if isinstance(rule.step, AdaptiveStep):
        return isinstance(source, FullSample | Minibatch)
    return isinstance(rule.step, DefaultStep) and isinstance(source, FullSample)
