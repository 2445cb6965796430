"""min |W|_* subject to margins of at least 1, for the matrix that scores tokens: `norm_margin` in the nuclear norm, without idle multipliers."""

import numpy as np

from ..norms import Nuclear
from .base import Solution, require_tokens, watched
from .bracket import bracket, margins
from .norm_margin import norm_margin

_GAP = 1e-9  # certified relative width asked of every solution


@watched
def nuclear_margin(data: object, gap: float = _GAP) -> Solution:
    """The maximum-margin matrix of token data in the nuclear norm, certified to a relative `gap` where float64 allows.

    The gap that was reached is `solution.bracket.gap`; above 1e-6 the solution is not `certified`, which warns and leaves verdicts
    undecided. Raises `InfeasibleSVM` with the proof if no matrix has a positive margin.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[0.0, 3.0]])
    >>> round(nuclear_margin(data).value, 6)                       # one pair: 1 / (2 * 3)
    0.166667
    """
    data = require_tokens(data, "nuclear_margin")
    found = norm_margin(data, Nuclear(), gap / 10)  # dropping idle multipliers costs what they share
    reached = np.asarray(margins(data, found.weight))
    idle = found.dual / found.dual.sum() < reached - 1  # what an interior point leaves on margins that bind nothing
    fewer = np.where(idle, 0.0, found.dual)
    width = bracket(data, found.weight, fewer, found.measure)
    return Solution(found.norm, found.weight, fewer, width, found.measure) if width.gap <= gap else found
