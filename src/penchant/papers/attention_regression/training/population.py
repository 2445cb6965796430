"""Training of an attention layer with population gradients: one compiled loop in whitened coordinates, many starts at once."""

import os
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ....errors import ArgumentError, DivergenceError
from ....files import mark, write_npz
from ....logspace import check_float64
from ....training.events import At, Every, LogSpaced
from ....training.loop import check_steps, collect, drive_many
from ....training.status import Status
from ....training.trajectory import settings_of
from ..setting.problem import AttentionLayer, AttentionRegression
from .rules import PreconditionedDescent, StructuredRule
from .steps import safe_step

Recorder = LogSpaced | Every | At


class AttentionRun(eqx.Module):
    """R records of one run: `steps` taken, the population's `excess` L - L* at each, and further series by name.

    With the gradients of the population: `regulariser`, `slope` (norm of the whitened gradient), `step_size` of the next step, and the iterates
    `whitened` (R x (m+d) x d). On a sample, where the problem is `estimated`: `value` and `key_query`, and the source's `loss` and `gradient_norm` (of the loss
    alone, whitened by the problem) as the next step sees them; `excess` and `deviation` = |used gradient - population gradient| (whitened, no regulariser) need the
    truth, and are not a number without it; `step_factor` is what the safeguard has made of the step of the rule: 1 unless it was too long for the sample.
    A run that diverged ends with its last finite state; `safe_step` is the step that the population would have allowed at the
    start. On a sample that diverged it is one that was tried over the same number of steps (not a number: none was found).
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
        if self.estimated:
            return AttentionLayer(self.value[record], self.key_query[record])
        return self.problem.unwhiten(jnp.asarray(self.whitened[record]))

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

    def last_slope(self, problem: AttentionRegression) -> float:
        """Norm of the regularised gradient at the end, whitened by a problem."""
        if not self.estimated:
            return float(self.slope[-1])
        return float(jnp.linalg.norm(problem.whitened_gradient(problem.whiten(self.at()))))

    def save(self, path: str | os.PathLike) -> Path:
        """Write all series and the final U and V."""
        layer, kind = self.at(), mark("attention run" if self.estimated else "attention trajectory")
        arrays = {**self.series, "U": np.asarray(layer.value), "V": np.asarray(layer.key_query)}
        return write_npz(path, {"format": kind, **self.header, "status": self.status.name}, arrays)


LARGEST = 1e6  # a whitened norm beyond which a run is lost: the sizes of a problem are of order 1, and gradients grow with its cube


class _State(eqx.Module):
    whitened: Float[Array, "rows d"]
    count: Int[Array, ""]
    status: Int[Array, ""]


class _Descent(eqx.Module):
    """Steps of a rule from one start, until the excess is below a target."""

    rule: StructuredRule
    target: Float[Array, ""]
    start: Float[Array, "rows d"]

    def _status(self, whitened: Float[Array, "rows d"]) -> Int[Array, ""]:
        reached = self.rule.problem.whitened_excess(whitened) < self.target
        return jnp.where(reached, int(Status.reached_target), int(Status.running))

    def begin(self) -> _State:
        return _State(self.start, jnp.asarray(0), self._status(self.start))

    def burst(self, state: _State, until: Int[Array, ""]) -> _State:
        """One step; one that would leave every bounded region is not taken."""
        moved = self.rule.moved(state.whitened)
        lost = ~(jnp.linalg.norm(moved) <= LARGEST)  # also true of a norm that is not a number
        status = jnp.where(lost, int(Status.diverging_step), self._status(moved))
        return _State(jnp.where(lost, state.whitened, moved), state.count + jnp.where(lost, 0, 1), status)

    def record(self, state: _State) -> dict[str, Array]:
        problem, whitened = self.rule.problem, state.whitened
        return {
            "steps": state.count,
            "excess": problem.whitened_excess(whitened),
            "regulariser": problem.whitened_regulariser(whitened, self.rule.balance),
            "slope": jnp.linalg.norm(problem.whitened_gradient(whitened, self.rule.balance)),
            "step_size": self.rule.size(whitened),
            "whitened": whitened,
        }


def train_population(
    problem: AttentionRegression,
    rule: PreconditionedDescent,
    start: AttentionLayer,
    *,
    steps: int,
    recorder: Recorder | None = None,
    excess_below: float = 0.0,
    throw: bool = False,
) -> AttentionRun:
    """Descend for `steps` steps, or until the excess is below `excess_below`.

    With `throw`, a run that diverges raises `DivergenceError` (with the iterate, the last finite state and the safe step)
    instead of ending with the status `diverging_step`.
    """
    (run,) = train_populations(problem, rule, [start], steps=steps, recorder=recorder, excess_below=excess_below)
    if throw and run.status is Status.diverging_step:
        raise DivergenceError(float(run.step_size[-1]), run.safe_step, int(run.steps[-1]), run.at())
    return run


def train_populations(
    problem: AttentionRegression,
    rule: PreconditionedDescent,
    starts: Sequence[AttentionLayer],
    *,
    steps: int,
    recorder: Recorder | None = None,
    excess_below: float = 0.0,
) -> list[AttentionRun]:
    """The same from several starts at once, in one vectorised run."""
    owner = "train_population"
    check_float64()
    if not starts:
        raise ArgumentError("start", owner, "at least one layer", "an empty list")
    for one in starts:
        problem.check_layer(one, owner)
    schedule = jnp.asarray((recorder or LogSpaced()).schedule(check_steps(steps, owner)))
    begin, bound = jnp.stack([problem.whiten(one) for one in starts]), rule.bind(problem)
    parts = (bound, jnp.asarray(float(excess_below)), begin)
    states, records = jax.tree.map(np.asarray, drive_many(_Descent, (None, None, 0), parts, schedule))
    header = {"optimiser": settings_of(rule), "steps": int(steps), "step": settings_of(bound.resolved)}

    def run(k: int) -> AttentionRun:
        series, ending = collect(states.status[k], {name: values[k] for name, values in records.items()})
        safe = safe_step(problem, rule.geometry, begin[k])
        return AttentionRun(problem, series, estimated=False, safe_step=safe, status=ending, header=header)

    return [run(k) for k in range(len(starts))]
