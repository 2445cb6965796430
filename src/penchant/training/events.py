"""When to stop, shared by descent and flow: the first of the given levels to be crossed ends the run.

What to keep of a run, and when.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..errors import ArgumentError


class MarginAbove(eqx.Module):
    """The smallest margin reaches `level`."""

    level: float


class NormAbove(eqx.Module):
    """The norm of the weights reaches `level`."""

    level: float


class LogTimeAbove(eqx.Module):
    """log t reaches `level`, where t is the sum of the multipliers of the loss gradient (for the flow: physical time)."""

    level: float


class LogExcessBelow(eqx.Module):
    """log(L - L*) falls to `level`."""

    level: float


class DirectionSettled(eqx.Module):
    """The direction turns by less than `level` (an angle) while the norm doubles, and a margin has reached 10 in size. Flow only.

    Before that the multipliers are all alike and the direction stands still wherever it started.
    """

    level: float


class Stalled(eqx.Module):
    """The smallest margin falls to -`level`: some sample attends to a token that is not best up to e^-level. Flow only.

    The loss then stands on a plateau above its infimum, and no physical time below e^level changes that.
    """

    level: float = 1e3


class Inaccurate(eqx.Module):
    """The integration has lost what the exact flow keeps: `level` times what is allowed. Flow only.

    Allowed are, in the clock `RelativeDrop`, a clock error of 1e-3 max(1, sqrt(-log R)), and in deep linear networks a conservation drift of
    1e-5 (1 + D), with D the constant that measures how far the start is from balanced.
    """

    level: float = 1.0


class Limits(eqx.Module):
    """The levels as arrays, infinite where there is none."""

    margin: Float[Array, ""]
    norm: Float[Array, ""]
    log_time: Float[Array, ""]
    log_excess: Float[Array, ""]
    turn: Float[Array, ""]
    stall: Float[Array, ""]
    inaccuracy: Float[Array, ""]

    def reached(self, margin: ArrayLike, norm: ArrayLike, log_time: ArrayLike, log_excess: ArrayLike) -> ArrayLike:
        return (
            (margin >= self.margin)
            | (norm >= self.norm)
            | (log_time >= self.log_time)
            | ((log_excess <= self.log_excess) & (self.log_excess > -jnp.inf))
        )


Event = MarginAbove | NormAbove | LogTimeAbove | LogExcessBelow | DirectionSettled | Stalled | Inaccurate
_LEVELS: dict[type, tuple[str, float]] = {  # the field of `Limits`, and its value without an event
    MarginAbove: ("margin", np.inf),
    NormAbove: ("norm", np.inf),
    LogTimeAbove: ("log_time", np.inf),
    LogExcessBelow: ("log_excess", -np.inf),
    DirectionSettled: ("turn", 0.0),
    Stalled: ("stall", np.inf),
    Inaccurate: ("inaccuracy", np.inf),
}
DECIDED = DirectionSettled(5e-5), Stalled()
"""Where a flow ends that was not told: as margins grow like the norm, twice this angle is left to turn, less than 1 - corr = 1e-8, which no verdict asks for."""
_TOP = 1e12  # rounding moves margins of this size by 1e-4, and the multipliers are exponentials of them


@lru_cache(maxsize=256, typed=True)
def number(value: float | int | tuple[float, ...]) -> Array:
    """On the device, once and without a program for each constant."""
    return jax.device_put(np.asarray(value))


def events(until: Event | Iterable[Event] | None) -> tuple[Event, ...]:
    """One event, several or none, as a tuple."""
    return () if until is None else tuple(until) if isinstance(until, Iterable) else (until,)


def limits(until: Event | Iterable[Event] | None) -> Limits:
    """Levels of one event or of several."""
    levels = dict(_LEVELS.values())
    for event in events(until):
        if type(event) not in _LEVELS:
            raise ArgumentError("until", "train", f"one of {', '.join(kind.__name__ for kind in _LEVELS)}", repr(event))
        name, _ = _LEVELS[type(event)]
        if not np.isfinite(event.level):
            raise ArgumentError("level", type(event).__name__, "finite", event.level)
        if name == "margin" and event.level > _TOP:
            fix = "margins beyond it have lost the differences that decide the direction"
            raise ArgumentError("level", "MarginAbove", f"at most {_TOP:g} in float64", f"{event.level:g}", fix)
        levels[name] = event.level
    return Limits(**{name: number(float(level)) for name, level in levels.items()})


def flow_only(levels: Limits) -> bool:
    """Whether an event is among them that only the flow can watch for."""
    return bool((levels.turn > 0) | np.isfinite(levels.stall) | np.isfinite(levels.inaccuracy))


@runtime_checkable
class Recorder(Protocol):
    """When to look at a run of so many steps."""

    def schedule(self, steps: int) -> np.ndarray: ...


class LogSpaced(eqx.Module):
    """About `points` records, evenly spaced in the logarithm of the step count, with step 0 and the last step."""

    points: int = eqx.field(static=True, default=100)

    def schedule(self, steps: int) -> np.ndarray:
        if self.points < 2:
            raise ArgumentError("points", "LogSpaced", "at least 2", self.points)
        if steps == 0:
            return np.zeros(1, int)
        return np.unique(np.concatenate([[0, steps], np.geomspace(1, steps, self.points).round()]).astype(int))


class Every(eqx.Module):
    """A record every `interval` steps, with step 0 and the last step."""

    interval: int = eqx.field(static=True, default=1)

    def schedule(self, steps: int) -> np.ndarray:
        if self.interval < 1:
            raise ArgumentError("interval", "Every", "at least 1", self.interval)
        return np.unique(np.append(np.arange(0, steps + 1, self.interval), steps))


class At(eqx.Module):
    """Records at the given steps, with step 0 and the last step."""

    steps: tuple[int, ...] = eqx.field(static=True)

    def schedule(self, steps: int) -> np.ndarray:
        wanted = np.asarray(self.steps, int)
        if len(wanted) and (wanted.min() < 0 or wanted.max() > steps):
            raise ArgumentError("steps", "At", f"between 0 and {steps}, the length of the run", self.steps)
        return np.unique(np.concatenate([[0], wanted, [steps]]))
