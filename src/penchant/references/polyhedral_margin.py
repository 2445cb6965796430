"""min ||W||_1 or ||W||_inf subject to margins >= 1: linear programs, solved by HiGHS, certified by `bracket`."""

from typing import Any

import numpy as np
from scipy.optimize import linprog

from ..errors import ArgumentError, InfeasibleDiagonal, InfeasibleError, PenchantError, kind
from ..norms import L1, Linf
from .arguments import feature_rows, require_margins
from .base import Solution
from .bracket import bracket
from .euclidean_margin import largest_pairs, max_margin, provable
from .watched import watched


@watched
def polyhedral_margin(data: Any, norm: L1 | Linf) -> Solution:
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
    features = feature_rows(data, active)
    scale = np.abs(features).max()  # the tolerances of the solver are absolute
    features = features / scale
    n, size = features.shape
    if isinstance(norm, L1):  # w = p - q with p, q >= 0
        result = linprog(np.ones(2 * size), A_ub=-np.hstack([features, -features]), b_ub=-np.ones(n), method="highs")
        weight = result.x[:size] - result.x[size:] if result.success else None
    else:  # -b <= w <= b
        bounds = np.vstack(
            [np.hstack([np.eye(size), -np.ones((size, 1))]), np.hstack([-np.eye(size), -np.ones((size, 1))])]
        )
        rows = np.vstack([np.hstack([-features, np.zeros((n, 1))]), bounds])
        cost, limit = np.append(np.zeros(size), 1.0), np.append(-np.ones(n), np.zeros(2 * size))
        result = linprog(cost, A_ub=rows, b_ub=limit, bounds=(None, None), method="highs")
        weight = result.x[:size] if result.success else None
    if weight is None:
        raise PenchantError(f"The {norm.name} program was not solved: {result.message}")
    dual = np.zeros(len(active))
    dual[active] = np.maximum(-result.ineqlin.marginals[:n], 0.0)
    weight, dual = weight.reshape(data.weight_shape) / scale, dual / scale
    return provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm))


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
