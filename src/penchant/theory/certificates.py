"""A run certifies itself: bounds on the best norm from its own weights and multipliers, at every record.

Weak duality takes any multipliers, so it takes mixtures: of points of mass 1 the mixture whose pull has the least dual norm gives
the best bound. That norm is convex, and a few linear programs with one more cutting plane each minimise it. The bound is that of
`bracket` for the mixture found, so nothing rests on how well the programs were solved.
"""

import dataclasses

import equinox as eqx
import numpy as np
from scipy.optimize import OptimizeResult, linprog

from ..errors import ArgumentError
from ..norms import Norm
from ..references.base import Solution
from ..references.bracket import Bracket, adjoint, bracket
from ..settings.base import Data
from ..training.trajectory import Trajectory

KINDS = ("accumulated", "window", "instant")
_WINDOW = 0.8  # the window of multipliers begins where the margin was margin^0.8


_CUTS = 60
_RECORDS = 25  # whose dual points are mixed: more make the programs longer and the bound hardly better
_ENOUGH = 1e-9  # relative: the solver of the linear programs is not more exact


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

    @property
    def best_upper(self) -> np.ndarray:
        """The smallest upper bound up to each record."""
        return np.minimum.accumulate(self.upper)

    @property
    def best_lower(self) -> np.ndarray:
        """The largest lower bound up to each record."""
        return np.maximum.accumulate(self.lower)

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


def least_pull(pulls: np.ndarray, norm: Norm) -> np.ndarray:
    """Shares of sum 1 for which the mixture of the pulls has the least dual norm, by cutting planes."""
    touching = getattr(norm, "touching", None)
    if touching is None:
        raise ArgumentError(
            "norm", "least_pull", "one that knows its touching weights, such as L1()", type(norm).__name__
        )
    size = lambda shares: norm.dual(np.tensordot(shares, pulls, 1))
    unit, best = max(norm.dual(pull) for pull in pulls), np.eye(len(pulls))[int(np.argmin([*map(norm.dual, pulls)]))]
    rows, now = [], best
    for _ in range(_CUTS):
        pull = np.tensordot(now, pulls, 1)
        rows.append(np.array([np.vdot(touching(pull), one) for one in pulls]) / unit)
        found = _lowest(np.stack(rows))
        if not found.success:
            break
        now = np.maximum(found.x[:-1], 0.0)
        now = now / now.sum()
        if size(now) < size(best):
            best = now
        if size(best) / unit - found.fun <= _ENOUGH * size(best) / unit:
            break
    return best


def _lowest(cuts: np.ndarray) -> OptimizeResult:
    """Minimise the largest of the cuts over the shares; the last variable is that largest value."""
    count, size = cuts.shape
    cost, ones = np.append(np.zeros(size), 1.0), np.append(np.ones(size), 0.0)
    rows, bounds = np.column_stack([cuts, -np.ones(count)]), [(0.0, None)] * size + [(None, None)]
    return linprog(cost, rows, np.zeros(count), ones[None], 1.0, bounds, method="highs")


def mixture(run: Trajectory, norm: Norm, record: int = -1) -> np.ndarray:
    """Multipliers: the mixture of a run's dual points up to a record whose lower bound is the largest (of long runs, of 25 records)."""
    last = range(len(run))[record]
    points = [point for k in _spread(last + 1) for point in dual_points(run, k)]
    return _mix(run.setting.data, points, norm)[0]


def _spread(count: int) -> list[int]:
    """At most 25 of the records, the first and the last among them."""
    return sorted({int(k) for k in np.linspace(0, count - 1, min(count, _RECORDS)).round()})


def _mix(data: Data, points: list[np.ndarray], norm: Norm) -> tuple[np.ndarray, list[np.ndarray]]:
    """The best mixture, and the points that it is made of."""
    active = data.constrained()
    clipped = np.where(active, np.maximum(np.stack(points), 0.0), 0.0)
    clipped = clipped[clipped.any(axis=1)]
    if not len(clipped):
        return np.zeros(len(active)), []
    clipped = clipped / clipped.sum(axis=1, keepdims=True)
    shares = least_pull(np.stack([np.asarray(adjoint(data, point)) for point in clipped]), norm)
    return shares @ clipped, list(clipped[shares > 0])


class Race(eqx.Module):
    """Per kind of certificate the smallest margin with a certified relative gap of at most each level; infinite where none is."""

    levels: tuple[float, ...]
    margins: dict[str, np.ndarray]

    def first(self, level: int) -> str:
        """The kinds that reach a level at the smallest margin, or 'none'."""
        least = min(found[level] for found in self.margins.values())
        return ", ".join(kind for kind, found in self.margins.items() if found[level] <= least < np.inf) or "none"


def race(run: Trajectory, norm: Norm, levels: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)) -> Race:
    """When each kind of certificate first proves each relative gap, with the best bounds of its kind so far; `mixed` is `mixture`."""
    found, data = certificates(run, norm), run.setting.data
    lower = {kind: np.maximum.accumulate(getattr(found, kind)) for kind in KINDS}
    mixed, kept = np.zeros(len(run)), []
    for k in _spread(len(run)):  # what an earlier mixture has left out is not tried again
        best, kept = _mix(data, [*kept, *dual_points(run, k)], norm)
        mixed[k] = bracket(data, run.weight(k), best, norm).lower
    lower["mixed"] = np.maximum.accumulate(np.maximum(mixed, found.lower))

    def reached(bound: np.ndarray) -> np.ndarray:
        gap = np.where(bound > 0, found.best_upper / np.where(bound > 0, bound, 1.0) - 1, np.inf)
        hits = [np.flatnonzero(gap <= level)[:1] for level in levels]
        return np.array([found.margin[hit[0]] if len(hit) else np.inf for hit in hits])

    return Race(levels, {kind: reached(bound) for kind, bound in lower.items()})
