"""What a run of an attention layer keeps, and the process that moves it: one compiled loop for the population, samples and minibatches."""

import dataclasses
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ....errors import ArgumentError
from ....files import mark, write_npz
from ....training.status import Status
from ....training.trajectory import Readable
from ..setting.problem import AttentionLayer, AttentionRegression, Unregularised
from .rules import LayerRule, StructuredRule
from .sources import AbstractSource

LARGEST = 1e6  # a whitened norm beyond which a run is lost: the sizes of a problem are of order 1, and gradients grow with its cube
_SHORTEST = 2.0**-60  # of the rule's step: no descent in sight


class AttentionRun(Readable, eqx.Module):
    """R records of one run, series by name: `steps` taken, `value` and `key_query`, the source's `loss` and `gradient_norm` (of the loss alone,
    whitened by the problem) as the next step sees them; `regulariser`, `slope` (norm of the gradient of both) and `step_size`.

    `excess` L - L* and `deviation` = |used gradient - population gradient| (whitened, no regulariser) need the truth, and are not a number without it;
    `step_factor` is what the safeguard has made of the step of the rule: 1 unless it was too long for the sample. `estimated`: the problem is that of a sample.
    A run that diverged ends with its last finite state; `safe_step` is the step that the population, or that of the estimate, would have allowed at the start.
    """

    problem: AttentionRegression
    series: dict[str, np.ndarray]
    estimated: bool = eqx.field(static=True, kw_only=True)
    status: Status = eqx.field(static=True, kw_only=True)
    safe_step: float = eqx.field(static=True, kw_only=True)
    header: dict = eqx.field(static=True, kw_only=True)

    def __getattr__(self, name: str) -> np.ndarray:
        known = vars(self).get("series") or {}
        if name not in known:
            raise AttributeError(f"this run has no series '{name}', only {', '.join(known)}")
        return known[name]

    @property
    def parts(self) -> dict[str, AttentionRegression]:
        """What the run has in common with every run on its population; of an estimate `judge_layer` compares the shapes only."""
        return {} if self.estimated else {"problem": self.problem}

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, record: int = -1) -> AttentionLayer:
        """U and V at a record (the last one by default)."""
        return AttentionLayer(self.value[record], self.key_query[record])

    @property
    def layers(self) -> AttentionLayer:
        """U and V of all records, stacked."""
        return jax.vmap(AttentionLayer)(jnp.asarray(self.value), jnp.asarray(self.key_query))

    @property
    def whitened(self) -> np.ndarray:
        """W at all records, R x (m+d) x d, in the coordinates of the problem."""
        return np.asarray(jax.vmap(self.problem.whiten)(self.layers))

    def lines(self) -> tuple[str, str]:
        sizes = f"{self.steps[-1]} steps, loss {self.loss[-1]:.8g}, gradient {self.gradient_norm[-1]:.4g}"
        return f"status     {self.status.name}: {self.status.message}", f"run        {sizes}"

    def excess_at(self, step: int) -> float:
        """Population excess at a recorded step."""
        found = np.flatnonzero(self.steps == step)
        if not len(found):
            fix = "train with a recorder that keeps it, `recorder=At((...))`"
            raise ArgumentError("step", "AttentionRun", "a recorded step", step, fix)
        return float(self.excess[found[0]])

    def first_below(self, level: float) -> int | None:
        """First recorded step whose excess is at most `level`; None if there is none."""
        found = np.flatnonzero(self.excess <= level)
        return int(self.steps[found[0]]) if len(found) else None

    def late_excess(self, truth: AttentionRegression) -> float:
        """Excess of the mean layer over the second half: the noise of single batches averages out, the bias stays."""
        late = self.steps >= self.steps[-1] // 2
        return float(truth.excess(AttentionLayer(self.value[late].mean(axis=0), self.key_query[late].mean(axis=0))))

    def last_slope(self, problem: AttentionRegression) -> float:
        """Norm of the regularised gradient at the end, whitened by a problem."""
        if not self.estimated:
            return float(self.slope[-1])
        return float(jnp.linalg.norm(problem.whitened_gradient(problem.whiten(self.at()))))

    def save(self, path: str | os.PathLike) -> Path:
        """Write all series and the final U and V."""
        arrays = {**self.series, "U": self.value[-1], "V": self.key_query[-1]}
        return write_npz(path, {"format": mark("attention run"), **self.header, "status": self.status.name}, arrays)


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
    rule: StructuredRule | LayerRule
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
        problem, balance, layer = self.source.problem, self.rule.balance, state.layer
        excess = deviation = jnp.full((), jnp.nan)
        if self.truth is not None:
            excess = self.truth.excess(layer)
            exact = self.truth.whitened_gradient(self.truth.whiten(layer), Unregularised())
            deviation = jnp.linalg.norm(self.truth.by_whitened(state.gradient) - exact)
        slope, whitened = problem.by_whitened(state.gradient), problem.whiten(layer)
        factor = self.rule.factor(state.memory)
        return {
            "steps": state.count,
            "value": layer.value,
            "key_query": layer.key_query,
            "loss": state.loss,
            "gradient_norm": jnp.linalg.norm(slope),
            "regulariser": problem.whitened_regulariser(whitened, balance),
            "slope": jnp.linalg.norm(slope + problem.whitened_pull(whitened, balance)),
            "excess": excess,
            "deviation": deviation,
            "step_size": factor * self.rule.size(whitened),
            "step_factor": factor,
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
