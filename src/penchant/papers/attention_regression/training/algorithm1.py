"""Training of attention layers: structure-aware preconditioned descent from a spectral start (Algorithm 1), and its baselines.

A run is one compiled loop. It never raises because of what the numbers do: a step that would leave every bounded region is not
taken, the status says so, and the last finite layer stays. `throw=True` turns that ending into a `DivergenceError`. On samples
the steps "default" and "adaptive" are halved until the objective of the sample falls; a number is taken as it is.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ....errors import ArgumentError, AssumptionError, DivergenceError, warn
from ....logspace import check_float64
from ....training.events import LogSpaced
from ....training.loop import check_steps, collect, drive_one
from ....training.status import Status
from ....training.trajectory import settings_of
from ..setting.problem import AttentionLayer, AttentionRegression, Unregularised
from ..setting.sample import KEYS, AttentionSample, spectral_layer, unreliable, visible_failures
from .population import LARGEST, AttentionRun, Recorder
from .rules import AbstractAttentionRule, PreconditionedDescent, Rule, StructuredRule, step_warning
from .sources import AbstractSource, FullSample, Minibatch
from .steps import safe_step

_LOST = (Status.diverging_step, Status.not_finite)
_HALVINGS = 40  # tried after a divergence
_RISE = {"all": 1.0, "batch": 2.0}  # of the loss in a run that stays: losses of two batches differ
_SHORTEST = 2.0**-60  # of the rule's step: no descent in sight


class Trial(eqx.Module):
    """What a safeguarded run tries: a candidate, whether it is to be evaluated next, and up to which objective it is kept."""

    candidate: AttentionLayer
    waiting: Bool[Array, ""]
    allowed: Float[Array, ""]
    objective: Float[Array, ""]
    first: Float[Array, ""]


class State(eqx.Module):
    """A run after `count` steps; `loss` and `gradient` are those of `layer` as the next step sees them. Before the first look the count is -1."""

    layer: AttentionLayer
    memory: PyTree
    count: Int[Array, ""]
    status: Int[Array, ""]
    loss: Float[Array, ""]
    gradient: AttentionLayer
    trial: Trial | None = None


def _pick(choice: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(choice, a, b), new, old)


class Descent(eqx.Module):
    """Move a layer, then look at it: the evaluation, which is most of the program, is compiled once, as the first turn only looks."""

    source: AbstractSource
    rule: StructuredRule | AbstractAttentionRule
    truth: AttentionRegression | None
    start: AttentionLayer
    draws: PyTree

    def begin(self) -> State:
        nothing, running = jax.tree.map(jnp.zeros_like, self.start), jnp.asarray(int(Status.running))
        return State(self.start, self.rule.init(self.start), jnp.asarray(-1), running, jnp.zeros(()), nothing)

    def look(self, layer: AttentionLayer, step: Int[Array, ""]) -> tuple[Array, AttentionLayer]:
        """Loss and gradient with the draw of a step."""
        return self.source.evaluate(layer, jax.tree.map(lambda leaf: leaf[step], self.draws))

    def burst(self, state: State, until: Int[Array, ""]) -> State:
        """One step; one that would leave every bounded region is not taken."""
        change, memory = self.rule.update(state.gradient, state.memory, state.layer)
        layer, first = jax.tree.map(jnp.add, state.layer, change), state.count < 0
        size = jnp.linalg.norm(self.source.problem.whiten(layer))
        ending = jnp.where(jnp.isfinite(size), int(Status.diverging_step), int(Status.not_finite))
        refused = eqx.tree_at(lambda one: one.status, state, ending)
        layer, memory = _pick(first, (state.layer, state.memory), (layer, memory))
        moved = State(layer, memory, state.count + 1, state.status, *self.look(layer, state.count + 1))
        return _pick(first | (size <= LARGEST), moved, refused)

    def record(self, state: State) -> dict[str, Array]:
        excess = deviation = jnp.full((), jnp.nan)
        if self.truth is not None:
            excess = self.truth.excess(state.layer)
            exact = self.truth.whitened_gradient(self.truth.whiten(state.layer), Unregularised())
            deviation = jnp.linalg.norm(whitened_gradient(self.truth, state.gradient) - exact)
        return {
            "steps": state.count,
            "value": state.layer.value,
            "key_query": state.layer.key_query,
            "loss": state.loss,
            "gradient_norm": jnp.linalg.norm(whitened_gradient(self.source.problem, state.gradient)),
            "excess": excess,
            "deviation": deviation,
            "step_factor": self.rule.factor(state.memory),
        }


class TriedDescent(Descent):
    """Steps that are tried before they are kept: a candidate is evaluated with the draw of the step that proposed it, and kept, or the step is halved."""

    def begin(self) -> State:
        zero, state = jnp.zeros(()), super().begin()
        trial = Trial(self.start, jnp.zeros((), bool), zero, zero, jnp.full((), jnp.nan))
        return dataclasses.replace(state, trial=trial)

    def burst(self, state: State, until: Int[Array, ""]) -> State:
        """Look at the layer, or judge the candidate; then propose the next one.

        Without draws the value at a kept candidate is that of the next look, so nothing is evaluated twice.
        """
        trial, rule = state.trial, self.rule
        assert trial is not None
        assert isinstance(rule, StructuredRule)
        point = _pick(trial.waiting, trial.candidate, state.layer)
        loss, gradient = self.look(point, state.count + ~trial.waiting)
        objective = rule.objective(loss, point)
        bounded = jnp.linalg.norm(self.source.problem.whiten(point)) <= LARGEST
        kept = trial.waiting & (objective <= trial.allowed) & bounded  # False for an objective that is not a number
        fresh = ~trial.waiting | (kept & (self.draws is None))  # loss and gradient are those of the layer from here on
        shorter = trial.waiting & ~kept
        factor = jnp.where(kept, rule.recovered(state.memory), jnp.where(shorter, state.memory / 2, state.memory))
        failed = shorter & (factor < _SHORTEST)
        status = jnp.where(failed, int(Status.step_failed), state.status)
        layer, now, before = (
            _pick(kept, trial.candidate, state.layer),
            (loss, gradient, objective),
            (state.loss, state.gradient, trial.objective),
        )
        loss, gradient, objective = _pick(fresh, now, before)
        first = jnp.where(jnp.isnan(trial.first), objective, trial.first)
        change, _ = rule.update(gradient, factor, layer)
        allowed = rule.allowed(objective, first, gradient, change, layer)
        proposal = Trial(jax.tree.map(jnp.add, layer, change), fresh | shorter, allowed, objective, first)
        return State(layer, factor, state.count + fresh, status, loss, gradient, proposal)


def whitened_gradient(problem: AttentionRegression, gradient: AttentionLayer) -> Array:
    """A gradient by U and V as one by W."""
    back = problem.inverse_root
    return jnp.concatenate([gradient.value @ back, (back @ gradient.key_query @ back).T])


def train_attention(
    source: AbstractSource,
    rule: Rule,
    start: AttentionLayer,
    *,
    steps: int,
    recorder: Recorder | None = None,
    truth: AttentionRegression | None = None,
    throw: bool = False,
) -> AttentionRun:
    """Take `steps` steps from `start`; `truth` is what the excess is measured against."""
    check_float64()
    steps, problem = check_steps(steps, "train_attention"), source.problem
    problem.check_layer(start, "train_attention")
    problem.check_shape(truth, "train_attention")
    source.require(start)
    if not isinstance(rule, Rule):
        raise ArgumentError("rule", "train_attention", "a PreconditionedDescent or a layer rule", repr(rule))
    schedule = jnp.asarray((recorder or LogSpaced()).schedule(steps))
    run = _run(source, rule, start, schedule, truth)
    if run.status not in _LOST:
        return run
    size = float(run.step_factor[-1] * rule.bind(problem).size(problem.whiten(run.at())))
    run = _with_tried_step(source, rule, start, schedule, run, size)
    if throw:
        source.require(run.at())
        raise DivergenceError(size, run.safe_step, int(run.steps[-1]), run.at())
    return run


def _run(
    source: AbstractSource, rule: Rule, start: AttentionLayer, schedule: Array, truth: AttentionRegression | None
) -> AttentionRun:
    problem, bound, steps = source.problem, rule.bind(source.problem), int(schedule[-1])
    make = TriedDescent if rule.tried_on(source.rows) else Descent
    state, records = drive_one(make(source, bound, truth, bound.limited(start), source.draws(steps + 1)), schedule)
    series, ending = collect(state.status, records)
    safe = safe_step(problem, rule.geometry, problem.whiten(start))
    header = {"rule": settings_of(rule), "source": type(source).__name__, "steps": steps}
    return AttentionRun(problem, series, estimated=True, status=ending, safe_step=safe, header=header)


def _with_tried_step(
    source: AbstractSource, rule: Rule, start: AttentionLayer, schedule: Array, lost: AttentionRun, size: float
) -> AttentionRun:
    """On a sample no formula says which step is safe: halve the step that failed until a run of the same length stays."""
    if not source.rows or not np.isfinite(size):
        return lost
    found = np.nan
    for halvings in range(1, _HALVINGS):
        shorter = float(f"{size / 2**halvings:.3g}")  # as it will be printed: what is advised is what was tried
        run = _run(source, rule.with_step(shorter), start, schedule, None)
        if run.status is Status.out_of_steps and run.loss[-1] <= _RISE[source.rows] * run.loss[0]:
            found = shorter
            break
    return dataclasses.replace(lost, safe_step=found)


def algorithm1(
    sample: AttentionSample,
    *,
    steps: int,
    paper: bool = False,
    gauge: str = "identity",
    batch: int | None = None,
    keys: str = "batch",
    rule: PreconditionedDescent | None = None,
    recorder: Recorder | None = None,
    truth: AttentionRegression | None = None,
    strict: bool = False,
    throw: bool = False,
) -> AttentionRun:
    """Spectral start, then preconditioned descent on all samples, or on minibatches of `batch` with keys from the batch (`keys="full"`: from all samples).

    The default rule is two-sided with the step 1/(4 s_1) of the estimated map; `paper=True` takes the one-sided
    preconditioner that the paper's text describes. Hypotheses that the sample shows to fail are a warning, with `strict` an
    `AssumptionError`; `advise` has them all. `throw` is that of `train_attention`.
    """
    check_float64()
    if keys not in KEYS:
        raise ArgumentError("keys", "algorithm1", f"one of {', '.join(KEYS)}", repr(keys))
    failures = visible_failures(sample)
    if failures and strict:
        raise AssumptionError("algorithm1", failures, "`strict=False` trains all the same, with a warning")
    rule = PreconditionedDescent("left" if paper else "two_sided") if rule is None else rule
    doubts = (*unreliable(sample), *(filter(None, [step_warning(sample.estimated, rule)])))
    if failures:
        warn("Outside the theorems of `algorithm1`: " + "; ".join(failures) + ".")
    if doubts:
        warn("Predictions for `algorithm1` are unreliable here: " + "; ".join(doubts) + ".")
    source = FullSample(sample) if batch is None else Minibatch(sample, batch, keys=keys)
    start = spectral_layer(sample.estimated, gauge)
    return train_attention(source, rule, start, steps=steps, recorder=recorder, truth=truth, throw=throw)
