"""A run certifies itself: bounds on the best norm from its own weights and multipliers, at every record."""

import dataclasses

import equinox as eqx
import numpy as np

from ..norms import Norm
from ..references.base import Solution
from ..references.bracket import Bracket, bracket
from ..training.trajectory import Trajectory

KINDS = ("accumulated", "window", "instant")
_WINDOW = 0.8  # the window of multipliers begins where the margin was margin^0.8


class Certificates(eqx.Module):
    """Bounds per record. `upper` = norm / margin (infinite before the margin is positive); lower bounds from the multipliers
    `accumulated` since the start, in the `window` since the margin was margin^0.8, and at this `instant`."""

    margin: np.ndarray
    upper: np.ndarray
    accumulated: np.ndarray
    window: np.ndarray
    instant: np.ndarray

    @property
    def lower(self) -> np.ndarray:
        """The best lower bound of each record."""
        return np.maximum(np.maximum(self.accumulated, self.window), self.instant)

    def gap(self, kind: str) -> np.ndarray:
        """upper/lower - 1 with the lower bounds of one kind; infinite while one side is missing (not separating yet)."""
        lower = getattr(self, kind)
        return np.where(lower > 0, self.upper / np.where(lower > 0, lower, 1.0) - 1, np.inf)


def certificates(run: Trajectory, norm: Norm) -> Certificates:
    """Bounds on min ||W|| subject to margins >= 1 from the run alone; no solver is involved."""
    rows = []
    for record in range(len(run)):
        found = brackets(run, norm, record)
        rows.append((found["instant"].upper, *(found[kind].lower for kind in KINDS)))
    return Certificates(run.smallest_margin(), *np.array(rows).T)


def brackets(run: Trajectory, norm: Norm, record: int = -1) -> dict[str, Bracket]:
    """The brackets of one record, by the multipliers that prove their lower bounds: `accumulated`, `window`, `instant`."""
    record = range(len(run))[record]
    data, weight = run.setting.data, run.weight(record)
    return {kind: bracket(data, weight, dual, norm) for kind, dual in zip(KINDS, dual_points(run, record), strict=True)}


def dual_points(run: Trajectory, record: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multipliers gathered since the start, in the window and at the moment of a record."""
    window = run.dual[record] - run.dual[_window_start(run.smallest_margin(), record)]
    return run.dual[record], window, run.weights[record]


def certified(run: Trajectory, norm: Norm, reference: Solution | None = None) -> Trajectory:
    """The run with its bounds in `account`, one entry per record, so that they are saved with it.

    `upper`, `accumulated`, `window`, `instant`, and with a reference also `excess`, the distance of `upper` from the optimum
    the solver found, relative to it.
    """
    found = certificates(run, norm)
    bounds = {name: getattr(found, name) for name in ("upper", *KINDS)}
    if reference is not None:
        bounds["excess"] = found.upper / reference.value - 1
    return dataclasses.replace(run, account={**(run.account or {}), **bounds})


def _window_start(margin: np.ndarray, record: int) -> int:
    if margin[record] <= 1:
        return 0
    return int(np.flatnonzero(margin[: record + 1] <= margin[record] ** _WINDOW)[-1:].sum())
