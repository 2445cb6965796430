"""One loop for every run: a process advances in bursts, a schedule says when to look, and a run that stops says why.

Compiled code cannot be interrupted, so that a long run comes in pieces: control comes back about once a second.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ..errors import ArgumentError
from ..settings.check import is_whole
from .status import Status

REFRESH = 1000  # steps after which margins that travel with the parameters are recomputed from them
_PIECE = 250 * REFRESH  # steps of the first piece: most runs have no second one
_BRIEF = 0.5  # seconds; a piece that takes less is followed by one twice as long
_RECORDS = 64  # of a later piece, of which there is one compiled form


@runtime_checkable
class Process(Protocol):
    """Whatever runs. A state has a `count` of steps and a `status`, `Status.running` or why it has stopped. A step that must not be taken leaves the state as it is, but for the status."""

    def begin(self) -> PyTree: ...
    def burst(self, state: PyTree, until: Int[Array, ""]) -> PyTree:
        """One step or several, never past `until`."""
        ...

    def record(self, state: PyTree) -> dict[str, PyTree]:
        """What is kept of a state, the number of `steps` among it."""
        ...


def drive(process: Process, schedule: Int[Array, "R"], state: PyTree = None) -> tuple[PyTree, dict[str, PyTree]]:
    """From `state`, or from the beginning, through the steps of the schedule; the last state, and a record at each of these steps."""

    def stretch(state: PyTree, target: Array) -> tuple[PyTree, dict[str, PyTree]]:
        go = lambda s: running(s, target)
        state = jax.lax.while_loop(go, lambda s: process.burst(s, target), state)
        return state, process.record(state)

    return jax.lax.scan(stretch, process.begin() if state is None else state, schedule)


drive_one = eqx.filter_jit(drive)


@eqx.filter_jit
def drive_many(make: Callable, axes: tuple, parts: tuple, schedule: Array, state: PyTree = None) -> tuple:
    """The same for a batch of processes `make(*parts)`; `axes` says which parts vary. Members have the first axis, also of a schedule for each."""
    one = lambda schedule, state, *parts: drive(make(*parts), schedule, state)
    along = (0 if schedule.ndim == 2 else None, None if state is None else 0, *axes)
    return eqx.filter_vmap(one, in_axes=along)(schedule, state, *parts)


def runge_kutta(field: Callable[[PyTree], PyTree], state: PyTree, step: float) -> PyTree:
    """One step of the classical rule along a field: what a flow is held against where nothing is stiff."""
    along = lambda slope, part: jax.tree.map(lambda a, b: a + part * step * b, state, slope)
    first = field(state)
    second = field(along(first, 0.5))
    third = field(along(second, 0.5))
    mean = lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6
    return along(jax.tree.map(mean, first, second, third, field(along(third, 1.0))), 1.0)


def running(state: PyTree, until: PyTree) -> Bool[Array, ""]:
    return (state.count < until) & (state.status == Status.running)


def first_of(conditions: Sequence[tuple[PyTree, Status]]) -> Int[Array, ""]:
    """The status that the first condition to hold decides; `running` where none does."""
    status = jnp.asarray(int(Status.running))
    for condition, ending in reversed(conditions):
        status = jnp.where(condition, int(ending), status)
    return status


def stepped(state: PyTree, advanced: PyTree) -> PyTree:
    """The state that a step leads to; where that has a reason to stop, the state before the step, with the reason."""
    stopped = eqx.tree_at(lambda s: s.status, state, advanced.status)
    return jax.tree.map(lambda new, old: jnp.where(advanced.status == Status.running, new, old), advanced, stopped)


def collect(status: PyTree, records: dict[str, PyTree]) -> tuple[dict[str, PyTree], Status]:
    """Series without the repeats of a run that stopped, and its ending."""
    new = np.concatenate([[True], np.diff(records["steps"]) > 0])
    ending = Status(int(status))
    series = jax.tree.map(lambda leaf: np.asarray(leaf)[new], records)
    return series, Status.out_of_steps if ending is Status.running else ending


def check_steps(steps: object, owner: str) -> int:
    """A number of steps."""
    if not is_whole(steps) or steps < 0:
        raise ArgumentError("steps", owner, "a nonnegative integer", repr(steps))
    return int(steps)


def in_pieces(run: Callable, schedule: np.ndarray) -> tuple[PyTree, PyTree]:
    """The last state of `run(targets, state)` over the schedule, and its records; a batch has its members on the first axis.

    The same numbers as in one piece: a run is cut where its margins are recomputed anyway, and records made there are dropped.
    """
    head, rest = np.split(schedule, [np.searchsorted(schedule, _PIECE, "right")])
    state, records = jax.tree.map(np.asarray, run(jnp.asarray(head), None))
    found, last, length, axis = [records], int(head[-1]), _PIECE, state.status.ndim
    while len(rest) and (state.status == Status.running).any():
        begun, near = time.monotonic(), rest[rest <= last + length][:_RECORDS]
        last = int(near[-1]) if len(near) else last + length
        targets = np.append(near, np.full(_RECORDS - len(near), last))
        state, records = jax.tree.map(np.asarray, run(jnp.asarray(targets), state))
        ended = (state.status != Status.running).all()
        kept = slice(len(near) or int(ended))  # where a run ends belongs to it, also between records
        found.append(jax.tree.map(lambda leaf, kept=kept: leaf[(slice(None),) * axis + (kept,)], records))
        length, rest = length * (2 if time.monotonic() - begun < _BRIEF else 1), rest[len(near) :]
    return state, jax.tree.map(lambda *parts: np.concatenate(parts, axis), *found)
