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
from jaxtyping import Array, Float, PyTree

from ..problem import Reading
from ..problem import read_once as read  # traced once, however often a step reads
from ..settings.base import Setting
from ..settings.deep_linear import imbalance_constant, imbalances, layered
from .clocks import Clock, Origin, advance, pace
from .spaces import Solve, Solver, Space, linearised, weights_near, without

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


class Tolerances(eqx.Module):
    """Local error allowed per step: `relative` to the norm, and `margin` in the differences of the margins that carry weight.

    `order` is the number of extrapolated columns, `space` where the systems of the step are solved: for all margins unless given.
    """

    relative: Float[Array, ""]
    margin: Float[Array, ""]
    floor: Float[Array, ""]
    order: int = eqx.field(static=True, default=4)
    space: Space | None = None


def _axpy(a: float | Array, x: PyTree, y: PyTree) -> PyTree:
    return jax.tree.map(lambda p, q: a * p + q, x, y)


def _all_margins(setting: Setting, params: PyTree, reading: Reading, speed: Array) -> Solver:
    """The solvers of a step, by the length of substeps, with the linearisation at its start."""
    _, push = jax.linearize(setting.margins, params)
    size = jnp.exp(reading.log_slope_norm)
    unit = jax.tree.map(lambda leaf: leaf / size, reading.slope)
    heading = push(unit)
    gram = setting.parametrisation.gram(params, setting.data)
    curvature = without(reading.weights, -jax.jacfwd(weights_near(setting, reading))(reading.margins))
    unit_weights = reading.weights / size
    gram, stiffness = gram - jnp.outer(heading, heading), speed / size

    def solver(h: Array) -> Solve:
        """b -> (I + h c P J' H J)^-1 b, and the multipliers of the correction to b."""
        _, push = jax.linearize(setting.margins, params)
        _, pull = setting.linearise(params)
        factors = jax.scipy.linalg.lu_factor(jnp.eye(len(heading)) / (h * stiffness) + curvature @ gram)

        def solve(b: PyTree) -> tuple[PyTree, Array]:
            z = jax.scipy.linalg.lu_solve(factors, curvature @ push(b))
            along = jnp.vdot(heading, z)
            correction = _axpy(-along, unit, pull(z))
            return _axpy(-1.0, correction, b), -z - along * unit_weights

        return solve

    return solver


def _progress(progress: Array, arc: Array, change: Array) -> Array:
    """p = t |grad L| after an arc over which log|grad L| changed by `change`, exact for constant rates."""
    flat = jnp.abs(change) < _FLAT
    safe = jnp.where(flat, 1.0, change)
    quotient = jnp.where(flat, 1 + change / 2 + change**2 / 6, jnp.expm1(safe) / safe)
    return progress * jnp.exp(change) + arc * quotient


def _substeps(
    setting: Setting, clock: Clock, start: Origin, state: State, solver: Solver, now: Array, h: Array, count: Array
) -> State:
    """`count` substeps from `state`: parameters and multipliers as increments, the time as it stands at the end.

    Increments, because extrapolation multiplies rounding: that of an increment is small change, that of a state is not.
    """
    solve = solver(h / count)

    def body(index: Array, carry: tuple[State, Reading]) -> tuple[State, Reading]:
        gained, reading = carry
        speed = clock.speed(reading, setting.norm(reading.params), gained.progress, now + index * (h / count), start)
        factor = -(h / count) * speed / jnp.exp(reading.log_slope_norm)
        step, corrected = solve(jax.tree.map(lambda leaf: factor * leaf, reading.slope))
        moved = _axpy(1.0, step, gained.params)
        after = read(setting, _axpy(1.0, moved, state.params))
        change = after.log_gradient_norm - reading.log_gradient_norm
        progress = _progress(gained.progress, speed * h / count, change)
        return State(moved, progress, gained.dual - factor * reading.weights + corrected), after

    zero = State(jax.tree.map(jnp.zeros_like, state.params), state.progress, jnp.zeros_like(state.dual))
    return jax.lax.fori_loop(0, count, body, (zero, read(setting, state.params)))[0]


def _extrapolate(columns: State, order: int) -> tuple[State, State]:
    """Aitken-Neville over 1, ..., `order` substeps: the value of highest order, and its difference to the next one."""
    row = [jax.tree.map(lambda leaf, j=j: leaf[j], columns) for j in range(order)]
    value = error = row[-1]
    for i in range(1, order):
        ratios = [(j + 1) / (j + 1 - i) - 1 for j in range(i, order)]
        pairs = zip(row[1:], row[:-1], ratios, strict=True)
        row = [_refine(new, old, ratio) for new, old, ratio in pairs]
        error = jax.tree.map(jnp.subtract, row[-1], value)
        value = row[-1]
    return value, error


def _refine(new: State, old: State, ratio: float) -> State:
    return jax.tree.map(lambda a, b: a + (a - b) / ratio, new, old)


def attempt(
    setting: Setting, clock: Clock, start: Origin, tolerances: Tolerances, state: State, now: Array, h: Array
) -> tuple[State, Array]:
    """One extrapolated step of length h from the clock's time `now`, and its error relative to the tolerances (accept if <= 1)."""
    reading = read(setting, state.params)
    norm = setting.norm(state.params)
    speed = clock.speed(reading, norm, state.progress, now, start)
    if tolerances.space is None:
        solver = _all_margins(setting, state.params, reading, speed)
    else:
        solver = linearised(tolerances.space, setting, reading, speed * jnp.exp(-reading.log_slope_norm))
    counts = jnp.arange(1, tolerances.order + 1)
    columns = jax.lax.map(lambda count: _substeps(setting, clock, start, state, solver, now, h, count), counts)
    gained, error = _extrapolate(columns, tolerances.order)
    new = State(_axpy(1.0, gained.params, state.params), gained.progress, state.dual + gained.dual)
    at = lambda point, time: pace(setting, clock, start, point.params, point.progress, time)
    progress, miss = advance(state.progress, at(state, now), at(new, now + h), h)
    # Extrapolated time is finer where rates hardly change along the step, and wrong without notice where they do: it is
    # used only where collocation vouches for it.
    agree = jnp.abs(new.progress - progress) <= jnp.abs(miss)
    better = ~(agree & (jnp.abs(error.progress) < jnp.abs(miss)))
    new = eqx.tree_at(lambda point: point.progress, new, jnp.where(better, progress, new.progress))
    error = eqx.tree_at(lambda point: point.progress, error, jnp.where(better, miss, error.progress))
    return new, _size(setting, new, error, tolerances)


def _size(setting: Setting, new: State, error: State, tolerances: Tolerances) -> Array:
    """Error over tolerance.

    The direction of motion depends on differences between the margins that carry weight: their error is the standard
    deviation of the margin error under the weights. Rounding is allowed for: no step length can meet a tolerance below it.
    """
    margins, push = jax.linearize(setting.margins, new.params)
    shares = jnp.abs(setting.weigh(margins).weights)
    shares = shares / jnp.sum(shares)
    shift = push(error.params)
    spread = jnp.sqrt(jnp.sum(shares * (shift - jnp.sum(shares * shift)) ** 2))
    rounding = _ROUNDING * jnp.finfo(float).eps * jnp.max(jnp.abs(margins))
    length = jnp.sqrt(jnp.maximum(setting.inner(error.params, error.params), 0.0))
    scale = jnp.maximum(setting.norm(new.params), tolerances.floor)
    parts = (
        length / (tolerances.relative * scale),
        spread / (tolerances.margin + rounding),
        jnp.abs(error.progress) / ((tolerances.relative + rounding) * jnp.abs(new.progress)),
    )
    return jnp.max(jnp.stack(parts))


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
