r"""What the diagonal flow should look like at a finite margin: $\min R(\beta)$ subject to $B^\top\beta \ge \mu$.

$R(\beta) = \sum_j \beta_j\,\mathrm{arcsinh}(\beta_j/w_j^2) - \sqrt{\beta_j^2 + w_j^4} + w_j^2$ is the potential whose gradient along the flow of
diagonal keys and queries is the gathered multipliers; its minimiser goes from the l2 solution ($\mu \ll w^2$) to the l1 solution
($\mu \gg w^2$). Solved in the dual, $\beta = w^2 \sinh(B\lambda)$, by Newton steps on a logarithmic barrier.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError, PenchantError
from .base import feature_rows, placed, require_margins, require_tokens

_BARRIERS = 10.0 ** -np.arange(1, 14)
_STEPS = 200
_DECREMENT = 1e-22
_BOUNDARY, _ARMIJO = 0.99, 1e-4


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
    """The dual variables of the program divided by its margin; `shift` is log(scale^2 / margin)."""
    cosh = lambda u: 0.5 * (np.exp(u + shift) + np.exp(-u + shift))
    curvature = lambda dual: (rows * cosh(dual @ rows)) @ rows.T
    return least_by_barrier(
        Growth(
            lambda dual: float(2 * (_sinh(dual @ rows / 2, shift / 2) ** 2).sum()),  # cosh - 1 without cancellation
            lambda dual: (rows @ _sinh(dual @ rows, shift), curvature(dual)),
        ),
        len(rows),
        float(np.exp(-max(shift.max(), 0.0))),
    )


class Growth(NamedTuple):
    """A convex function of the multipliers: its value, and its gradient and Hessian together."""

    value: Callable[[np.ndarray], float]
    derivatives: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def least_by_barrier(growth: Growth, count: int, unit: float) -> np.ndarray:
    """The positive multipliers of least growth minus their sum; `unit` is their size where margins are far below scale^2."""

    def value(dual: np.ndarray, barrier: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            return float(growth.value(dual) - dual.sum() - barrier * np.log(dual).sum())

    dual = np.full(count, 1e-3 * unit)
    for barrier in unit * _BARRIERS:
        for _ in range(_STEPS):
            first, hessian = growth.derivatives(dual)
            gradient = first - 1 - barrier / dual
            hessian[np.diag_indices_from(hessian)] += barrier / dual**2
            step = -np.linalg.solve(hessian, gradient)
            decrement = float(-gradient @ step)
            if decrement <= unit * _DECREMENT:
                break
            shrinking = step < 0
            length = min(1.0, _BOUNDARY * float((-dual[shrinking] / step[shrinking]).min(initial=np.inf)))
            now = value(dual, barrier)
            while not value(dual + length * step, barrier) <= now - _ARMIJO * length * decrement + 1e-14 * abs(now):
                length /= 2
                if length < 1e-12:
                    break
            if length < 1e-12:
                break
            dual = dual + length * step
        else:
            raise PenchantError("The finite-margin program was not solved: its Newton steps did not converge.")
    return dual


def spectral_finite_margin(data: object, scale: float, margin: float) -> FiniteMargin:
    r"""The matrix analogue of `finite_margin`: $\min \sum_j R(\sigma_j(W))$ subject to margins of token data of at least `margin`.

    From K = a I, Q = 0 the flow of W = K Q^T is $\dot W = \sqrt{WW^\top + c^2}\,G + G\sqrt{W^\top W + c^2}$ with $c = a^2/2$. Where G keeps
    the singular frames of W that is the mirror flow of this potential (the spectral hypentropy), and then the minimiser is where the
    flow should be at that margin; in general it is no mirror flow. Solved in the dual: $W = c\,\sinh(\sum_k \lambda_k Z_k)$, the hyperbolic
    sine of singular values. `scale` is that of the start, as in `finite_margin`: K = sqrt(2) `scale` I, Q = 0.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[0.0, 3.0]])
    >>> spectral_finite_margin(data, 1.0, 12.0).weight.round(9).tolist()       # one pair: W = 2 at its only entry
    [[0.0, 2.0], [0.0, 0.0]]
    """
    data = require_tokens(data, "spectral_finite_margin")
    for name, value in (("scale", scale), ("margin", margin)):
        if not 0 < value < np.inf:
            raise ArgumentError(name, "spectral_finite_margin", "positive and finite", value)
    active = data.constrained()
    pairs = feature_rows(data, active).reshape(-1, *data.weight_shape)
    ratio = scale**2 / margin
    found = least_by_barrier(_growth(pairs, ratio), len(pairs), min(1.0, 1 / ratio))
    left, sizes, right = np.linalg.svd(np.tensordot(found, pairs, 1), full_matrices=False)
    weight = scale**2 * (left * np.sinh(sizes)) @ right
    miss = float(np.maximum(0.0, 1 - np.tensordot(pairs, weight, 2) / margin).max())
    return FiniteMargin(weight, placed(found, active), spectral_potential(weight, scale), miss)


def spectral_potential(weight: object, scale: float) -> float:
    """The potential of the singular values."""
    sizes = np.linalg.svd(np.asarray(weight, float), compute_uv=False)
    return potential(sizes, np.full(len(sizes), scale))


def _growth(pairs: np.ndarray, ratio: float) -> Growth:
    """ratio * sum of cosh(s_j) - 1 over the singular values of sum_k lam_k Z_k: half the trace over the symmetric dilation."""
    rows = pairs.shape[1]
    wide = np.zeros((len(pairs), sum(pairs.shape[1:]), sum(pairs.shape[1:])))
    wide[:, :rows, rows:], wide[:, rows:, :rows] = pairs, pairs.transpose(0, 2, 1)

    def value(dual: np.ndarray) -> float:
        sizes = np.linalg.svd(np.tensordot(dual, pairs, 1), compute_uv=False)
        return float(2 * ratio * (np.sinh(sizes / 2) ** 2).sum())

    def derivatives(dual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes, frame = np.linalg.eigh(np.tensordot(dual, wide, 1))
        turned = frame.T @ wide @ frame
        gradient = ratio / 2 * np.diagonal(turned, axis1=1, axis2=2) @ np.sinh(sizes)
        half, mean = np.subtract.outer(sizes, sizes) / 2, np.add.outer(sizes, sizes) / 2
        near = np.abs(half) < 1e-4
        ratios = np.where(near, 1 + half**2 / 6, np.sinh(half) / np.where(near, 1.0, half))
        weighted = turned * (ratio / 2 * np.cosh(mean) * ratios)  # divided differences of sinh
        flat = turned.reshape(len(pairs), -1)
        return gradient, weighted.reshape(len(pairs), -1) @ flat.T

    return Growth(value, derivatives)
