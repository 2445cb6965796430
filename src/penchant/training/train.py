"""Training: one compiled scan per run, records at chosen steps, and an ending in prose."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..errors import ArgumentError
from ..flow.flow import GradientFlow, Levels, follow
from ..flow.mirror import follow_regression
from ..optimisers.base import Move
from ..reading import Reading, read
from ..settings.base import Setting
from ..settings.parametrisations import Gram
from ..settings.regression import Regression
from .events import Limits, limits
from .recorders import LogSpaced
from .status import Status
from .trajectory import Trajectory, describe

_LEAP = 1e6  # a step this many times longer than the weights is a divergence, not a step
_RESOLUTION = 1e-3  # weights are e^-margin: an absolute margin error above this makes them wrong by 0.1 %


class _Carry(eqx.Module):
    params: PyTree
    memory: PyTree
    dual: Float[Array, "N"]
    count: Int[Array, ""]
    log_time: Float[Array, ""]
    status: Int[Array, ""]
    first_capped: Int[Array, ""]


class _Record(eqx.Module):
    steps: Any
    log_time: Any
    log_excess: Any
    log_slope: Any
    norm: Any
    margins: Any
    weights: Any
    dual: Any
    params: PyTree


def train(
    setting: Setting,
    optimiser: Any,
    start: PyTree = None,
    *,
    steps: int | None = None,
    until: Any = None,
    recorder: Any = None,
) -> Any:
    """Train from `start` (zeros by default) for `steps` steps or until an event.

    A batch of starts (a leading axis on every array of `start`), of step sizes (an array where a number is usual) or of
    both gives a list of trajectories from one compiled, vectorised run.

    >>> import penchant as pt
    >>> setting = pt.Setting(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
    >>> run = pt.train(setting, pt.normalised_descent(0.5), steps=100)
    >>> run.status.name, round(float(run.norm[-1]), 3)
    ('out_of_steps', 49.869)
    >>> runs = pt.train(setting, pt.normalised_descent([0.1, 0.5]), steps=100)
    >>> [round(float(run.norm[-1]), 3) for run in runs]
    [9.912, 49.869]
    """
    start = setting.start() if start is None else start
    _check_precision(setting)
    if isinstance(optimiser, GradientFlow):
        return _flow(setting, optimiser, start, until, steps, recorder)
    if steps is None:
        if until is None:
            raise ArgumentError("steps", "train", "given, or `until`", "neither")
        steps = 1_000_000
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise ArgumentError("steps", "train", "a nonnegative integer", repr(steps))
    if optimiser.coordinatewise and isinstance(setting.parametrisation, Gram):
        raise ArgumentError(
            "optimiser", "train with Gram", "a combination of gradients", type(optimiser).__name__, "use `Direct()`"
        )
    schedule = jnp.asarray((recorder or LogSpaced()).schedule(int(steps)))
    batched, axes = _axes(setting, start, optimiser)
    run = _run if not batched else _run_batch(axes)
    record, status, first_capped = run(setting, optimiser, limits(until), schedule, start)
    header = {**describe(setting, optimiser), "steps": int(steps)}
    if not batched:
        return _trajectory(setting, record, int(status), int(first_capped), header)
    count = len(np.asarray(status))
    record = jax.tree.map(np.asarray, record)
    pieces = [jax.tree.map(lambda leaf, k=k: leaf[k], record) for k in range(count)]
    return [
        _trajectory(setting, piece, int(status[k]), int(first_capped[k]), {**header, "member": k})
        for k, piece in enumerate(pieces)
    ]


def _check_precision(setting: Setting) -> None:
    if jnp.zeros(()).dtype != jnp.float64:
        raise ArgumentError("jax_enable_x64", "jax", "True", "False", "jax.config.update('jax_enable_x64', True)")
    for leaf in jax.tree.leaves(setting.data):
        if leaf.dtype == jnp.float32:
            raise ArgumentError(
                "setting", "train", "float64 throughout", "float32 arrays", "build the data again with float64 arrays"
            )


def _flow(
    setting: Setting, optimiser: GradientFlow, start: PyTree, until: Any, steps: int | None, recorder: Any
) -> Any:
    if recorder is not None and not isinstance(recorder, Levels):
        raise ArgumentError(
            "recorder", "train with GradientFlow", "None (every step of the integrator) or `Levels`", repr(recorder)
        )
    if _is_batch(setting, start):
        count = jax.tree.leaves(start)[0].shape[0]
        members = [jax.tree.map(lambda leaf, k=k: leaf[k], start) for k in range(count)]
        return [_flow(setting, optimiser, member, until, steps, recorder) for member in members]
    along = follow_regression if isinstance(setting.data, Regression) else follow
    series, params, status, extra = along(setting, optimiser, start, limits(until), steps, recorder)
    header = {**describe(setting, optimiser), **extra}
    return Trajectory(setting, **series, params=params, status=status, header=header)


def _is_batch(setting: Setting, start: PyTree) -> bool:
    """Whether every array of the start has one axis more than a single start has."""
    single = jax.eval_shape(lambda: setting.parametrisation.zeros(setting.data))
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(start)]
    wanted = [leaf.shape for leaf in jax.tree.leaves(single)]
    if shapes == wanted:
        return False
    if len(shapes) == len(wanted) and all(shape[1:] == one for shape, one in zip(shapes, wanted, strict=True)):
        return True
    raise ArgumentError("start", "train", f"of shape {wanted}, or a batch of such", f"shape {shapes}")


def _axes(setting: Setting, start: PyTree, optimiser: Any) -> tuple[bool, tuple]:
    sizes = [leaf.shape[0] for leaf in jax.tree.leaves(optimiser) if np.ndim(leaf) == 1]
    many_starts = _is_batch(setting, start)
    if many_starts:
        sizes.append(jax.tree.leaves(start)[0].shape[0])
    if len(set(sizes)) > 1:
        raise ArgumentError("optimiser", "train", "batched like the starts", f"batch sizes {sorted(set(sizes))}")
    optimiser_axes = jax.tree.map(lambda leaf: 0 if np.ndim(leaf) == 1 else None, optimiser)
    return bool(sizes), (optimiser_axes, 0 if many_starts else None)


def _run_batch(axes: tuple) -> Any:
    optimiser_axes, start_axis = axes

    def run(setting, optimiser, levels, schedule, start):
        mapped = eqx.filter_vmap(_scan, in_axes=(None, optimiser_axes, None, None, start_axis))
        return eqx.filter_jit(mapped)(setting, optimiser, levels, schedule, start)

    return run


def _trajectory(setting: Setting, record: Any, status: int, first_capped: int, header: dict) -> Trajectory:
    series = {name: np.asarray(getattr(record, name)) for name in _Record.__dataclass_fields__ if name != "params"}
    ending = Status.out_of_steps if status == Status.running else Status(status)
    header = {**header, "first_capped": None if first_capped < 0 else first_capped}
    keep = np.flatnonzero(
        np.concatenate([[True], np.diff(series["steps"]) > 0])
    )  # a run that stopped repeats its last record
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[keep], record.params)
    return Trajectory(
        setting, **{name: leaf[keep] for name, leaf in series.items()}, params=params, status=ending, header=header
    )


def _scan(setting: Setting, optimiser: Any, levels: Limits, schedule: Int[Array, "R"], start: PyTree) -> tuple:
    first = read(setting, start)
    carry = _Carry(
        start,
        optimiser.init((first.slope, first.weights)),
        jnp.zeros_like(first.weights),
        jnp.zeros((), int),
        jnp.array(-jnp.inf),
        jnp.zeros((), int),
        -jnp.ones((), int),
    )

    def stretch(carry: _Carry, target: Array) -> tuple[_Carry, _Record]:
        go = lambda c: (c.count < target) & (c.status == Status.running)
        carry = jax.lax.while_loop(go, lambda c: _step(setting, optimiser, levels, c), carry)
        carry = eqx.tree_at(lambda c: c.params, carry, setting.parametrisation.refresh(carry.params))
        return carry, _record(setting, carry)

    carry, records = jax.lax.scan(stretch, carry, schedule)
    return records, carry.status, carry.first_capped


_run = eqx.filter_jit(_scan)


def _step(setting: Setting, optimiser: Any, levels: Limits, carry: _Carry) -> _Carry:
    reading = read(setting, carry.params)
    move: Move = optimiser.move(reading, carry.memory, carry.count)
    params = jax.tree.map(lambda p, step: p - step, carry.params, move.displacement)
    status = _ending(setting, optimiser, levels, carry, reading, move)
    go = status == Status.running
    advanced = _Carry(
        params,
        move.memory,
        carry.dual - move.dual,
        carry.count + 1,
        jnp.logaddexp(carry.log_time, jnp.log(move.factor) - reading.log_scale),
        status,
        jnp.where((carry.first_capped < 0) & move.capped, carry.count, carry.first_capped),
    )
    stopped = eqx.tree_at(lambda c: c.status, carry, status)
    return jax.tree.map(lambda new, old: jnp.where(go, new, old), advanced, stopped)


def _ending(setting: Setting, optimiser: Any, levels: Limits, carry: _Carry, reading: Reading, move: Move) -> Array:
    """The status after this step; the first condition that holds decides."""
    norm = setting.norm(carry.params)
    square = setting.inner(move.displacement, move.displacement)
    lost = optimiser.coordinatewise & jnp.any(reading.weights == 0)
    conditions = (
        (levels.reached(jnp.min(reading.margins), norm, carry.log_time, reading.log_excess), Status.reached_target),
        (jnp.isneginf(reading.log_slope_norm), Status.zero_gradient),
        (jnp.finfo(float).eps * jnp.max(jnp.abs(reading.margins)) > _RESOLUTION, Status.resolution_exhausted),
        (lost, Status.coordinate_underflow),
        (move.diverging | (square > (_LEAP * jnp.maximum(1.0, norm)) ** 2), Status.diverging_step),
        (~jnp.isfinite(square), Status.not_finite),
    )
    status = jnp.asarray(int(Status.running))
    for condition, ending in reversed(conditions):
        status = jnp.where(condition, int(ending), status)
    return status


def _record(setting: Setting, carry: _Carry) -> _Record:
    reading = read(setting, carry.params)
    return _Record(
        carry.count,
        carry.log_time,
        reading.log_excess,
        reading.log_relative_slope,
        setting.norm(carry.params),
        reading.margins,
        reading.weights,
        carry.dual,
        carry.params,
    )
