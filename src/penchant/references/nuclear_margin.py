r"""min ||W||_* subject to <Z_k, W> >= 1 in the nuclear norm, for pairs $Z_k = d_k q_k^\top$ of rank one.

Pairs are scaled to length 1, so that tokens and queries of very different size are one problem like any other; an interior point
does the rest (`nuclear_interior`). Its multipliers, divided by the operator norm of what they gather, are a dual point: the bracket
needs no trust in this file.
"""

from typing import Any

import numpy as np

from ..errors import PenchantError, warn
from ..norms import Nuclear
from .arguments import require_tokens
from .base import CERTIFIED, Solution
from .bracket import bracket, margins
from .euclidean_margin import infeasible, least_norm, max_margin, provable
from .nuclear_interior import Pairs, interior_point
from .watched import watched

_GAP = 1e-9  # certified relative width asked of every solution


@watched
def nuclear_margin(data: Any, gap: float = _GAP) -> Solution:
    """The maximum-margin matrix of token data in the nuclear norm, certified to a relative `gap` where float64 allows.

    The gap that was reached is `solution.bracket.gap`; above 1e-6 the solution is not `certified`, which warns and leaves verdicts
    undecided. Raises `InfeasibleSVM` with the proof if no matrix has a positive margin.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[0.0, 3.0]])
    >>> round(nuclear_margin(data).value, 6)                       # one pair: 1 / (2 * 3)
    0.166667
    """
    require_tokens(data, "nuclear_margin")
    active = data.constrained()
    n, others = data.others.shape
    left = np.asarray(data.differences()).reshape(n * others, -1)[active]
    right = np.repeat(np.asarray(data.queries), others, axis=0)[active]
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    if lengths.min() == 0:
        max_margin(data)  # raises, with the pair that can never reach margin 1 as proof
    left, right = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (left, right))
    rows, columns = _basis(left), _basis(right)
    scale = lengths.min()
    pairs = Pairs(left @ rows, right @ columns, scale / lengths)
    start = _inside(pairs, lambda q: _refusal(data, infeasible(data, active, q / lengths)))
    # Thirty times closer than asked: dropping the multipliers of idle margins costs about ten times the gap.
    weight, multipliers = _without_idle(pairs, *interior_point(pairs, start, gap / 30), gap)
    dual = np.zeros(len(active))
    dual[active] = multipliers / lengths
    weight = rows @ weight @ columns.T
    smallest = np.asarray(margins(data, weight))[active].min()
    weight = weight / smallest if smallest > 0 else weight
    norm = Nuclear()
    found = Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm)
    return _certified(provable(data, active, found))


def _refusal(data: Any, found: PenchantError) -> PenchantError:
    """Whether a matrix selects the wanted tokens does not depend on its norm: the answer of `max_margin`, where it has one."""
    try:
        max_margin(data)
    except PenchantError as error:
        return error
    return found


def _certified(found: Solution) -> Solution:
    if not found.certified:
        warn(
            f"`nuclear_margin` could not certify its solution: the optimum lies between {found.bracket.lower:.9g} and "
            f"{found.bracket.upper:.9g}, a relative gap of {found.bracket.gap:.1e} (wanted: {CERTIFIED:.0e}). Verdicts on it are undecided.\n"
            "  Usual cause: queries or token differences that are parallel up to rounding.\n"
            "  Fix: remove near-duplicate samples or tokens."
        )
    return found


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows."""
    _, size, basis = np.linalg.svd(rows, full_matrices=False)
    return basis[size > 1e-12 * size[0]].T


def _inside(pairs: Pairs, refuse: Any) -> np.ndarray:
    """A strictly feasible weight: twice the shortest one with margins of at least the largest bound, which is 1."""
    gram = (pairs.left @ pairs.left.T) * (pairs.right @ pairs.right.T)

    def root() -> np.ndarray:
        features = np.einsum("ka,kb->kab", pairs.left, pairs.right).reshape(len(gram), -1)
        return features.T if features.shape[1] <= len(features) else np.asarray(np.linalg.qr(features.T, mode="r"))

    weight = pairs.gather(least_norm(gram, root, refuse))
    return 2 * weight / pairs.margins(weight).min()


def _without_idle(
    pairs: Pairs, weight: np.ndarray, multipliers: np.ndarray, gap: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same without the multipliers that an interior point keeps on idle margins, if the gap allows it."""
    reached = pairs.margins(weight) / pairs.bounds
    share = pairs.bounds * multipliers / (pairs.bounds @ multipliers)
    fewer = np.where(share < reached / reached.min() - 1, 0.0, multipliers)
    return weight, fewer if pairs.width(weight, fewer) <= gap else multipliers
