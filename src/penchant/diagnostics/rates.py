"""Rates: slopes of fits over a stated window, exponents and paired differences, with Student intervals and with how much they still drift."""

from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import numpy as np
from scipy.special import stdtrit

from ..errors import ArgumentError

Window = tuple[float, float]
Series = Sequence[tuple[np.ndarray, np.ndarray]]


class Interval(eqx.Module):
    """An estimate with the half width of its 95 % Student interval; NaN for a single measurement, which has none."""

    centre: float
    half_width: float

    @property
    def low(self) -> float:
        return self.centre - self.half_width

    @property
    def high(self) -> float:
        return self.centre + self.half_width

    def __str__(self) -> str:
        return f"{self.centre:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Rate(Interval):
    """Mean slope over runs with its interval."""

    runs: int

    @property
    def slope(self) -> float:
        return self.centre

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


def _fit(x: np.ndarray, y: np.ndarray, window: Window, owner: str, scale: Callable, log_y: bool) -> float:
    inside = (x >= window[0] * (1 - 1e-9)) & (x <= window[1] * (1 + 1e-9)) & ((y > 0) if log_y else np.isfinite(y))
    if inside.sum() < 3:
        raise ArgumentError("window", owner, "a window with at least 3 records", f"{window} with {inside.sum()}")
    return float(np.polyfit(scale(x[inside]), np.log(y[inside]) if log_y else y[inside], 1)[0])


def log_log_slope(x: np.ndarray, y: np.ndarray, window: Window) -> float:
    """Least-squares slope of log y on log x, over the records with x in the window."""
    return _fit(x, y, window, "log_log_slope", np.log, log_y=True)


def linear_slope(x: np.ndarray, y: np.ndarray, window: Window) -> float:
    """Least-squares slope of y on x, over the records with x in the window: for quantities that are logarithms already."""
    return _fit(x, y, window, "linear_slope", lambda x: x, log_y=False)


def rate(slopes: Sequence[float]) -> Rate:
    """Mean and 95 % Student interval of slopes, one per independent run."""
    values = np.asarray(slopes, float)
    n = len(values)
    half = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Rate(float(values.mean()), half, n)


def pooled_rate(series: Series, window: Window) -> Rate:
    """Slope of the root mean square over runs, with the 95 % interval of leaving out one run after the other (jackknife).

    For quantities whose constant is a signed number of the run's own: where it nearly vanishes a run shows the next term of its expansion, and
    the mean of the slopes belongs to no law. Such runs are short, and the root mean square is that of the others.
    """
    grid = np.linspace(np.log(window[0]), np.log(window[1]), 50)
    logs = np.stack([np.interp(grid, np.log(x), np.log(y)) for x, y in series])
    slope = lambda rows: float(np.polyfit(grid, np.log(np.mean(np.exp(2 * (rows - logs.max())), axis=0)) / 2, 1)[0])
    n = len(logs)
    if n < 2:
        return Rate(slope(logs), float("nan"), n)
    left_out = np.array([slope(np.delete(logs, k, axis=0)) for k in range(n)])
    deviation = np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2))
    return Rate(slope(logs), float(stdtrit(n - 1, 0.975) * deviation), n)


def settling(series: Series, window: Window, slope: Callable = log_log_slope, pool: bool = False) -> Settling:
    """The rate of several runs, each a pair (x, y), in both halves of a window (split at the geometric middle); with `pool` that of their root mean square."""
    middle = float(np.sqrt(window[0] * window[1]))
    halves = ((window[0], middle), (middle, window[1]))
    if pool:
        return Settling(*(pooled_rate(series, half) for half in halves))
    return Settling(*(rate([slope(x, y, half) for x, y in series]) for half in halves))


def exponent(values: Mapping[int, np.ndarray]) -> Interval:
    """The exponent in n of the mean of `values[n]`; every n has its own independent measurements, all positive.

    Standard errors of the log means are by the jackknife, the degrees of freedom of their weighted sum by Welch and Satterthwaite:
    the interval covers with three measurements of each size, where resampling them would not.
    """
    if len(values) < 2:
        raise ArgumentError("values", "exponent", "measurements at two sizes or more", f"{len(values)}")
    samples = [np.asarray(one, float) for one in values.values()]
    few = {n: len(one) for n, one in zip(values, samples, strict=True) if len(one) < 2}
    if few:
        raise ArgumentError("values", "exponent", "two measurements or more of each size", f"{few}")
    if not all((one > 0).all() and np.isfinite(one).all() for one in samples):
        raise ArgumentError("values", "exponent", "positive and finite", "a measurement that is not")
    sizes = np.log(np.array(list(values), float))
    weights = (sizes - sizes.mean()) / np.sum((sizes - sizes.mean()) ** 2)
    slope = float(weights @ np.log([one.mean() for one in samples]))
    parts = weights**2 * np.array([_log_mean_variance(one) for one in samples])
    total, counts = float(parts.sum()), np.array([len(one) for one in samples])
    freedom = total**2 / float(np.sum(parts**2 / (counts - 1))) if total > 0 else float(counts.sum() - len(counts))
    return Interval(slope, float(stdtrit(freedom, 0.975) * np.sqrt(total)) if total > 0 else 0.0)


def _log_mean_variance(one: np.ndarray) -> float:
    """The variance of log(mean), by leaving out one measurement at a time."""
    count = len(one)
    left = np.log((one.sum() - one) / (count - 1))
    return float((count - 1) / count * np.sum((left - left.mean()) ** 2))
