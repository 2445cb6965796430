"""The compiled loop of `train_attention`: evaluate a source, move a layer, record it.

One while loop between records, whose last turn only looks: the evaluation, which is most of the program, is compiled once.

Steps from the sizes bound the curvature of the population. A sample curves more: heavy tails, few rows, inputs off centre. So on samples the steps that the
library chooses itself are halved until the objective of the source falls as its slope promises: a safeguarded run evaluates a candidate with the draw of
the step that proposed it, and keeps it or halves the step.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ....training.status import Status
from ..setting.context_bias import scaled
from ..setting.geometry import AbstractGeometry
from ..setting.problem import AbstractBalance, AttentionLayer, AttentionRegression, Unregularised, limit_logits
from .rules import AbstractAttentionRule, AdaptiveStep, DefaultStep, PreconditionedDescent, ResolvedStep
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


LARGEST = 1e6  # a whitened norm beyond which a run is lost: gradients grow with its cube
_SHORTEST = 2.0**-60  # of the rule's step: no descent in sight


class Trial(eqx.Module):
    """What a safeguarded run tries: a candidate, whether it is to be evaluated next, and up to which objective it is kept."""

    candidate: AttentionLayer
    waiting: Array
    allowed: Array
    objective: Array
    first: Array


class State(eqx.Module):
    """A run between two steps; `observed` says that `loss` and `gradient` are those of `layer`."""

    layer: AttentionLayer
    memory: Any
    taken: Array
    status: Array
    loss: Array
    gradient: AttentionLayer
    observed: Array
    trial: Trial | None = None


def whitened_gradient(problem: AttentionRegression, gradient: AttentionLayer) -> Array:
    """A gradient by U and V as one by W."""
    back = problem.inverse_root
    return jnp.concatenate([gradient.value @ back, (back @ gradient.key_query @ back).T])


@eqx.filter_jit
def scan(
    source: AbstractSource,
    rule: AbstractAttentionRule,
    truth: AttentionRegression | None,
    start: AttentionLayer,
    draws: Any,
    schedule: Array,
    guard: bool,
) -> tuple[State, dict[str, Array]]:
    """The last state, and the records at the steps of the schedule."""
    if guard and isinstance(rule, StructuredRule):
        turn = partial(_guarded_turn, source, rule, draws)
    else:
        turn = partial(_turn, source, rule, draws)

    def stretch(state: State, until: Array) -> tuple[State, dict[str, Array]]:
        state = eqx.tree_at(lambda one: one.observed, state, jnp.zeros((), bool))
        state = jax.lax.while_loop(lambda one: ~one.observed, partial(turn, until), state)
        return state, _record(source.problem, truth, state, rule)

    zero, no, count = jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), schedule.dtype)
    nothing = jax.tree.map(jnp.zeros_like, start)
    status = jnp.asarray(int(Status.running), jnp.int32)
    trial = Trial(start, no, zero, zero, jnp.full((), jnp.nan)) if guard else None
    begin = State(start, rule.init(start), count, status, zero, nothing, no, trial)
    return jax.lax.scan(stretch, begin, schedule)


def _evaluate(source: AbstractSource, draws: Any, layer: AttentionLayer, taken: Array) -> tuple[Array, AttentionLayer]:
    return source.evaluate(layer, jax.tree.map(lambda leaf: leaf[taken], draws))


def _turn(source: AbstractSource, rule: AbstractAttentionRule, draws: Any, until: Array, state: State) -> State:
    """Look, and move unless this is the last turn; a step that would leave every bounded region is not taken."""
    loss, gradient = _evaluate(source, draws, state.layer, state.taken)
    last = (state.taken >= until) | (state.status != Status.running)
    seen = State(state.layer, state.memory, state.taken, state.status, loss, gradient, last)
    return jax.lax.cond(last, lambda: seen, lambda: _moved(source.problem, rule, seen))


def _moved(problem: AttentionRegression, rule: AbstractAttentionRule, state: State) -> State:
    change, memory = rule.update(state.gradient, state.memory, state.layer)
    layer = jax.tree.map(jnp.add, state.layer, change)
    size = jnp.linalg.norm(problem.whiten(layer))
    ending = jnp.where(jnp.isfinite(size), int(Status.diverging_step), int(Status.not_finite))
    rest = (state.loss, state.gradient, state.observed)
    moved = State(layer, memory, state.taken + 1, state.status, *rest)
    refused = State(state.layer, state.memory, state.taken, ending.astype(state.status.dtype), *rest)
    return jax.tree.map(lambda new, old: jnp.where(size <= LARGEST, new, old), moved, refused)


def _guarded_turn(source: AbstractSource, rule: StructuredRule, draws: Any, until: Array, state: State) -> State:
    """Look at the layer, or judge the candidate; then propose the next one unless this is the last turn.

    Without draws the value at a kept candidate is that of the next look, so nothing is evaluated twice.
    """
    trial, pick = state.trial, lambda choice, new, old: jax.tree.map(lambda a, b: jnp.where(choice, a, b), new, old)
    assert trial is not None
    point = pick(trial.waiting, trial.candidate, state.layer)
    loss, gradient = _evaluate(source, draws, point, state.taken)
    objective = rule.objective(loss, point)
    bounded = jnp.linalg.norm(source.problem.whiten(point)) <= LARGEST
    kept = trial.waiting & (objective <= trial.allowed) & bounded  # False for an objective that is not a number
    fresh = ~trial.waiting | (kept & (draws is None))  # loss and gradient are those of the layer from here on
    shorter = trial.waiting & ~kept
    factor = jnp.where(kept, rule.recovered(state.memory), jnp.where(shorter, state.memory / 2, state.memory))
    failed = shorter & (factor < _SHORTEST)
    status = jnp.where(failed, int(Status.step_failed), state.status).astype(state.status.dtype)
    layer, taken = pick(kept, trial.candidate, state.layer), state.taken + kept
    loss, gradient, objective = pick(fresh, (loss, gradient, objective), (state.loss, state.gradient, trial.objective))
    first = jnp.where(jnp.isnan(trial.first), objective, trial.first)
    known = fresh | shorter
    last = known & ((taken >= until) | (status != Status.running))
    change, _ = rule.update(gradient, factor, layer)
    allowed = rule.allowed(objective, first, gradient, change, layer)
    proposal = Trial(jax.tree.map(jnp.add, layer, change), known & ~last, allowed, objective, first)
    return State(layer, factor, taken.astype(state.taken.dtype), status, loss, gradient, last, proposal)


def _record(
    problem: AttentionRegression, truth: AttentionRegression | None, state: State, rule: AbstractAttentionRule
) -> dict[str, Array]:
    excess = deviation = jnp.full((), jnp.nan)
    if truth is not None:
        excess = truth.excess(state.layer)
        exact = truth.whitened_gradient(truth.whiten(state.layer), Unregularised())
        deviation = jnp.linalg.norm(whitened_gradient(truth, state.gradient) - exact)
    return {
        "steps": state.taken,
        "value": state.layer.value,
        "key_query": state.layer.key_query,
        "loss": state.loss,
        "gradient_norm": jnp.linalg.norm(whitened_gradient(problem, state.gradient)),
        "excess": excess,
        "deviation": deviation,
        "step_factor": state.memory if isinstance(rule, StructuredRule) else jnp.ones(()),
    }
