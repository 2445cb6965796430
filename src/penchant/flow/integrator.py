r"""The stiff integrator: extrapolated linearly implicit Euler of variable order.

Extrapolation over 1, 2, ..., q substeps gives order q with any approximate Jacobian, and its last two columns the error. One compiled step
holds every order: it adds rows until the error is small enough. `spaces` solves its linear systems.
Own code because a general implicit solver has to factorise P x P systems and cannot weigh errors by what margins resolve.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..problem import Reading, smallest_margin
from ..problem import read_once as read  # traced once, however often a step reads
from ..settings.base import Setting
from ..settings.deep_linear import imbalance_constant, imbalances, layered
from .clocks import Clock, Look, Origin, advance, look, pace, steadied
from .spaces import Frozen, Space, blocks, solver

HIGHEST = 8  # order; beyond it extrapolation multiplies rounding by more than it gains
_ROUNDING = 64  # extrapolation multiplies the rounding of a margin by about this
_CLOCK = 1e-3  # error of log(L - L*) that is allowed, times the root of its size where that exceeds 1
_DRIFT = 1e-5  # and of W_k W_k' - W_{k+1}' W_{k+1}, times 1 + D
_FEW = 1000  # numbers in a state, below which compiling costs more than it saves
_MILD = 1.0  # change of log|grad L| that substeps resolve
_PER_ORDER = 100.0  # by which another order may at best reduce an error
_FLAT = 1e-6  # below this change of log|grad L| the exponential quotient is its series to rounding


class State(eqx.Module):
    """A point of the flow: parameters, p = t |grad L| (the physical time in units of the gradient), and the multipliers gathered so far.

    `dual` is the integral of -dL/dmargins over physical time: for weights trained directly, W - W_0 = sum_k dual_k Z_k.
    """

    params: PyTree
    progress: Float[Array, ""]
    dual: Float[Array, "N"]


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


class Point(eqx.Module):
    """A state with what is known of it, from which the next step begins."""

    state: State
    look: Look
    view: View


class Flowing(eqx.Module):
    """What stays the same along a flow: the setting, the clock with the units of the start, and the local errors allowed per step,
    `relative` to the norm (or to `floor`) and `margin` in the differences of the margins that carry weight."""

    setting: Setting
    clock: Clock
    origin: Origin
    relative: Float[Array, ""]
    margin: Float[Array, ""]
    floor: Float[Array, ""]


class Errors(eqx.Module):
    """Error over tolerance of a step at every order, of parameters and time, and the order at which it ended."""

    orders: Float[Array, "q"]
    order: Int[Array, ""]


class _Gain(eqx.Module):
    """What some substeps add: increments, because extrapolation multiplies rounding: that of an increment is small change, that of a state is not.

    `multipliers` are those of the slopes, `v` and `along` stand for those of the solves; the time is that at the end."""

    params: PyTree
    progress: Float[Array, ""]
    multipliers: Float[Array, "N"]
    v: Float[Array, "k"]
    along: Float[Array, ""]


def _extrapolation(highest: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of weights on the results of 1, 2, ... substeps: that of the highest order, and its difference to the next one."""
    values, errors = np.zeros((2, highest, highest))
    for q in range(1, highest + 1):
        for first, sign in ((1, 1.0), (2, -1.0)):
            nodes = np.arange(first, q + 1)
            found = [np.prod([i / (i - m) for m in nodes if m != i]) for i in nodes]
            errors[q - 1, first - 1 : q] += sign * np.asarray(found)
            if first == 1:
                values[q - 1, :q] = found
    return values, errors


_VALUES, _ERRORS = _extrapolation(HIGHEST)


def _axpy(a: float | Array, x: PyTree, y: PyTree) -> PyTree:
    return jax.tree.map(lambda p, q: a * p + q, x, y)


def _mix(weights: Array, columns: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), columns)


def _progress(progress: Array, arc: Array, change: Array) -> Array:
    """p = t |grad L| after an arc over which log|grad L| changed by `change`, exact for constant rates."""
    flat = jnp.abs(change) < _FLAT
    safe = jnp.where(flat, 1.0, change)
    quotient = jnp.where(flat, 1 + change / 2 + change**2 / 6, jnp.expm1(safe) / safe)
    return progress * jnp.exp(change) + arc * quotient


def _substeps(flow: Flowing, space: Space, at: Point, frozen: Frozen, now: Array, h: Array, count: Array) -> _Gain:
    """`count` substeps from a point."""
    setting, state, length = flow.setting, at.state, h / count
    solve = solver(space, setting, state.params, frozen, length)
    steady = frozen.rate * jnp.exp(at.look.reading.log_slope_norm)

    def body(index: Array, carry: tuple[_Gain, Reading]) -> tuple[_Gain, Reading]:
        gain, reading = carry
        norm = setting.norm(reading.params)
        speed = flow.clock.speed(reading, norm, gain.progress, now + index * length, flow.origin)
        speed = steady if hasattr(flow.clock, "steady") else speed
        factor = -length * speed * jnp.exp(-reading.log_slope_norm)
        step, v, along = solve(jax.tree.map(lambda leaf: factor * leaf, reading.slope))
        moved = _axpy(1.0, step, gain.params)
        after = read(setting, _axpy(1.0, moved, state.params))
        progress = _progress(gain.progress, speed * length, after.log_gradient_norm - reading.log_gradient_norm)
        gathered = gain.multipliers - factor * reading.weights
        return _Gain(moved, progress, gathered, gain.v + v, gain.along + along), after

    return jax.lax.fori_loop(0, count, body, (_nothing(at, frozen), at.look.reading))[0]


def _nothing(at: Point, frozen: Frozen) -> _Gain:
    zeros = jax.tree.map(jnp.zeros_like, at.state.params), jnp.zeros_like(at.state.dual), jnp.zeros_like(frozen.heading)
    return _Gain(zeros[0], at.state.progress, zeros[1], zeros[2], jnp.zeros(()))


def unseen(setting: Setting, params: PyTree) -> Point:
    """A start before anything is known of it: a step of length 0 from here looks at it."""
    count = len(jax.eval_shape(setting.margins, params))
    zero, one, ones, none = jax.device_put((np.zeros(()), np.ones(()), np.ones(count), np.zeros(count)))
    reading = Reading(zero, zero, params, none, ones, zero, params)
    curvature = jax.eval_shape(partial(blocks, setting), reading)
    seen = Look(reading, one, jax.device_put(np.zeros(curvature.shape)), zero, zero, one)
    recorded = View(zero, zero, zero, zero, none, ones, zero, jax.device_put(np.ones((), bool)))
    return Point(State(params, zero, none), seen, recorded)


def view(setting: Setting, state: State, seen: Look) -> View:
    """What is recorded of a state."""
    reading, begun = seen.reading, state.progress > 0  # at a critical point both logarithms are -inf
    log_time = jnp.where(begun, jnp.log(jnp.where(begun, state.progress, 1.0)) - reading.log_gradient_norm, -jnp.inf)
    finite = jnp.isfinite(reading.log_excess) & jnp.isfinite(seen.norm) & jnp.isfinite(state.progress)
    finite = finite & jnp.all(jnp.isfinite(reading.margins))
    sizes = log_time, reading.log_excess, reading.log_relative_slope, seen.norm
    return View(*sizes, reading.margins, reading.weights, smallest_margin(setting, reading.margins), finite)


def attempt(
    flow: Flowing, space: Space, at: Point, now: Array, h: Array, least: Array, most: Array
) -> tuple[Point, Errors]:
    """One step of length h from the clock's time `now`, of the first order from `least` to `most` whose error is within the tolerances."""
    reading, norm = at.look.reading, at.look.norm
    speed = flow.clock.speed(reading, norm, at.state.progress, now, flow.origin)
    rate = speed * jnp.exp(-reading.log_slope_norm)
    frozen = space.freeze(flow.setting, at.look.reading, at.look.curvature, rate)
    columns = jax.tree.map(lambda leaf: jnp.zeros((HIGHEST, *leaf.shape)), _nothing(at, frozen))
    nowhere = Errors(jnp.full(HIGHEST, jnp.inf), jnp.zeros((), int))

    def go(carry: tuple[PyTree, Point, Errors]) -> Array:
        errors = carry[2]
        last = errors.orders[errors.order - 1]
        hopeless = last > _PER_ORDER ** (most - errors.order)
        return (errors.order < least) | ((errors.order < most) & (last > 1) & ~hopeless)

    def row(carry: tuple[PyTree, Point, Errors]) -> tuple[PyTree, Point, Errors]:
        columns, found, errors = carry
        order = errors.order + 1
        gain = _substeps(flow, space, at, frozen, now, h, order)
        columns = jax.tree.map(lambda all, one: all.at[order - 1].set(one), columns, gain)
        ended = lambda: _finish(flow, space, at, frozen, columns, now, h, order)
        unended = lambda: (found, Errors(errors.orders, order))
        return columns, *jax.lax.cond(order >= least, ended, unended)

    _, new, errors = jax.lax.while_loop(go, row, (columns, at, nowhere))
    return new, errors


def _finish(
    flow: Flowing, space: Space, at: Point, frozen: Frozen, columns: PyTree, now: Array, h: Array, order: Array
) -> tuple[Point, Errors]:
    """The extrapolated step, and its errors."""
    state, gained = at.state, _mix(jnp.asarray(_VALUES)[order - 1], columns)
    unit_weights = at.look.reading.weights * jnp.exp(-at.look.reading.log_slope_norm)
    corrected = space.multipliers(frozen, gained.v, len(state.dual)) + gained.along * unit_weights
    params, dual = _axpy(1.0, gained.params, state.params), state.dual + gained.multipliers - corrected
    seen = look(flow.setting, params)
    before = pace(flow.clock, flow.origin, at.look, state.progress, now)
    after = pace(flow.clock, flow.origin, seen, gained.progress, now + h)
    if hasattr(flow.clock, "steady"):
        before, after = steadied(before, before.speed), steadied(after, before.speed)
    progress, miss = advance(state.progress, before, after, h)
    # Extrapolated time is finer where log|grad L| changes by little, and wrong without notice where it falls by much: there it is
    # used only where the integral vouches for it.
    rough, miss = jnp.abs(jnp.asarray(_ERRORS) @ columns.progress), jnp.abs(miss)
    mild = jnp.abs(after.log_gradient - before.log_gradient) < _MILD
    finer = mild | ((jnp.abs(gained.progress - progress) <= miss) & (rough[order - 1] < miss))
    progress = jnp.where(finer, gained.progress, progress)
    new = State(params, progress, dual)
    sizes, rounding = _sizes(flow, seen, columns.params)
    # Where terms of the gradient cancel, errors of the margins within their tolerance hide its size, and no step resolves the time.
    allowed = flow.relative + (flow.margin / seen.left) ** 2 + rounding
    times = jnp.where(finer, rough, miss) / (allowed * jnp.abs(progress))
    return Point(new, seen, view(flow.setting, new, seen)), Errors(jnp.maximum(sizes, times), order)


def _sizes(flow: Flowing, seen: Look, columns: PyTree) -> tuple[Array, Array]:
    """Error over tolerance at every order, and the rounding of the margins.

    The direction of motion depends on differences between the margins that carry weight: their error is the standard
    deviation of the margin error under the weights. Rounding is allowed for: no step length can meet a tolerance below it.
    """
    setting, reading = flow.setting, seen.reading
    _, push = jax.linearize(setting.margins, reading.params)
    shares = jnp.abs(reading.weights) / jnp.sum(jnp.abs(reading.weights))
    rounding = _ROUNDING * jnp.finfo(float).eps * jnp.max(jnp.abs(reading.margins))
    scale = jnp.maximum(seen.norm, flow.floor)

    def size(weights: Array) -> Array:
        error = _mix(weights, columns)
        shift = push(error)
        spread = jnp.sqrt(jnp.sum(shares * (shift - jnp.sum(shares * shift)) ** 2))
        length = jnp.sqrt(jnp.maximum(setting.inner(error, error), 0.0))
        return jnp.maximum(length / (flow.relative * scale), spread / (flow.margin + rounding))

    return jax.vmap(size)(jnp.asarray(_ERRORS)), rounding


Form = tuple[Any, tuple]


def split(tree: Any) -> tuple[Form, list]:
    """What a program depends on besides the shapes of arrays, and the arrays."""
    leaves, structure = jax.tree.flatten(tree)
    kept = tuple(None if hasattr(leaf, "dtype") else leaf for leaf in leaves)
    return (structure, kept), [leaf for leaf in leaves if hasattr(leaf, "dtype")]


def _join(form: Form, arrays: list) -> Any:
    rest = iter(arrays)
    return jax.tree.unflatten(form[0], [next(rest) if leaf is None else leaf for leaf in form[1]])


def _program(
    form: Form, arrays: list, at: Point, now: Array, h: Array, least: Array, most: Array
) -> tuple[Point, Errors]:
    flow, space = _join(form, arrays)
    return attempt(flow, space, at, now, h, least, most)


_large = jax.jit(_program, static_argnums=0)
_small = jax.jit(_program, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})


def compiled_step(form: Form, arrays: list, at: Point, *numbers: np.ndarray) -> tuple[Point, Errors]:
    """`attempt`, compiled once per form and shapes, and dispatched without looking into them; where arithmetic is the least of it, compiled in haste."""
    few = len(at.state.dual) + sum(leaf.size for leaf in jax.tree.leaves(at.state.params)) < _FEW
    return (_small if few else _large)(form, arrays, at, *numbers)


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

    def __call__(self, params: PyTree, log_excess: float | Array, elapsed: float) -> float:
        found = [0.0]
        if self.timed:
            error = abs(self.log_excess - float(log_excess) - np.expm1(elapsed))
            found.append(error / clock_bound(log_excess))
        if self.conserved:
            pairs = zip(imbalances(params), self.conserved, strict=True)
            found.append(max(float(np.linalg.norm(now - then, 2)) for now, then in pairs) / self.drift)
        return max(found)
