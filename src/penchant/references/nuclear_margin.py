r"""min ||W||_* subject to <Z_k, W> >= 1 in the nuclear norm, for pairs $Z_k = d_k q_k^\top$ of rank one.

Pairs are scaled to length 1, so that tokens and queries of very different size are one problem like any other; an interior point
does the rest. Its multipliers, divided by the operator norm of what they gather, are a dual point: the bracket needs no trust in this file.

The nuclear norm is half the least trace of a positive semidefinite X = [[., W], [W', .]]; its dual slack is Z = I - [[0, M], [M', 0]]
with $M = \sum_k \lambda_k d_k q_k^\top$. Each step is Newton's on X Z = mu I, slack * multiplier = mu, with Mehrotra's choice of mu and
second-order correction, in the direction of Helmberg, Kojima and Monteiro. A general cone solver sees N dense rows of size (d + e)^2;
here they have rank two, so the system of size N costs products of N x d and N x N arrays only.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, eigvalsh, solve_triangular

from ..errors import PenchantError, warn
from ..norms import Nuclear
from ..settings.tokens import TokenSelection
from .base import CERTIFIED, Solution, placed, require_tokens, watched
from .bracket import bracket, margins
from .euclidean_margin import infeasible, least_norm, max_margin, provable, root_of
from .pair_program import least_ridge

_GAP = 1e-9  # certified relative width asked of every solution
_ROUNDS = 100
_PATIENCE = 8  # rounds without a better bound, after which rounding has the last word
_SHARE = 0.95  # of the way to the boundary
_ROUGH = 1e-3  # gap at which active and idle pairs are told apart
_IDLE = 0.1  # share of the multipliers over excess margin below which a pair is idle, where all shares equal would be 1
_FEW = 0.8  # of all pairs: with more, leaving the others out gains nothing
_TRIES = 3
_INSIDE = 0.999  # operator norm of what multipliers gather, below 1 for a positive definite Z


class Pairs(NamedTuple):
    """Unit differences `left` and unit queries `right` in coordinates of their spans, and the right-hand sides `bounds`."""

    left: np.ndarray
    right: np.ndarray
    bounds: np.ndarray

    def margins(self, weight: np.ndarray) -> np.ndarray:
        return np.einsum("ka,ka->k", self.left @ weight, self.right)

    def gather(self, multipliers: np.ndarray) -> np.ndarray:
        return self.left.T @ (multipliers[:, None] * self.right)

    def width(self, weight: np.ndarray, multipliers: np.ndarray) -> float:
        """Certified relative gap of a weight with multipliers, by weak duality alone."""
        reached, mass = (self.margins(weight) / self.bounds).min(), self.bounds @ multipliers
        if reached <= 0 or mass <= 0:
            return np.inf
        upper = np.linalg.norm(weight, "nuc") / reached
        return float(upper * np.linalg.norm(self.gather(multipliers), 2) / mass - 1)

    def apply(self, block: np.ndarray) -> np.ndarray:
        """<[[0, d q'], [q d', 0]], block> for every pair."""
        return 2 * self.margins(block[: self.left.shape[1], self.left.shape[1] :])

    def spread(self, multipliers: np.ndarray) -> np.ndarray:
        """The adjoint of `apply`."""
        gathered = self.gather(multipliers)
        rows, columns = gathered.shape
        return np.block([[np.zeros((rows, rows)), gathered], [gathered.T, np.zeros((columns, columns))]])

    def schur(self, block: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        """tr(A_k block A_l inverse) for the matrices A_k of `apply`."""
        split = self.left.shape[1]
        near = lambda m: self.left @ m[:split, :split] @ self.left.T
        far = lambda m: self.right @ m[split:, split:] @ self.right.T
        across = lambda m: self.left @ m[:split, split:] @ self.right.T
        total = across(block) * across(inverse).T
        total = total + total.T
        total += far(block) * near(inverse)
        total += near(block) * far(inverse)
        return total


@watched
def nuclear_margin(data: object, gap: float = _GAP) -> Solution:
    """The maximum-margin matrix of token data in the nuclear norm, certified to a relative `gap` where float64 allows.

    The gap that was reached is `solution.bracket.gap`; above 1e-6 the solution is not `certified`, which warns and leaves verdicts
    undecided. Raises `InfeasibleSVM` with the proof if no matrix has a positive margin.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[0.0, 3.0]])
    >>> round(nuclear_margin(data).value, 6)                       # one pair: 1 / (2 * 3)
    0.166667
    """
    data = require_tokens(data, "nuclear_margin")
    active = data.constrained()
    n, others = data.others.shape
    left = np.asarray(data.differences()).reshape(n * others, -1)[active]
    right = np.repeat(np.asarray(data.queries), others, axis=0)[active]
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    if lengths.min() == 0:
        max_margin(data)  # raises, with the pair that can never reach margin 1 as proof
    left, right = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (left, right))
    rows, columns = _basis(left), _basis(right)
    scale = lengths.min()
    pairs = Pairs(left @ rows, right @ columns, scale / lengths)
    start = _inside(pairs, lambda q: _refusal(data, infeasible(data, active, q / lengths)))
    # Thirty times closer than asked: dropping the multipliers of idle margins costs about ten times the gap.
    weight, multipliers = _without_idle(pairs, *interior_point(pairs, start, gap / 30), gap)
    dual, weight = placed(multipliers / lengths, active), rows @ weight @ columns.T
    smallest = np.asarray(margins(data, weight))[active].min()
    weight = weight / smallest if smallest > 0 else weight
    norm = Nuclear()
    found = provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm))
    if not found.certified:
        warn(
            f"`nuclear_margin` could not certify its solution: the optimum lies between {found.bracket.lower:.9g} and "
            f"{found.bracket.upper:.9g}, a relative gap of {found.bracket.gap:.1e} (wanted: {CERTIFIED:.0e}). Verdicts on it are undecided.\n"
            "  Usual cause: queries or token differences that are parallel up to rounding.\n"
            "  Fix: remove near-duplicate samples or tokens."
        )
    return found


def _refusal(data: TokenSelection, found: PenchantError) -> PenchantError:
    """Whether a matrix selects the wanted tokens does not depend on its norm: the answer of `max_margin`, where it has one."""
    try:
        max_margin(data)
    except PenchantError as error:
        return error
    return found


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows."""
    _, size, basis = np.linalg.svd(rows, full_matrices=False)
    return basis[size > 1e-12 * size[0]].T


def _inside(pairs: Pairs, refuse: Callable[[np.ndarray], PenchantError]) -> np.ndarray:
    """A strictly feasible weight: twice the shortest one with margins of at least the largest bound, which is 1."""
    gram = (pairs.left @ pairs.left.T) * (pairs.right @ pairs.right.T)
    root = lambda: root_of(np.einsum("ka,kb->kab", pairs.left, pairs.right).reshape(len(gram), -1))
    weight = pairs.gather(least_norm(gram, root, refuse))
    return 2 * weight / pairs.margins(weight).min()


def _without_idle(
    pairs: Pairs, weight: np.ndarray, multipliers: np.ndarray, gap: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same without the multipliers that an interior point keeps on idle margins, if the gap allows it."""
    reached = pairs.margins(weight) / pairs.bounds
    share = pairs.bounds * multipliers / (pairs.bounds @ multipliers)
    fewer = np.where(share < reached / reached.min() - 1, 0.0, multipliers)
    return weight, fewer if pairs.width(weight, fewer) <= gap else multipliers


class _State(NamedTuple):
    block: np.ndarray
    slack: np.ndarray
    multipliers: np.ndarray


class _Step(NamedTuple):
    block: np.ndarray
    slack: np.ndarray
    multipliers: np.ndarray
    dual: np.ndarray  # change of Z


def interior_point(pairs: Pairs, weight: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """The weight and multipliers with the smallest certified gap on the way to `gap`, from a strictly feasible `weight`.

    Once the gap is small the likely active pairs are known, and the rest of the way is gone with them alone: a round costs as much
    as the square of their number. A pair that was left out wrongly comes back, and the way is gone again.
    """
    rough, found, least = _follow(pairs, _start(pairs, weight), max(gap, _ROUGH))
    if least <= gap:
        return found
    kept = _likely(pairs, rough)
    for _ in range(_TRIES):
        if kept.mean() > _FEW:
            break
        weight, multipliers = _reduced(pairs, rough, kept, gap)
        if pairs.width(weight, multipliers) <= gap:
            return weight, multipliers
        reached = pairs.margins(weight) / pairs.bounds
        missed = reached < reached[kept].min()
        if not missed.any():
            break  # the reduced way has stalled
        kept |= missed
    return _follow(pairs, rough, gap)[1]


def _reduced(pairs: Pairs, rough: _State, kept: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Weight and multipliers of the problem with some pairs only, on the way from a state of the whole one."""
    fewer, some = Pairs(pairs.left[kept], pairs.right[kept], pairs.bounds[kept]), rough.multipliers[kept]
    some = some * min(1.0, _INSIDE / np.linalg.norm(fewer.gather(some), 2))  # what is left out may have held Z together
    multipliers = np.zeros(len(kept))
    _, (weight, multipliers[kept]), _ = _follow(fewer, _State(rough.block, rough.slack[kept], some), gap)
    return weight, multipliers


def _likely(pairs: Pairs, now: _State) -> np.ndarray:
    """Pairs whose share of the multipliers is not small against their excess margin: idle ones lose the first and keep the second."""
    reached = now.slack / (2 * pairs.bounds) + 1
    share = pairs.bounds * now.multipliers / (pairs.bounds @ now.multipliers)
    return len(share) * share > _IDLE * (reached / reached.min() - 1)


def _follow(pairs: Pairs, state: _State, gap: float) -> tuple[_State, tuple[np.ndarray, np.ndarray], float]:
    """Newton steps until the certified gap is reached or nothing gets better; the last state, the best point and its gap."""
    split = pairs.left.shape[1]
    best, least, stale = (state.block[:split, split:], state.multipliers), np.inf, 0
    for _ in range(_ROUNDS):
        offered = state.block[:split, split:], state.multipliers
        width, stale = pairs.width(*offered), stale + 1
        if width < least:
            best, least, stale = offered, width, 0
        if least <= gap or stale > _PATIENCE:
            break
        try:
            state = _advance(pairs, state)
        except LinAlgError:  # at the boundary to rounding
            break
    return state, best, least


def _start(pairs: Pairs, weight: np.ndarray) -> _State:
    left, sizes, right = np.linalg.svd(weight, full_matrices=False)
    lift = sizes.sum() / sum(weight.shape)
    corner = lambda basis: (basis * sizes) @ basis.T + lift * np.eye(len(basis))
    block = np.block([[corner(left), weight], [weight.T, corner(right.T)]])
    multipliers = np.ones(len(pairs.left))
    multipliers *= 0.5 / np.linalg.norm(pairs.gather(multipliers), 2)
    return _State(block, pairs.apply(block) - 2 * pairs.bounds, multipliers)


def _advance(pairs: Pairs, now: _State) -> _State:
    """One predictor and one corrector step with the same factorisation."""
    dual = np.eye(len(now.block)) - pairs.spread(now.multipliers)
    roots = cholesky(now.block, lower=True), cholesky(dual, lower=True)
    inverse = cho_solve((roots[1], True), np.eye(len(dual)))
    matrix = pairs.schur(now.block, inverse)
    matrix[np.diag_indices_from(matrix)] += now.slack / now.multipliers
    factor = least_ridge(matrix)
    pulled = pairs.apply(inverse)

    def newton(mu: float, bend: np.ndarray, curl: np.ndarray) -> _Step:
        """Towards X Z = mu I; `bend` and `curl` are the second-order terms of X and of the slacks."""
        side = 2 * pairs.bounds - mu * pulled + mu / now.multipliers + pairs.apply(bend) - curl
        change = cho_solve(factor, side)
        change = change + cho_solve(factor, side - matrix @ change)  # one refinement: the last digits of the gap
        turn = -pairs.spread(change)
        block = mu * inverse - now.block - now.block @ turn @ inverse - bend
        slack = (mu - now.slack * change) / now.multipliers - now.slack - curl
        return _Step((block + block.T) / 2, slack, change, turn)

    def reach(step: _Step, share: float) -> tuple[float, float]:
        primal = min(_room(roots[0], step.block), _distance(now.slack, step.slack))
        return min(1.0, share * primal), min(
            1.0, share * min(_room(roots[1], step.dual), _distance(now.multipliers, step.multipliers))
        )

    count = len(dual) + len(now.slack)
    mu = float(np.vdot(now.block, dual) + now.slack @ now.multipliers) / count
    first = newton(0.0, np.zeros_like(dual), np.zeros_like(now.slack))
    near, far = reach(first, 1.0)
    left = float(np.vdot(now.block + near * first.block, dual + far * first.dual))
    left += float((now.slack + near * first.slack) @ (now.multipliers + far * first.multipliers))
    aim = max(1e-4, min(1.0, left / count / mu) ** 3) * mu
    bend = first.block @ first.dual @ inverse
    step = newton(aim, (bend + bend.T) / 2, first.slack * first.multipliers / now.multipliers)
    near, far = reach(step, _SHARE)
    block, slack = now.block + near * step.block, now.slack + near * step.slack
    exact = pairs.apply(block) - 2 * pairs.bounds  # the recurrence drifts by rounding
    return _State(block, np.where(exact > slack / 2, exact, slack), now.multipliers + far * step.multipliers)


def _room(root: np.ndarray, change: np.ndarray) -> float:
    """The largest step along which root root' + step * change stays positive semidefinite."""
    half = solve_triangular(root, change, lower=True)
    turned = solve_triangular(root, half.T, lower=True)
    lowest = eigvalsh((turned + turned.T) / 2, subset_by_index=[0, 0])[0]
    return float("inf") if lowest >= 0 else -1 / lowest


def _distance(values: np.ndarray, change: np.ndarray) -> float:
    """The largest step along which positive values stay so."""
    falling = change < 0
    return float((-values[falling] / change[falling]).min(initial=np.inf))
