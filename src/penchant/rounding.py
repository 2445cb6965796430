"""Outward rounding: what float64 may have lost in a sum, a norm or a quotient, so that a bound stays a bound.

A number after k roundings is within gamma(k) of the sum of the absolute values of its terms, in whatever order it was added up and
with or without fused products (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3).
"""

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

T = TypeVar("T", float, np.ndarray)
_UNIT = 2.0**-53
_BLOCK = 40_000  # entries at once, whose absolute values stay in the cache
FLUSHED = 2.0**-600  # above what compiled code loses by taking subnormal numbers for 0, next to data of at most 1e120


@runtime_checkable
class Measure(Protocol):
    """Norm and dual norm of a weight; `rounding(shape)` may say how exactly they are computed."""

    def value(self, weight: np.ndarray) -> float: ...
    def dual(self, weight: np.ndarray) -> float: ...


def gamma(count: float | int | np.integer) -> float:
    """The relative error of `count` roundings, with one more for the product with gamma itself."""
    return float((count + 1) * _UNIT / (1 - (count + 1) * _UNIT))


def up(value: T) -> T:
    """Above the exact result of the one operation that gave `value`."""
    return np.nextafter(value, np.inf)  # pyright: ignore[reportReturnType]


def down(value: T) -> T:
    """Below the exact result of the one operation that gave `value`."""
    return np.nextafter(value, -np.inf)  # pyright: ignore[reportReturnType]


def scaled(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Entries of at most 1, by a power of two: without rounding, and squares neither over- nor underflow."""
    exponent = int(np.frexp(np.abs(array).max())[1])
    return np.ldexp(array, -exponent), exponent


def measured(measure: Callable[[np.ndarray], float], array: np.ndarray) -> float:
    """A norm of any array of finite numbers."""
    array, exponent = scaled(array)
    return float(np.ldexp(measure(array), exponent))


def rounding_of(norm: Measure, shape: tuple[int, ...]) -> float:
    """The relative accuracy to which a norm and its dual norm are computed."""
    own = getattr(norm, "rounding", None)
    return gamma(8 * np.prod(shape)) if own is None else own(shape)


def value_above(norm: Measure, weight: np.ndarray) -> float:
    """An upper bound of the norm of a weight."""
    return float(up(measured(norm.value, weight) * (1 + up(rounding_of(norm, weight.shape)))))


def dual_above(norm: Measure, pull: np.ndarray) -> float:
    """An upper bound of the dual norm."""
    return float(up(measured(norm.dual, pull) * (1 + up(rounding_of(norm, pull.shape)))))


def absolute_sums(rows: np.ndarray, weight: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|rows| @ |weight| and |coefficients| @ |rows|."""
    weight, coefficients, count = np.abs(weight), np.abs(coefficients), 1 + rows.size // _BLOCK
    of_rows, of_columns = [], np.zeros(rows.shape[1])
    for part, shares in zip(np.array_split(rows, count), np.array_split(coefficients, count), strict=True):
        size = np.abs(part)
        of_rows.append(size @ weight)
        of_columns += shares @ size
    return np.concatenate(of_rows), of_columns
