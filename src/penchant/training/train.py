"""Training: one compiled scan per run, records at chosen steps, and an ending in prose."""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..cache import keep_compiled
from ..errors import ArgumentError, warn
from ..flow.flow import GradientFlow, Levels, Progress, follow, is_flow
from ..flow.mirror import follow_regression
from ..logspace import check_float64
from ..optimisers.base import Move, Optimiser
from ..problem import Reading, read, smallest_margin
from ..settings.base import RESOLUTION, Setting
from ..settings.regression import Regression
from .batch import Batch, check_networks, raise_if_diverged
from .events import DECIDED, Event, Limits, LogSpaced, Recorder, events, flow_only, limits
from .loop import REFRESH, check_steps, collect, drive_many, drive_one, first_of, in_pieces, running, stepped
from .status import Status
from .trajectory import Memory, Trajectory, check_memory, describe, settings_of

_LEAP = 1e6  # a step this many times longer than the weights (or than the first linear model reaches) is a divergence
_FAR = 1e8  # margin, or -log excess, beyond which margins lose digits that the laws of the direction need


class _State(eqx.Module):
    params: PyTree
    memory: PyTree
    dual: Float[Array, "N"]
    count: Int[Array, ""]
    log_time: Float[Array, ""]
    status: Int[Array, ""]
    first_capped: Int[Array, ""]
    unit: Float[Array, ""]
    ceiling: Float[Array, ""]


def train(
    setting: Setting | Sequence[Setting],
    optimiser: Optimiser | GradientFlow,
    start: PyTree = None,
    *,
    steps: int | None = None,
    until: Event | Iterable[Event] | None = None,
    recorder: Recorder | Levels | None = None,
    progress: Progress | None = None,
    throw: bool = False,
    memory: Memory | None = None,
) -> Any:
    """Train a `Setting` (or a list of them) from `start` (zeros by default) for `steps` steps or until an event; a flow without either until its direction is decided.

    A batch of starts (a leading axis on every array of `start`), of step sizes (an array where a number is usual), of settings
    (a list, all of one shape) or of several of these gives a list of trajectories from one compiled, vectorised run.
    `progress(steps, log_excess, margin)` is called now and then: after each step of a flow, at each record of a single descent.
    `throw` turns a run that cannot go on (`diverging_step`, `not_finite`, `step_failed`) into a `DivergedRun`, or into a
    `StepSizeError` with a safe step where a constant step on layers diverges.
    `memory` is that of an earlier run, which this one continues: `train(setting, optimiser, run.at(), memory=run.memory, steps=100)`.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
    >>> run = pt.train(setting, pt.normalised_descent(0.5), steps=100)
    >>> run.status.name, round(float(run.norm[-1]), 3)
    ('out_of_steps', 49.869)
    >>> runs = pt.train(setting, pt.normalised_descent([0.1, 0.5]), steps=100)
    >>> [round(float(run.norm[-1]), 3) for run in runs]
    [9.912, 49.869]
    """
    keep_compiled()
    for one in [setting] if isinstance(setting, Setting) else setting:
        check_asked(one, optimiser)
    until = events(until)  # once: an iterator would be used up
    batch = Batch(setting, optimiser, start)
    check_networks(batch.members(), limits(until))
    if memory is not None and (batch.size or is_flow(optimiser)):
        found = "a batch" if batch.size else "a flow, which carries nothing"
        raise ArgumentError("memory", "train", "given for a single descent only", found)
    if is_flow(optimiser):
        runs = [_flow(*member, until, steps, recorder, progress) for member in batch.members()]
    else:
        runs = _descend(batch, until, steps, recorder, progress, memory)
    if throw:
        for run, member in zip(runs, batch.members(), strict=True):
            raise_if_diverged(*member, run)
    return runs if batch.size else runs[0]


def _descend(
    batch: Batch,
    until: tuple,
    steps: int | None,
    recorder: Recorder | Levels | None,
    progress: Progress | None,
    memory: Memory | None,
) -> list[Trajectory]:
    """A run, or every member of a batch in one vectorised run."""
    steps, levels, recorder = default_steps(steps, until), limits(until), recorder or LogSpaced()
    if not isinstance(recorder, Recorder):
        wanted = "one of steps, such as Every(10): only a flow stops at levels"
        raise ArgumentError("recorder", "train", wanted, type(recorder).__name__)
    if flow_only(levels):
        wanted = "an event other than DirectionSettled, Stalled and Inaccurate"
        raise ArgumentError("until", "train without a flow", wanted, repr(until))
    schedule, asked = recorder.schedule(steps), _asked(steps, until, recorder)
    if batch.size:
        setting_axis, optimiser_axes, start_axis = batch.axes
        parts = (batch.setting, batch.optimiser, levels, batch.start)
        axes = (setting_axis, optimiser_axes, None, start_axis)
        found = in_pieces(partial(drive_many, Descent, axes, parts), schedule)
        each = [jax.tree.map(lambda leaf, k=k: leaf[k], found) for k in range(batch.size)]
    else:
        if memory is not None:
            check_memory(memory, batch.settings[0], batch.optimiser, batch.start)
        told = None if progress is None else _told(progress)
        process = Descent(batch.settings[0], batch.optimiser, levels, batch.start, told, memory)
        try:
            each = [in_pieces(partial(drive_one, process), schedule)]
        except Exception:
            if told is not None and told.raised:
                raise told.raised.pop() from None
            raise
    headers = [{**describe(one, batch.optimiser), **asked} for one in batch.settings]
    runs = []
    for k, (one, (setting, optimiser, _)) in enumerate(zip(each, batch.members(), strict=True)):
        ratio = {"growth_ratio": float(optimiser.growth_ratio)} if hasattr(optimiser, "growth_ratio") else {}
        member = {"member": k} if batch.size else {}
        before = 0 if memory is None else memory.steps
        runs.append(_trajectory(setting, one, {**headers[k % len(headers)], **member, **ratio}, before))
    return runs


def _asked(steps: int | None, until: tuple, recorder: Recorder | Levels | None) -> dict:
    """The part of a header that says how long and how often."""
    return {"steps": steps, "until": [settings_of(event) for event in until], "recorder": settings_of(recorder)}


def default_steps(steps: int | None, until: tuple) -> int:
    if steps is None:
        if not until:
            raise ArgumentError("steps", "train", "given, or `until`", "neither")
        return 1_000_000
    return check_steps(steps, "train")


def check_asked(setting: Setting, optimiser: Optimiser | GradientFlow) -> None:
    setting.data.check_optimiser(optimiser)
    check_float64()
    if any(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(setting.data)):
        fix = "build the data again with float64 arrays"
        raise ArgumentError("setting", "train", "float64 throughout", "float32 arrays", fix)
    setting.parametrisation.check_optimiser(optimiser)


def _flow(
    setting: Setting,
    optimiser: GradientFlow,
    start: PyTree,
    until: tuple,
    steps: int | None,
    recorder: Recorder | Levels | None,
    progress: Progress | None,
) -> Trajectory:
    owner = "train with GradientFlow"
    if isinstance(recorder, Recorder):
        wanted = "None (every step of the integrator) or `Levels`"
        raise ArgumentError("recorder", owner, wanted, repr(recorder))
    if not until and steps is None and not setting.data.attained:  # there the flow ends by itself
        until = DECIDED
    steps, levels = None if steps is None else default_steps(steps, until), limits(until)
    depth, size = -float(levels.log_excess), float(levels.margin)
    for name, far in {f"At risk e^-{depth:.0e}": depth, f"At margin {size:.0e}": size}.items():
        if _FAR < far < np.inf:
            warn(f"{name} float64 knows margins only to {np.finfo(float).eps * far:.0e}.")
    if isinstance(setting.data, Regression):
        found = follow_regression(setting, optimiser, start, levels, steps, recorder)
    else:
        found = follow(setting, optimiser, start, levels, steps, recorder, progress)
    series, params, status, extra = found
    header = {**describe(setting, optimiser), **_asked(steps, until, recorder), **extra}
    return Trajectory(setting, **series, params=params, status=status, header=header)


def _trajectory(setting: Setting, found: tuple, header: dict, before: Int[Array, ""] | int) -> Trajectory:
    state, records = found
    series, ending = collect(state.status, records)
    capped = int(state.first_capped)
    header = {**header, "first_capped": None if capped < 0 else capped}
    left = Memory(state.memory, jnp.asarray(state.count + before))
    return Trajectory(setting, **series, status=ending, header=header, memory=left)


class _Told:
    """The same callback, which keeps what it raises: out of compiled code it comes as an error of JAX's own making."""

    def __init__(self, progress: Progress):
        self.progress, self.raised = progress, list[BaseException]()

    def __call__(self, *now: Any) -> None:
        try:
            self.progress(*now)
        except BaseException as error:
            self.raised[:] = [error]
            raise


_told = lru_cache(maxsize=8)(_Told)  # one for a callback, and so one compiled form


class Descent(eqx.Module):
    """Descent on a setting as a process; a `Process` of `drive`."""

    setting: Setting
    optimiser: Optimiser
    levels: Limits
    start: PyTree
    progress: Progress | None = None
    memory: Memory | None = None

    def begin(self) -> _State:
        first = read(self.setting, self.start)
        at_zero = self.setting.weigh(jnp.zeros_like(first.margins)).log_excess
        return _State(
            self.start,
            self.optimiser.init((first.slope, first.weights)) if self.memory is None else self.memory.kept,
            jnp.zeros_like(first.weights),
            jnp.zeros((), int),
            jnp.array(-jnp.inf),
            jnp.zeros((), int),
            -jnp.ones((), int),
            jnp.exp(-first.log_relative_slope),
            self.setting.data.ceiling(jnp.maximum(first.log_excess, at_zero)),
        )

    def burst(self, state: _State, until: Array) -> _State:
        until = jnp.minimum(until, state.count + REFRESH)
        state = jax.lax.while_loop(lambda s: running(s, until), lambda s: self._step(s), state)
        return eqx.tree_at(lambda s: s.params, state, self.setting.parametrisation.refresh(state.params))

    def _step(self, state: _State) -> _State:
        count = state.count if self.memory is None else state.count + self.memory.steps
        look = getattr(self.optimiser, "look", None)  # of those that see a part of the data
        reading = read(self.setting, state.params) if look is None else look(self.setting, state.params, count)
        move: Move = self.optimiser.move(reading, state.memory, count)
        params = jax.tree.map(lambda p, step: p - step, state.params, move.displacement)
        advanced = _State(
            params,
            move.memory,
            state.dual - move.dual,
            state.count + 1,
            jnp.logaddexp(state.log_time, jnp.log(move.factor) - reading.log_scale),
            first_of(self._endings(state, reading, move, params)),
            jnp.where((state.first_capped < 0) & move.capped, state.count, state.first_capped),
            state.unit,
            state.ceiling,
        )
        return stepped(state, advanced)

    def _endings(self, state: _State, reading: Reading, move: Move, after: PyTree) -> tuple[tuple[Array, Status], ...]:
        """What ends a descent at a step; the first that holds decides."""
        setting, data, levels = self.setting, self.setting.data, self.levels
        norm = setting.norm(state.params)
        square = setting.inner(move.displacement, move.displacement)
        # Where the infimum is attained, multipliers may well be 0, and all of them are at the end; elsewhere they have underflown.
        lost = self.optimiser.coordinatewise & jnp.any(reading.weights == 0) & (not data.attained)
        lost = lost & (reading.signed is None)  # where coordinates come in logarithms, they need no multipliers
        lost = lost | setting.parametrisation.lost(state.params, after)
        # Not merely passing through a minimum; a rule that divides by the gradient has no step there, and nan counts as none.
        still = ~(square > jnp.finfo(float).eps * norm**2) | (not data.attained)
        unresolved = (jnp.finfo(float).eps * jnp.max(jnp.abs(reading.margins)) > RESOLUTION) & (not data.attained)
        leap = _LEAP * jnp.maximum(state.unit, norm)
        margin = smallest_margin(setting, reading.margins)
        own = getattr(setting.parametrisation, "endings", lambda *given: {})(reading, square, norm, state.count)
        return (
            *((found, Status[name]) for name, found in own.items()),
            (levels.reached(margin, norm, state.log_time, reading.log_excess), Status.reached_target),
            (data.at_rounding(reading.margins) & still, Status.settled),
            (jnp.isneginf(reading.log_slope_norm) & still, Status.zero_gradient),
            ((reading.log_excess > state.ceiling) & (unresolved | data.attained), Status.diverging_step),
            (unresolved, Status.resolution_exhausted),
            (lost, Status.coordinate_underflow),
            (move.diverging | (square > leap**2), Status.diverging_step),
            (~jnp.isfinite(square), Status.not_finite),
        )

    def record(self, state: _State) -> dict[str, PyTree]:
        reading = read(self.setting, state.params)
        if self.progress is not None:
            margin = smallest_margin(self.setting, reading.margins)
            jax.debug.callback(self.progress, state.count, reading.log_excess, margin)
        return {
            "steps": state.count,
            "log_time": state.log_time,
            "log_excess": reading.log_excess,
            "log_slope": reading.log_relative_slope,
            "norm": self.setting.norm(state.params),
            "margins": reading.margins,
            "weights": reading.weights,
            "dual": state.dual,
            "params": state.params,
            "account": self._account(state, reading),
        }

    def _account(self, state: _State, reading: Reading) -> dict[str, Array] | None:
        """What the parametrisation knows besides, and what the optimiser keeps of its own steps."""
        known = getattr(self.setting.parametrisation, "series", lambda reading: {})(reading)
        kept = getattr(self.optimiser, "account", lambda *given: {})(state.memory, reading.log_excess)
        return {**known, **kept} or None
