r"""min ||W|| subject to <Z_k, W> >= 1 in the l2 (Frobenius) norm, solved in its dual with the Gram matrix only.

The dual is max 1'a - a'Ka/2 over a >= 0, W = sum_k a_k Z_k. Block pivoting (solve on a free set, drop the negative, add the
violated) ends in a handful of Cholesky factorisations when K is regular; otherwise the same problem is a nonnegative least
squares problem, which needs no regularity and also finds the proof when there is no solution.
Own code because it is decisively faster than a general cone solver, which sees N constraints on d x d variables.

min ||W|| subject to <Z_k, W> >= 1, in the features Z_k themselves.

A Gram matrix costs N^2 numbers and the square of the features' condition: margins below $\sqrt\epsilon$ of the longest feature are lost in it.
Here the program is Lawson and Hanson's least distance problem with rows of length 1, and the weight is solved for on the support that
this finds, not added up from multipliers that cancel: margins down to some 1e-13 of the longest feature are resolved.
"""

from collections.abc import Callable

import equinox as eqx
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack
from scipy.optimize import linprog, nnls

from ..errors import InfeasibleSVM, NotSeparableError, PenchantError, UndecidedMargin
from ..norms import L2
from ..settings.base import Data
from .base import Solution, feature_rows, parts, placed, require_margins, row_blocks, watched
from .bracket import adjoint, bracket, margins
from .exact_margin import balanced

_ROUNDS = 100
_TALL, _LARGEST = 2000, 20_000  # margins
_ENTRIES = 20_000_000  # of the features, that are held in memory
_GAP = 1e-12  # certified relative width asked of every solution


@watched
def max_margin(data: object) -> Solution:
    """The maximum-margin weight of `data` in the l2 (Frobenius) norm.

    Raises `NotSeparableError` or `InfeasibleSVM`, with the convex combination of features that proves it, if there is none.

    >>> import penchant as pt
    >>> solution = max_margin(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]))
    >>> solution.weight.round(12).tolist(), round(solution.value, 12)
    ([0.5, 1.0], 1.11803398875)
    """
    data = require_margins(data, "max_margin")
    active = data.constrained()
    fit, tall = _fit(data, active), _tall(data, active)
    if fit and tall:  # the Gram matrix would be far larger than the features
        return _by_features(data, active)
    gram = np.asarray(_gram(data))[np.ix_(active, active)]
    root = lambda: _feature_root(data, active, gram)
    try:
        dual = placed(least_norm(gram, root, lambda q: infeasible(data, active, q)), active)
    except UndecidedMargin:
        if not fit:
            raise
        return _by_features(data, active)
    found = _certified(data, active, _weight(data, dual), dual)
    found = found if _solved(found) else _refined(data, active, found)
    return provable(data, active, found if _solved(found) or not fit else _improved(data, active, found))


def _solved(found: Solution) -> bool:
    """Whether the bracket is narrow, up to rounding that no other solution would be without."""
    return found.bracket.gap - found.bracket.rounding <= _GAP


def provable(data: Data, active: np.ndarray, found: Solution) -> Solution:
    """A solution with margins that are provably positive, or the doubt."""
    if found.bracket.upper < np.inf:
        return found
    raise _undecided(data, active, 1 / found.bracket.lower)


_gram = eqx.filter_jit(lambda data: data.gram())


def _tall(data: Data, active: np.ndarray) -> bool:
    """Whether the program in the features is the cheaper one: many more of them than dimensions, or too many for a Gram matrix."""
    count = active.sum()
    return bool(count > max(_TALL, 16 * np.prod(data.weight_shape)) or count > _LARGEST)


def _fit(data: Data, active: np.ndarray) -> bool:
    """Whether the features fit in memory beside everything else."""
    return bool(active.sum() * np.prod(data.weight_shape) <= _ENTRIES)


def _improved(data: Data, active: np.ndarray, found: Solution) -> Solution:
    """A wide bracket, or that of the features if they are solved at all and it is narrower."""
    try:
        other = _by_features(data, active)
    except PenchantError:
        return found
    return min(found, other, key=lambda solution: abs(solution.bracket.gap))


def _by_features(data: Data, active: np.ndarray) -> Solution:
    """The slower program that resolves small margins; where it finds none, the proof that there is none, or the doubt."""
    features = feature_rows(data, active)
    found = shortest(features, _GAP)
    if found is None:
        raise infeasible(data, active, contradiction(features))
    weight = found.weight.reshape(data.weight_shape)
    return provable(data, active, _certified(data, active, weight, placed(found.dual, active)))


def _weight(data: Data, dual: np.ndarray) -> np.ndarray:
    return np.asarray(adjoint(data, dual))


def _certified(data: Data, active: np.ndarray, weight: np.ndarray, dual: np.ndarray) -> Solution:
    smallest = np.asarray(margins(data, weight))[active].min()
    weight = weight / smallest if smallest > 0 else weight
    return Solution(data.names["norm"], weight, dual, bracket(data, weight, dual), L2())


def _refined(data: Data, active: np.ndarray, found: Solution) -> Solution:
    """Margins of exactly 1 on the support, solved in the features: the Gram matrix has their condition number squared."""
    support = found.support & active
    features = feature_rows(data, support)
    weight = np.linalg.lstsq(features, np.ones(len(features)), rcond=None)[0]
    dual = placed(np.linalg.lstsq(features.T, weight, rcond=None)[0], support)
    refined = _certified(data, active, weight.reshape(found.weight.shape), dual)
    return refined if 0 <= refined.bracket.gap < found.bracket.gap else found


def infeasible(data: Data, active: np.ndarray, q: np.ndarray) -> PenchantError:
    """The proof that there is no solution, recomputed from the features; without a proof, the case is undecided."""
    weights = placed(q / q.sum(), active)
    left = _weight(data, weights)
    norm, used = float(np.linalg.norm(left)), weights > 0
    size = sum(weight @ np.abs(rows) for weight, rows in zip(parts(weights[used]), row_blocks(data, used), strict=True))
    if not (vanishes(left.ravel(), np.asarray(size)) and balanced(data, weights)):
        return _undecided(data, active, norm)
    if (own := getattr(data, "inseparable", None)) is not None:
        return own(weights, norm)
    pairs = largest_pairs(data, weights)
    matrix = len(data.weight_shape) > 1
    return InfeasibleSVM(weights, norm, pairs) if matrix else NotSeparableError(weights, norm, pairs, _has_bias(data))


def _undecided(data: Data, active: np.ndarray, most: float) -> UndecidedMargin:
    """The doubt about a margin that is at most `most`."""
    longest = max(float(np.linalg.norm(rows, axis=1).max()) for rows in row_blocks(data, active))
    return UndecidedMargin(most, longest, witness(feature_rows(data, active)) if _fit(data, active) else np.nan)


def _has_bias(data: Data) -> bool:
    """Whether some input is the same in every sample, up to the sign that the labels give it."""
    signed = np.abs(np.asarray(getattr(data, "signed", np.zeros((1, 1)))))
    return bool(((signed == signed[0]).all(axis=0) & (signed[0] > 0)).any())


def largest_pairs(data: Data, weights: np.ndarray) -> str:
    """The pairs that carry most of a proof, by sample and token, where the data are pairs of tokens (also of their diagonals)."""
    others = getattr(getattr(data, "tokens", data), "others", getattr(data, "others", None))
    if others is None:
        return ""
    tokens, per_sample = np.asarray(others).ravel(), np.shape(others)[1]
    top = [k for k in np.argsort(-weights)[:3] if weights[k] > 0.01]
    return ", ".join(f"{weights[k]:.2g} on sample {k // per_sample} token {tokens[k]}" for k in top)


def least_norm(
    gram: np.ndarray, root: Callable[[], np.ndarray], refuse: Callable[[np.ndarray], PenchantError]
) -> np.ndarray:
    """Multipliers of the shortest weight with margins of at least 1, from the Gram matrix; `refuse` makes the error where there is none."""
    scale = gram.diagonal().max()
    if gram.diagonal().min() <= 0:  # a feature of length 0 can never reach margin 1
        raise refuse((np.arange(len(gram)) == gram.diagonal().argmin()).astype(float))
    scaled = gram / scale
    found = _block_pivoting(scaled)
    if found is None:
        found = _least_squares(scaled, root() / np.sqrt(scale), refuse)
    return found / scale


def _gap(root: np.ndarray, dual: np.ndarray) -> float:
    """Certified relative gap of the norm; infinite without a positive margin."""
    weight, mass = root @ dual, dual.sum()
    margins = root.T @ weight
    if dual.min() < 0 or mass <= 0 or margins.min() <= 0:
        return np.inf
    return abs(float(weight @ weight) / (margins.min() * mass) - 1)


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
        top = np.abs(dual).max()
        wrong = np.where(free, dual < -tolerance * top, slack < -tolerance * max(1.0, top))
        if not wrong.any():
            dual = np.maximum(dual, 0.0)
            margins = gram @ dual
            if margins.min() <= 0:
                return None
            gap = abs(float(dual @ margins) / (margins.min() * dual.sum()) - 1)
            return dual if gap <= 1e-8 else None  # else too ill-conditioned for Cholesky
        if wrong.sum() < fewest:
            fewest, patience = int(wrong.sum()), 10
        elif patience > 0:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return None


def _least_squares(gram: np.ndarray, root: np.ndarray, refuse: Callable[[np.ndarray], PenchantError]) -> np.ndarray:
    """min |Rq|^2 + mu^2 (1 - sum q)^2 over q >= 0 with R'R = gram; smaller mu resolves smaller margins."""
    best, least, q = None, np.inf, np.zeros(len(gram))
    for mu in (1.0, 1e-3, 1e-6, 1e-9, 1e-12):
        system = np.vstack([root, np.full(len(gram), mu)])
        q = nnls(system / mu, np.append(np.zeros(len(root)), 1.0), maxiter=30 * len(gram))[0]
        for candidate in (_polish(root, q), q):
            gap = _gap(root, candidate)
            if gap < least:
                best, least = candidate / (root.T @ (root @ candidate)).min(), gap
        if least <= 1e-6 or np.linalg.norm(root @ q) <= np.finfo(float).eps * q.sum():
            break
    if best is None:
        raise refuse(q)
    return best


def gram_root(gram: np.ndarray) -> np.ndarray:
    """R with R'R = gram, by pivoted Cholesky: the Gram matrix may be singular."""
    factor, pivots, rank, _ = lapack.dpstrf(gram, lower=0)  # pyright: ignore[reportAttributeAccessIssue]
    root = np.zeros((rank, len(gram)))
    root[:, pivots - 1] = np.triu(factor)[:rank]
    return root


def _feature_root(data: Data, active: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """R with R'R = gram: from the features themselves while they fit in memory, which keeps all digits, else from the Gram matrix."""
    if not _fit(data, active):
        return gram_root(gram)
    return root_of(feature_rows(data, active))


def root_of(features: np.ndarray) -> np.ndarray:
    """R with R'R the Gram matrix of features, of as few rows as possible."""
    return features.T if features.shape[1] <= len(features) else np.asarray(np.linalg.qr(features.T, mode="r"))


def _polish(root: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Equal margins on the support of q, exactly, if that leaves the multipliers nonnegative."""
    support = np.flatnonzero(q > 1e-9 * q.max())
    weight = np.linalg.lstsq(root[:, support].T, np.ones(len(support)), rcond=None)[0]
    dual = np.zeros(root.shape[1])
    dual[support] = np.linalg.lstsq(root[:, support], weight, rcond=None)[0]
    return dual if dual.min() >= 0 and dual.max() > 0 else np.maximum(q, 0.0)


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
