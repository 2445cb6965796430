"""The features of data: the rows that a weight is multiplied with to give the margins, computed some at a time."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

_BLOCK = 500  # rows at once: a unit matrix for all of them would be N by N
_adjoints = eqx.filter_jit(lambda data, units: jax.vmap(data.adjoint)(units))


def parts(values: np.ndarray) -> list[np.ndarray]:
    """Values split as `row_blocks` splits the rows they belong to."""
    return np.array_split(values, 1 + len(values) // _BLOCK)


def row_blocks(data: Any, active: np.ndarray) -> Iterator[np.ndarray]:
    """The features of the active margins, one row each, in blocks."""
    for part in parts(np.flatnonzero(active)):
        units = (part[:, None] == np.arange(len(active))).astype(float)
        yield np.asarray(_adjoints(data, units)).reshape(len(part), -1)


def feature_rows(data: Any, active: np.ndarray) -> np.ndarray:
    """All features of the active margins."""
    return np.concatenate(list(row_blocks(data, active)))
