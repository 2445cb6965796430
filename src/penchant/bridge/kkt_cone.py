"""The cone of the gradients of margins: nearest points by column generation, with bounds that need no trust in a solver."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.optimize import nnls

from ..errors import ArgumentError

_CLOSED, _ROUNDS, _NEW = 1e-10, 300, 64
LARGE = 2.0**40  # times the weights: what falls like the inverse of that is a rounding there
Masks = Sequence[np.ndarray] | None


@runtime_checkable
class Gradients(Protocol):
    """Margins of a network at a point, and products with their gradients. Masks choose a slope at every kink, one row for each margin.

    `homogenised` is the limit of f(s theta) / s^degree for growing s: f at weights so large that nothing of a lower degree is left.
    """

    start: np.ndarray
    samples: np.ndarray  # of which sample each margin is
    unseen: str  # operations with kinks that `kinks` does not know

    def outputs(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...  # and their derivative along theta
    def margins(self, theta: np.ndarray) -> np.ndarray: ...
    def pull(self, theta: np.ndarray, weights: np.ndarray) -> np.ndarray: ...
    def push(self, theta: np.ndarray, along: np.ndarray) -> np.ndarray: ...
    def rows(self, theta: np.ndarray, which: np.ndarray, masks: Masks = None) -> np.ndarray: ...
    def kinks(self, theta: np.ndarray) -> "Kinks | None": ...
    def chosen(
        self, theta: np.ndarray, along: np.ndarray, masks: Sequence[np.ndarray], free: Sequence[np.ndarray], sign: int
    ) -> tuple[np.ndarray, list[np.ndarray]]: ...
    def homogenised(self, degree: int) -> "Gradients": ...


@dataclass(frozen=True)
class Kinks:
    """Where slopes jump: per layer the slope taken (0 or 1) and the distance in parameters to the kink, a row for each margin."""

    masks: list[np.ndarray]
    distances: list[np.ndarray]

    def free(self, radius: float) -> list[np.ndarray]:
        return [one <= radius for one in self.distances]


def _upright(columns: np.ndarray) -> np.ndarray:
    """The same columns up to a rotation, in as few rows as they need."""
    return columns if columns.shape[0] <= columns.shape[1] else np.asarray(np.linalg.qr(columns, mode="r"))


def _cone(rows: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Multipliers of the point of the cone of `rows` that is nearest to `unit`."""
    system = _upright(np.column_stack([rows.T, unit]))
    return nnls(system[:, :-1], system[:, -1], maxiter=50 * len(rows))[0]


def _tangent(rows: np.ndarray, level: float) -> np.ndarray:
    """Multipliers of the shortest w with <rows, w> >= level, as a problem of least distance."""
    system = np.vstack([_upright(rows.T), np.full(len(rows), level)])
    found = nnls(system, np.eye(len(system))[-1], maxiter=50 * len(rows))[0]
    return found / (1 - level * found.sum())


@dataclass(frozen=True)
class Cone:
    """The gradients of all margins at the unit vector, with some kinks free: extreme products, and rows that attain them."""

    network: Gradients
    unit: np.ndarray
    degree: int
    margins: np.ndarray
    kinks: Kinks | None = None
    free: Sequence[np.ndarray] | None = None

    def extreme(self, along: np.ndarray, sign: int) -> tuple[np.ndarray, Masks]:
        """The largest (sign 1) or smallest (-1) product of every margin's gradients with a vector, and the slopes that attain it."""
        if self.kinks is None or self.free is None:
            return self.network.push(self.unit, along), None
        return self.network.chosen(self.unit, along, self.kinks.masks, self.free, sign)

    def rows(self, which: np.ndarray, masks: Masks) -> np.ndarray:
        return self.network.rows(self.unit, which, masks)


def generated(cone: Cone, first: tuple[np.ndarray, np.ndarray], tangent: bool) -> tuple:
    """Rows and multipliers by column generation: solve, look at all margins, add what is violated, drop what carries nothing.

    Returns rows, multipliers, the bounds from below and above, and of which margin each row is.
    """
    which, rows = first
    level = cone.degree * float(cone.margins.min())
    best = (rows, np.zeros(len(rows)), -math.inf, math.inf, which)
    for _ in range(_ROUNDS):
        found = _tangent(rows, level) if tangent else _cone(rows, cone.unit)
        point = found @ rows
        lower, upper, values, masks = _bounds(cone, rows, found, point, level, tangent)
        if upper < best[3] or best[3] == math.inf:
            best = (rows, found, max(lower, best[2]), upper, which)
        elif lower > best[2]:
            best = (*best[:2], lower, *best[3:])
        wrong = (level - values) / level if tangent else values / (np.linalg.norm(cone.unit - point) or 1.0)
        bad = np.flatnonzero(wrong > 1e-11)
        if best[3] - best[2] <= _CLOSED or not len(bad):
            break
        bad = bad[np.argsort(-wrong[bad])[:_NEW]]
        kept = found > 0
        rows, which = np.vstack([rows[kept], cone.rows(bad, masks)]), np.concatenate([which[kept], bad])
    return best


def _bounds(cone: Cone, rows: np.ndarray, found: np.ndarray, point: np.ndarray, level: float, tangent: bool) -> tuple:
    """Bounds that any multipliers give, and the extreme products of all margins: of T, or of the distance to the cone."""
    unit, rest = cone.unit, cone.unit - point
    if tangent:
        values, masks = cone.extreme(point, -1)
        upper = float(rest @ rest) + 2 * float(found @ (rows @ unit - level))
        least = float(values.min())
        lower = 1 - float(point @ point) * (level / least) ** 2 if least > 0 else 0.0
        return lower, upper, values, masks
    values, masks = cone.extreme(rest, 1)
    own, _ = cone.extreme(unit, -1)
    lift = max(0.0, float((values / own).max())) if own.min() > 0 else math.inf
    proof = rest - lift * unit if math.isfinite(lift) else rest
    lower = max(0.0, float(proof @ unit) / float(np.linalg.norm(proof))) if math.isfinite(lift) and proof.any() else 0.0
    return lower, float(np.linalg.norm(rest)), values, masks


def check_labels(labels: np.ndarray, width: int, owner: str) -> None:
    """Labels are -1 and 1 for one output, else classes, one for each sample."""
    if labels.ndim != 1 or not len(labels):
        raise ArgumentError("labels", owner, "one for each sample", f"an array of shape {labels.shape}")
    known = (-1, 1) if width == 1 else range(width)
    bad = [k for k, one in enumerate(labels.tolist()) if one not in known]
    if bad or (width > 1 and labels.dtype.kind not in "iu"):
        classes = f"whole numbers 0 to {width - 1}, one class for each of the {width} outputs"
        required = "-1 and 1 for a network with one output" if width == 1 else classes
        found = f"{labels[bad[0]]} on sample {bad[0]}" if bad else f"numbers of type {labels.dtype}"
        fix = "2 * labels - 1" if width == 1 and set(labels.tolist()) <= {0, 1} else "" if bad else "labels.astype(int)"
        raise ArgumentError("labels", owner, required, found, fix)


def margin_pairs(labels: np.ndarray, width: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Of which sample each margin is, and (sign, output, other output, 1 where there is another): y f, or f_y - f_c for all c other than y."""
    check_labels(labels, width, "kkt")
    count = len(labels)
    if width == 1:
        if len(np.unique(labels)) < 2:
            found = f"{labels[0]} alone"
            raise ArgumentError("labels", "kkt", "-1 and 1, both of them, for a network with one output", found)
        zeros = np.zeros(count, int)
        return np.arange(count), (labels.astype(float), zeros, zeros, np.zeros(count))
    samples = np.repeat(np.arange(count), width - 1)
    others = np.array([c for y in labels.tolist() for c in range(width) if c != y])
    return samples, (np.ones(len(samples)), labels[samples], others, np.ones(len(samples)))
