"""Inseparability proved about the stored floats: nonnegative multipliers, not all 0, of features whose sum is exactly 0."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import Unproved
from ..rounding import gamma
from .arguments import feature_rows
from .exact_interpolation import flint
from .exact_margin import Blocks, blocks
from .exact_numbers import Certificate, Whole, concluded, whole
from .interpolation_bracket import solvable_near

_NOISE = 1e-12  # shares below this fraction of the largest are rounding
_EFFORT = 200_000  # squared size of an integer matrix times its bits, up to which it is reduced without a package
Reduction = Callable[[np.ndarray], tuple[np.ndarray, int]]


def balanced(data: Any, weights: np.ndarray) -> bool:
    """Whether nonnegative multipliers near these combine the features to exactly 0: by an enclosure of them, or by integers.

    An enclosure needs features that no small change of them separates; where they balance because some are copies of others, or because
    coordinates depend on each other, only their integers tell.
    """
    support = np.flatnonzero(weights > _NOISE * weights.max())
    rows = feature_rows(data, np.isin(np.arange(len(weights)), support))
    equations = np.vstack([rows[:, rows.any(axis=0)].T, np.ones(len(support))])
    if solvable_near(equations, np.append(np.zeros(len(equations) - 1), 1.0), weights[support], gamma(4)):
        return True
    gram = _gram(blocks(data), (np.cumsum(data.constrained()) - 1)[support])
    if len(gram) ** 2 * int(max(gram.diagonal())).bit_length() > _EFFORT:
        return False
    try:
        _null(gram, weights[support], _reduced)
    except Unproved:
        return False
    return True


def prove_inseparable(data: Any, weights: np.ndarray) -> Certificate:
    """From multipliers that combine the features to 0 up to rounding, some that do so exactly: no weight has positive margins."""
    found, shares = blocks(data), np.asarray(weights, float)[data.constrained()]
    support = np.flatnonzero(shares > _NOISE * shares.max())
    support = support[np.argsort(-shares[support], kind="stable")]
    multipliers = np.zeros(len(shares), object)
    multipliers[support] = _null(_gram(found, support), shares[support], _reduced_by_flint)
    content = {"norm": "none", **found.listed(), "primal": [0, []], "targets": [0, [1] * len(shares)]}
    return concluded({**content, "dual": [0, [part.tolist() for part in found.split(multipliers)]]})


def _gram(found: Blocks, support: np.ndarray) -> np.ndarray:
    """Integer inner products of the features of a support: their null vectors are those of the features."""
    owner = np.repeat(np.arange(len(found.left)), [len(rows.digits) for rows in found.left])[support]
    left = np.concatenate([rows.digits for rows in found.left])[support]
    right = found.right.digits[owner]
    return (left @ left.T) * (right @ right.T)


def _reduced_by_flint(gram: np.ndarray) -> tuple[np.ndarray, int]:
    """The reduced rows of an integer matrix, and the pivot that they share."""
    reduced, scale, rank = flint().fmpz_mat(gram.tolist()).rref()
    return np.array([[int(x) for x in row] for row in reduced.tolist()], object)[:rank], int(scale)


def _reduced(gram: np.ndarray) -> tuple[np.ndarray, int]:
    """The same by elimination without fractions (Bareiss): every division is exact."""
    rows, rank, last = gram.copy(), 0, 1
    for column in range(rows.shape[1]):
        below = np.flatnonzero(rows[rank:, column])
        if not len(below):
            continue
        rows[[rank, rank + below[0]]] = rows[[rank + below[0], rank]]
        pivot, chosen = rows[rank, column], rows[rank].copy()
        rows = (pivot * rows - rows[:, column : column + 1] * chosen) // last
        rows[rank], last, rank = chosen, pivot, rank + 1
    return rows[:rank], last


def _null(gram: np.ndarray, shares: np.ndarray, reduce: Reduction) -> np.ndarray:
    """A nonnegative integer null vector near the shares: the small shares as they are, the large ones solved for."""
    rows, scale = reduce(gram)
    rank = len(rows)
    pivots = np.array([int(np.flatnonzero(row != 0)[0]) for row in rows], int)
    free = np.setdiff1d(np.arange(len(shares)), pivots)
    kept: Whole = whole(shares[free]) if len(free) else Whole(0, np.zeros(0, object))
    found = np.zeros(len(shares), object)
    found[free] = kept.digits * scale
    found[pivots] = -(rows[:, free] @ kept.digits) if rank else 0
    found = found if scale > 0 else -found
    if not (len(free) and found.max() > 0 and found.min() >= 0):
        raise Unproved("inseparability", "no nonnegative combination of these features is exactly 0")
    return found // np.gcd.reduce(found)
