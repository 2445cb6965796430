"""Sums of absolute values: what the rounding of a sum is relative to."""

import numpy as np

_BLOCK = 40_000  # entries at once, whose absolute values stay in the cache


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
