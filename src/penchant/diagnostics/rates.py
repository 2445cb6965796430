"""Rates: slopes of log-log fits over a stated window, with confidence intervals over seeds."""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from scipy.stats import t as student

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


def log_log_slope(x: np.ndarray, y: np.ndarray, window: tuple[float, float]) -> float:
    """Least-squares slope of log y on log x, over the records with x in the window.

    >>> x = np.geomspace(1, 1e4, 50)
    >>> round(log_log_slope(x, 3 / x**2, (1e2, 1e4)), 12)
    -2.0
    """
    inside = (x >= window[0] * (1 - 1e-9)) & (x <= window[1] * (1 + 1e-9)) & (y > 0)
    if inside.sum() < 3:
        raise ArgumentError(
            "window", "log_log_slope", "a window with at least 3 records", f"{window} with {inside.sum()}"
        )
    return float(np.polyfit(np.log(x[inside]), np.log(y[inside]), 1)[0])


def rate(slopes: Sequence[float]) -> Rate:
    """Mean and 95 % Student interval of slopes, one per independent run."""
    values = np.asarray(slopes, float)
    n = len(values)
    half = float(student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Rate(float(values.mean()), half, n)
