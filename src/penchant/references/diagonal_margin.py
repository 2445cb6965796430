"""The l1 reference of diagonal token data, with an error that says what a diagonal cannot do."""

from typing import Any

from ..errors import InfeasibleDiagonal, InfeasibleError
from .base import Solution
from .euclidean_margin import largest_pairs, max_margin
from .polyhedral_margin import L1, polyhedral_margin


def diagonal_margin(data: Any) -> Solution:
    """min ||w||_1 subject to margins >= 1 for `DiagonalTokens`.

    Raises `InfeasibleDiagonal` with the proof; the message says whether a full matrix would do.
    """
    try:
        max_margin(data)
    except InfeasibleError as error:
        largest = largest_pairs(data, error.weights)
        raise InfeasibleDiagonal(error.weights, error.norm, _feasible(data.tokens), largest) from None
    return polyhedral_margin(data, L1())


def _feasible(tokens: Any) -> bool:
    try:
        max_margin(tokens)
    except InfeasibleError:
        return False
    return True
