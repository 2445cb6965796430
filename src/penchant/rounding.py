"""Outward rounding: what float64 may have lost in a sum, a norm or a quotient, so that a bound stays a bound.

A number after k roundings is within gamma(k) of the sum of the absolute values of its terms, in whatever order it was added up and
with or without fused products (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3).
"""

import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jax import Array

T = TypeVar("T", float, np.ndarray)
_UNIT = 2.0**-53
_BLOCK = 40_000  # entries at once, whose absolute values stay in the cache
_LARGE = 100_000  # entries from which the lengths of rows are worth their keep
_LENGTH = 1e-10  # above the relative rounding of a length of up to 1e5 entries
_LOST = 1e-150  # above what squares that underflow take from a length
_LENGTHS: dict[tuple[int, str], np.ndarray] = {}  # of the rows ("i") and columns ("j") of arrays that are alive
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


def deciding_sums(
    array: Array | np.ndarray, weight: np.ndarray, coefficients: np.ndarray, reached: np.ndarray, rounding: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same for large arrays, but of rows only those whose sums, times `rounding`, could decide the smallest of what was reached.

    The others, and the columns where most coefficients are positive, have the bound of Cauchy and Schwarz, from lengths that are kept as
    long as the array lives.
    """
    rows, used = np.asarray(array), np.flatnonzero(coefficients)
    if rows.size < _LARGE:
        return absolute_sums(rows, weight, coefficients)
    of_rows = lengths(array, "i") * (np.linalg.norm(weight) * (1 + _LENGTH))
    near = np.flatnonzero(reached - rounding * of_rows <= reached.min())
    of_rows[near] = absolute_sums(rows[near], weight, np.zeros(len(near)))[0]
    if 2 * len(used) > len(rows):
        return of_rows, lengths(array, "j") * (np.linalg.norm(coefficients) * (1 + _LENGTH))
    return of_rows, absolute_sums(rows[used], np.zeros(len(weight)), coefficients[used])[1]


def lengths(array: Array | np.ndarray, axis: str) -> np.ndarray:
    """Above the Euclidean lengths of the rows or columns of an array that nobody writes to."""
    key = (id(array), axis)
    if key not in _LENGTHS:
        rows = np.asarray(array)
        _LENGTHS[key] = np.sqrt(np.einsum(f"ij,ij->{axis}", rows, rows)) * (1 + _LENGTH) + _LOST
        weakref.finalize(array, _LENGTHS.pop, key, None)
    return _LENGTHS[key]
