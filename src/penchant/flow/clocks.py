"""Clocks: how fast the path of the flow is run through.

The path of gradient flow does not depend on the clock. A clock fixes the arc length covered per unit of its own time; the
physical time t is carried along with every clock, as the number p = t |grad L|, which neither over- nor underflows.
`elapsed` is what the clock itself shows.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..problem import Reading

_PLATEAU = 1e3  # lengths over which the leading margin would change by 1: far more than any start off a plateau needs


class RelativeArc(eqx.Module):
    """Moves the logarithm of the norm at unit speed; the clock for astronomical times."""

    def speed(
        self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: "Origin"
    ) -> Float[Array, ""]:
        return norm + origin.length


class LogExcessDrop(eqx.Module):
    """log(L - L*) falls at unit speed. Not for plateaus above the infimum, where it stands still."""

    def speed(
        self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: "Origin"
    ) -> Float[Array, ""]:
        return jnp.exp(-reading.log_relative_slope)


class RelativeDrop(eqx.Module):
    """log(1 + drop of log(L - L*) since the start) moves at unit speed: the clock of laws that are powers of -log R.

    What the excess has really lost by the end of a run, against what this clock says, is a free estimate of the global error.
    The speed follows the clock and not the drop so far: an error in the drop would otherwise feed itself and grow with it.
    """

    def speed(
        self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: "Origin"
    ) -> Float[Array, ""]:
        return jnp.exp(elapsed - reading.log_relative_slope)


class LogTime(eqx.Module):
    """log(1 + t/t_0) moves at unit speed, where t_0 is the time in which the first linear model would lose one unit of log excess."""

    def speed(
        self, reading: Reading, norm: Array, progress: Array, elapsed: Array, origin: "Origin"
    ) -> Float[Array, ""]:
        return progress + jnp.exp(origin.log_time + reading.log_gradient_norm)


class Origin(eqx.Module):
    """The start: arc length and log time over which its linear model loses one unit of log excess."""

    length: Float[Array, ""]
    log_time: Float[Array, ""]


@eqx.filter_jit
def origin(reading: Reading) -> Origin:
    """The scales of a first reading.

    On a plateau above the infimum the excess does not move, and its length would be astronomical; the margins do move.
    """
    length = jnp.minimum(jnp.exp(-reading.log_relative_slope), _PLATEAU * jnp.exp(-reading.log_slope_norm))
    return Origin(length, -reading.log_relative_slope - reading.log_gradient_norm)


Clock = Any  # RelativeArc | LogExcessDrop | RelativeDrop | LogTime: anything with `speed`
