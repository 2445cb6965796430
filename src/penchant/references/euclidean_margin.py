"""min ||W|| subject to <Z_k, W> >= 1 in the l2 (Frobenius) norm, solved in its dual with the Gram matrix only.

The dual is max 1'a - a'Ka/2 over a >= 0, W = sum_k a_k Z_k. Block pivoting (solve on a free set, drop the negative, add the
violated) ends in a handful of Cholesky factorisations when K is regular; otherwise the same problem is a nonnegative least
squares problem, which needs no regularity and also finds the proof when there is no solution.
Own code because it is decisively faster than a general cone solver, which sees N constraints on d x d variables.
"""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack
from scipy.optimize import nnls

from ..errors import InfeasibleError, InfeasibleSVM, NotSeparableError
from .base import Solution
from .bracket import Euclidean, adjoint, bracket, margins

_ROUNDS = 100
_GAP = 1e-12  # certified relative width asked of every solution
_RESOLUTION = 1e-10  # a margin below this fraction of the longest feature cannot be told from 0 in float64


def max_margin(data: Any) -> Solution:
    """The maximum-margin weight of `data` in the l2 (Frobenius) norm.

    Raises `NotSeparableError` or `InfeasibleSVM`, with the convex combination of features that proves it, if there is none.

    >>> import penchant as pt
    >>> solution = max_margin(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]))
    >>> solution.weight.round(12).tolist(), round(solution.value, 12)
    ([0.5, 1.0], 1.11803398875)
    """
    active = data.constrained()
    gram = np.asarray(_gram(data))[np.ix_(active, active)]
    dual = np.zeros(len(active))
    dual[active] = _solve(gram, lambda q, norm: _infeasible(data, active, q, norm))
    found = _certified(data, active, _weight(data, dual), dual)
    return found if found.bracket.gap <= _GAP else _refined(data, active, found)


_gram = eqx.filter_jit(lambda data: data.gram())


def _weight(data: Any, dual: np.ndarray) -> np.ndarray:
    return np.asarray(adjoint(data, dual))


def _certified(data: Any, active: np.ndarray, weight: np.ndarray, dual: np.ndarray) -> Solution:
    weight = weight / np.asarray(margins(data, weight))[active].min()
    return Solution(data.names["norm"], weight, dual, bracket(data, weight, dual, Euclidean()))


def _refined(data: Any, active: np.ndarray, found: Solution) -> Solution:
    """Margins of exactly 1 on the support, solved in the features: the Gram matrix has their condition number squared."""
    support = np.flatnonzero(found.support & active)
    units = np.zeros((len(support), len(active)))
    units[np.arange(len(support)), support] = 1.0
    features = np.stack([_weight(data, unit) for unit in units]).reshape(len(support), -1)
    weight = np.linalg.lstsq(features, np.ones(len(support)), rcond=None)[0]
    dual = np.zeros(len(active))
    dual[support] = np.linalg.lstsq(features.T, weight, rcond=None)[0]
    refined = _certified(data, active, weight.reshape(found.weight.shape), dual)
    return refined if 0 <= refined.bracket.gap < found.bracket.gap else found


def _infeasible(data: Any, active: np.ndarray, q: np.ndarray, norm: float) -> InfeasibleError:
    weights = np.zeros(len(active))
    weights[active] = q
    return (NotSeparableError if len(data.weight_shape) == 1 else InfeasibleSVM)(weights, norm)


def _solve(gram: np.ndarray, infeasible: Any) -> np.ndarray:
    scale = gram.diagonal().max()
    if gram.diagonal().min() <= _RESOLUTION**2 * scale:  # a feature of length 0 can never reach margin 1
        q = np.zeros(len(gram))
        q[gram.diagonal().argmin()] = 1.0
        raise infeasible(q, float(np.sqrt(max(gram.diagonal().min(), 0.0))))
    scaled = gram / scale
    found = _block_pivoting(scaled)
    if found is None:
        found = _least_squares(scaled, lambda q, norm: infeasible(q, norm * np.sqrt(scale)))
    return found / scale


def _gap(gram: np.ndarray, dual: np.ndarray) -> float:
    """Certified relative gap of the norm, from the Gram matrix; infinite without a positive margin."""
    margins, mass = gram @ dual, dual.sum()
    if dual.min() < 0 or mass <= 0 or margins.min() <= 0:
        return np.inf
    return abs(float(dual @ margins) / (margins.min() * mass) - 1)


def _block_pivoting(gram: np.ndarray) -> np.ndarray | None:
    """Free sets exchanged in blocks; single exchanges when the count of violations stops falling (this ends cycles)."""
    n, tolerance = len(gram), 1e-12
    free, fewest, patience = np.ones(n, bool), n + 1, 10
    for _ in range(_ROUNDS):
        index = np.flatnonzero(free)
        dual = np.zeros(n)
        try:
            factor = cho_factor(gram[np.ix_(index, index)], lower=True)
        except LinAlgError:
            return None
        dual[index] = cho_solve(factor, np.ones(len(index)))
        slack = gram @ dual - 1
        wrong = np.where(
            free, dual < -tolerance * np.abs(dual).max(), slack < -tolerance * max(1.0, np.abs(dual).max())
        )
        if not wrong.any():
            dual = np.maximum(dual, 0.0)
            return dual if _gap(gram, dual) <= 1e-8 else None  # else too ill-conditioned for Cholesky
        if wrong.sum() < fewest:
            fewest, patience = int(wrong.sum()), 10
        elif patience > 0:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return None


def _least_squares(gram: np.ndarray, infeasible: Any) -> np.ndarray:
    """min |Rq|^2 + mu^2 (1 - sum q)^2 over q >= 0 with R'R = gram; smaller mu resolves smaller margins."""
    root = _root(gram)
    best, least, norm, q = None, np.inf, np.inf, np.zeros(len(gram))
    for mu in (1.0, 1e-3, 1e-6):
        q = nnls(np.vstack([root, np.full(len(gram), mu)]), np.append(np.zeros(len(root)), mu), maxiter=30 * len(gram))[
            0
        ]
        for candidate in (_polish(gram, q), q):
            gap = _gap(gram, candidate)
            if gap < least:
                best, least = candidate / (gram @ candidate).min(), gap
        q = q / q.sum()
        norm = float(np.linalg.norm(root @ q))
        if least <= _GAP or norm <= _RESOLUTION:
            break
    if best is None:
        raise infeasible(q, norm)
    return best


def _root(gram: np.ndarray) -> np.ndarray:
    """R with R'R = gram, of as many rows as the rank (pivoted Cholesky)."""
    factor, pivots, rank, _ = lapack.dpstrf(gram, lower=0)  # pyright: ignore[reportAttributeAccessIssue]
    root = np.zeros((rank, len(gram)))
    root[:, pivots - 1] = np.triu(factor)[:rank]
    return root


def _polish(gram: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Equal margins on the support of q, exactly, if that leaves the multipliers nonnegative."""
    support = np.flatnonzero(q > 1e-9 * q.max())
    dual = np.zeros(len(gram))
    dual[support] = np.linalg.lstsq(gram[np.ix_(support, support)], np.ones(len(support)), rcond=None)[0]
    return dual if dual.min() >= 0 else np.maximum(q, 0.0)
