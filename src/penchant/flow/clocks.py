r"""Clocks: how fast the path of the flow is run through, and the physical time that passes.

The path of gradient flow does not depend on the clock. A clock fixes the arc length covered per unit of its own time; the
physical time t is carried along with every clock, as the number p = t |grad L|, which neither over- nor underflows.
`elapsed` is what the clock itself shows.

$p = t\,|\nabla L|$ obeys the scalar linear equation $p' = a'p + v$ with $a = \log|\nabla L|$ and v the speed of the clock. Its rate $a'$ is as
large as the margins, so it is as stiff as the flow, but on a finished step everything else is known: a and v are cubics through their values and
derivatives at both ends, and what is left is an integral. Extrapolating p with the
parameters instead forces steps to resolve single units of log loss until margins pass 1e5.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..problem import Reading
from ..problem import read_once as read
from ..settings.base import Setting
from .spaces import blocks, lengths

_PLATEAU = 1e3  # lengths over which the leading margin would change by 1: far more than any start off a plateau needs


class Origin(eqx.Module):
    """The start: arc length and log time over which its linear model loses one unit of log excess."""

    length: Float[Array, ""]
    log_time: Float[Array, ""]


@runtime_checkable
class Clock(Protocol):
    """Anything that knows how fast the weights move in its time: from the logarithms of a reading, the norm, the time so far and its own."""

    def speed(self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: Origin) -> Array: ...


class RelativeArc(eqx.Module):
    """Moves by the norm in a unit of its time; the clock for astronomical times.

    The speed is that at the beginning of each step: a straight path is then straight in the clock too, and exact in one step.
    """

    steady = True  # along a step

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


@eqx.filter_jit
def origin(reading: Reading) -> Origin:
    """The scales of a first reading.

    On a plateau above the infimum the excess does not move, and its length would be astronomical; the margins do move.
    """
    length = jnp.minimum(jnp.exp(-reading.log_relative_slope), _PLATEAU * jnp.exp(-reading.log_slope_norm))
    return Origin(length, -reading.log_relative_slope - reading.log_gradient_norm)


class Look(eqx.Module):
    """What is known of a point: its reading and norm, H by sample, the derivatives of log|grad L| and of the norm by arc along the flow, and what is left
    of the gradient of the sizes of its terms, one per margin. At a minimum the terms cancel; small factors, which make every term small, do not look like one."""

    reading: Reading
    norm: Float[Array, ""]
    curvature: Float[Array, "n b b"]
    log_gradient_change: Float[Array, ""]
    norm_change: Float[Array, ""]
    left: Float[Array, ""]


def look(setting: Setting, params: PyTree) -> Look:
    r"""One evaluation of a point and of its derivative along the flow, whose unit tangent is $u = -\nabla L/|\nabla L|$.

    $|\nabla L|$ falls by $u^\top\nabla^2L\,u$ per unit of arc, and the Hessian is $J^\top HJ$ less what the margins bend.
    """
    reading, norm = read(setting, params), setting.norm(params)
    ahead = jax.tree.map(lambda leaf: -leaf * jnp.exp(-reading.log_slope_norm), reading.slope)
    along = lambda point: jax.jvp(setting.margins, (point,), (ahead,))[1]
    moved, bent = jax.jvp(along, (params,), (ahead,))
    curvature = blocks(setting, reading)
    parts = moved.reshape(curvature.shape[:2])
    falls = jnp.einsum("ni,nij,nj->", parts, curvature, parts) - jnp.vdot(reading.weights, bent)
    away = norm > 0  # the norm has a corner at the origin, which the flow leaves at its own speed
    norm_change = jnp.where(away, setting.inner(ahead, params) / jnp.where(away, norm, 1.0), 1.0)
    left = jnp.exp(reading.log_slope_norm) / jnp.sum(jnp.abs(reading.weights) * lengths(setting, params))
    return Look(reading, norm, curvature, -falls * jnp.exp(-reading.log_slope_norm), norm_change, left)


class Pace(eqx.Module):
    """log|grad L| and the speed of the clock at a point, with their derivatives along the flow in clock time."""

    log_gradient: Float[Array, ""]
    log_gradient_rate: Float[Array, ""]
    speed: Float[Array, ""]
    speed_rate: Float[Array, ""]


def pace(clock: Clock, start: Origin, at: Look, progress: Array, elapsed: Array) -> Pace:
    """The pace at a point of the flow."""
    reading = at.reading

    def speed_at(log_gradient: Array, log_relative: Array, norm: Array, progress: Array, elapsed: Array) -> Array:
        scale = log_gradient - reading.log_slope_norm
        moved = (reading.slope, reading.margins, reading.weights, reading.log_slope_norm, reading.params)
        return clock.speed(Reading(log_gradient - log_relative, scale, *moved), norm, progress, elapsed, start)

    sizes = (reading.log_gradient_norm, reading.log_relative_slope, at.norm, progress, elapsed)
    speed = speed_at(*sizes)
    rate = speed * at.log_gradient_change
    relative = rate + speed * jnp.exp(reading.log_relative_slope)
    tangents = (rate, relative, speed * at.norm_change, rate * progress + speed, jnp.ones(()))
    _, speed_rate = jax.jvp(speed_at, sizes, tangents)
    return Pace(reading.log_gradient_norm, rate, speed, speed_rate)


def steadied(pace: Pace, speed: Array) -> Pace:
    """The pace at another speed that does not change."""
    return Pace(pace.log_gradient, pace.log_gradient_rate * speed / pace.speed, speed, jnp.zeros(()))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_REACH = 40.0  # times longer ago than this many units of log|grad L| are below rounding


def advance(progress: Array, before: Pace, after: Pace, h: Array) -> tuple[Array, Array]:
    r"""p at the end of a step of clock length h, and an estimate of its error.

    $p_1 = p_0e^{a_1-a_0} + \int_0^h v(s)\,e^{a_1-a(s)}ds$ with polynomials a of degree 1, 2 and 3: what the next one would change is
    what the last one changed, times the ratio of the last two changes.
    """
    change = after.log_gradient - before.log_gradient
    slow = jnp.minimum(-after.log_gradient_rate, -change / h)  # where both fall, the far end of the step is forgotten
    width = jnp.minimum(h, _REACH / jnp.maximum(slow, _REACH / h))
    u = 1 - width * (1 - jnp.asarray(_NODES)) / 2 / h
    speed = _cubic(u, before.speed, after.speed, h * before.speed_rate, h * after.speed_rate)
    first, last = h * before.log_gradient_rate, h * after.log_gradient_rate
    third = _cubic(u, before.log_gradient, after.log_gradient, first, last) - after.log_gradient
    second = third - u * (1 - u) ** 2 * (first - 2 * change + last)
    mass = width / 2 * jnp.asarray(_WEIGHTS) * speed
    rest = progress * jnp.exp(change)
    low, middle, high = (rest + jnp.sum(mass * jnp.exp(-a)) for a in ((u - 1) * change, second, third))
    coarse, fine = jnp.abs(middle - low), jnp.abs(high - middle)
    return high, fine * jnp.minimum(1.0, fine / jnp.where(coarse > 0, coarse, 1.0))


def _cubic(u: Array, first: Array, last: Array, rate_first: Array, rate_last: Array) -> Array:
    """Through two values and two derivatives, on [0, 1]."""
    ends = (1 + 2 * u) * (1 - u) ** 2 * first + u**2 * (3 - 2 * u) * last
    return ends + u * (1 - u) * ((1 - u) * rate_first - u * rate_last)
