"""Exponents of a scaling law from repeated measurements, with bootstrap intervals."""

from collections.abc import Mapping

import equinox as eqx
import numpy as np

from ..errors import ArgumentError


class Exponent(eqx.Module):
    """Slope of log(mean) against log(n), and the interval that holds 95 % of the slopes of resampled measurements."""

    slope: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.slope:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


def exponent(values: Mapping[int, np.ndarray], *, resamples: int = 2000, seed: int = 0) -> Exponent:
    """The exponent of the mean of `values[n]` in n; every n has its own independent measurements, all positive.

    >>> rng = np.random.default_rng(0)
    >>> found = exponent({n: rng.exponential(1 / n, 400) for n in (100, 200, 400, 800)})
    >>> found.contains(-1.0), found.high - found.low < 0.2
    (True, True)
    """
    if len(values) < 2:
        raise ArgumentError("values", "exponent", "measurements at two sizes or more", f"{len(values)}")
    sizes = np.log(np.array(list(values), float))
    rng = np.random.default_rng(seed)
    samples = [np.asarray(one, float) for one in values.values()]
    if min(one.min() for one in samples) <= 0:
        raise ArgumentError("values", "exponent", "positive", "a measurement that is not")
    slope = lambda means: float(np.polyfit(sizes, np.log(means), 1)[0])
    drawn = [slope([one[rng.integers(len(one), size=len(one))].mean() for one in samples]) for _ in range(resamples)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Exponent(slope([one.mean() for one in samples]), float(low), float(high))
