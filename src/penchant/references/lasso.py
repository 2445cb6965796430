r"""The lasso, $\min\frac12\|X\theta - y\|^2 + \lambda\|\theta\|_1$, along a path of penalties, each point with its duality gap.

Coordinate descent finds the support and the signs; the weight is then solved for on them, to rounding. The dual point is the residual,
shortened until $|X^\top u| \le \lambda$, so that the gap bounds the error whatever the solver did.
"""

import equinox as eqx
import numpy as np

from ..errors import ArgumentError, PenchantError
from .base import require_regression

_SWEEPS = 5_000
_GAP = 1e-10  # of the objective, relative to its value at 0
_CHECKED = 10  # sweeps between two attempts to solve on the support


class Lasso(eqx.Module):
    """A minimiser with its `residual` y - X theta, and the duality `gap` relative to the objective at 0."""

    penalty: float
    weight: np.ndarray
    residual: np.ndarray
    gap: float


def lasso_path(data: object, penalties: object, *, nonnegative: bool = False) -> list[Lasso]:
    """Minimisers for all penalties, among nonnegative weights if so asked, followed from the largest to the smallest.

    >>> import penchant as pt
    >>> [found.weight.round(9).tolist() for found in lasso_path(pt.Regression([[1.0, 0.0], [0.0, 2.0]], [3.0, 1.0]), [2.0, 0.5])]
    [[1.0, 0.0], [2.5, 0.375]]
    """
    data = require_regression(data, "lasso_path")
    wanted = np.asarray(penalties, float)
    if wanted.ndim != 1 or not ((wanted > 0) & np.isfinite(wanted)).all():
        raise ArgumentError("penalties", "lasso_path", "positive and finite numbers", penalties)
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    weight, found = np.zeros(inputs.shape[1]), {}
    for penalty in np.sort(wanted)[::-1]:
        weight = _minimise(inputs, targets, float(penalty), weight, nonnegative)
        found[float(penalty)] = _certified(inputs, targets, float(penalty), weight, nonnegative)
    return [found[float(penalty)] for penalty in wanted]


def _certified(inputs: np.ndarray, targets: np.ndarray, penalty: float, weight: np.ndarray, nonnegative: bool) -> Lasso:
    residual = targets - inputs @ weight
    pull = residual @ inputs
    size = float((pull if nonnegative else np.abs(pull)).max())
    dual = residual * min(1.0, penalty / size) if size > 0 else residual
    value = 0.5 * float(residual @ residual) + penalty * float(np.abs(weight).sum())
    lower = float(targets @ dual) - 0.5 * float(dual @ dual)
    return Lasso(penalty, weight, residual, (value - lower) / max(0.5 * float(targets @ targets), np.finfo(float).tiny))


def _minimise(
    inputs: np.ndarray, targets: np.ndarray, penalty: float, weight: np.ndarray, nonnegative: bool
) -> np.ndarray:
    """Coordinate descent on the Gram matrix from a nearby solution, until a solution on its support proves itself."""
    gram, pull, weight = inputs.T @ inputs, targets @ inputs, weight.copy()
    slope = pull - gram @ weight
    live = np.flatnonzero(np.diag(gram) > 0)
    for sweep in range(_SWEEPS):
        for j in live:
            aim = slope[j] + gram[j, j] * weight[j]
            size = max((aim if nonnegative else abs(aim)) - penalty, 0.0)
            new = np.sign(aim) * size / gram[j, j]
            if new != weight[j]:
                slope -= gram[:, j] * (new - weight[j])
                weight[j] = new
        if sweep % _CHECKED == 0:
            solved = _on_support(gram, pull, penalty, weight)
            for one in (solved, weight.copy()):
                allowed = not nonnegative or one.min() >= 0
                if allowed and _certified(inputs, targets, penalty, one, nonnegative).gap <= _GAP:
                    return one
    raise PenchantError(
        f"The lasso with penalty {penalty:.3g} was not solved by {_SWEEPS} sweeps of coordinate descent: take a larger penalty."
    )


def _on_support(gram: np.ndarray, pull: np.ndarray, penalty: float, weight: np.ndarray) -> np.ndarray:
    """The weight that solves the optimality conditions with the support and the signs of `weight`."""
    support = weight != 0
    found = np.zeros_like(weight)
    target = pull[support] - penalty * np.sign(weight[support])
    found[support] = np.linalg.lstsq(gram[np.ix_(support, support)], target, rcond=None)[0]
    return found
