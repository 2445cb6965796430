r"""Clocks: how fast the path of the flow is run through, and the physical time that passes.

The path of gradient flow does not depend on the clock. A clock fixes the arc length covered per unit of its own time; the
physical time t is carried along with every clock, as the number p = t |grad L|, which neither over- nor underflows.
`elapsed` is what the clock itself shows.

With a = log|grad L|, p at the end of a step is $p_0e^{a_1-a_0}$ and the integral of $e^{a_1-a}$ over the length of the path. The integrand is stiff, but its logarithm is smooth, and
known with its derivative at both ends and at the beginning of the step before. One polynomial goes through these numbers over the time of the clock, and another
over log(L - L*), where all of the logarithm but a slow part is a straight line; each knows its error from the next lower degree, and they have to agree.
Extrapolating p with the parameters instead forces steps to resolve single units of log loss until margins pass 1e5.
"""

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
_ULPS = 16  # by which x, a logarithm of a sum, may be wrong
_HEARD = 40.0  # how far the logarithm of an integrand may be below its end
_NODES, _WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(24))
_NODES = _NODES + 0.5
_PLATEAU = 1e3  # lengths over which the leading margin would change by 1: far more than any start off a plateau needs


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


class Curve(eqx.Module):
    """The logarithm of the integrand of p over some x: where it is taken, what it has beyond -log|grad L|, and its slope as a whole."""

    x: Float[Array, ""]
    own: Float[Array, ""]
    slope: Float[Array, ""]


class Pace(eqx.Module):
    """log|grad L| and the speed of the clock at a point, and the integrand of p over the time of the clock and over -log(L - L*)."""

    log_gradient: Float[Array, ""]
    speed: Float[Array, ""]
    by_clock: Curve
    by_excess: Curve


def pace(clock: Clock, start: Origin, here: Motion, progress: Array, elapsed: Array) -> Pace:
    """The pace at a point of the flow, for clocks that ask for the sizes of a reading."""
    reading = here.reading
    sizes = Sizes(reading.log_excess, reading.log_scale, reading.log_slope_norm, here.norm)

    def speed_at(sizes: Sizes, progress: Array, elapsed: Array) -> Array:
        logs = {name: getattr(sizes, name) for name in ("log_excess", "log_scale", "log_slope_norm")}
        return clock.speed(replace(reading, **logs), sizes.norm, progress, elapsed, start)

    speed = speed_at(sizes, progress, elapsed)
    change = jax.tree.map(lambda rate: speed * rate, here.rates)
    rate, fall = change.log_scale + change.log_slope_norm, -change.log_excess
    tangents = (change, rate * progress + speed, jnp.ones(()))
    _, speed_rate = jax.jvp(speed_at, (sizes, progress, elapsed), tangents)
    by_clock = Curve(jnp.asarray(elapsed), jnp.log(speed), speed_rate / speed - rate)
    by_excess = Curve(-reading.log_excess, -reading.log_relative_slope, -(2 * rate + fall) / fall)
    return Pace(reading.log_gradient_norm, speed, by_clock, by_excess)


def _gained(ends: tuple[Curve, Curve, Curve], rises: Array, past: Array) -> tuple[Array, Array]:
    """The integral over a step, and an estimate of its error, where -log|grad L| rises by `rises` from the beginning to the end and by `past` from the earlier point.

    Degrees 2 to 5 in u, from 0 to 1: both ends without and with the slope at the beginning, value and slope of the earlier point. In the last,
    e^-40 of the integrand and more is left out. An error is infinite where x stands still.
    """
    begin, end, earlier = ends
    width = end.x - begin.x
    low, first, last = begin.own - end.own - rises, width * begin.slope, width * end.slope
    at = (earlier.x - begin.x) / width
    seen = (at > -1 / _NEAR) & (at < -_NEAR)
    at = jnp.where(seen, at, -1.0)
    parabola = lambda u: ((low + last) * (1 - u) - last) * (1 - u)
    cubic = lambda u: parabola(u) + (first + 2 * low + last) * u * (1 - u) ** 2
    bump = lambda u: (u * (1 - u)) ** 2
    value, slope = jax.jvp(cubic, (at,), (jnp.ones(()),))
    height = (earlier.own - end.own - past - value) / bump(at)
    tilt = (width * earlier.slope - slope - height * 2 * at * (1 - at) * (1 - 2 * at)) / bump(at)
    part = jnp.minimum(1.0, _HEARD / jnp.abs(low))
    u, weights = 1 - part * _NODES, width * part * _WEIGHTS
    quartic = cubic(u) + height * bump(u)
    curves = jnp.stack([parabola(u), cubic(u), quartic, quartic + tilt * bump(u) * (u - at)])
    rough, plain, finer, finest = jnp.exp(end.own) * (jnp.exp(curves) @ weights)
    miss, less = jnp.abs(plain - rough), jnp.abs(finest - finer)
    found, miss = jnp.where(seen & (less < miss), finest, plain), jnp.where(seen & (less < miss), less, miss)
    rounding = _ULPS * jnp.finfo(float).eps * jnp.abs(end.x) * jnp.exp(end.own + jnp.maximum(low, 0.0))
    known = (width > 0) & jnp.isfinite(found) & jnp.isfinite(miss)
    return jnp.where(known, found, 0.0), jnp.where(known, miss + rounding, jnp.inf)


def advance(progress: Array, before: Pace, after: Pace, earlier: Pace) -> tuple[Array, Array]:
    """p at the end of a step, and an estimate of its error; `earlier` is the pace where the step before began."""
    rises, past = before.log_gradient - after.log_gradient, earlier.log_gradient - after.log_gradient
    both = lambda at: jax.tree.map(lambda *ones: jnp.stack(ones), at.by_clock, at.by_excess)
    found = jax.vmap(_gained, (0, None, None))((both(before), both(after), both(earlier)), rises, past)
    (one, other), (miss, less) = found
    apart, error = jnp.abs(one - other), jnp.minimum(miss, less)
    gained = jnp.where(less < miss, other, one)
    return progress * jnp.exp(-rises) + gained, jnp.where(apart <= miss + less, error, apart)
