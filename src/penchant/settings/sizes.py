"""Sums of absolute values: what the rounding of a sum is relative to."""

import weakref
from typing import Any

import numpy as np

_BLOCK = 40_000  # entries at once, whose absolute values stay in the cache
_LARGE = 100_000  # entries from which the lengths of rows are worth their keep
_ROUNDING = 1e-10  # above the relative rounding of a length of up to 1e5 entries
_UNDERFLOW = 1e-150  # above what squares that underflow take from a length
_LENGTHS: dict[tuple[int, str], np.ndarray] = {}  # of the rows ("i") and columns ("j") of arrays that are alive


def absolute_sums(rows: np.ndarray, weight: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|rows| @ |weight| and |coefficients| @ |rows|.

    >>> absolute_sums(np.array([[1.0, -2.0]]), np.array([3.0, 1.0]), np.array([-4.0]))
    (array([5.]), array([4., 8.]))
    """
    weight, coefficients, count = np.abs(weight), np.abs(coefficients), 1 + rows.size // _BLOCK
    of_rows, of_columns = [], np.zeros(rows.shape[1])
    for part, shares in zip(np.array_split(rows, count), np.array_split(coefficients, count), strict=True):
        size = np.abs(part)
        of_rows.append(size @ weight)
        of_columns += shares @ size
    return np.concatenate(of_rows), of_columns


def deciding_sums(
    array: Any, weight: np.ndarray, coefficients: np.ndarray, reached: np.ndarray, rounding: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same for large arrays, but of rows only those whose sums, times `rounding`, could decide the smallest of what was reached.

    The others, and the columns where most coefficients are positive, have the bound of Cauchy and Schwarz, from lengths that are kept as
    long as the array lives.
    """
    rows, used = np.asarray(array), np.flatnonzero(coefficients)
    if rows.size < _LARGE:
        return absolute_sums(rows, weight, coefficients)
    of_rows = lengths(array, "i") * (np.linalg.norm(weight) * (1 + _ROUNDING))
    near = np.flatnonzero(reached - rounding * of_rows <= reached.min())
    of_rows[near] = absolute_sums(rows[near], weight, np.zeros(len(near)))[0]
    if 2 * len(used) > len(rows):
        return of_rows, lengths(array, "j") * (np.linalg.norm(coefficients) * (1 + _ROUNDING))
    return of_rows, absolute_sums(rows[used], np.zeros(len(weight)), coefficients[used])[1]


def lengths(array: Any, axis: str) -> np.ndarray:
    """Above the Euclidean lengths of the rows or columns of an array that nobody writes to."""
    key = (id(array), axis)
    if key not in _LENGTHS:
        rows = np.asarray(array)
        _LENGTHS[key] = np.sqrt(np.einsum(f"ij,ij->{axis}", rows, rows)) * (1 + _ROUNDING) + _UNDERFLOW
        weakref.finalize(array, _LENGTHS.pop, key, None)
    return _LENGTHS[key]
