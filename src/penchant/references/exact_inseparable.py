"""Inseparability proved about the stored floats: nonnegative multipliers, not all 0, of features whose sum is exactly 0."""

from typing import Any

import numpy as np

from ..errors import Unproved
from .exact_interpolation import flint
from .exact_margin import Blocks, blocks
from .exact_numbers import Certificate, Whole, concluded, whole


def prove_inseparable(data: Any, weights: np.ndarray) -> Certificate:
    """From multipliers that combine the features to 0 up to rounding, some that do so exactly: no weight has positive margins."""
    found, shares = blocks(data), np.asarray(weights, float)[data.constrained()]
    support = np.flatnonzero(shares > 1e-12 * shares.max())
    support = support[np.argsort(-shares[support], kind="stable")]
    multipliers = np.zeros(len(shares), object)
    multipliers[support] = _null(_gram(found, support), shares[support])
    content = {"norm": "none", **found.listed(), "primal": [0, []], "targets": [0, [1] * len(shares)]}
    return concluded({**content, "dual": [0, [part.tolist() for part in found.split(multipliers)]]})


def _gram(found: Blocks, support: np.ndarray) -> np.ndarray:
    """Integer inner products of the features of a support: their null vectors are those of the features."""
    owner = np.repeat(np.arange(len(found.left)), [len(rows.digits) for rows in found.left])[support]
    left = np.concatenate([rows.digits for rows in found.left])[support]
    right = found.right.digits[owner]
    return (left @ left.T) * (right @ right.T)


def _null(gram: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """A nonnegative integer null vector near the shares: the small shares as they are, the large ones solved for."""
    reduced, scale, rank = flint().fmpz_mat(gram.tolist()).rref()
    rows, scale = np.array([[int(x) for x in row] for row in reduced.tolist()], object)[:rank], int(scale)
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
