r"""Clocks: how fast the path of the flow is run through, and the physical time that passes.

The path of gradient flow does not depend on the clock. A clock fixes the arc length covered per unit of its own time; the
physical time t is carried along with every clock, as the number p = t |grad L|, which neither over- nor underflows.
`elapsed` is what the clock itself shows.

$p = t\,|\nabla L|$ obeys the scalar linear equation $p' = a'p + v$ with $a = \log|\nabla L|$ and v the speed of the clock. Its rate $a'$ is as
large as the margins, so it is as stiff as the flow, but on a finished step everything else is known: a and v are polynomials through their values and
derivatives at both ends, and two Radau collocations (orders 5 and 3) solve the rest; where these vouch for it, one of order 7 that also knows the
beginning of the step before, with the distance to one of order 5 that knows less of it. Extrapolating p with the
parameters instead forces steps to resolve single units of log loss until margins pass 1e5.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..problem import Reading
from ..problem import read_once as read
from ..settings.base import Setting

_NEAR = 0.1  # of a step: an earlier point closer than this says nothing new, and one farther than its inverse nothing of this step
_PLATEAU = 1e3  # lengths over which the leading margin would change by 1: far more than any start off a plateau needs


Point = tuple[Array, Array]


class Origin(eqx.Module):
    """The start: arc length and log time over which its linear model loses one unit of log excess."""

    length: Float[Array, ""]
    log_time: Float[Array, ""]


@runtime_checkable
class Clock(Protocol):
    """Anything that knows how fast the weights move in its time."""

    def speed(self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: Origin) -> Array: ...


class RelativeArc(eqx.Module):
    """Moves the logarithm of the norm at unit speed; the clock for astronomical times."""

    def speed(self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: Origin) -> Array:
        return norm + origin.length


class LogExcessDrop(eqx.Module):
    """log(L - L*) falls at unit speed. Not for plateaus above the infimum, where it stands still."""

    def speed(self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: Origin) -> Array:
        return jnp.exp(-reading.log_relative_slope)


class RelativeDrop(eqx.Module):
    """log(1 + drop of log(L - L*) since the start) moves at unit speed: the clock of laws that are powers of -log R.

    What the excess has really lost by the end of a run, against what this clock says, is a free estimate of the global error.
    The speed follows the clock and not the drop so far: an error in the drop would otherwise feed itself and grow with it.
    """

    checks = True  # what the excess has lost against this clock is an estimate of the error

    def speed(self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: Origin) -> Array:
        return jnp.exp(elapsed - reading.log_relative_slope)


class LogTime(eqx.Module):
    """log(1 + t/t_0) moves at unit speed, where t_0 is the time in which the first linear model would lose one unit of log excess."""

    def speed(self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: Origin) -> Array:
        return progress + jnp.exp(origin.log_time + reading.log_gradient_norm)


def origin(reading: Reading) -> Origin:
    """The scales of a first reading.

    On a plateau above the infimum the excess does not move, and its length would be astronomical; the margins do move.
    """
    length = jnp.minimum(jnp.exp(-reading.log_relative_slope), _PLATEAU * jnp.exp(-reading.log_slope_norm))
    return Origin(length, -reading.log_relative_slope - reading.log_gradient_norm)


def slim_reading(setting: Setting, params: PyTree) -> Reading:
    """A reading without what only rules with steps ask for."""
    return replace(read(setting, params), params=None, signed=None)


class Sizes(eqx.Module):
    """The logarithms of a reading and the norm of its parameters; or how they change."""

    log_excess: Float[Array, ""]
    log_scale: Float[Array, ""]
    log_slope_norm: Float[Array, ""]
    norm: Float[Array, ""]


class Motion(eqx.Module):
    """A point of the flow: its reading, its norm, and how all sizes change per unit of length along the flow."""

    reading: Reading
    norm: Float[Array, ""]
    rates: Sizes


def motion(setting: Setting, params: PyTree) -> Motion:
    """What the clocks need to know of a point."""
    reading, norm = slim_reading(setting, params), setting.norm(params)
    tangent = jax.tree.map(lambda leaf: -leaf * jnp.exp(-reading.log_slope_norm), reading.slope)
    _, change = jax.jvp(lambda point: slim_reading(setting, point), (params,), (tangent,))
    away = norm > 0  # the norm has a corner at the origin, which the flow leaves at its own speed
    growth = jnp.where(away, setting.inner(tangent, params) / jnp.where(away, norm, 1.0), 1.0)
    return Motion(reading, norm, Sizes(change.log_excess, change.log_scale, change.log_slope_norm, growth))


class Pace(eqx.Module):
    """log|grad L| and the speed of the clock at a point, with their derivatives along the flow in clock time."""

    log_gradient: Float[Array, ""]
    log_gradient_rate: Float[Array, ""]
    speed: Float[Array, ""]
    speed_rate: Float[Array, ""]


def pace(clock: Clock, start: Origin, here: Motion, progress: Array, elapsed: Array) -> Pace:
    """The pace at a point of the flow, for clocks that ask for the sizes of a reading."""
    reading = here.reading
    sizes = Sizes(reading.log_excess, reading.log_scale, reading.log_slope_norm, here.norm)

    def speed_at(sizes: Sizes, progress: Array, elapsed: Array) -> Array:
        logs = {name: getattr(sizes, name) for name in ("log_excess", "log_scale", "log_slope_norm")}
        return clock.speed(replace(reading, **logs), sizes.norm, progress, elapsed, start)

    speed = speed_at(sizes, progress, elapsed)
    change = jax.tree.map(lambda rate: speed * rate, here.rates)
    rate = change.log_scale + change.log_slope_norm
    tangents = (change, rate * progress + speed, jnp.ones(()))
    _, speed_rate = jax.jvp(speed_at, (sizes, progress, elapsed), tangents)
    return Pace(reading.log_gradient_norm, rate, speed, speed_rate)


def _radau(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and matrix of the Radau IIA collocation: the roots of P_s - P_{s-1} on [0, 1], integrated Lagrange polynomials.

    All roots are real and simple, as of any sum of two neighbours in a family of orthogonal polynomials; NumPy from 2.5 on
    returns them as complex numbers.
    """
    series = np.zeros(stages + 1)
    series[-1], series[-2] = 1.0, -1.0
    nodes = (np.sort(np.polynomial.legendre.legroots(series).real) + 1) / 2
    nodes[-1] = 1.0
    powers = np.arange(stages)
    integrals = nodes[:, None] ** (powers + 1) / (powers + 1)
    return nodes, integrals @ np.linalg.inv(nodes[:, None] ** powers)


def _stacked(stages: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, matrices and last rows of several collocations, filled up to the size of the largest: what is filled in counts nowhere."""
    most = max(stages)
    nodes, matrices, last = (
        np.ones((len(stages), most)),
        np.zeros((len(stages), most, most)),
        np.zeros((len(stages), most)),
    )
    for row, count in enumerate(stages):
        nodes[row, :count], matrices[row, :count, :count] = _radau(count)
        last[row, :count] = matrices[row, count - 1, :count]
    return nodes, matrices, last


_PLANS = ((3, 0), (2, 0), (4, 2), (3, 2), (3, 1))  # stages, and how many numbers of the earlier pace are known


def _curve(points: list[Point], at: Array, known: Array) -> tuple[Callable, Callable]:
    """Value and derivative of the polynomial through two points at 0 and 1, with derivatives, and as many numbers as are `known` of an earlier one."""
    (a, da), (b, db), earlier = points
    value = lambda u: (1 + 2 * u) * (1 - u) ** 2 * a + u**2 * (3 - 2 * u) * b + u * (1 - u) * ((1 - u) * da - u * db)
    slope = lambda u: 6 * u * (1 - u) * (b - a) + (1 - u) * (1 - 3 * u) * da + u * (3 * u - 2) * db
    bump, bend = lambda u: (u * (1 - u)) ** 2, lambda u: 2 * u * (1 - u) * (1 - 2 * u)
    height = jnp.where(known > 0, (earlier[0] - value(at)) / bump(at), 0.0)
    tilt = jnp.where(known > 1, (earlier[1] - slope(at) - height * bend(at)) / bump(at), 0.0)
    corrected = lambda u: value(u) + bump(u) * (height + tilt * (u - at))
    return corrected, lambda u: slope(u) + bend(u) * (height + tilt * (u - at)) + bump(u) * tilt


def advance(
    progress: Array, before: Pace, after: Pace, h: Array, earlier: Pace, gap: Float[Array, ""]
) -> tuple[Array, Array]:
    """p at the end of a step of clock length h, and an estimate of its error; `earlier` is the pace a time `gap` before the step."""
    paces = (before, after, earlier)
    logs = [(pace.log_gradient, h * pace.log_gradient_rate) for pace in paces]
    speeds = [(pace.speed, h * pace.speed_rate) for pace in paces]
    seen = (gap > _NEAR * h) & (_NEAR * gap < h)
    at, known = -jnp.where(seen, gap / h, 1.0), jnp.array([[count] for _, count in _PLANS])
    u, matrix, last = (jnp.asarray(part) for part in _stacked(tuple(stages for stages, _ in _PLANS)))
    rate, speed = _curve(logs, at, known)[1](u) / h, _curve(speeds, at, known)[0](u)
    system, right = jnp.eye(u.shape[1])[None] - h * rate[..., None] * matrix, rate * progress + speed
    slopes = jnp.linalg.solve(system, right[..., None])[..., 0]
    plain, rough, fine, middle, coarse = progress + h * jnp.sum(last * slopes, axis=1)
    miss, less = jnp.abs(plain - rough), jnp.abs(fine - middle) + jnp.abs(middle - coarse)
    better = seen & (less < miss) & (jnp.abs(fine - plain) <= miss)
    return jnp.where(better, fine, plain), jnp.where(better, less, miss)
