"""Gradient flow: theta' = -grad L, followed to times like e^(10^6)."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, warn
from ..settings.base import Setting
from ..settings.check import is_whole
from ..training.events import Limits, limits, number
from ..training.status import Status
from .clocks import Clock, RelativeArc
from .integrator import MOST, Accuracy, Record, Task
from .march import Goal, begin, march
from .spaces import Spaces

_TIMED, _USUAL, _LONG = 10, 300, 60.0  # first steps, steps of a flow to margin 1e6, seconds of a long one
_CALL = 0.1  # seconds, about
FLOW_STEPS = 20_000  # of the integrator, where the caller sets no budget; a flow to margin 1e6 takes some hundreds
_KEPT = 2**30  # bytes of records, beyond which every second one is dropped


Progress = Callable[[int, float, float], None]
"""Called as a run goes on with the number of steps, log(L - L*) and the smallest margin."""


class GradientFlow(eqx.Module):
    """Gradient flow in a clock, to a tolerance.

    `tolerance` is the local error per step relative to the norm (and to the physical time); `margin_tolerance` the error in
    the differences of the margins that carry weight, which is what the direction of motion depends on. `order` (2 to 8) is
    the highest: from 4 on the one that makes most way for its work is taken, which pays for tolerances below 1e-7.
    """

    clock: Clock = RelativeArc()
    tolerance: float = 1e-7
    margin_tolerance: float = 1e-4
    order: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        if not is_whole(self.order) or not 2 <= self.order <= MOST:
            raise ArgumentError("order", "GradientFlow", "an integer from 2 to 8", repr(self.order))
        for name in ("tolerance", "margin_tolerance"):
            if not 0 < getattr(self, name) < 1:
                raise ArgumentError(name, "GradientFlow", "between 0 and 1", getattr(self, name))


class Levels(eqx.Module):
    """Record the flow exactly where a quantity first crosses the given values: "margin", "norm" or "log_time" upwards, "log_excess" downwards."""

    quantity: str = eqx.field(static=True)
    values: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, quantity: str, values: Sequence[float] | np.ndarray):
        if quantity not in ("margin", "norm", "log_time", "log_excess"):
            raise ArgumentError("quantity", "Levels", "'margin', 'norm', 'log_time' or 'log_excess'", repr(quantity))
        self.quantity, self.values = quantity, tuple(float(value) for value in np.ravel(values))
        if not np.isfinite(self.values).all():
            raise ArgumentError("values", "Levels", "finite", list(self.values))


def _bytes(tree: PyTree) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def _some(records: Record, index: object) -> Record:
    """Copies of some records, which let the larger buffers go."""
    return jax.tree.map(lambda leaf: leaf[index].copy(), records)


class _Path:
    """The records of one flow as they come in.

    `stride` is 1 until the steps fill their share of the memory; from then on every second of those recorded is kept, and so on.
    """

    def __init__(self):
        self.pieces: list[Record] = []
        self.stride = 1

    def add(self, records: Record) -> None:
        self.pieces.append(_some(records, records.steps % self.stride == 0))
        if sum(map(_bytes, self.pieces)) > _KEPT and sum(len(piece.steps) for piece in self.pieces) > 2:
            self.stride *= 2
            self.pieces = [_some(piece, piece.steps % self.stride == 0) for piece in self.pieces]

    def series(self, last: Record) -> tuple[dict[str, np.ndarray], PyTree]:
        """All that was kept, and the last point: where a run stands is part of it."""
        if not any(last.steps[0] in piece.steps for piece in self.pieces):
            self.pieces.append(last)
        names = ("steps", "log_time", "log_excess", "log_slope", "norm", "margins", "weights", "dual")
        whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.pieces)
        return {name: getattr(whole, name) for name in names}, whole.params


class _Ahead:
    """The levels still to be recorded."""

    def __init__(self, recorder: Levels | None):
        self.values = () if recorder is None else recorder.values
        self.quantity = "margin" if recorder is None else recorder.quantity
        self.nowhere = limits(())

    def next(self, last: Record | None) -> tuple[Limits, bool]:
        """The first level beyond a point, and whether others lie behind it, which the flow may come back to."""
        sign = -1 if self.quantity == "log_excess" else 1
        value = -np.inf if last is None else sign * float(getattr(last, self.quantity)[0])
        beyond = [sign * level for level in self.values if sign * level > value]
        first = {self.quantity: number(sign * min(beyond))} if beyond and last is not None else {}
        return replace(self.nowhere, **first), len(beyond) < len(self.values)

    def met(self, watch: Limits) -> None:
        self.values = tuple(level for level in self.values if level != getattr(watch, self.quantity))


class _Stride:
    """How many steps are tried in one call: few where they are slow, so that progress is seen, and many where a call costs more than they do."""

    def __init__(self):
        self.room, self.fastest, self.since, self.steps = 0, math.inf, time.monotonic(), 0

    def next(self, steps: int, alone: bool) -> int:
        """After so many steps; only one if it has to be tried `alone`. Says what a long run will take before it does, by the fastest of the first calls: others compile."""
        spent, self.since = time.monotonic() - self.since, time.monotonic()
        self.fastest = min(self.fastest, spent / self.room) if self.room else math.inf
        if self.steps < _TIMED <= steps and self.fastest * _USUAL > _LONG:
            warn(
                f"A step of this flow takes {self.fastest:.2g} s, and a flow to margin 1e6 some {_USUAL} steps: about {self.fastest * _USUAL / 60:.2g} minutes. "
                "`normalised_descent(0.1)` goes to the same limit in cheap steps; so does it with `Gram(data)` where margins are fewer than weights."
            )
        many = 1 if math.isinf(self.fastest) else int(min(16 * self.room, _CALL / max(self.fastest, 1e-9)))
        self.steps, self.room = steps, 1 if alone else max(1, many)
        return self.room


def follow(
    setting: Setting,
    flow: GradientFlow,
    params: PyTree,
    levels: Limits,
    max_steps: int | None,
    recorder: Levels | None = None,
    progress: Progress | None = None,
) -> tuple[dict, PyTree, Status, dict]:
    """Integrate from `params` until a level is reached; series, stacked parameters, ending, and figures about the integration."""
    walk, path, ahead, stride = begin(setting, params), _Path(), _Ahead(recorder), _Stride()
    spaces, accuracy, status, last = Spaces(setting, len(walk.place.state.dual)), None, Status.running, None
    task = Task(setting, flow.clock, *map(number, (float(flow.tolerance), float(flow.margin_tolerance), flow.order)))
    most, bound = number(FLOW_STEPS if max_steps is None else max_steps), float(levels.inaccuracy)
    while status is Status.running:
        watch, behind = ahead.next(last)
        room = stride.next(int(walk.steps), behind or spaces.known)
        space = spaces.at(walk.place.state.params, int(walk.steps), float(walk.h) * float(walk.speed))
        walk, records, count = march(task, Goal(levels, watch, most), space, walk, number(room))
        taken, status = int(count), Status(int(walk.status))
        found = jax.tree.map(lambda leaf, taken=taken: np.asarray(leaf)[:taken], records)
        if not len(found.steps):
            continue
        accuracy = accuracy or Accuracy(setting, flow.clock, params, found.log_excess[0])
        if bound < np.inf and (kept := accuracy.within(found, bound)) < len(found.steps):
            found, status = _some(found, slice(kept + 1)), Status.inaccurate
        if progress is not None:
            for step in np.flatnonzero(found.steps):
                progress(int(found.steps[step]), float(found.log_excess[step]), float(found.margin[step]))
        first, last = found.steps == 0, _some(found, [-1])
        path.add(found if recorder is None else _some(found, first | (walk.landed & (found.steps == last.steps))))
        if walk.landed:
            ahead.met(watch)
    assert last is not None  # the first call reads the start
    series, params = path.series(last)
    thinned = {} if path.stride == 1 else {"recorded_every": path.stride}
    counts = {"steps": int(last.steps[0]), "rejected": int(walk.rejected), "clock": float(last.clock[0])}
    return series, params, status, {"integrator": {**counts, **thinned}}


def is_flow(optimiser: object) -> TypeGuard[GradientFlow]:
    """Whether this is the flow, and no method with steps."""
    return isinstance(optimiser, GradientFlow)
