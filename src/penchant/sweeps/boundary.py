"""Where a property of training begins: shares with their intervals, maps of them, and a boundary that is refined where it is not decided.

A point of the plane is decided where the interval of its share lies on one side of the level; with a single seed, a deterministic run, the outcome
itself decides. A triangle of points that are not all decided for the same side holds a piece of the boundary: those are refined, and their union,
with the triangles next to them, into which a curved boundary may bulge, is its band.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.interpolate import LinearNDInterpolator

from ..errors import MissingExtra
from ..exhibits import Figure, Line
from .spec import Spec
from .store import EVENT
from .sweep import Runs

_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
_IDLE = 1e-4  # weight of a triangle without boundary: a few points still go where nothing was seen
_SURE = 1 - 1e-9  # a side by interpolation, of points that are all decided for it
_COLUMNS, _ROWS = 60, 400  # of the picture of a band


def holds(event: str, row: Mapping[str, Any]) -> bool | None:
    """Whether 'column > number' or 'column == word' holds of a run; None where it failed or has no such column.

    >>> holds("smallest_margin > 0", {"status": "out_of_steps", "smallest_margin": -1.0}), holds("limit == global", {"limit": "global"})
    (False, True)
    """
    column, comparison, wanted = EVENT.fullmatch(event).groups()  # pyright: ignore[reportOptionalMemberAccess]
    value = row.get(column)
    if value is None or (row.get("status") == "failed" and column != "status"):
        return None
    return bool(_COMPARE[comparison](value, wanted if isinstance(value, str) else float(wanted)))


def share(outcomes: Sequence[bool | None], level: float = 0.95) -> tuple[float, float, float]:
    """How often an event was seen, with the exact binomial interval (Clopper, Pearson).

    >>> [round(end, 3) for end in share([True] * 6)]
    [1.0, 0.541, 1.0]
    """
    seen = [outcome for outcome in outcomes if outcome is not None]
    if not seen:
        return np.nan, 0.0, 1.0
    found = stats.binomtest(sum(seen), len(seen)).proportion_ci(level)
    return sum(seen) / len(seen), float(found.low), float(found.high)


def mean(values: Sequence[float | None], level: float = 0.95) -> tuple[float, float, float]:
    """The mean of finite values with Student's interval, infinite for fewer than two."""
    seen = np.array([value for value in values if value is not None and np.isfinite(value)], float)
    if len(seen) < 2:
        return (float(seen[0]) if len(seen) else np.nan), -np.inf, np.inf
    half = stats.t.ppf((1 + level) / 2, len(seen) - 1) * seen.std(ddof=1) / np.sqrt(len(seen))
    return float(seen.mean()), float(seen.mean() - half), float(seen.mean() + half)


def summary(rows: Sequence[Mapping[str, Any]], by: Sequence[str], measure: str) -> list[dict[str, Any]]:
    """Of every cell of a grid how many runs it has and its share of an event, or the mean of a column, with the 95 % interval."""
    cells: dict[tuple, list] = {}
    for row in rows:
        cells.setdefault(tuple(row.get(name) for name in by), []).append(row)
    event = EVENT.fullmatch(measure)
    told = lambda some: (
        share([holds(measure, row) for row in some]) if event else mean([row.get(measure) for row in some])
    )
    named = ("share" if event else "mean", "low", "high")
    return [
        {**dict(zip(by, cell, strict=True)), "runs": len(some), **dict(zip(named, told(some), strict=True))}
        for cell, some in cells.items()
    ]


class Boundary(NamedTuple):
    """Points of the unit square with the share of the event and its interval there; `axes` say what the square stands for."""

    axes: tuple[dict, dict]
    event: str
    level: float
    points: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int

    def place(self, points: np.ndarray) -> np.ndarray:
        return np.stack([scaled(axis, points[..., k]) for k, axis in enumerate(self.axes)], -1)

    @property
    def side(self) -> np.ndarray:
        """1 above the level, -1 below it, 0 where that is open."""
        return _side(self.share, self.low, self.high, self.level, self.seeds)

    def band(self, columns: np.ndarray | None = None) -> np.ndarray:
        """For columns of the square: where the boundary is by interpolation, and the ends of the band, as shares of the height; nan where there is none."""
        columns = (np.arange(_COLUMNS) + 0.5) / _COLUMNS if columns is None else columns
        inter = LinearNDInterpolator(self.points, np.nan_to_num(self.share, nan=self.level) - self.level)
        triangles, rows = inter.tri, (np.arange(_ROWS) + 0.5) / _ROWS  # pyright: ignore[reportAttributeAccessIssue]
        holding = ~_agreed(self.side[triangles.simplices])
        holding |= (holding[triangles.neighbors] & (triangles.neighbors >= 0)).any(axis=1)
        found = np.full((len(columns), 3), np.nan)
        for k, column in enumerate(columns):
            line = np.stack([np.full(_ROWS, column), rows], -1)
            inside, values = triangles.find_simplex(line), inter(line)
            held = rows[(inside >= 0) & holding[inside]]
            crossing = np.flatnonzero(np.diff(np.sign(values)) != 0)
            if len(held) and len(crossing):
                found[k] = rows[crossing].mean() + 0.5 / _ROWS, held.min() - 0.5 / _ROWS, held.max() + 0.5 / _ROWS
        return found

    def figure(self, name: str) -> Figure:
        """Points by their side, the boundary and its band."""
        columns = (np.arange(_COLUMNS) + 0.5) / _COLUMNS
        where, (x, y), ends = self.place(self.points), self.axes, self.band(columns)
        told = {1: f"{self.event}", -1: "not", 0: "open"}
        lines = [
            Line(text, where[self.side == side, 0], where[self.side == side, 1], "points")
            for side, text in told.items()
            if (self.side == side).any()
        ]
        for text, column in {"boundary": 0, "band": 1, "band, upper end": 2}.items():
            kept = np.isfinite(ends[:, column])
            lines.append(
                Line(
                    text,
                    scaled(x, columns[kept]),
                    scaled(y, ends[kept, column]),
                    "line" if column == 0 else "prediction",
                )
            )
        caption = f"{len(self.points)} points of {self.seeds} runs; the share of `{self.event}` crosses {self.level:g} inside the band."
        return Figure(
            name, f"Where {self.event}", x["key"], y["key"], tuple(lines), caption, x["spacing"], y["spacing"]
        )


def scaled(axis: Mapping[str, Any], shares: np.ndarray) -> np.ndarray:
    """From shares of an axis to its values."""
    if axis["spacing"] == "log":
        return axis["low"] * (axis["high"] / axis["low"]) ** shares
    return axis["low"] + (axis["high"] - axis["low"]) * shares


def _side(share: np.ndarray, low: np.ndarray, high: np.ndarray, level: float, seeds: int) -> np.ndarray:
    if seeds == 1:
        return np.where(np.isnan(share), 0, np.sign(share - level)).astype(int)
    return np.where(low > level, 1, np.where(high < level, -1, 0))


def _agreed(sides: np.ndarray) -> np.ndarray:
    """Whether all corners of a triangle are decided, for one side."""
    return (sides.min(axis=-1) >= _SURE) | (sides.max(axis=-1) <= -_SURE)


def _loss(interpolated: Any) -> np.ndarray:
    """The area of every triangle that holds a piece of the boundary; a point that is asked for and not yet known is between its neighbours."""
    corners = interpolated.tri.simplices
    one, two, three = interpolated.tri.points[corners].transpose(1, 0, 2)
    (a, b), (c, d) = (two - one).T, (three - one).T
    return np.abs(a * d - b * c) * np.where(_agreed(interpolated.values[:, 0][corners]), _IDLE, 1.0)


def _next(points: list, sides: np.ndarray, count: int) -> list:
    """The points that are asked for next, by all that is known."""
    try:
        from adaptive import Learner2D
    except ImportError:
        raise MissingExtra("sweeps", "The refinement of a boundary") from None
    learner = Learner2D(lambda point: point, ((0.0, 1.0), (0.0, 1.0)), loss_per_triangle=_loss)
    learner.tell_many(points, [float(side) for side in sides])
    return learner.ask(count)[0]


def refine(spec: Spec, complete: Callable[[Sequence[dict]], Runs]) -> Runs:
    """Batches of points where triangles are not decided, until the runs of the boundary are spent; all rows, and the `Boundary` they decide."""
    asked, seeds, rows = spec.boundary, len(spec.seeds), []
    axes, most, known = (asked["x"], asked["y"]), asked["runs"] // seeds, np.empty((0, 3))
    boundary, found = (
        Boundary(axes, asked["event"], asked["level"], np.empty((0, 2)), known[:, 0], known[:, 1], known[:, 2], seeds),
        Runs([]),
    )
    while len(boundary.points) < most:
        batch = _next(
            list(map(tuple, boundary.points)), boundary.side, min(asked["batch"], most - len(boundary.points))
        )
        found = complete([spec.row(_values(spec, axes, point), seed) for point in batch for seed in spec.seeds])
        parts = [found.rows[k * seeds : (k + 1) * seeds] for k in range(len(batch))]
        known = np.concatenate([known, [share([holds(asked["event"], row) for row in part]) for part in parts]])
        points = np.concatenate([boundary.points, batch])
        boundary = boundary._replace(points=points, share=known[:, 0], low=known[:, 1], high=known[:, 2])
        rows += found.rows
    return found._replace(rows=rows, refined=boundary)


def _values(spec: Spec, axes: Sequence[Mapping], point: Iterable[float]) -> dict[str, Any]:
    """The keys of a point of the square; whole numbers where a key wants them."""
    values = {axis["key"]: float(scaled(axis, np.array([u]))[0]) for axis, u in zip(axes, point, strict=True)}
    return {key: round(value) if spec.kinds[key] is int else value for key, value in values.items()}
