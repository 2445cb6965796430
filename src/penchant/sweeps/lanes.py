"""Runs side by side in a fixed number of lanes: one compiled program, and whoever finishes leaves its lane to the next.

No number of a run depends on who runs beside it, nor on how many there are: lanes that have nothing to do take no steps.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..training.events import LogSpaced, limits
from ..training.loop import REFRESH, collect, drive_many
from ..training.status import Status
from ..training.train import Descent, check_asked, default_steps
from ..training.trajectory import Trajectory

LANES = 64  # more of them are not faster per run, and the last ones would wait
BITE = 2 * REFRESH  # steps after which finished lanes are looked for; margins are recomputed there anyway
_EACH = (eqx.if_array(0),) * 4


@eqx.filter_jit
def _begin(parts: tuple) -> PyTree:
    return eqx.filter_vmap(lambda *one: Descent(*one).begin(), in_axes=_EACH)(*parts)


class _Waiting:
    """A run on its way: where it must stop to be looked at, and what was seen there."""

    def __init__(self, member: Any, records: int):
        self.steps = default_steps(member.steps, member.until)
        self.wanted = LogSpaced(records).schedule(self.steps) if records > 1 else np.array([self.steps])
        stops = np.union1d(self.wanted, np.arange(BITE, self.steps, BITE))
        self.stops, self.seen = iter(np.append(stops, self.steps)), []
        self.parts = (member.setting, member.optimiser, limits(member.until), member.start)

    def look(self, stop: int, record: dict, over: bool) -> None:
        if over or stop in self.wanted:
            self.seen.append(record)


def drive_lanes(members: Sequence[Any], records: int = 0) -> Iterator[tuple[int, Trajectory]]:
    """Trajectories in the order in which runs end; all members have one shape."""
    check_asked(members[0].setting, members[0].optimiser)
    runs = [_Waiting(member, records) for member in members]
    varies = lambda leaf: eqx.is_array(leaf) or isinstance(leaf, np.ndarray | float)  # from lane to lane
    split = [eqx.partition(run.parts, varies) for run in runs]
    idle, busy, state = list(range(len(members)))[::-1], {}, None
    lanes = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * LANES), split[0][0])
    while idle or busy:
        fresh = [lane for lane in range(LANES) if lane not in busy][: len(idle)]
        for lane in fresh:
            busy[lane] = idle.pop()
            jax.tree.map(
                lambda all_, leaf, lane=lane: all_.__setitem__(lane, np.asarray(leaf)), lanes, split[busy[lane]][0]
            )
        parts = eqx.combine(lanes, split[0][1])
        state = _merged(state, _begin(parts), fresh) if fresh else state
        stops = np.zeros((LANES, 1), int)
        for lane, k in busy.items():
            stops[lane] = next(runs[k].stops)
        state, found = jax.tree.map(np.asarray, drive_many(Descent, _EACH, parts, jnp.asarray(stops), state))
        for lane, k in list(busy.items()):
            over = state.status[lane] != Status.running or stops[lane, 0] >= runs[k].steps
            runs[k].look(int(stops[lane, 0]), jax.tree.map(lambda leaf, lane=lane: leaf[lane, 0], found), bool(over))
            if over:
                del busy[lane]
                yield k, _trajectory(members[k].setting, runs[k].seen, state.status[lane])
                runs[k].seen.clear()


def _merged(state: PyTree, begun: PyTree, fresh: Sequence[int]) -> PyTree:
    """The state with new beginnings in the fresh lanes."""
    if state is None:
        return jax.tree.map(np.asarray, begun)
    new = np.isin(np.arange(LANES), fresh)
    choose = lambda one, other: np.where(new.reshape(-1, *[1] * (np.ndim(other) - 1)), one, other)
    return jax.tree.map(choose, begun, state)


def _trajectory(setting: Any, seen: list[dict], status: np.integer) -> Trajectory:
    records = jax.tree.map(lambda *leaves: np.stack(leaves), *seen)
    series, ending = collect(status, records)
    return Trajectory(setting, **series, status=ending, header={})
