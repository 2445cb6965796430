"""Outward rounding: what float64 may have lost in a sum, a norm or a quotient, so that a bound stays a bound.

A number after k roundings is within gamma(k) of the sum of the absolute values of its terms, in whatever order it was added up and
with or without fused products (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3).
"""

from typing import Any

import numpy as np

_UNIT = 2.0**-53
FLUSHED = 2.0**-600  # above what compiled code loses by taking subnormal numbers for 0, next to data of at most 1e120


def gamma(count: float | int) -> float:
    """The relative error of `count` roundings, with one more for the product with gamma itself."""
    return (count + 1) * _UNIT / (1 - (count + 1) * _UNIT)


def up(value: Any) -> Any:
    """Above the exact result of the one operation that gave `value`."""
    return np.nextafter(value, np.inf)


def down(value: Any) -> Any:
    """Below the exact result of the one operation that gave `value`."""
    return np.nextafter(value, -np.inf)


def value_above(norm: Any, weight: np.ndarray) -> float:
    """An upper bound of the norm of a weight."""
    return _above(norm, norm.value, weight)


def dual_above(norm: Any, pull: np.ndarray) -> float:
    """An upper bound of the dual norm."""
    return _above(norm, norm.dual, pull)


def _above(norm: Any, measure: Any, array: np.ndarray) -> float:
    """Measured with entries of at most 1, by a power of two: squares must neither over- nor underflow."""
    exponent = np.frexp(np.abs(array).max())[1]
    rounding = norm.rounding(array.shape) if hasattr(norm, "rounding") else gamma(8 * array.size)
    return float(up(np.ldexp(up(measure(np.ldexp(array, -exponent)) * (1 + up(rounding))), exponent)))
