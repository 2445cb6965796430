"""Gradient flow: theta' = -grad L, followed to times like e^(10^6)."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy.optimize import brentq

from ..errors import ArgumentError, warn
from ..settings.base import RESOLUTION, Setting
from ..settings.check import is_whole
from ..training.events import Limits
from ..training.status import Status
from .clocks import Clock, Origin, RelativeArc, origin
from .control import Plan, accepted, first_order, next_plan
from .integrator import HIGHEST, Accuracy, Errors, Flowing, Point, View, compiled_step, split, unseen
from .spaces import MarginSpace, WeightSpace, active, loads, space_for

_SHRINK = 0.2
_STRIDE = 0.5  # of the norm, which a step may at most add: a path has to be recorded also where it is straight
_TAIL = 10.0  # while all margins are smaller the multipliers hardly change, and no direction turns
_STATIONARY = 1e-6  # of the gradient over the sum of its terms: where no step succeeds, the flow stands at a minimum
_FLAT, _HEARD, _PATIENCE = (
    0.5,
    0.1,
    20,
)  # errors that fall by less with the order, are this large, and so many attempts long
_UNTIMED, _USUAL, _LONG = 5, 150, 60.0  # steps that compile, steps of a usual flow, seconds of a long one
_BRINK = 1e-2  # of the norm: how near to the point where rounding takes over a flow is followed
_SMALLEST = 1e-14  # a step below this fraction of the clock's unit and of the weights cannot change a float64 state
_FIRST = 1e4  # lengths of the start: a straight path lets a longer first step pass, over a time that nothing resolves
FLOW_STEPS = 20_000  # of the integrator, where the caller sets no budget; a flow to margin 1e6 takes some hundreds
_KEPT = 2**30  # bytes of records, beyond which every second one is dropped


Progress = Callable[[int, float, float], None]
"""Called as a run goes on with the number of steps, log(L - L*) and the smallest margin."""


class GradientFlow(eqx.Module):
    """Gradient flow in a clock, to a tolerance.

    `tolerance` is the local error per step relative to the norm (and to the physical time); `margin_tolerance` the error in
    the differences of the margins that carry weight, which is what the direction of motion depends on. Every step chooses its
    order by the work per length it costs, from 2 to the highest allowed, `order` (at most 8).
    """

    clock: Clock = RelativeArc()
    tolerance: float = 1e-7
    margin_tolerance: float = 1e-4
    order: int = eqx.field(static=True, default=HIGHEST)

    def __check_init__(self):
        if not is_whole(self.order) or not 2 <= self.order <= 8:
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


class _Record(NamedTuple):
    steps: int
    view: View
    params: PyTree
    dual: np.ndarray


class _Path:
    """The records of one flow as they come in, with the accumulated multipliers.

    Copies, which let the larger buffers of the device go. `stride` is 1 until the steps fill their share of the memory; from
    then on every second of those recorded is kept, and so on.
    """

    def __init__(self):
        self.records: list[_Record] = []
        self.stride = 1

    def add(self, steps: int, at: Point) -> None:
        self.records.append(_Record(steps, *jax.tree.map(np.array, (at.view, at.state.params, at.state.dual))))

    def step(self, steps: int, at: Point) -> None:
        """Record a step of the integrator, if it is one of those that are kept."""
        if steps % self.stride == 0:
            self.add(steps, at)
        if len(self.records) * _bytes(self.records[0]) > _KEPT and len(self.records) > 2:
            self.stride *= 2
            self.records = [record for record in self.records if record.steps % self.stride == 0]

    def series(self) -> dict[str, np.ndarray]:
        names = ("log_time", "log_excess", "log_slope", "norm", "margins", "weights")
        found = {name: np.stack([getattr(record.view, name) for record in self.records]) for name in names}
        return {"steps": np.asarray([record.steps for record in self.records]), **found, "dual": self.stacked("dual")}

    def stacked(self, name: str) -> PyTree:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(getattr(record, name) for record in self.records))


def _bytes(record: _Record) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(record[1:]))


Advance = Callable[[float], Point]


def _land(advance: Advance, h: float, before: View, after: View, name: str, level: float) -> float:
    """The step length in (0, h] at which a quantity reaches its level."""

    def miss(length: float) -> float:
        view = before if length == 0 else after if length == h else advance(length).view
        value = float(getattr(view, name))
        return (value if math.isfinite(value) else -1e300) - level

    if miss(0.0) * miss(h) >= 0:
        return h
    return float(brentq(miss, 0.0, h, xtol=1e-13 * h, rtol=np.float64(1e-12)))  # pyright: ignore[reportArgumentType]


def _crossed(before: View, after: View, name: str, level: float) -> bool:
    a, b = float(getattr(before, name)), float(getattr(after, name))
    return (a < level <= b) or (name == "log_excess" and b <= level < a)


def _landings(recorder: Levels | None, advance: Advance, h: float, before: View, after: View) -> list[float]:
    """Where inside a step of length h the levels to be recorded are crossed, in the order of time."""
    if recorder is None:
        return []
    crossed = [value for value in recorder.values if _crossed(before, after, recorder.quantity, value)]
    return sorted({_land(advance, h, before, after, recorder.quantity, value) for value in crossed})


class _Walk:
    """A flow on its way: where it stands, and the step it tries next."""

    def __init__(self, setting: Setting, flow: GradientFlow, params: PyTree):
        self.setting, self.flow = setting, flow
        self.steps, self.rejected, self.clock, self.noisy, self.begun = 0, 0, 0.0, 0, 0.0
        self.longest = _STRIDE if hasattr(flow.clock, "steady") else math.inf
        self.plan = Plan(1e-3, first_order(flow.tolerance, flow.order))
        self.at = unseen(setting, jax.tree.map(jnp.asarray, params))
        self.space = space_for(setting, len(self.view.margins))
        self._use(Origin(*jnp.ones(2)), 1.0)
        self.at = eqx.tree_at(lambda at: at.state, self._step(0.0, 2, 2)[0], self.at.state)

    def _use(self, origin: Origin, floor: float) -> None:
        """Steps in the units of the start."""
        self.origin, self.floor = origin, floor
        sizes = (jnp.asarray(size) for size in (self.flow.tolerance, self.flow.margin_tolerance, floor))
        self.form, self.arrays = split((Flowing(self.setting, self.flow.clock, origin, *sizes), self.space))

    @property
    def view(self) -> View:
        return self.at.view

    def prepare(self) -> None:
        """The units of the start, and a first step that is not longer than these resolve."""
        units, norm = origin(self.at.look.reading), float(self.view.norm)
        self._use(units, norm if norm > 0 else float(units.length))
        while self.plan.length * self.pace() > _FIRST * self.floor:
            self.plan = Plan(_SHRINK * self.plan.length, self.plan.order)

    def pace(self) -> float:
        """How fast the weights move in the clock."""
        clock, seen = np.asarray(self.clock), self.at.look
        return float(_speed(self.flow.clock, seen.reading, seen.norm, self.at.state.progress, clock, self.origin))

    def attempt(self) -> tuple[Point, Errors]:
        """What the planned step would lead to, and its errors; nothing is moved."""
        self._aim()
        order = self.plan.order
        return self._step(self.plan.length, max(2, order - 1), min(order + 1, self.flow.order))

    def _aim(self) -> None:
        """Solve the planned step for the margins that matter within it."""
        if isinstance(self.space, WeightSpace) or self.space.rows is None:
            return
        seen = self.at.look
        bounds = map(np.asarray, loads(self.setting, seen.reading.params, seen.curvature))
        rows = active(*bounds, self.plan.length * self.pace() * math.exp(-float(seen.reading.log_slope_norm)))
        self.space = MarginSpace(jnp.asarray(rows))
        self._use(self.origin, self.floor)

    def _step(self, length: float, least: int, most: int) -> tuple[Point, Errors]:
        numbers = (np.asarray(self.clock), np.asarray(length), np.asarray(least), np.asarray(most))
        return compiled_step(self.form, self.arrays, self.at, *numbers)

    def along(self, order: int) -> Advance:
        """The point after a part of a step, at a fixed order."""
        return lambda length: self._step(length, order, order)[0]

    def reject(self, errors: Errors) -> Status:
        """A shorter step after one that failed; where none can succeed, the flow has settled or fails."""
        self.rejected += 1
        self.plan = next_plan(errors, self.plan, self.flow.order, self.longest)
        if self.rests():
            return Status.settled
        h = self.plan.length
        if h < _SMALLEST and h * self.pace() < _SMALLEST * max(float(self.view.norm), self.floor):
            return Status.settled if float(self.at.look.left) < _STATIONARY else Status.step_failed
        return Status.running

    def rests(self) -> bool:
        """Whether the gradient has vanished to rounding; short of a positive margin also where rounding knows its direction less well than the tolerance asks."""
        left, rounding = float(self.at.look.left), np.finfo(float).eps * len(self.view.margins)
        lost = left * self.flow.tolerance <= rounding and left < _STATIONARY and self.view.margin <= 0
        return bool(self.vanishes(self.at) or lost)

    def vanishes(self, at: Point) -> bool:
        """Whether what is left of the gradient is the rounding of its terms."""
        return bool(at.look.left <= np.finfo(float).eps * len(at.view.margins))

    def heed(self, errors: Errors) -> Status:
        """Errors that no order lessens are rounding; where they keep a flow from moving, they decide."""
        last, found = int(errors.order), np.asarray(errors.orders)
        flat = last > 2 and found[last - 1] > max(_FLAT * found[last - 2], _HEARD)
        self.noisy = (self.noisy + bool(flat)) * (self.creeps() and bool(self.view.margin > _TAIL))
        return Status.resolution_exhausted if self.noisy > _PATIENCE else Status.running

    def foresee(self) -> None:
        """Say what a long run will take before it does; the first steps compile and are not counted."""
        if self.steps == _UNTIMED:
            self.begun = time.monotonic()
        elif self.steps == 2 * _UNTIMED:
            each = (time.monotonic() - self.begun) / _UNTIMED
            if each * _USUAL > _LONG:
                warn(
                    f"A step of this flow takes {each:.2g} s, and a flow to margin 1e6 some {_USUAL} steps: about {each * _USUAL / 60:.2g} minutes. "
                    "`normalised_descent(0.1)` goes to the same limit in cheap steps; so does it with `Gram(data)` where margins are fewer than weights."
                )

    def creeps(self) -> bool:
        """Whether the planned step hardly moves the weights."""
        return self.plan.length * self.pace() <= _BRINK * max(float(self.view.norm), self.floor)

    def land(self, new: Point, order: int, stops: dict[str, float]) -> tuple[Point, float, bool]:
        """The step just tried, or the part of it that leads to the first of the levels to stop at, and whether there is one."""
        h = self.plan.length
        hits = [name for name, level in stops.items() if _crossed(self.view, new.view, name, level)]
        if not hits:
            return new, h, False
        advance = self.along(order)
        used = min(_land(advance, h, self.view, new.view, name, stops[name]) for name in hits)
        return (new if used == h else advance(used)), used, True

    def move(self, new: Point, used: float, errors: Errors) -> None:
        self.at, self.steps, self.clock = new, self.steps + 1, self.clock + used
        self.plan = next_plan(errors, self.plan, self.flow.order, self.longest)


_speed = eqx.filter_jit(lambda clock, *given: clock.speed(*given))


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
    walk, path, levels = _Walk(setting, flow, params), _Path(), jax.tree.map(np.asarray, levels)
    path.add(0, walk.at)
    status = _at_start(walk, levels, max_steps)
    if status is not Status.running:
        return path.series(), path.stacked("params"), status, {}
    walk.prepare()
    stops = {name: float(getattr(levels, name)) for name in ("margin", "norm", "log_time", "log_excess")}
    most = FLOW_STEPS if max_steps is None else max_steps
    inaccuracy, bound = Accuracy(setting, flow.clock, params, walk.view.log_excess), float(levels.inaccuracy)
    while status is Status.running:
        new, errors = walk.attempt()
        status = walk.heed(errors)
        if not (accepted(errors) and bool(new.view.finite)):
            status = walk.reject(errors) if status is Status.running else status
            continue
        if walk.vanishes(new) and not walk.creeps():
            walk.plan = Plan(_SHRINK * walk.plan.length, walk.plan.order)
            continue
        order = int(errors.order)
        new, used, reached = walk.land(new, order, stops)
        for length in _landings(recorder, walk.along(order), used, walk.view, new.view):
            if length < used or not reached:  # the end itself is recorded below
                path.add(walk.steps + 1, walk.along(order)(length))
        if bool(levels.turn > 0) and _turn(setting, walk.at, new) < float(levels.turn):
            reached = True
        walk.move(new, used, errors)
        walk.foresee()
        after = new.view
        if progress is not None:
            progress(walk.steps, float(after.log_excess), float(after.margin))
        found = Status.reached_target if reached else _ending(after, levels, walk.steps, most)
        status = status if found is Status.running else found
        if status is Status.running and walk.vanishes(new):
            status = Status.settled
        if bound < np.inf and inaccuracy(new.state.params, after.log_excess, walk.clock) > bound:
            status = Status.inaccurate
        if recorder is None:
            path.step(walk.steps, new)
        elif status is not Status.running:
            path.add(walk.steps, new)
    if path.records[-1].steps != walk.steps:  # the last step was not kept, but where the run stands is part of it
        path.add(walk.steps, walk.at)
    thinned = {} if path.stride == 1 else {"recorded_every": path.stride}
    integrator = {"steps": walk.steps, "rejected": walk.rejected, "clock": walk.clock, **thinned}
    return path.series(), path.stacked("params"), status, {"integrator": integrator}


def _at_start(walk: _Walk, levels: Limits, max_steps: int | None) -> Status:
    """Why a flow does not even begin."""
    view = walk.view
    if not np.isfinite(walk.at.look.reading.log_slope_norm):
        return Status.zero_gradient
    if bool(levels.reached(*map(float, (view.margin, view.norm, view.log_time, view.log_excess)))):
        return Status.reached_target
    return Status.out_of_steps if max_steps == 0 else Status.running


def _turn(setting: Setting, before: Point, after: Point) -> float:
    """The angle by which the direction turns while the norm doubles, from what it turned in one step.

    From two points, not from the slope at one: the slope knows the multipliers only to the tolerance of the margins.
    """
    first, last = float(before.view.norm), float(after.view.norm)
    if not (0 < first < last) or float(np.abs(after.view.margins).max()) < _TAIL:
        return math.inf
    chord = jax.tree.map(lambda a, b: a / last - b / first, after.state.params, before.state.params)
    return math.log(2) * math.sqrt(max(float(setting.inner(chord, chord)), 0.0)) / math.log(last / first)


def _ending(view: View, levels: Limits, steps: int, max_steps: int) -> Status:
    if np.finfo(float).eps * float(np.abs(view.margins).max()) > RESOLUTION:
        return Status.resolution_exhausted
    if float(view.margin) <= -float(levels.stall):
        return Status.stalled
    return Status.out_of_steps if steps >= max_steps else Status.running


def is_flow(optimiser: object) -> TypeGuard[GradientFlow]:
    """Whether this is the flow, and no method with steps."""
    return isinstance(optimiser, GradientFlow)
