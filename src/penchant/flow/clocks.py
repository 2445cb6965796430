r"""Clocks: how fast the path of the flow is run through, and the physical time that passes.

The path of gradient flow does not depend on the clock. A clock fixes the arc length covered per unit of its own time; the
physical time t is carried along with every clock, as the number p = t |grad L|, which neither over- nor underflows.
`elapsed` is what the clock itself shows.

$p = t\,|\nabla L|$ obeys the scalar linear equation $p' = a'p + v$ with $a = \log|\nabla L|$ and v the speed of the clock. Its rate $a'$ is as
large as the margins, so it is as stiff as the flow, but on a finished step everything else is known: a and v are cubics through their values and
derivatives at both ends, and two Radau collocations (orders 5 and 3) solve the rest. Extrapolating p with the
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


@eqx.filter_jit
def origin(reading: Reading) -> Origin:
    """The scales of a first reading.

    On a plateau above the infimum the excess does not move, and its length would be astronomical; the margins do move.
    """
    length = jnp.minimum(jnp.exp(-reading.log_relative_slope), _PLATEAU * jnp.exp(-reading.log_slope_norm))
    return Origin(length, -reading.log_relative_slope - reading.log_gradient_norm)


class Pace(eqx.Module):
    """log|grad L| and the speed of the clock at a point, with their derivatives along the flow in clock time."""

    log_gradient: Float[Array, ""]
    log_gradient_rate: Float[Array, ""]
    speed: Float[Array, ""]
    speed_rate: Float[Array, ""]


def pace(setting: Setting, clock: Clock, start: Origin, params: PyTree, progress: Array, elapsed: Array) -> Pace:
    """The pace at a point of the flow."""
    reading, norm = read(setting, params), setting.norm(params)
    speed = clock.speed(reading, norm, progress, elapsed, start)
    tangent = jax.tree.map(lambda leaf: -(speed / jnp.exp(reading.log_slope_norm)) * leaf, reading.slope)
    _, change = jax.jvp(lambda point: read(setting, point), (params,), (tangent,))
    away = norm > 0  # the norm has a corner at the origin, which the flow leaves at its own speed
    norm_rate = jnp.where(away, setting.inner(tangent, params) / jnp.where(away, norm, 1.0), speed)
    rate = change.log_gradient_norm
    tangents = (change, norm_rate, rate * progress + speed, jnp.ones(()))
    speed_at = lambda reading, norm, progress, elapsed: clock.speed(reading, norm, progress, elapsed, start)
    _, speed_rate = jax.jvp(speed_at, (reading, norm, progress, elapsed), tangents)
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


_METHODS = (_radau(3), _radau(2))


def _collocate(method: tuple[np.ndarray, np.ndarray], progress: Array, before: Pace, after: Pace, h: Array) -> Array:
    nodes, matrix = (jnp.asarray(part) for part in method)
    u = nodes
    change = after.log_gradient - before.log_gradient
    rate = (
        6 * u * (1 - u) * change / h
        + (1 - u) * (1 - 3 * u) * before.log_gradient_rate
        + u * (3 * u - 2) * after.log_gradient_rate
    )
    speed = (
        (1 + 2 * u) * (1 - u) ** 2 * before.speed
        + u**2 * (3 - 2 * u) * after.speed
        + h * u * (1 - u) * ((1 - u) * before.speed_rate - u * after.speed_rate)
    )
    slopes = jnp.linalg.solve(jnp.eye(len(u)) - h * rate[:, None] * matrix, rate * progress + speed)
    return progress + h * (matrix[-1] @ slopes)


def advance(progress: Array, before: Pace, after: Pace, h: Array) -> tuple[Array, Array]:
    """p at the end of a step of clock length h, and an estimate of its error."""
    found, rough = (_collocate(method, progress, before, after, h) for method in _METHODS)
    return found, found - rough
