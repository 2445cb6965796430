"""The categories of an answer, and a bracket held against the optimum."""

from fractions import Fraction

import mpmath
import numpy as np

RIGHT, ERROR, ACCEPTED = "right", "typed error", "junk accepted"
UNDECIDED, UNCHECKED = "undecided", "unchecked"
WRONG, TRACEBACK, ENDLESS = "wrong", "traceback", "no end"
BAD = (WRONG, TRACEBACK, ENDLESS)
NARROW = 1e-6  # relative width of a bracket that counts as a number


class Bounds:
    def __init__(self, lower, upper):
        self.lower, self.upper = lower, upper


def held(found, low, high, power=1):
    """A bracket against an optimum, raised to `power`, between low and high; None: there is no feasible point."""
    lower, upper = float(found.lower), float(found.upper)
    text = f"[{lower!r}, {upper!r}]"
    if low is None:
        return (UNDECIDED, text) if upper == np.inf else (WRONG, f"{text} where no weight is feasible")
    exactly = mpmath.mpf if isinstance(low, mpmath.mpf) else Fraction
    below = lower <= 0 or (lower < np.inf and exactly(lower) ** power <= high)
    above = upper == np.inf or (upper >= 0 and exactly(upper) ** power >= low)
    if not (below and above):
        return WRONG, f"{text} without the optimum {float(low) ** (1 / power)!r}, by {_beyond(found, low, power):.0e}"
    narrow = upper - lower <= NARROW * abs(upper) and upper < np.inf
    return RIGHT if narrow else UNDECIDED, text


def _beyond(found, low, power):
    """By which share of the optimum the worse bound lies on its wrong side, with as many digits as that takes."""
    with mpmath.workdps(50):
        best = mpmath.mpf(low) if isinstance(low, mpmath.mpf) else mpmath.mpf(low.numerator) / low.denominator
        root = mpmath.root(best, power)
        return float(max(found.lower - root, root - found.upper) / (root or 1))
