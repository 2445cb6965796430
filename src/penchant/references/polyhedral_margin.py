"""min ||W||_1 or ||W||_inf subject to margins >= 1: linear programs, solved by HiGHS, certified by `bracket`."""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.optimize import linprog

from ..errors import PenchantError
from .arguments import require_margins
from .base import Solution
from .bracket import bracket
from .euclidean_margin import provable
from .features import feature_rows
from .rounding import gamma
from .watched import watched


class L1(eqx.Module):
    """The sum of absolute entries; its dual norm is the largest entry."""

    name: str = eqx.field(static=True, default="l1")

    def value(self, weight: np.ndarray) -> float:
        return float(np.abs(weight).sum())

    def dual(self, weight: np.ndarray) -> float:
        return float(np.abs(weight).max())

    def rounding(self, shape: tuple[int, ...]) -> float:
        return gamma(float(np.prod(shape)))


class Linf(eqx.Module):
    """The largest absolute entry; its dual norm is the sum of absolute entries."""

    name: str = eqx.field(static=True, default="linf")

    def value(self, weight: np.ndarray) -> float:
        return float(np.abs(weight).max())

    def dual(self, weight: np.ndarray) -> float:
        return float(np.abs(weight).sum())

    def rounding(self, shape: tuple[int, ...]) -> float:
        return gamma(float(np.prod(shape)))


@watched
def polyhedral_margin(data: Any, norm: Any) -> Solution:
    """The maximum-margin weight in the l1 or the linf norm.

    >>> import penchant as pt
    >>> data = pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    >>> polyhedral_margin(data, L1()).weight.tolist(), round(polyhedral_margin(data, Linf()).value, 12)
    ([0.5, 1.0], 1.0)
    """
    require_margins(data, "polyhedral_margin")
    active = data.constrained()
    features = feature_rows(data, active)
    scale = np.abs(features).max()  # the tolerances of the solver are absolute
    features = features / scale
    n, size = features.shape
    if norm.name == "l1":  # w = p - q with p, q >= 0
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
    return provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm)))
