"""The best lower bound that the dual points of a run can prove together, and which kind of certificate is first.

Weak duality takes any multipliers, so it takes mixtures: of points of mass 1 the mixture whose pull has the least dual norm gives
the best bound. That norm is convex, and a few linear programs with one more cutting plane each minimise it. The bound is that of
`bracket` for the mixture found, so nothing rests on how well the programs were solved.
"""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.optimize import linprog

from ..errors import ArgumentError
from ..norms import Norm
from ..references.bracket import adjoint, bracket
from ..training.trajectory import Trajectory
from .certificates import KINDS, certificates, dual_points

_CUTS = 60
_RECORDS = 25  # whose dual points are mixed: more make the programs longer and the bound hardly better
_ENOUGH = 1e-9  # relative: the solver of the linear programs is not more exact


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


def _lowest(cuts: np.ndarray) -> Any:
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


def _mix(data: Any, points: list[np.ndarray], norm: Norm) -> tuple[np.ndarray, list[np.ndarray]]:
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
