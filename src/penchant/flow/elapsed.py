r"""Physical time along a step of the flow.

$p = t\,|\nabla L|$ obeys the scalar linear equation $p' = a'p + v$ with $a = \log|\nabla L|$ and v the speed of the clock. Its rate $a'$ is as
large as the margins, so it is as stiff as the flow, but on a finished step everything else is known: a and v are cubics through their values and
derivatives at both ends, and two Radau collocations (orders 5 and 3) solve the rest. Extrapolating p with the
parameters instead forces steps to resolve single units of log loss until margins pass 1e5.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..problem import read_once as read
from ..settings.base import Setting
from .clocks import Clock, Origin


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
    _, speed_rate = jax.jvp(lambda *at: clock.speed(*at, start), (reading, norm, progress, elapsed), tangents)
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


def _collocate(method: Any, progress: Array, before: Pace, after: Pace, h: Array) -> Array:
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
