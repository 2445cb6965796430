r"""What the diagonal flow should look like at a finite margin: $\min R(\beta)$ subject to $B^\top\beta \ge \mu$.

$R(\beta) = \sum_j \beta_j\,\mathrm{arcsinh}(\beta_j/w_j^2) - \sqrt{\beta_j^2 + w_j^4} + w_j^2$ is the potential whose gradient along the flow of
diagonal keys and queries is the gathered multipliers; its minimiser goes from the l2 solution ($\mu \ll w^2$) to the l1 solution
($\mu \gg w^2$). Solved in the dual, $\beta = w^2 \sinh(B\lambda)$, by Newton steps on a logarithmic barrier.
"""

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError
from .base import feature_rows, placed, require_margins
from .logistic import descend

_BARRIERS = 10.0 ** -np.arange(1, 14)
_STEPS = 200
_BOUNDARY = 0.99  # part of the way to it that a step may take


class FiniteMargin(eqx.Module):
    """The minimiser, its multipliers, its potential, and by how much the worst margin misses `margin`, relatively."""

    weight: np.ndarray
    dual: np.ndarray
    potential: float
    miss: float


def potential(weight: ArrayLike, scales: float | ArrayLike) -> float:
    """R(weight), which is 0 at 0 and grows like |weight| log(2 |weight| / scale^2)."""
    weight, square = np.asarray(weight, float), np.asarray(scales, float) ** 2
    return float((weight * np.arcsinh(weight / square) - np.hypot(weight, square) + square).sum())


def finite_margin(data: object, scales: float | ArrayLike, margin: float) -> FiniteMargin:
    """The weight of least potential with all margins of diagonal data at least `margin`; `scales` are those of the start."""
    data = require_margins(data, "finite_margin")
    if not 0 < margin < np.inf:
        raise ArgumentError("margin", "finite_margin", "positive and finite", margin)
    size = data.weight_shape[0]
    if np.shape(scales) not in ((), (1,), (size,)):
        raise ArgumentError("scales", "finite_margin", f"a number, or {size} of them", f"shape {np.shape(scales)}")
    square = np.broadcast_to(np.asarray(scales, float), (size,)) ** 2
    if not (square > 0).all():
        raise ArgumentError("scales", "finite_margin", "positive in every coordinate", scales)
    active, shift = data.constrained(), np.log(square) - np.log(margin)
    rows = feature_rows(data, active)
    found = _barrier(rows, shift)
    weight = margin * _sinh(found @ rows, shift)
    miss = float(np.maximum(0.0, 1 - (rows @ weight) / margin).max())
    return FiniteMargin(weight, placed(found, active), potential(weight, np.sqrt(square)), miss)


def _sinh(u: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """sinh(u) e^shift, for arguments beyond the range of sinh and near 0."""
    near = np.abs(u) < 1
    far = 0.5 * (np.exp(u + shift) - np.exp(shift - u))
    return np.where(near, np.sinh(np.where(near, u, 0.0)) * np.exp(shift), far)


def _barrier(rows: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The dual variables of the program divided by its margin, by Newton steps on a barrier; `shift` is log(scale^2 / margin)."""
    unit = float(np.exp(-max(shift.max(), 0.0)))  # their size where margins are far below scale^2
    dual = np.full(len(rows), 1e-3 * unit)
    for barrier in unit * _BARRIERS:

        def value(dual: np.ndarray, barrier: float = barrier) -> tuple[float]:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                grown = 2 * (_sinh(dual @ rows / 2, shift / 2) ** 2).sum()  # cosh - 1 without cancellation
                found = float(grown - dual.sum() - barrier * np.log(dual).sum())
            return (found if np.isfinite(found) and dual.min() > 0 else np.inf,)

        def newton(dual: np.ndarray, barrier: float = barrier) -> tuple[np.ndarray, float]:
            u = dual @ rows
            hessian = (rows * 0.5 * (np.exp(u + shift) + np.exp(-u + shift))) @ rows.T
            gradient = rows @ _sinh(u, shift) - 1 - barrier / dual
            hessian[np.diag_indices_from(hessian)] += barrier / dual**2
            step = -np.linalg.solve(hessian, gradient)
            shrinking = step < 0
            step = step * min(1.0, _BOUNDARY * float((-dual[shrinking] / step[shrinking]).min(initial=np.inf)))
            return step, float(-gradient @ step)

        dual = descend(value, newton, dual, _STEPS)[0]
    return dual
