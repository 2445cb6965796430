"""Exponents of a scaling law from repeated measurements, with intervals that hold for few of them."""

from collections.abc import Mapping

import numpy as np

from ..errors import ArgumentError
from .intervals import StudentInterval


class Exponent(StudentInterval):
    """Slope of log(mean) against log(n), with its standard error, degrees of freedom and 95 % Student interval."""

    slope: float
    error: float
    freedom: float

    @property
    def centre(self) -> float:
        return self.slope

    @property
    def degrees(self) -> float:
        return self.freedom

    def __str__(self) -> str:
        return f"{self.slope:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


def exponent(values: Mapping[int, np.ndarray]) -> Exponent:
    """The exponent of the mean of `values[n]` in n; every n has its own independent measurements, all positive.

    Standard errors of the log means are by the jackknife, the degrees of freedom of their weighted sum by Welch and Satterthwaite:
    the interval covers with three measurements of each size, where resampling them would not.

    >>> rng = np.random.default_rng(0)
    >>> found = exponent({n: rng.exponential(1 / n, 400) for n in (100, 200, 400, 800)})
    >>> found.contains(-1.0), found.high - found.low < 0.2
    (True, True)
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
    return Exponent(slope, float(np.sqrt(total)), freedom)


def _log_mean_variance(one: np.ndarray) -> float:
    """The variance of log(mean), by leaving out one measurement at a time."""
    count = len(one)
    left = np.log((one.sum() - one) / (count - 1))
    return float((count - 1) / count * np.sum((left - left.mean()) ** 2))
