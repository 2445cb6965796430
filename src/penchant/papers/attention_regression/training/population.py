"""Training of an attention layer with population gradients: one compiled loop in whitened coordinates, many starts at once."""

import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ....errors import ArgumentError, DivergenceError
from ....files import mark
from ....logspace import check_float64
from ....training.recorders import LogSpaced
from ....training.status import Status
from ....training.trajectory import settings_of, write_npz
from ..setting.context_bias import scaled
from ..setting.geometry import AbstractGeometry
from ..setting.problem import AbstractBalance, AttentionLayer, AttentionRegression, limit_logits
from .rules import PreconditionedDescent, ResolvedStep, safe_step


class AbstractAttentionRun(eqx.Module):
    """R records of one run: `steps` taken and the population's `excess` L - L* at each.

    A run that diverged ends with its last finite state; `safe_step` is the step that the population would have allowed at the
    start. On a sample that diverged it is one that was tried over the same number of steps (not a number: none was found).
    """

    FORMAT: ClassVar[str]
    SERIES: ClassVar[tuple[str, ...]]

    problem: AttentionRegression
    steps: np.ndarray
    excess: np.ndarray
    status: Status = eqx.field(static=True, kw_only=True)
    safe_step: float = eqx.field(static=True, kw_only=True)
    header: dict = eqx.field(static=True, kw_only=True)

    @property
    def parts(self) -> dict[str, AttentionRegression]:
        """What the run has in common with every run on its population."""
        return {"problem": self.problem}

    def __len__(self) -> int:
        return len(self.steps)

    @abstractmethod
    def at(self, record: int = -1) -> AttentionLayer:
        """U and V at a record (the last one by default)."""

    def save(self, path: str | os.PathLike) -> Path:
        """Write all series and the final U and V."""
        layer = self.at()
        arrays = {name: getattr(self, name) for name in self.SERIES}
        arrays |= {"U": np.asarray(layer.value), "V": np.asarray(layer.key_query)}
        return write_npz(path, {"format": self.FORMAT, **self.header, "status": self.status.name}, arrays)


_FARTHEST = 1e6  # a weight of this norm has diverged: the sizes of a problem are of order 1


class _Problem(eqx.Module):
    """What the compiled loop needs; step sizes are arrays, so that another one does not compile again."""

    problem: AttentionRegression
    geometry: AbstractGeometry
    balance: AbstractBalance
    step: ResolvedStep
    logit_limit: Float[Array, ""] | None
    target: Float[Array, ""]

    def status(self, whitened: Float[Array, "rows d"]) -> Array:
        reached = self.problem.whitened_excess(whitened) < self.target
        return jnp.where(reached, int(Status.reached_target), int(Status.running))

    def _blocks(self, whitened: Float[Array, "rows d"]) -> tuple[Array, Array]:
        return whitened[: self.problem.outputs], whitened[self.problem.outputs :]

    def size(self, whitened: Float[Array, "rows d"]) -> Array:
        """The step size, at the scale at which steps are measured."""
        scale = self.balance.scale(*self._blocks(whitened))
        return self.step.size(scaled(whitened, self.problem.outputs, 1 / scale))

    def moved(self, whitened: Float[Array, "rows d"]) -> Float[Array, "rows d"]:
        """One step."""
        m, scale = self.problem.outputs, self.balance.scale(*self._blocks(whitened))
        gradient = self.problem.whitened_gradient(whitened, self.balance)
        direction = self.geometry.whitened_direction(gradient, self.problem.covariance)
        moved = whitened - self.size(whitened) * scaled(direction, m, scale**2)
        if self.logit_limit is None:
            return moved
        return jnp.concatenate(limit_logits(moved[:m], moved[m:], self.logit_limit))


class _Carry(eqx.Module):
    whitened: Float[Array, "rows d"]
    count: Int[Array, ""]
    status: Int[Array, ""]


class AttentionTrajectory(AbstractAttentionRun):
    """A run in whitened coordinates: `regulariser`, `slope` (norm of the whitened gradient), `step_size` of the next step, and the
    iterates `whitened` (R x (m+d) x d)."""

    FORMAT = mark("attention trajectory")
    SERIES = ("steps", "excess", "regulariser", "slope", "step_size", "whitened")

    regulariser: np.ndarray
    slope: np.ndarray
    step_size: np.ndarray
    whitened: np.ndarray

    def at(self, record: int = -1) -> AttentionLayer:
        """U and V at a record (the last one by default)."""
        return self.problem.unwhiten(jnp.asarray(self.whitened[record]))


def train_population(
    problem: AttentionRegression,
    rule: PreconditionedDescent,
    start: AttentionLayer | Sequence[AttentionLayer],
    *,
    steps: int,
    recorder: Any = None,
    excess_below: float = 0.0,
    throw: bool = False,
) -> Any:
    """Descend for `steps` steps, or until the excess is below `excess_below`; a list of starts is one vectorised run.

    With `throw`, a run that diverges raises `DivergenceError` (with the iterate, the last finite state and the safe step)
    instead of ending with the status `diverging_step`.

    >>> from penchant.papers.attention_regression.setting.sample import attention_experiment
    >>> found = attention_experiment(n=10)
    >>> run = train_population(found.problem, PreconditionedDescent("two_sided", "adaptive"), found.start, steps=300)
    >>> run.status.name, bool(run.excess[-1] < 1e-4 < run.excess[0])
    ('out_of_steps', True)
    """
    check_float64()
    many = not isinstance(start, AttentionLayer)
    starts = list(start) if not isinstance(start, AttentionLayer) else [start]
    if not starts:
        raise ArgumentError("start", "train_population", "a layer, or a list with at least one", "an empty list")
    for one in starts:
        problem.check_layer(one, "train_population")
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise ArgumentError("steps", "train_population", "a nonnegative integer", repr(steps))
    schedule = jnp.asarray((recorder or LogSpaced()).schedule(int(steps)))
    begin = jnp.stack([problem.whiten(one) for one in starts])
    resolved = rule.step.resolve(problem, rule.geometry)
    limit = None if rule.logit_limit is None else jnp.asarray(rule.logit_limit)
    task = _Problem(problem, rule.geometry, rule.balance, resolved, limit, jnp.asarray(float(excess_below)))
    found = jax.tree.map(np.asarray, _run(task, begin, schedule))
    header = {"optimiser": settings_of(rule), "steps": int(steps), "step": settings_of(resolved)}
    runs = [
        _trajectory(problem, safe_step(problem, rule.geometry, first), header, jax.tree.map(lambda x, k=k: x[k], found))
        for k, first in enumerate(begin)
    ]
    if throw:
        for run in runs:
            _raise_if_diverged(run)
    return runs if many else runs[0]


def _raise_if_diverged(run: AttentionTrajectory) -> None:
    if run.status is Status.diverging_step:
        raise DivergenceError(float(run.step_size[-1]), run.safe_step, int(run.steps[-1]), run.at())


@eqx.filter_jit
def _run(task: _Problem, begin: Float[Array, "b rows d"], schedule: Array) -> tuple:
    def stretch(carry: _Carry, until: Array) -> tuple[_Carry, dict]:
        going = lambda c: (c.count < until) & (c.status == Status.running)
        carry = jax.lax.while_loop(going, lambda c: _step(task, c), carry)
        return carry, _record(task, carry)

    def one(first: Array) -> tuple:
        carry, records = jax.lax.scan(stretch, _Carry(first, jnp.asarray(0), task.status(first)), schedule)
        return records, carry.status

    return jax.vmap(one)(begin)


def _step(task: _Problem, carry: _Carry) -> _Carry:
    moved = task.moved(carry.whitened)
    lost = ~(jnp.linalg.norm(moved) <= _FARTHEST)  # also true of a norm that is not a number
    status = jnp.where(lost, int(Status.diverging_step), task.status(moved))
    return _Carry(
        jnp.where(lost, carry.whitened, moved), carry.count + jnp.where(lost, 0, 1), status.astype(carry.status.dtype)
    )


def _record(task: _Problem, carry: _Carry) -> dict[str, Array]:
    problem = task.problem
    return {
        "steps": carry.count,
        "excess": problem.whitened_excess(carry.whitened),
        "regulariser": problem.whitened_regulariser(carry.whitened, task.balance),
        "slope": jnp.linalg.norm(problem.whitened_gradient(carry.whitened, task.balance)),
        "step_size": task.size(carry.whitened),
        "whitened": carry.whitened,
    }


def _trajectory(problem: AttentionRegression, safe: float, header: dict, found: tuple) -> AttentionTrajectory:
    series, status = found
    ending = Status(int(status)) if int(status) != Status.running else Status.out_of_steps
    kept = np.concatenate([[True], np.diff(series["steps"]) > 0])  # a run that stopped repeats its last record
    series = {name: values[kept] for name, values in series.items()}
    return AttentionTrajectory(problem, **series, safe_step=safe, status=ending, header=header)
