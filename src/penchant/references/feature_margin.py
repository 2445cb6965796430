r"""min ||W|| subject to <Z_k, W> >= 1, in the features Z_k themselves.

A Gram matrix costs N^2 numbers and the square of the features' condition: margins below $\sqrt\epsilon$ of the longest feature are lost in it.
Here the program is Lawson and Hanson's least distance problem with rows of length 1, and the weight is solved for on the support that
this finds, not added up from multipliers that cancel: margins down to some 1e-13 of the longest feature are resolved.
"""

import equinox as eqx
import numpy as np
from scipy.optimize import linprog, nnls

from ..errors import PenchantError

_EPS = float(np.finfo(float).eps)
_PENALTIES = 10.0 ** -np.arange(0, 16, 3)
_SUPPORTS = (1e-6, 1e-9, 1e-12)  # fractions of the largest multiplier above which a sample may support
_PROOF = 16.0  # times rounding: what may be left of a combination that vanishes


class PrimalDual(eqx.Module):
    """A weight and multipliers of the features, and the relative gap between the bounds that they prove."""

    weight: np.ndarray
    dual: np.ndarray
    gap: float


def shortest(features: np.ndarray, wanted: float) -> PrimalDual | None:
    """The best pair found, up to a relative gap `wanted`; None without a weight that has all margins positive."""
    lengths = np.linalg.norm(features, axis=1)
    if lengths.min() == 0:
        return None
    rows, levels, best = features / lengths[:, None], lengths.min() / lengths, None
    for penalty in _PENALTIES:
        system = np.vstack([rows.T / penalty, levels])
        q = _nonnegative(system, np.append(np.zeros(rows.shape[1]), 1.0))
        for fraction in _SUPPORTS:
            found = _on_support(rows, levels, q > fraction * q.max())
            if found is not None and (best is None or found.gap < best.gap):
                best = found
        if best is not None and best.gap <= wanted:
            break
    if best is None:
        return None
    return PrimalDual(best.weight / lengths.min(), best.dual / (lengths * lengths.min()), best.gap)


def _nonnegative(system: np.ndarray, target: np.ndarray) -> np.ndarray:
    try:
        return nnls(system, target, maxiter=30 * system.shape[1])[0]
    except RuntimeError as error:  # the iteration limit
        raise PenchantError(f"The maximum-margin program was not solved: {error}") from None


def _on_support(rows: np.ndarray, levels: np.ndarray, support: np.ndarray) -> PrimalDual | None:
    """The shortest weight at the levels of the support, and multipliers that make it."""
    if not support.any():
        return None
    weight = np.linalg.lstsq(rows[support], levels[support], rcond=None)[0]
    dual = np.zeros(len(rows))
    dual[support] = np.maximum(np.linalg.lstsq(rows[support].T, weight, rcond=None)[0], 0.0)
    reach, pull = float((rows @ weight / levels).min()), float(np.linalg.norm(dual @ rows))
    if not (reach > 0 and pull > 0):
        return None
    return PrimalDual(weight / reach, dual, float(np.linalg.norm(weight) / reach * pull / (dual @ levels) - 1))


def vanishes(left: np.ndarray, size: np.ndarray) -> bool:
    """Whether a combination of features is 0 to rounding in every coordinate, given the same combination of their absolute values.

    Coordinate by coordinate, because whether data are separable does not depend on the units of their columns: a length that is small
    next to the longest feature proves nothing.
    """
    return bool((np.abs(left) <= _PROOF * _EPS * size).all())


def contradiction(features: np.ndarray) -> np.ndarray:
    """The nonnegative weights, of sum 1, whose combination of the features comes nearest to 0 with all columns in units of their own.

    Multipliers that are rounding alone are what remains of a coordinate without any others, so the support is solved for without them.
    """
    scaled, lengths = _equilibrated(features)
    system, target = np.vstack([scaled.T, np.ones(len(scaled))]), np.append(np.zeros(scaled.shape[1]), 1.0)
    first = _nonnegative(system, target)
    found = [first]
    for fraction in _SUPPORTS:
        support, q = first > fraction * first.max(), np.zeros(len(first))
        q[support] = np.linalg.lstsq(system[:, support], target, rcond=None)[0]
        found += [q] * bool(q.min() >= 0 and q.max() > 0)
    rest = [_left_over(scaled, q) for q in found]
    best = found[int(np.argmin(rest))] / lengths
    return best / best.sum()


def _left_over(features: np.ndarray, weights: np.ndarray) -> float:
    """The largest coordinate of a combination relative to what cancels in it."""
    left, size = np.abs(weights @ features), weights @ np.abs(features)
    return float((left[size > 0] / size[size > 0]).max(initial=0.0))


def witness(features: np.ndarray) -> float:
    """The smallest margin of a direction of length 1 that provably separates, or nan: a linear program in units of the columns."""
    scaled, _ = _equilibrated(features)
    columns = np.abs(features).max(axis=0)
    n, d = scaled.shape
    cost = np.append(np.zeros(d), -1.0)
    bounds = [(-1.0, 1.0)] * d + [(0.0, None)]
    result = linprog(cost, A_ub=np.hstack([-scaled, np.ones((n, 1))]), b_ub=np.zeros(n), bounds=bounds, method="highs")
    if not result.success:
        return float("nan")
    weight = result.x[:d] / np.where(columns > 0, columns, 1.0)
    weight = weight / max(float(np.linalg.norm(weight)), np.finfo(float).tiny)
    margins, rounding = features @ weight, 2 * d * _EPS * (np.abs(features) @ np.abs(weight))
    return float(margins.min()) if (margins > rounding).all() else float("nan")


def _equilibrated(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns divided by their largest entry, then rows by their length, and those lengths."""
    columns = np.abs(features).max(axis=0)
    scaled = features / np.where(columns > 0, columns, 1.0)
    lengths = np.linalg.norm(scaled, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return scaled / lengths[:, None], lengths
