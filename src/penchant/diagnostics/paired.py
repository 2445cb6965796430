"""Differences of the same thing before and after, one pair per data set: their mean and its Student interval."""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.stats import t as student

from ..errors import ArgumentError


class Paired(eqx.Module):
    """Mean of differences, with its standard error and the number of pairs; `low` and `high` end its 95 % Student interval."""

    mean: float
    error: float
    pairs: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        half = float(student.ppf((1 + level) / 2, self.pairs - 1)) * self.error
        return self.mean - half, self.mean + half

    @property
    def low(self) -> float:
        return self.interval()[0]

    @property
    def high(self) -> float:
        return self.interval()[1]


def paired(before: Any, after: Any) -> Paired:
    """after - before, pair by pair: what all pairs share, such as the luck of a data set, drops out.

    >>> found = paired([3.0, 5.0, 9.0], [2.9, 4.8, 8.7])
    >>> f"{found.mean:.2f} in [{found.low:.3f}, {found.high:.3f}]"
    '-0.20 in [-0.448, 0.048]'
    """
    first, second = np.asarray(before, float), np.asarray(after, float)
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise ArgumentError(
            "after", "paired", "as long as `before`, two numbers or more", f"{first.shape}, {second.shape}"
        )
    gaps = second - first
    return Paired(float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))), len(gaps))
