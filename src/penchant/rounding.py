"""Outward rounding: what float64 may have lost in a sum, a norm or a quotient, so that a bound stays a bound.

A number after k roundings is within gamma(k) of the sum of the absolute values of its terms, in whatever order it was added up and
with or without fused products (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3).
"""

from typing import Any

import numpy as np

_UNIT = 2.0**-53
FLUSHED = 2.0**-600  # above what compiled code loses by taking subnormal numbers for 0, next to data of at most 1e120


def gamma(count: Any) -> float:
    """The relative error of `count` roundings, with one more for the product with gamma itself."""
    return float((count + 1) * _UNIT / (1 - (count + 1) * _UNIT))


def up(value: Any) -> Any:
    """Above the exact result of the one operation that gave `value`."""
    return np.nextafter(value, np.inf)


def down(value: Any) -> Any:
    """Below the exact result of the one operation that gave `value`."""
    return np.nextafter(value, -np.inf)


def scaled(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Entries of at most 1, by a power of two: without rounding, and squares neither over- nor underflow."""
    exponent = int(np.frexp(np.abs(array).max())[1])
    return np.ldexp(array, -exponent), exponent


def measured(measure: Any, array: np.ndarray) -> float:
    """A norm of any array of finite numbers."""
    array, exponent = scaled(array)
    return float(np.ldexp(measure(array), exponent))


def rounding_of(norm: Any, shape: tuple[int, ...]) -> float:
    """The relative accuracy to which a norm and its dual norm are computed."""
    return norm.rounding(shape) if hasattr(type(norm), "rounding") else gamma(8 * np.prod(shape))


def value_above(norm: Any, weight: np.ndarray) -> float:
    """An upper bound of the norm of a weight."""
    return float(up(measured(norm.value, weight) * (1 + up(rounding_of(norm, weight.shape)))))


def dual_above(norm: Any, pull: np.ndarray) -> float:
    """An upper bound of the dual norm."""
    return float(up(measured(norm.dual, pull) * (1 + up(rounding_of(norm, pull.shape)))))
