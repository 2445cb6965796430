r"""The stiff integrator: extrapolated linearly implicit Euler, solved in margin space.

The loss depends on the parameters only through the N margins, so the stiff part of the Jacobian of the flow has rank N however
many parameters there are: it is $-c\,P J^\top H J$ with J the Jacobian of the margins, $H = -\partial\,\text{weights}/\partial\,\text{margins}$, c the ratio of
speed to slope and P the projection off the direction of motion. The Woodbury identity then needs one N x N solve.
Extrapolation over 1, 2, ..., q substeps gives order q with any approximate Jacobian, and its last two columns the error.
Own code because a general implicit solver has to factorise P x P systems and cannot weigh errors by what margins resolve.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..problem import Reading, smallest_margin
from ..settings.base import Setting
from ..settings.deep_linear import imbalance_constant, imbalances, layered
from .clocks import Clock, Motion, Origin, Pace, advance, motion, pace, slim_reading
from .spaces import Solver, Space, linearised

MOST = 8  # columns
_ROUNDING = 64  # extrapolation multiplies the rounding of a margin by about this
_CLOCK = 1e-3  # error of log(L - L*) that is allowed, times the root of its size where that exceeds 1
_DRIFT = 1e-5  # and of W_k W_k' - W_{k+1}' W_{k+1}, times 1 + D
_FLAT = 1e-6  # below this change of log|grad L| the exponential quotient is its series to rounding


class State(eqx.Module):
    """A point of the flow: parameters, p = t |grad L| (the physical time in units of the gradient), and the multipliers gathered so far.

    `dual` is the integral of -dL/dmargins over physical time: for weights trained directly, W - W_0 = sum_k dual_k Z_k.
    """

    params: PyTree
    progress: Float[Array, ""]
    dual: Float[Array, "N"]


class Task(eqx.Module):
    """What is integrated, in which clock, and how well: local error per step relative to the norm, and in the differences of the margins that carry
    weight; the highest order."""

    setting: Setting
    clock: Clock
    tolerance: Float[Array, ""]
    margin_tolerance: Float[Array, ""]
    order: Int[Array, ""]


class Place(eqx.Module):
    """Where a step begins: a point, what is known of it, what the clock shows; the units of the flow, and the norm below which no error is relative.

    `rest` is what rounding has kept from the parameters so far: thousands of steps lose no more than one.
    `earlier` is the pace at the beginning of the step before.
    """

    state: State
    rest: PyTree
    motion: Motion
    clock: Float[Array, ""]
    origin: Origin
    floor: Float[Array, ""]
    earlier: Pace


class Step(eqx.Module):
    """Where a step leads, what is known there, and the error over the tolerances: of its order, and of the order below.

    One that ends against the motion it began with has gone across a minimum, which no flow does: its error is infinite.
    `left` is the size of the slope where it begins over the sum of the sizes of its terms, one per margin: at a minimum they cancel.
    """

    state: State
    rest: PyTree
    motion: Motion
    begin: Pace
    error: Float[Array, ""]
    rough: Float[Array, ""]
    left: Float[Array, ""]


def _axpy(a: float | Array, x: PyTree, y: PyTree) -> PyTree:
    return jax.tree.map(lambda p, q: a * p + q, x, y)


def _progress(progress: Array, arc: Array, change: Array) -> Array:
    """p = t |grad L| after an arc over which log|grad L| changed by `change`, exact for constant rates."""
    flat = jnp.abs(change) < _FLAT
    safe = jnp.where(flat, 1.0, change)
    quotient = jnp.where(flat, 1 + change / 2 + change**2 / 6, jnp.expm1(safe) / safe)
    return progress * jnp.exp(change) + arc * quotient


def _substeps(task: Task, here: Place, solver: Solver, h: Array, count: Array) -> State:
    """`count` substeps from `state`: parameters and multipliers as increments, the time as it stands at the end.

    Increments, because extrapolation multiplies rounding: that of an increment is small change, that of a state is not.
    """
    setting, state, solve = task.setting, here.state, solver(h / count)

    def body(index: Array, carry: tuple[State, Reading]) -> tuple[State, Reading]:
        gained, reading = carry
        norm = setting.norm(_axpy(1.0, gained.params, state.params))
        now = here.clock + index * (h / count)
        speed = task.clock.speed(reading, norm, gained.progress, now, here.origin)
        factor = -(h / count) * speed / jnp.exp(reading.log_slope_norm)
        step, corrected = solve(jax.tree.map(lambda leaf: factor * leaf, reading.slope))
        moved = _axpy(1.0, step, gained.params)
        after = slim_reading(setting, _axpy(1.0, moved, state.params))
        change = after.log_gradient_norm - reading.log_gradient_norm
        progress = _progress(gained.progress, speed * h / count, change)
        return State(moved, progress, gained.dual - factor * reading.weights + corrected), after

    zero = State(jax.tree.map(jnp.zeros_like, state.params), state.progress, jnp.zeros_like(state.dual))
    return jax.lax.fori_loop(0, count, body, (zero, here.motion.reading))[0]


def _neville(first: int, last: int) -> np.ndarray:
    """What extrapolation to length 0 makes of the columns with `first` to `last` substeps: their factors in the value."""
    counts = np.arange(first, last + 1.0)
    apart = counts[:, None] - counts + np.eye(len(counts))
    found = np.zeros(MOST)
    found[first - 1 : last] = np.prod(np.where(np.eye(len(counts)) > 0, 1.0, counts[:, None] / apart), axis=1)
    return found


def _factors(order: int) -> np.ndarray:
    """Of the value of an order, of its difference to the next lower one, and of that difference one order below."""
    if order < 2:
        return np.zeros((3, MOST))
    value = _neville(1, order)
    below = np.zeros(MOST) if order < 3 else _neville(1, order - 1) - _neville(2, order - 1)
    return np.stack([value, value - _neville(2, order), below])


_TABLE = np.stack([_factors(order) for order in range(MOST + 1)])


def _columns(task: Task, here: Place, solver: Solver, h: Array, order: Int[Array, ""]) -> State:
    """The state after 1, 2, ..., `order` substeps, and zeros."""

    def fill(index: Array, columns: State) -> State:
        found = _substeps(task, here, solver, h, index + 1)
        return jax.tree.map(lambda column, one: column.at[index].set(one), columns, found)

    return jax.lax.fori_loop(0, order, fill, jax.tree.map(lambda leaf: jnp.zeros((MOST, *leaf.shape)), here.state))


def attempt(task: Task, here: Place, space: Space | None, h: Array, order: Int[Array, ""]) -> Step:
    """One step of length h, of an order from 2 to 8; with order 0 the point itself, read."""
    setting, clock, state = task.setting, task.clock, here.state
    begin = pace(clock, here.origin, here.motion, state.progress, here.clock)
    solver, lengths = linearised(setting, state.params, here.motion.reading, begin.speed, space)
    columns = _columns(task, here, solver, h, order)
    extrapolate = lambda row: jax.tree.map(lambda leaf: jnp.tensordot(row, leaf, 1), columns)
    gained, error, rough = (extrapolate(row) for row in jnp.asarray(_TABLE)[order])
    moved = _axpy(1.0, gained.params, here.rest)
    params = _axpy(1.0, moved, state.params)
    rest = jax.tree.map(lambda whole, new, old: whole - (new - old), moved, params, state.params)
    there = motion(setting, params)
    end = pace(clock, here.origin, there, gained.progress, here.clock + h)
    progress, miss = advance(state.progress, begin, end, here.earlier)
    # Extrapolated time is finer where rates hardly change along the step, and wrong without notice where they do: it is
    # used only where the other two, which agree, vouch for it.
    vouched = (jnp.abs(gained.progress - progress) <= miss) & (jnp.abs(error.progress) < miss)
    progress = jnp.where(order > 0, jnp.where(vouched, gained.progress, progress), state.progress)
    new = State(params, progress, state.dual + gained.dual)
    missed = lambda one: jnp.where(vouched, one.progress, miss)
    reading = here.motion.reading
    left = jnp.exp(reading.log_slope_norm) / jnp.sum(jnp.abs(reading.weights) * lengths)
    fine, coarse = (_size(task, here.floor, new, there, one.params, missed(one), left) for one in (error, rough))
    back = setting.inner(there.reading.slope, reading.slope) < 0
    return Step(new, rest, there, begin, jnp.where(back, jnp.inf, fine), coarse, left)


def _size(task: Task, floor: Array, new: State, there: Motion, error: PyTree, miss: Array, left: Array) -> Array:
    """Error over tolerance.

    The direction of motion depends on differences between the margins that carry weight: their error is the standard
    deviation of the margin error under the weights, times what is `left` of the terms of the slope where they may cancel at a minimum. Rounding is allowed for: no step length can meet a tolerance below it.
    A clock that foretells log(L - L*) is checked by it to the tolerance, where the norm's part would allow as much of it as a fraction of itself.
    Time depends on the rate of the slope, which loses more where the slope is only what is `left` of the sizes of its terms: its square, as a quadratic form.
    """
    reading = there.reading
    _, shift = jax.jvp(task.setting.margins, (new.params,), (error,))
    shares = jnp.abs(reading.weights)
    shares = shares / jnp.sum(shares)
    spread = jnp.sqrt(jnp.sum(shares * (shift - jnp.sum(shares * shift)) ** 2))
    ulp = jnp.finfo(float).eps * jnp.max(jnp.abs(reading.margins))
    rounding = _ROUNDING * ulp
    excess = jnp.exp(reading.log_scale - reading.log_excess) * jnp.vdot(reading.weights, shift)
    known = jnp.where(smallest_margin(task.setting, reading.margins) > 0, 1.0, left)
    length = jnp.sqrt(jnp.maximum(task.setting.inner(error, error), 0.0))
    scale = jnp.maximum(there.norm, floor)
    parts = (
        length / (task.tolerance * scale),
        spread / (task.margin_tolerance * known + rounding),
        jnp.abs(miss) / ((task.tolerance + rounding / left**2) * jnp.abs(new.progress)),
        jnp.abs(excess) / (task.tolerance + ulp) if hasattr(task.clock, "checks") else jnp.zeros(()),
    )
    return jnp.max(jnp.stack(parts))


class Record(eqx.Module):
    """What is kept of a point of the flow."""

    steps: Int[Array, "*k"]
    clock: Float[Array, "*k"]
    log_time: Float[Array, "*k"]
    log_excess: Float[Array, "*k"]
    log_slope: Float[Array, "*k"]
    norm: Float[Array, "*k"]
    margin: Float[Array, "*k"]
    margins: Float[Array, "*k N"]
    weights: Float[Array, "*k N"]
    dual: Float[Array, "*k N"]
    params: PyTree


def clock_bound(log_excess: float | Array) -> float:
    """How far log(L - L*) may be from what the clock `RelativeDrop` says."""
    return float(_CLOCK * np.sqrt(max(1.0, abs(float(log_excess)))))


def drift_bound(start: PyTree) -> float:
    """How far the conserved matrices of a deep linear network may drift."""
    return _DRIFT * (1 + imbalance_constant(start))


class Accuracy:
    """How far the integration has left what the exact flow keeps: the larger of clock error and conservation drift over their bounds; 0 where a flow has neither."""

    def __init__(self, setting: Setting, clock: Clock, params: PyTree, log_excess: float | Array):
        self.timed, self.log_excess = hasattr(clock, "checks"), float(log_excess)
        self.conserved = imbalances(params) if layered(setting) else []
        self.drift = drift_bound(params) if self.conserved else np.inf

    def within(self, records: Record, bound: float) -> int:
        """How many of the records come before the first that is farther than `bound`."""
        found = (self.at(jax.tree.map(lambda leaf, k=k: leaf[k], records)) for k in range(len(records.steps)))
        return next((k for k, lost in enumerate(found) if lost > bound), len(records.steps))

    def at(self, record: Record) -> float:
        found = [0.0]
        if self.timed:
            error = abs(self.log_excess - float(record.log_excess) - np.expm1(float(record.clock)))
            found.append(error / clock_bound(record.log_excess))
        if self.conserved:
            pairs = zip(imbalances(record.params), self.conserved, strict=True)
            found.append(max(float(np.linalg.norm(now - then, 2)) for now, then in pairs) / self.drift)
        return max(found)
