"""The compiled loop of `train_attention`: evaluate a source, move a layer, record it.

One while loop between records, whose last turn only looks: the evaluation, which is most of the program, is compiled once. A
safeguarded run evaluates a candidate with the draw of the step that proposed it, and keeps it or halves the step.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ....training.status import Status
from ..setting.balance import Unregularised
from ..setting.problem import AttentionLayer, AttentionRegression
from .layer_rules import AbstractAttentionRule
from .rule import StructuredRule
from .sources import AbstractSource

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
