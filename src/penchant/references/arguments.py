"""What the programs accept (data with margins, or a regression; anything else is named, with what to pass instead), and the features of
data: the rows that a weight is multiplied with to give the margins, computed some at a time.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..errors import ArgumentError, kind
from ..settings.base import Data, Setting
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection

_MEMBERS = [
    name for name in vars(Data) if not name.startswith("_")
]  # asked of the class first: an instance makes its methods anew


def require_margins(data: Any, owner: str) -> None:
    """Raise unless `data` can be asked for margins that are to exceed 1."""
    wanted = "data with margins, such as Classification(inputs, labels)"
    if isinstance(data, Regression):
        raise ArgumentError("data", owner, wanted, "a Regression", "`minimum_norm(data)` is its program")
    if isinstance(data, type) or not all(hasattr(type(data), name) or hasattr(data, name) for name in _MEMBERS):
        raise ArgumentError("data", owner, wanted, kind(data), _fix(data))
    _require_double(data, owner)


def require_tokens(data: Any, owner: str) -> None:
    """Raise unless `data` are tokens, whose weight is a matrix."""
    if not isinstance(data, TokenSelection):
        raise ArgumentError("data", owner, "a TokenSelection", kind(data), _fix(data))
    _require_double(data, owner)


def require_regression(data: Any, owner: str) -> None:
    """Raise unless `data` are inputs with targets to interpolate."""
    if not isinstance(data, Regression):
        raise ArgumentError("data", owner, "a Regression(inputs, targets)", kind(data), _fix(data))
    _require_double(data, owner)


def _require_double(data: Any, owner: str) -> None:
    """Raise where sums would be rounded to seven digits: no certificate allows for that."""
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ArgumentError("jax_enable_x64", "jax", "True", "False", "jax.config.update('jax_enable_x64', True)")
    if any(leaf.dtype == np.float32 for leaf in jax.tree.leaves(data)):
        fix = "build the data again with jax's 64-bit mode on"
        raise ArgumentError("data", owner, "float64 throughout", "float32 arrays", fix)


def _fix(data: Any) -> str:
    return "pass `setting.data`" if isinstance(data, Setting) else ""


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
