"""What to keep of a run, and when."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import numpy as np

from ..errors import ArgumentError


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
