"""Rates: slopes of fits over a stated window, with an interval over seeds and with how much they still drift."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from scipy.special import stdtrit

from ..errors import ArgumentError


class Rate(eqx.Module):
    """Mean slope over runs with its 95 % Student interval; a single run has no interval."""

    slope: float
    half_width: float
    runs: int

    @property
    def low(self) -> float:
        return self.slope - self.half_width

    @property
    def high(self) -> float:
        return self.slope + self.half_width

    def __str__(self) -> str:
        return f"{self.slope:.4f} ± {self.half_width:.4f}" if self.runs > 1 else f"{self.slope:.4f}"


class Settling(eqx.Module):
    """A rate that tends to a limit: measured in the earlier and in the later half of a window.

    Where the distance to the limit at least halves from one half of the window to the next, as it does for corrections that
    are a power of x but not for corrections like 1/log x, what is still to go is less than the drift between the halves. The
    limit then lies within `reach` of the later rate.
    """

    early: Rate
    late: Rate

    @property
    def reach(self) -> float:
        """Interval over seeds plus the drift between the halves; NaN for a single run, which has no interval."""
        return self.late.half_width + abs(self.late.slope - self.early.slope)

    @property
    def low(self) -> float:
        return self.late.slope - self.reach

    @property
    def high(self) -> float:
        return self.late.slope + self.reach

    def __str__(self) -> str:
        return f"{self.late.slope:.5f} ± {self.reach:.5f}" if self.late.runs > 1 else f"{self.late.slope:.5f}"


def _fit(x: np.ndarray, y: np.ndarray, window: tuple[float, float], owner: str, scale: Callable, log_y: bool) -> float:
    inside = (x >= window[0] * (1 - 1e-9)) & (x <= window[1] * (1 + 1e-9)) & ((y > 0) if log_y else np.isfinite(y))
    if inside.sum() < 3:
        raise ArgumentError("window", owner, "a window with at least 3 records", f"{window} with {inside.sum()}")
    return float(np.polyfit(scale(x[inside]), np.log(y[inside]) if log_y else y[inside], 1)[0])


def log_log_slope(x: np.ndarray, y: np.ndarray, window: tuple[float, float]) -> float:
    """Least-squares slope of log y on log x, over the records with x in the window.

    >>> x = np.geomspace(1, 1e4, 50)
    >>> round(log_log_slope(x, 3 / x**2, (1e2, 1e4)), 12)
    -2.0
    """
    return _fit(x, y, window, "log_log_slope", np.log, log_y=True)


def end_slope(x: np.ndarray, y: np.ndarray, window: tuple[float, float]) -> float:
    """Slope of log y on log x between the two ends of the window, each interpolated in logarithms.

    >>> x = np.geomspace(1, 1e4, 50)
    >>> round(end_slope(x, 3 / x**2, (1e2, 1e4)), 12)
    -2.0
    """
    known = (x > 0) & (y > 0)
    if known.sum() < 2 or window[0] < x[known].min() or window[1] > x[known].max() * (1 + 1e-9):
        found = f"{window}, records from {x[known].min(initial=np.inf):g} to {x[known].max(initial=-np.inf):g}"
        raise ArgumentError("window", "end_slope", "inside the records", found)
    ends = np.log(np.asarray(window))
    return float(np.diff(np.interp(ends, np.log(x[known]), np.log(y[known])))[0] / np.diff(ends)[0])


def log_linear_slope(x: np.ndarray, y: np.ndarray, window: tuple[float, float]) -> float:
    """Least-squares slope of log y on x, over the records with x in the window: the rate of an exponential.

    >>> x = np.linspace(1, 1e3, 50)
    >>> round(log_linear_slope(x, 3 * np.exp(-0.25 * x), (1e1, 1e3)), 12)
    -0.25
    """
    return _fit(x, y, window, "log_linear_slope", lambda x: x, log_y=True)


def linear_slope(x: np.ndarray, y: np.ndarray, window: tuple[float, float]) -> float:
    """Least-squares slope of y on x, over the records with x in the window: for quantities that are logarithms already."""
    return _fit(x, y, window, "linear_slope", lambda x: x, log_y=False)


def rate(slopes: Sequence[float]) -> Rate:
    """Mean and 95 % Student interval of slopes, one per independent run."""
    values = np.asarray(slopes, float)
    n = len(values)
    half = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Rate(float(values.mean()), half, n)


def pooled_rate(series: Sequence[tuple[Any, Any]], window: tuple[float, float]) -> Rate:
    """Slope of the root mean square over runs, with the 95 % interval of leaving out one run after the other (jackknife).

    For quantities whose constant is a signed number of the run's own: where it nearly vanishes a run shows the next term of its expansion, and
    the mean of the slopes belongs to no law. Such runs are short, and the root mean square is that of the others.

    >>> x = np.geomspace(1e2, 1e4, 50)
    >>> found = pooled_rate([(x, c / x + 1 / x**2) for c in (1.0, 2.0, 1.5, 1e-6)], (1e2, 1e4))
    >>> abs(found.slope + 1) < 0.01, abs(rate([log_log_slope(x, 1e-6 / x + 1 / x**2, (1e2, 1e4))]).slope + 1) > 0.9
    (True, True)
    """
    grid = np.linspace(np.log(window[0]), np.log(window[1]), 50)
    logs = np.stack([np.interp(grid, np.log(np.asarray(x)), np.log(np.asarray(y))) for x, y in series])
    slope = lambda rows: float(np.polyfit(grid, np.log(np.mean(np.exp(2 * (rows - logs.max())), axis=0)) / 2, 1)[0])
    n = len(logs)
    if n < 2:
        return Rate(slope(logs), float("nan"), n)
    left_out = np.array([slope(np.delete(logs, k, axis=0)) for k in range(n)])
    deviation = np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2))
    return Rate(slope(logs), float(stdtrit(n - 1, 0.975) * deviation), n)


def settling(
    series: Sequence[tuple[Any, Any]],
    window: tuple[float, float],
    slope: Callable = log_log_slope,
    pool: bool = False,
) -> Settling:
    """The rate of several runs, each a pair (x, y), in both halves of a window (split at the geometric middle); with `pool` that of their root mean square.

    >>> x = np.geomspace(1, 1e4, 200)
    >>> found = settling([(x, (1 + c / x) / x**2) for c in (1.0, 2.0, 3.0)], (1e2, 1e4))
    >>> found.low < -2 < found.high, found.reach < 0.05
    (True, True)
    """
    middle = float(np.sqrt(window[0] * window[1]))
    halves = ((window[0], middle), (middle, window[1]))
    if pool:
        return Settling(*(pooled_rate(series, half) for half in halves))
    early, late = (rate([slope(np.asarray(x), np.asarray(y), half) for x, y in series]) for half in halves)
    return Settling(early, late)
