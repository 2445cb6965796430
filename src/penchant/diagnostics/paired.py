"""Differences of the same thing before and after, one pair per data set: their mean and its Student interval."""

from typing import Any

import numpy as np

from ..errors import ArgumentError
from .intervals import StudentInterval


class Paired(StudentInterval):
    """Mean of differences, with its standard error and the number of pairs; `low` and `high` end its 95 % Student interval."""

    mean: float
    error: float
    pairs: int

    @property
    def centre(self) -> float:
        return self.mean

    @property
    def degrees(self) -> float:
        return self.pairs - 1.0


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
