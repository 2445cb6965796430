r"""min ||W|| subject to <Z_k, W> >= 1 in the l2 (Frobenius) norm, solved in its dual with the Gram matrix K, or in the features Z_k themselves.

The dual is max 1'a - a'Ka/2 over a >= 0, W = sum_k a_k Z_k. Block pivoting (solve on a free set, drop the negative, add the
violated) ends in a handful of Cholesky factorisations when K is regular.
Own code because it is decisively faster than a general cone solver, which sees N constraints on d x d variables.

A Gram matrix costs N^2 numbers and the square of the features' condition: margins below $\sqrt\epsilon$ of the longest feature are lost in it.
Where it is singular or says too little, Lawson and Hanson's least distance program takes the features, with rows of length 1 or as they are, and
the weight is solved for on the support that this finds: margins down to some 1e-13 of the longest feature are resolved.
"""

from collections.abc import Iterator
from itertools import product

import equinox as eqx
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack
from scipy.optimize import linprog, nnls

from ..errors import PenchantError, UndecidedMargin, inseparable_inputs, inseparable_tokens
from ..norms import L2
from ..settings.base import Data
from .base import Solution, feature_rows, parts, placed, require_margins, row_blocks, watched
from .bracket import adjoint, bracket, margins, sums
from .exact_margin import balanced

_ROUNDS = 100
_TALL, _LARGEST = 2000, 20_000  # margins
_ENTRIES = 20_000_000  # of the features, that are held in memory
_GAP = 1e-12  # certified relative width asked of every solution


@watched
def max_margin(data: object) -> Solution:
    """The maximum-margin weight of `data` in the l2 (Frobenius) norm.

    Raises `NotSeparableError`, with the convex combination of features that proves it, if there is none.

    >>> import penchant as pt
    >>> solution = max_margin(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]))
    >>> solution.weight.round(12).tolist(), round(solution.value, 12)
    ([0.5, 1.0], 1.11803398875)
    """
    data = require_margins(data, "max_margin")
    active = data.constrained()
    fit, tall = _fit(data, active), _tall(data, active)
    if fit and tall:  # the Gram matrix would be far larger than the features
        return _by_rows(data, active, feature_rows(data, active))
    gram = np.asarray(_gram(data))[np.ix_(active, active)]
    dual = _block_pivoting(gram)
    if dual is None:
        return _by_rows(data, active, feature_rows(data, active) if fit else gram_root(gram).T)
    dual = placed(dual, active)
    found = _certified(data, active, _weight(data, dual), dual)
    found = found if _solved(found) else _refined(data, active, found)
    return provable(data, active, found if _solved(found) or not fit else _improved(data, active, found))


def _solved(found: Solution) -> bool:
    """Whether the bracket is narrow, up to rounding."""
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
        other = _by_rows(data, active, feature_rows(data, active))
    except PenchantError:
        return found
    return min(found, other, key=lambda solution: abs(solution.bracket.gap))


def _by_rows(data: Data, active: np.ndarray, rows: np.ndarray) -> Solution:
    """The slower program that resolves small margins, in the features or rows of the same inner products; where it finds none, the proof
    that there is none, or the doubt. Which weight has more digits, that of the program or that of its multipliers, depends on the data."""
    best = None
    for weight, dual in _pairs(rows):
        dual = placed(dual, active)
        own = [weight.reshape(data.weight_shape)] * int(weight.size == np.prod(data.weight_shape))
        for one in (*own, _weight(data, dual)):
            found = _certified(data, active, one, dual)
            if not (found.certified and _solved(found)):
                roomy = _certified(data, active, _with_room(data, active, one, dual, rows), dual)
                found = min(found, roomy, key=lambda solution: solution.bracket.gap)
            best = found if best is None or found.bracket.gap < best.bracket.gap else best
        if best is not None and best.certified and _solved(best):
            return best
    if best is None or best.bracket.upper == np.inf:
        raise infeasible(data, active, contradiction(rows))
    return best


def _with_room(data: Data, active: np.ndarray, weight: np.ndarray, dual: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The weight with its smallest margins raised by what rounding may take from them, which costs next to nothing along a long row, where
    the rounding is: a bracket divides by the smallest certain margin, and so raises all of them."""
    if rows.shape[1] != weight.size:
        return weight
    reached, blur = (found[active] for found in sums(data, weight, dual)[:2])
    missing = reached.min() + 2 * blur - reached
    short = missing > 0
    lengths = np.linalg.norm(rows[short], axis=1)
    step = np.linalg.lstsq(rows[short] / lengths[:, None], missing[short] / lengths, rcond=None)[0]
    return weight + step.reshape(weight.shape)


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
    weight, dual = _on_support(features, np.ones(len(features)), np.ones(len(features), bool))
    refined = _certified(data, active, weight.reshape(found.weight.shape), placed(dual, support))
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
    if len(data.weight_shape) > 1:
        return inseparable_tokens(weights, norm, pairs)
    signed = np.abs(np.asarray(getattr(data, "signed", np.zeros((1, 1)))))
    bias = bool(((signed == signed[0]).all(axis=0) & (signed[0] > 0)).any())  # an input that is the same up to its sign
    return inseparable_inputs(weights, norm, pairs, bias)


def _undecided(data: Data, active: np.ndarray, most: float) -> UndecidedMargin:
    """The doubt about a margin that is at most `most`."""
    longest = max(float(np.linalg.norm(rows, axis=1).max()) for rows in row_blocks(data, active))
    return UndecidedMargin(most, longest, witness(feature_rows(data, active)) if _fit(data, active) else np.nan)


def largest_pairs(data: Data, weights: np.ndarray) -> str:
    """The pairs that carry most of a proof, by sample and token, where the data are pairs of tokens (also of their diagonals)."""
    others = getattr(getattr(data, "tokens", data), "others", getattr(data, "others", None))
    if others is None:
        return ""
    tokens, per_sample = np.asarray(others).ravel(), np.shape(others)[1]
    top = [k for k in np.argsort(-weights)[:3] if weights[k] > 0.01]
    return ", ".join(f"{weights[k]:.2g} on sample {k // per_sample} token {tokens[k]}" for k in top)


def _block_pivoting(gram: np.ndarray) -> np.ndarray | None:
    """Multipliers of the shortest weight with margins of at least 1; None where the Gram matrix is singular or too ill-conditioned.

    Free sets exchanged in blocks; single exchanges when the count of violations stops falling (this ends cycles).
    """
    if gram.diagonal().min() <= 0:  # a feature of length 0 can never reach margin 1
        return None
    n, tolerance, scale = len(gram), 1e-12, gram.diagonal().max()
    gram = gram / scale
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
            return dual / scale if gap <= 1e-8 else None  # else too ill-conditioned for Cholesky
        if wrong.sum() < fewest:
            fewest, patience = int(wrong.sum()), 10
        elif patience > 0:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return None


def gram_root(gram: np.ndarray) -> np.ndarray:
    """R with R'R = gram, by pivoted Cholesky: the Gram matrix may be singular."""
    factor, pivots, rank, _ = lapack.dpstrf(gram, lower=0)  # pyright: ignore[reportAttributeAccessIssue]
    root = np.zeros((rank, len(gram)))
    root[:, pivots - 1] = np.triu(factor)[:rank]
    return root


_EPS = float(np.finfo(float).eps)
_PENALTIES = 10.0 ** -np.arange(0, 16, 3)
_SUPPORTS = (1e-6, 1e-9, 1e-12)  # fractions of the largest multiplier above which a sample may support
_PROOF = 16.0  # times rounding: what may be left of a combination that vanishes


def _pairs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights with positive margins and multipliers, each pair of other units and penalties: none is the best on all data."""
    lengths = np.linalg.norm(rows, axis=1)
    if lengths.min() == 0:
        return
    for units, penalty in product((np.full_like(lengths, lengths.max()), lengths), _PENALTIES):
        scaled, levels = rows / units[:, None], units.min() / units
        q = _nonnegative(np.vstack([scaled.T / penalty, levels]), np.append(np.zeros(rows.shape[1]), 1.0))
        supports = [q > fraction * q.max() for fraction in _SUPPORTS]
        for weight, dual in (*(_on_support(scaled, levels, one) for one in supports if one.any()), (q @ scaled, q)):
            reach = float((scaled @ weight / levels).min())
            if reach > 0 and dual.any():
                yield weight / (reach * units.min()), dual / (reach * units * units.min())


def _nonnegative(system: np.ndarray, target: np.ndarray) -> np.ndarray:
    try:
        return nnls(system, target, maxiter=30 * system.shape[1])[0]
    except RuntimeError as error:  # the iteration limit
        raise PenchantError(f"The maximum-margin program was not solved: {error}") from None


def _on_support(rows: np.ndarray, levels: np.ndarray, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shortest weight at the levels of the support, and multipliers that make it."""
    weight = np.linalg.lstsq(rows[support], levels[support], rcond=None)[0]
    pulls = np.linalg.lstsq(rows[support].T, weight, rcond=None)[0]
    return weight, placed(np.maximum(pulls, 0.0), support)


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
    system, target = _combination(scaled)
    first = _nonnegative(system, target)
    found = [one for one in (first / lengths, _nonnegative(*_combination(features))) if one.any()]
    for fraction in _SUPPORTS:
        support, q = first > fraction * first.max(), np.zeros(len(first))
        q[support] = np.linalg.lstsq(system[:, support], target, rcond=None)[0]
        found += [q / lengths] * bool(q.min() >= 0 and q.max() > 0)
    best = min(found, key=lambda weights: _left_over(features, weights))
    return best / best.sum()


def _combination(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What multipliers of sum 1 that combine rows to 0 solve."""
    return np.vstack([rows.T, np.ones(len(rows))]), np.append(np.zeros(rows.shape[1]), 1.0)


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
