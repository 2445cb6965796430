"""Gradient flow: theta' = -grad L, followed to times like e^(10^6)."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree
from scipy.optimize import brentq

from ..errors import ArgumentError, warn
from ..problem import read_once as read
from ..problem import smallest_margin
from ..settings.base import RESOLUTION, Setting
from ..settings.check import is_whole
from ..training.events import Limits
from ..training.status import Status
from .clocks import Clock, Origin, RelativeArc, origin
from .integrator import Accuracy, State, Tolerances, attempt
from .spaces import Spaces, lengths

_SHRINK, _GROW, _SAFETY = 0.2, 4.0, 0.9
_TAIL = 10.0  # while all margins are smaller the multipliers hardly change, and no direction turns
_STATIONARY = 1e-6  # of the gradient over the sum of its terms: where no step succeeds, the flow stands at a minimum
_DEAF, _BRINK = 4, 1e-2  # times in a row that a shorter step has the larger error, and is of this part of the norm
_TIMED, _USUAL, _LONG = 10, 300, 60.0  # first steps, steps of a flow to margin 1e6, seconds of a long one
_STILL = 1e-3  # of the excess, lost per relative length of the path: less looks like a minimum
_SMALLEST = 1e-14  # a step below this fraction of the clock's unit and of the weights cannot change a float64 state
_FIRST = 1e4  # lengths of the start: a straight path lets a longer first step pass, over a time that nothing resolves
FLOW_STEPS = 20_000  # of the integrator, where the caller sets no budget; a flow to margin 1e6 takes some hundreds
_KEPT = 2**30  # bytes of records, beyond which every second one is dropped


Progress = Callable[[int, float, float], None]
"""Called as a run goes on with the number of steps, log(L - L*) and the smallest margin."""


class GradientFlow(eqx.Module):
    """Gradient flow in a clock, to a tolerance.

    `tolerance` is the local error per step relative to the norm (and to the physical time); `margin_tolerance` the error in
    the differences of the margins that carry weight, which is what the direction of motion depends on. A higher `order` (2 to 8)
    takes fewer and dearer steps: worth it for tolerances below 1e-8.
    """

    clock: Clock = RelativeArc()
    tolerance: float = 1e-7
    margin_tolerance: float = 1e-4
    order: int = eqx.field(static=True, default=4)

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


class View(eqx.Module):
    """What is recorded of a point of the flow."""

    log_time: Float[Array, ""]
    log_excess: Float[Array, ""]
    log_slope: Float[Array, ""]
    norm: Float[Array, ""]
    margins: Float[Array, "N"]
    weights: Float[Array, "N"]
    margin: Float[Array, ""]
    finite: Bool[Array, ""]


@eqx.filter_jit
def _view(setting: Setting, state: State) -> View:
    reading, norm = read(setting, state.params), setting.norm(state.params)
    begun = state.progress > 0  # at a critical point both logarithms are -inf
    log_time = jnp.where(begun, jnp.log(jnp.where(begun, state.progress, 1.0)) - reading.log_gradient_norm, -jnp.inf)
    finite = jnp.isfinite(reading.log_excess) & jnp.isfinite(norm) & jnp.isfinite(state.progress)
    finite = finite & jnp.all(jnp.isfinite(reading.margins))
    sizes = log_time, reading.log_excess, reading.log_relative_slope, norm
    return View(*sizes, reading.margins, reading.weights, smallest_margin(setting, reading.margins), finite)


@eqx.filter_jit
def _pace(setting: Setting, clock: Clock, start: Origin, state: State, now: ArrayLike) -> Array:
    reading, norm = read(setting, state.params), setting.norm(state.params)
    return clock.speed(reading, norm, state.progress, jnp.asarray(now), start)


@eqx.filter_jit
def _try(
    setting: Setting, clock: Clock, start: Origin, tolerances: Tolerances, state: State, now: ArrayLike, h: ArrayLike
) -> tuple[State, Array, View]:
    new, error = attempt(setting, clock, start, tolerances, state, jnp.asarray(now), jnp.asarray(h))
    return new, error, _view(setting, new)


@eqx.filter_jit
def _cancellation(setting: Setting, params: PyTree) -> Float[Array, ""]:
    """The size of the gradient over the sum of the sizes of its terms, one per margin: whatever the scale of the parameters.

    At a minimum the terms cancel; small factors or layers, which make every term small, do not look like one.
    """
    reading = read(setting, params)
    return jnp.exp(reading.log_slope_norm) / jnp.sum(jnp.abs(reading.weights) * lengths(setting, params))


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

    def add(self, steps: int, state: State, view: View) -> None:
        self.records.append(_Record(steps, *jax.tree.map(np.array, (view, state.params, state.dual))))

    def step(self, steps: int, state: State, view: View) -> None:
        """Record a step of the integrator, if it is one of those that are kept."""
        if steps % self.stride == 0:
            self.add(steps, state, view)
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


Advance = Callable[[float], tuple[State, Array, View]]


def _land(advance: Advance, h: float, before: View, after: View, name: str, level: float) -> float:
    """The step length in (0, h] at which a quantity reaches its level."""

    def miss(length: float) -> float:
        view = before if length == 0 else after if length == h else advance(length)[2]
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
    """A flow on its way: where it stands, and the length `h` of the step it tries next."""

    def __init__(self, setting: Setting, flow: GradientFlow, params: PyTree):
        first = read(setting, params)
        self.setting, self.flow, self.first = setting, flow, first
        dual = jnp.asarray(np.zeros(first.weights.shape))
        self.state = State(jax.tree.map(jnp.asarray, params), jnp.zeros(()), dual)
        self.view = _view(setting, self.state)
        self.h, self.steps, self.rejected, self.clock = 1e-3, 0, 0, 0.0
        self.spaces, self.deaf, self.last, self.fastest = Spaces(setting, len(dual)), 0, math.inf, math.inf

    def prepare(self) -> None:
        """The units of the start, and a first step that is not longer than these resolve."""
        self.origin, norm = origin(self.first), float(self.view.norm)
        self.floor = norm if norm > 0 else float(self.origin.length)
        relative, margin = jnp.asarray(self.flow.tolerance), jnp.asarray(self.flow.margin_tolerance)
        self.tolerances = Tolerances(relative, margin, jnp.asarray(self.floor), self.flow.order)
        while self.h * self.pace() > _FIRST * self.floor:
            self.h *= _SHRINK

    def pace(self) -> float:
        """How fast the weights move in the clock."""
        return float(_pace(self.setting, self.flow.clock, self.origin, self.state, np.asarray(self.clock)))

    def attempt(self) -> tuple[State, Array, View]:
        """The step that is tried next, in the smallest space that resolves it."""
        if self.spaces.known:
            space = self.spaces.at(self.state.params, self.h * self.pace())
            self.tolerances = replace(self.tolerances, space=space)
        return self.advance(self.h)

    def advance(self, length: float) -> tuple[State, Array, View]:
        """What a step of this length would lead to, and its error; nothing is moved."""
        clock, h = np.asarray(self.clock), np.asarray(length)
        return _try(self.setting, self.flow.clock, self.origin, self.tolerances, self.state, clock, h)

    def reject(self, error: float) -> Status:
        """A shorter step after one that failed; where none can succeed, the flow has settled or fails.

        An error that grows as steps get shorter is rounding: where that keeps a flow from moving, it decides.
        """
        self.rejected += 1
        self.deaf, self.last = self.deaf + 1 if math.isfinite(error) and error > self.last else 0, error
        wild, size = not (math.isfinite(error) and error > 1), max(float(self.view.norm), self.floor)
        still = math.exp(float(self.view.log_slope)) * size < _STILL
        self.h *= _SHRINK if wild else max(_SHRINK, _SAFETY * error ** (-1 / self.flow.order))
        left = float(_cancellation(self.setting, self.state.params))
        rounding = np.finfo(float).eps * len(self.view.margins)
        # Short of a positive margin, a direction of motion that rounding knows less well than the tolerance asks leads nowhere;
        # to a minimum only where the excess hardly falls: on badly scaled data the gradient nearly cancels on the way.
        lost = left * self.flow.tolerance <= rounding and left < _STATIONARY and self.view.margin <= 0
        if left <= rounding or lost:
            return Status.settled if left <= rounding or still else Status.resolution_exhausted
        if self.deaf >= _DEAF and self.view.margin > _TAIL and self.h * self.pace() < _BRINK * size:
            return Status.resolution_exhausted
        if self.h < _SMALLEST and self.h * self.pace() < _SMALLEST * size:
            return Status.settled if left < _STATIONARY else Status.step_failed
        return Status.running

    def land(self, new: State, after: View, stops: dict[str, float]) -> tuple[State, View, float, bool]:
        """The step just tried, or the part of it that leads to the first of the levels to stop at, and whether there is one."""
        hits = [name for name, level in stops.items() if _crossed(self.view, after, name, level)]
        if not hits:
            return new, after, self.h, False
        used = min(_land(self.advance, self.h, self.view, after, name, stops[name]) for name in hits)
        if used != self.h:
            new, _, after = self.advance(used)
        return new, after, used, True

    def move(self, new: State, after: View, used: float, error: float) -> None:
        self.state, self.view, self.steps, self.clock = new, after, self.steps + 1, self.clock + used
        self.deaf, self.last = 0, math.inf
        self.h *= min(_GROW, max(_SHRINK, _SAFETY * max(error, 1e-8) ** (-1 / self.flow.order)))

    def foresee(self, seconds: float) -> None:
        """Say what a long run will take before it does, by the fastest of the first steps: others compile."""
        self.fastest = min(self.fastest, seconds)
        if self.steps == _TIMED and self.fastest * _USUAL > _LONG:
            warn(
                f"A step of this flow takes {self.fastest:.2g} s, and a flow to margin 1e6 some {_USUAL} steps: about {self.fastest * _USUAL / 60:.2g} minutes. "
                "`normalised_descent(0.1)` goes to the same limit in cheap steps; so does it with `Gram(data)` where margins are fewer than weights."
            )


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
    path.add(0, walk.state, walk.view)
    status = _at_start(walk, levels, max_steps)
    if status is not Status.running:
        return path.series(), path.stacked("params"), status, {}
    walk.prepare()
    stops = {name: float(getattr(levels, name)) for name in ("margin", "norm", "log_time", "log_excess")}
    most = FLOW_STEPS if max_steps is None else max_steps
    inaccuracy, bound = Accuracy(setting, flow.clock, params, walk.first.log_excess), float(levels.inaccuracy)
    while status is Status.running:
        since = time.monotonic()
        new, error, after = walk.attempt()
        error = float(error)
        if not (error <= 1 and bool(after.finite)):
            status = walk.reject(error)
            continue
        new, after, used, reached = walk.land(new, after, stops)
        for length in _landings(recorder, walk.advance, used, walk.view, after):
            if length < used or not reached:  # the end itself is recorded below
                point, _, seen = walk.advance(length)
                path.add(walk.steps + 1, point, seen)
        if bool(levels.turn > 0) and _turn(setting, walk.state.params, new.params, after) < float(levels.turn):
            reached = True
        walk.move(new, after, used, error)
        walk.foresee(time.monotonic() - since)
        if progress is not None:
            progress(walk.steps, float(after.log_excess), float(after.margin))
        status = Status.reached_target if reached else _ending(setting, after, levels, walk.steps, most)
        if bound < np.inf and inaccuracy(new.params, after.log_excess, walk.clock) > bound:
            status = Status.inaccurate
        if recorder is None:
            path.step(walk.steps, new, after)
        elif status is not Status.running:
            path.add(walk.steps, new, after)
    if path.records[-1].steps != walk.steps:  # the last step was not kept, but where the run stands is part of it
        path.add(walk.steps, walk.state, walk.view)
    thinned = {} if path.stride == 1 else {"recorded_every": path.stride}
    integrator = {"steps": walk.steps, "rejected": walk.rejected, "clock": walk.clock, **thinned}
    return path.series(), path.stacked("params"), status, {"integrator": integrator}


def _at_start(walk: _Walk, levels: Limits, max_steps: int | None) -> Status:
    """Why a flow does not even begin."""
    view = walk.view
    if not np.isfinite(walk.first.log_slope_norm):
        return Status.zero_gradient
    if bool(levels.reached(*map(float, (view.margin, view.norm, view.log_time, view.log_excess)))):
        return Status.reached_target
    return Status.out_of_steps if max_steps == 0 else Status.running


def _turn(setting: Setting, before: PyTree, after: PyTree, view: View) -> float:
    """The angle by which the direction turns while the norm doubles, from what it turned in one step.

    From two points, not from the slope at one: the slope knows the multipliers only to the tolerance of the margins.
    """
    first, last = float(setting.norm(before)), float(view.norm)
    if not (0 < first < last) or float(jnp.abs(view.margins).max()) < _TAIL:
        return math.inf
    chord = jax.tree.map(lambda a, b: a / last - b / first, after, before)
    return math.log(2) * math.sqrt(max(float(setting.inner(chord, chord)), 0.0)) / math.log(last / first)


def _ending(setting: Setting, view: View, levels: Limits, steps: int, max_steps: int) -> Status:
    if bool(setting.data.at_rounding(view.margins)):
        return Status.settled
    if np.finfo(float).eps * float(np.abs(view.margins).max()) > RESOLUTION:
        return Status.resolution_exhausted
    if float(view.margin) <= -float(levels.stall):
        return Status.stalled
    return Status.out_of_steps if steps >= max_steps else Status.running


def is_flow(optimiser: object) -> TypeGuard[GradientFlow]:
    """Whether this is the flow, and no method with steps."""
    return isinstance(optimiser, GradientFlow)
