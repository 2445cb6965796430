"""The maximum margin in any norm of `penchant.norms`, with its certificate, and the face on which a maximum that is not unique lies."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ..errors import ArgumentError, kind, warn
from ..norms import L2, Entrywise, Hybrid, Norm, Schatten, WeightedL2, conjugate
from ..settings.base import Data
from ..settings.classification import Classification
from ..settings.multiclass import Multiclass
from ..settings.tokens import TokenSelection
from .balls import Ball, Box, Columns, Operator, Smooth
from .base import CERTIFIED, Solution, feature_rows, placed, require_margins, watched
from .bracket import bracket, margins
from .euclidean_margin import max_margin, provable
from .pair_program import Pairs, solve

_GAP = 1e-9  # certified relative width asked of every solution
_ROUGH = 1e-2  # of programs on the way to another one
_STRIDE = 1.5  # from one exponent to the next on that way
_MANY = 2000  # pairs, above which the program in the Gram matrix is the slower one


@watched
def norm_margin(data: object, norm: Norm, gap: float = _GAP) -> Solution:
    """The maximum margin of a weight of norm 1, certified to a relative `gap` where float64 allows.

    Where the maximum is not unique the weight is in the middle of its face (`face`): compare margins, not directions.
    Raises an error with the proof if no weight has a positive margin.

    >>> import penchant as pt
    >>> from penchant.norms import L1, Linf, Spectral
    >>> data = pt.settings.clusters(4, 8, 12)
    >>> [round(norm_margin(data, norm).margin, 6) for norm in (Linf(), L1(), Spectral())]
    [3.441959, 0.256032, 1.466455]
    """
    data = require_margins(data, "norm_margin")
    _check_fit(data, norm)
    if isinstance(norm, WeightedL2):
        return _weighted(data, norm)
    pairs, active = _pairs(data)
    if len(pairs.left) <= _MANY and (isinstance(norm, L2) or getattr(norm, "p", 0) == 2):
        return max_margin(data)
    found = None
    for near in _between(norm):
        found = solve(pairs, near, *_program(near), gap / 10 if near is norm else _ROUGH, found)
    if not (found is not None and found.gap < np.inf):
        max_margin(data)  # raises, with the proof that there is no positive margin
    weight = found.weight.reshape(data.weight_shape)
    return _certified(data, active, norm, weight / np.asarray(margins(data, weight))[active].min(), found.multipliers)


def _check_fit(data: Data, norm: object) -> None:
    """Whether this norm is one of weights of this shape."""
    shape, name = data.weight_shape, getattr(norm, "name", "")
    if not isinstance(norm, L2 | WeightedL2 | Entrywise | Schatten | Hybrid):
        raise ArgumentError("norm", "norm_margin", "a norm such as Linf(), Spectral() or Schatten(3)", kind(norm))
    if isinstance(norm, Schatten | Hybrid) and len(shape) != 2:
        raise ArgumentError("norm", "norm_margin", f"one of weights of shape {shape}", f"{name}, a norm of matrices")
    if isinstance(norm, Hybrid):
        if norm.columns != shape[1]:
            found = f"{name} of {norm.columns} columns"
            raise ArgumentError("norm", "norm_margin", f"of blocks with {shape[1]} columns together", found)
        odd = [one.name for one, count in norm.blocks if _block(one, count) is None]
        if odd:
            raise ArgumentError(
                "norm", "norm_margin", "made of blocks of Linf() and Spectral()", f"a block of {odd[0]}"
            )
    if isinstance(norm, WeightedL2) and norm.scales.shape != shape:
        raise ArgumentError("norm", "norm_margin", f"with scales of shape {shape}", f"shape {norm.scales.shape}")


def _pairs(data: Data) -> tuple[Pairs, np.ndarray]:
    """The features of constrained margins as pairs of rank one: those of vectors have one row."""
    active = data.constrained()
    if isinstance(data, Multiclass | TokenSelection):
        tokens = isinstance(data, TokenSelection)
        left = np.asarray(data.differences() if tokens else data.pairs()[0]).reshape(len(active), -1)
        inputs = np.asarray(data.queries if tokens else data.inputs)
        return Pairs(left[active], inputs, np.repeat(np.arange(len(inputs)), data.others.shape[1])[active]), active
    rows = feature_rows(data, active)
    if len(data.weight_shape) != 1:
        raise ArgumentError("data", "norm_margin", "Multiclass, TokenSelection or with a vector as weight", kind(data))
    return Pairs(np.ones((len(rows), 1)), rows, np.arange(len(rows))), active


def _block(norm: object, columns: int) -> type[Operator] | type[Box] | None:
    """The ball of a block, where it has one: the length of one column is its operator norm."""
    if isinstance(norm, L2):
        return Operator if columns == 1 else None
    of_matrix = isinstance(norm, Schatten)
    return (Operator if of_matrix else Box) if getattr(norm, "p", 0) == np.inf else None


def _program(norm: Norm) -> tuple[Callable[..., Ball], bool]:
    """The ball of a norm, and whether the weight is in it, or else the pull of the multipliers."""
    if isinstance(norm, Hybrid):
        balls, ends = [_block(*block) for block in norm.blocks], np.cumsum([count for _, count in norm.blocks])[:-1]
        cut = lambda matrix: np.split(matrix, ends, axis=1)
        return lambda u, v, room: Columns(
            [b.around(*uv, room) for b, *uv in zip(balls, cut(u), cut(v), strict=True)]
        ), True
    of_matrix, p = isinstance(norm, Schatten), getattr(norm, "p", 2.0)
    if p in (1, np.inf):
        return (Operator if of_matrix else Box).around, p == np.inf
    power = max(p, conjugate(p))
    return lambda u, v, room: Smooth(u, power, of_matrix and p != 2), p > 2


def _between(norm: Norm) -> Iterator[Norm]:
    """Norms of exponents between 2 and that of this one, each near the one before, and the norm itself."""
    p = getattr(norm, "p", 2.0)
    last, power = max(p, conjugate(p)), _STRIDE * 2.0
    while 2 < last < np.inf and power < last:
        yield type(norm)(power if p > 2 else conjugate(power))  # pyright: ignore[reportCallIssue]
        power *= _STRIDE
    yield norm


def _certified(data: Data, active: np.ndarray, norm: Norm, weight: np.ndarray, multipliers: np.ndarray) -> Solution:
    dual = placed(multipliers, active)
    found = provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm))
    if not found.certified:
        warn(
            f"`norm_margin` could not certify its solution in the norm {norm.name}: the optimum lies between {found.bracket.lower:.9g} and "
            f"{found.bracket.upper:.9g}, a relative gap of {found.bracket.gap:.1e} (wanted: {CERTIFIED:.0e}). Verdicts on it are undecided.\n"
            "  Usual causes: inputs that are parallel up to rounding; an exponent p next to 1 or beyond 10.\n"
            "  Fix: remove near-duplicate samples, or take the norm of p = 1 or inf."
        )
    return found


def _weighted(data: Data, norm: WeightedL2) -> Solution:
    """The plain l2 program in features divided by the roots of the scales."""
    active, roots = data.constrained(), np.sqrt(norm.scales)
    rows = feature_rows(data, active) / roots.ravel()
    found = max_margin(Classification(rows, np.ones(len(rows))))
    return _certified(data, active, norm, found.weight.reshape(roots.shape) / roots, found.dual)


class Face(NamedTuple):
    """Where a maximum may move: entries or singular values `free` of the bound, and whether it is unique (None: not decided)."""

    free: np.ndarray
    unique: bool | None
