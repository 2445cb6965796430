"""min ||W||_1 or ||W||_inf subject to margins >= 1: linear programs, solved by HiGHS, certified by `bracket`.

HiGHS drops entries below 1e-9 and calls data with margins below its tolerances infeasible. What it does not solve is asked again as the
largest margin of a weight of norm 1, which always exists, in units of the rows and columns, and refined until the signs are right.
"""

from typing import Any

import numpy as np
from scipy.optimize import linprog

from ..errors import ArgumentError, InfeasibleDiagonal, InfeasibleError, kind
from ..norms import L1, Linf, Norm
from .arguments import feature_rows, require_margins
from .base import Solution
from .bracket import bracket
from .euclidean_margin import infeasible, largest_pairs, max_margin
from .feature_margin import contradiction
from .linear_programs import least_cost
from .watched import watched

_GAP = 1e-9  # certified relative width above which the program is solved again
_LARGEST = 4_000_000  # entries of a program that is refined
_CHEAPEST = 2.0**-29  # least unit of a column: HiGHS would drop a smaller one from the norm


@watched
def polyhedral_margin(data: Any, norm: Norm) -> Solution:
    """The maximum-margin weight in the l1 or the linf norm.

    >>> import penchant as pt
    >>> from penchant.norms import L1, Linf
    >>> data = pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    >>> polyhedral_margin(data, L1()).weight.tolist(), round(polyhedral_margin(data, Linf()).value, 12)
    ([0.5, 1.0], 1.0)
    """
    require_margins(data, "polyhedral_margin")
    if not isinstance(norm, L1 | Linf):
        raise ArgumentError("norm", "polyhedral_margin", "L1() or Linf()", kind(norm))
    active = data.constrained()
    features, found = feature_rows(data, active), []
    for solve in (_least, _largest):
        pair = solve(features, str(norm.name))
        found += [] if pair is None else [_certified(data, active, norm, *pair)]
        best = min(found, key=lambda one: (one.bracket.upper == np.inf, one.bracket.gap), default=None)
        if best is not None and best.bracket.gap <= _GAP:
            return best
    if best is None or best.bracket.upper == np.inf:
        raise infeasible(data, active, contradiction(features))
    return best


def _certified(data: Any, active: np.ndarray, norm: Any, weight: np.ndarray, shares: np.ndarray) -> Solution:
    weight, dual = weight.reshape(data.weight_shape), np.zeros(len(active))
    dual[active] = np.maximum(shares, 0.0)
    return Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm)


def _least(features: np.ndarray, norm: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Weight and multipliers of the program as it stands, in one unit for all of it."""
    scale = np.abs(features).max()  # the tolerances of the solver are absolute
    features = features / scale
    n, size = features.shape
    if norm == "l1":  # w = p - q with p, q >= 0
        result = linprog(np.ones(2 * size), A_ub=-np.hstack([features, -features]), b_ub=-np.ones(n), method="highs")
    else:  # -b <= w <= b
        sides = np.hstack([np.vstack([np.eye(size), -np.eye(size)]), -np.ones((2 * size, 1))])
        rows = np.vstack([np.hstack([-features, np.zeros((n, 1))]), sides])
        cost, limit = np.append(np.zeros(size), 1.0), np.append(-np.ones(n), np.zeros(2 * size))
        result = linprog(cost, A_ub=rows, b_ub=limit, bounds=(None, None), method="highs")
    if not result.success:
        return None
    weight = result.x[:size] - result.x[size:] if norm == "l1" else result.x[:size]
    return weight / scale, -result.ineqlin.marginals[:n] / scale


def _largest(features: np.ndarray, norm: str) -> tuple[np.ndarray, np.ndarray] | None:
    """max t with margins of at least t and a norm of 1: p - q = w, and what exceeds t is s, in powers of two as units."""
    n, size = features.shape
    if n * (n + 2 * size) > _LARGEST:
        return None
    columns = _unit(np.abs(features).max(axis=0))
    columns = np.maximum(columns / columns.max(), _CHEAPEST)
    rows = _unit(np.abs(features * columns).max(axis=1))
    scaled, levels = features * columns * rows[:, None], rows / rows.max()
    top = np.hstack([scaled, -scaled, -levels[:, None], -np.eye(n)])
    sums = columns[None] if norm == "l1" else np.eye(size)
    rest = np.hstack([sums, sums, np.zeros((len(sums), n + 1))])
    goal = np.concatenate([np.zeros(n), np.ones(1) if norm == "l1" else 1 / columns])
    found = least_cost(-1.0 * (np.arange(top.shape[1]) == 2 * size), np.vstack([top, rest]), goal)
    if found is None or not found[0][2 * size] > 0:
        return None
    x, y = found
    share = x[2 * size] / rows.max()  # the smallest margin
    return np.asarray((x[:size] - x[size : 2 * size]) * columns / share, float), np.asarray(y[:n] * rows, float)


def _unit(sizes: np.ndarray) -> np.ndarray:
    """Powers of two next to 1 / size; 1 for a size of 0."""
    return 2.0 ** -np.frexp(np.where(sizes > 0, sizes, 1.0))[1]


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
