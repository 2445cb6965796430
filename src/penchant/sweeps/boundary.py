"""Where a property of training begins: shares with their intervals, maps of them, and a boundary that is refined where it is not decided.

A point of the plane is decided where the interval of its share lies on one side of the level; with a single seed, a deterministic run, the outcome
itself decides. A triangle of points that are not all decided for the same side holds a piece of the boundary: those are refined. The band of single
runs is their union with the triangles next to them, into which a curved boundary may bulge. The band of shares is where the interval, interpolated
between the points, holds the level, and all of a triangle with corners decided for both sides, within which nothing is known.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.interpolate import LinearNDInterpolator

from ..errors import ArgumentError, MissingExtra
from ..exhibits import Figure, Line
from .spec import SPEC, Spec
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
    return bool(_COMPARE[comparison](value, wanted if type(value) is str else float(wanted)))


def check_column(rows: Sequence[Mapping[str, Any]], measure: str) -> None:
    """Raise where none of the runs has what an event or a mean is about."""
    event, done = EVENT.fullmatch(measure), [row for row in rows if row.get("status") != "failed"]
    name, columns = event[1] if event else measure, sorted({name for row in done for name in row})
    if done and name not in columns:
        raise ArgumentError("measure" if not event else "event", SPEC, f"about one of {', '.join(columns)}", repr(name))


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
    check_column(rows, measure)
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


Axes = tuple[dict, dict]


class Boundary(NamedTuple):
    """Points of the unit square with the share of the event and its interval there; `axes` say what the square stands for."""

    axes: Axes
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
        if self.seeds == 1:
            return np.where(np.isnan(self.share), 0, np.sign(self.share - self.level)).astype(int)
        return np.where(self.low > self.level, 1, np.where(self.high < self.level, -1, 0))

    def band(self, columns: np.ndarray | None = None) -> np.ndarray:
        """For columns of the square: where the boundary is by interpolation, and the ends of the band, as shares of the height; nan where there is none."""
        columns = (np.arange(_COLUMNS) + 0.5) / _COLUMNS if columns is None else columns
        shares = np.stack([np.nan_to_num(self.share, nan=self.level), self.low, self.high], -1)
        inter = LinearNDInterpolator(self.points, shares - self.level)
        triangles, rows = inter.tri, (np.arange(_ROWS) + 0.5) / _ROWS  # pyright: ignore[reportAttributeAccessIssue]
        holding = self._holding(triangles)
        found = np.full((len(columns), 3), np.nan)
        for k, column in enumerate(columns):
            line = np.stack([np.full(_ROWS, column), rows], -1)
            inside, (values, low, high) = triangles.find_simplex(line), inter(line).T
            straddles = (low <= 0) & (high >= 0) & (self.seeds > 1)
            held = rows[(inside >= 0) & (holding[inside] | straddles)]
            crossing = np.flatnonzero(np.diff(np.sign(values)) != 0)
            if len(held) and len(crossing):
                found[k] = rows[crossing].mean() + 0.5 / _ROWS, held.min() - 0.5 / _ROWS, held.max() + 0.5 / _ROWS
        return found

    def _holding(self, triangles: Any) -> np.ndarray:
        """The triangles that belong to the band as a whole: two corners decided otherwise; of single runs all that are not decided, and those next to them."""
        sides, beside = self.side[triangles.simplices], triangles.neighbors
        if self.seeds > 1:
            return (sides.min(axis=1) < 0) & (sides.max(axis=1) > 0)
        return ~_agreed(sides) | (~_agreed(sides)[beside] & (beside >= 0)).any(axis=1)

    def lines(self) -> tuple[Line, ...]:
        """The boundary and the ends of its band."""
        columns, (x, y) = (np.arange(_COLUMNS) + 0.5) / _COLUMNS, self.axes
        ends = self.band(columns)
        kept = np.isfinite(ends[:, 0])
        styles = {"boundary": "line", "band, lower end": "prediction", "band, upper end": "prediction"}
        return tuple(
            Line(text, scaled(x, columns[kept]), scaled(y, ends[kept, k]), style)
            for k, (text, style) in enumerate(styles.items())
        )

    def figure(self, name: str) -> Figure:
        """Points by their side, the boundary and its band."""
        where, (x, y), told = self.place(self.points), self.axes, {1: f"{self.event}", -1: "not", 0: "open"}
        points = tuple(
            Line(text, where[self.side == side, 0], where[self.side == side, 1], "points")
            for side, text in told.items()
            if (self.side == side).any()
        )
        caption = f"{len(self.points)} points, {self.seeds} run{'s' * (self.seeds > 1)} each; the share of `{self.event}` crosses {self.level:g} inside the band."
        scales = x["spacing"], y["spacing"]
        return Figure(name, f"Where {self.event}", x["key"], y["key"], points + self.lines(), caption, *scales)


def of_cells(cells: Sequence[Mapping[str, Any]], axes: Axes, event: str, level: float = 0.5) -> Boundary:
    """The boundary that the shares of an event in these cells decide."""
    points = np.array([[unscaled(axis, cell[axis["key"]]) for axis in axes] for cell in cells]).reshape(-1, 2)
    known = np.array([[cell[name] for name in ("share", "low", "high")] for cell in cells]).reshape(-1, 3).T
    return Boundary(axes, event, level, points, *known, seeds=min((cell["runs"] for cell in cells), default=1))


def scaled(axis: Mapping[str, Any], shares: np.ndarray) -> np.ndarray:
    """From shares of an axis to its values."""
    if axis["spacing"] == "log":
        return axis["low"] * (axis["high"] / axis["low"]) ** shares
    return axis["low"] + (axis["high"] - axis["low"]) * shares


def unscaled(axis: Mapping[str, Any], value: float) -> float:
    """From a value of an axis to its share."""
    ends = np.array([axis["low"], axis["high"], value], float)
    low, high, place = np.log(ends) if axis["spacing"] == "log" else ends
    return round(float((place - low) / (high - low)), 12)  # corners are corners


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
    asked, seeds, found, spent = spec.boundary, len(spec.seeds), Runs([]), 0
    most, rows = asked["runs"] // seeds, {}
    boundary = of_cells([], (asked["x"], asked["y"]), asked["event"], asked["level"])
    while spent < most:
        count = min(max(1, asked["batch"] // seeds), most - spent)
        batch = _next(list(map(tuple, boundary.points)), boundary.side, count)
        wanted = [spec.row(values, seed) for values in map(partial(_values, spec), batch) for seed in spec.seeds]
        found = complete(wanted)
        rows |= zip(map(str, wanted), found.rows, strict=True)  # of whole numbers a point may come again
        cells = summary(list(rows.values()), [axis["key"] for axis in boundary.axes], asked["event"])
        boundary = of_cells(cells, boundary.axes, asked["event"], asked["level"])
        spent += count
    return found._replace(rows=list(rows.values()), refined=boundary)


def _values(spec: Spec, point: Iterable[float]) -> dict[str, Any]:
    """The keys of a point of the square; whole numbers where a key wants them."""
    axes = (spec.boundary["x"], spec.boundary["y"])
    values = {axis["key"]: float(scaled(axis, np.array([u]))[0]) for axis, u in zip(axes, point, strict=True)}
    return {key: round(value) if spec.kinds[key] is int else value for key, value in values.items()}
