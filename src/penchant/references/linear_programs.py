r"""The linear programs behind l1 and nonnegative interpolants, in a form that does not know the units of the data.

HiGHS stops at absolute tolerances of 1e-7, so data of size 1e-9 would be "solved" by 0. Coordinates in units of their costs, an
orthonormal basis of the equations and targets of size 1 make those tolerances relative; a vertex is then solved for again on its
support, to rounding.

min ||W||_1 or ||W||_inf subject to margins >= 1: linear programs, solved by HiGHS, certified by `bracket`.

HiGHS drops entries below 1e-9 and calls data with margins below its tolerances infeasible. What it does not solve is asked again as the
largest margin of a weight of norm 1, which always exists, in units of the rows and columns, and refined until the signs are right.

The norm of sign products, $\|W\| = \min \sum_j c_j$ with $W = \sum_j c_j a_j b_j^\top$, $c \ge 0$ and signs a, b, is polyhedral, too.
If all entries of K and Q have size at most s, then $W = KQ^\top$ has norm at most width times $s^2$: so this is to steps of equal
size in every entry (sign descent) what the nuclear norm is to gradient descent. The dual norm, the largest $a^\top V b$, is found by going through
the signs of the shorter side. Both the program and the norm are solved from their duals, by linear programs with ever more sign products.
"""

from fractions import Fraction

import equinox as eqx
import numpy as np
from scipy.optimize import linprog, nnls

from ..errors import ArgumentError, NotSeparableError, PenchantError, inseparable_diagonal, kind
from ..norms import L1, Norm, SignProduct, least_products
from ..rounding import gamma
from ..settings.factored import DiagonalTokens
from ..settings.tokens import TokenSelection
from .base import Solution, feature_rows, placed, require_margins, require_tokens, watched
from .bracket import bracket
from .euclidean_margin import contradiction, infeasible, largest_pairs, max_margin, provable

_RANK = 1e-12  # singular values below this fraction of the largest count as zero
_ZERO = 1e-9  # coefficients below this fraction of the largest are not part of a vertex
_EXACT = 1e-18  # what is missed of numbers of size 1 that are then rounded to float64
_ROUNDS, _ZOOM = 6, 2.0**20  # of refinement, and how much closer each looks
REACHED = 1e-10  # relative residual below which a nonnegative weight counts as an interpolant


class Canonical(eqx.Module):
    """rows @ (costs * theta / unit) = targets with orthonormal rows and a largest target of 1; `lift` maps duals back."""

    rows: np.ndarray
    targets: np.ndarray
    unit: float
    lift: np.ndarray

    def __init__(self, inputs: np.ndarray, targets: np.ndarray, costs: np.ndarray | None = None):
        scaled = inputs if costs is None else inputs / costs
        lengths = np.abs(scaled).max(
            axis=1, keepdims=True
        )  # samples in their own units: the decomposition has only one
        lengths = np.where(lengths > 0, lengths, 1.0)
        left, sizes, right = np.linalg.svd(scaled / lengths, full_matrices=False)
        live = sizes > _RANK * sizes[0]
        self.rows, self.lift = right[live], left[:, live] / (sizes[live] * lengths)
        across = targets @ self.lift
        self.unit = float(np.abs(across).max()) or 1.0
        self.targets = across / self.unit


def least_l1(
    inputs: np.ndarray, targets: np.ndarray, costs: np.ndarray, nonnegative: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Weight and multipliers of min sum of costs * |theta| subject to inputs @ theta = targets (and theta >= 0)."""
    problem, d = Canonical(inputs, targets, costs), inputs.shape[1]
    rows = problem.rows if nonnegative else np.hstack([problem.rows, -problem.rows])
    result = linprog(np.ones(rows.shape[1]), A_eq=rows, b_eq=problem.targets, method="highs")
    if not result.success:
        raise PenchantError(f"The l1 program was not solved: {result.message}")
    vertex = result.x if nonnegative else result.x[:d] - result.x[d:]
    vertex = _refined(problem, vertex, nonnegative)
    return vertex * problem.unit / costs + 0.0, problem.lift @ np.asarray(result.eqlin.marginals)


def _refined(problem: Canonical, vertex: np.ndarray, nonnegative: bool) -> np.ndarray:
    """The vertex solved for on its support, where that fits better and keeps its signs."""
    support = np.abs(vertex) > _ZERO * np.abs(vertex).max(initial=0.0)
    found = np.zeros_like(vertex)
    found[support] = np.linalg.lstsq(problem.rows[:, support], problem.targets, rcond=None)[0]
    misfit = lambda weight: np.linalg.norm(problem.rows @ weight - problem.targets)
    allowed = not nonnegative or found.min(initial=0.0) >= 0
    return found if allowed and misfit(found) <= misfit(vertex) else vertex


def nonnegative_residual(inputs: np.ndarray, targets: np.ndarray) -> float:
    """Relative residual of nonnegative least squares, in the units of `Canonical`; infinite where it was not solved."""
    return _nonnegative(Canonical(inputs, targets))[1]


def _nonnegative(problem: Canonical) -> tuple[np.ndarray, float]:
    """Minus the residual of nonnegative least squares, which is a proof by the optimality conditions, and its relative size."""
    try:
        weight, error = nnls(problem.rows, problem.targets)
    except RuntimeError:  # it cycles on degenerate columns
        return np.zeros(len(problem.targets)), float("inf")
    size = max(float(np.linalg.norm(problem.targets)), np.finfo(float).tiny)
    return problem.rows @ weight - problem.targets, float(error) / size


def against_nonnegative(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
    """mu of length 1 with X' mu >= 0 and <mu, y> < 0, which proves that no nonnegative weight interpolates; None if there is no proof.

    The inequalities hold exactly about the numbers as they are stored: a mu as far inside them as a linear program finds is tried,
    then the residual of nonnegative least squares, which touches them; each also without its entries of rounding.
    """
    problem = Canonical(inputs, targets)
    touching, error = _nonnegative(problem)
    if error <= REACHED:
        return None
    for across in (_inside(problem), touching):
        proof = problem.lift @ across
        for one in (proof, np.where(np.abs(proof) > _ZERO * np.abs(proof).max(), proof, 0.0)):
            size = float(np.linalg.norm(one))
            if size > 0 and np.isfinite(size) and _proves(inputs, targets, one / size):
                return one / size
    return None


def _inside(problem: Canonical) -> np.ndarray:
    """max t subject to X' mu >= t |X_j|, <mu, y> <= -t |y| and |mu| <= 1; 0 where that has no answer."""
    columns = np.hstack([problem.rows, -problem.targets[:, None]]).T
    lengths = np.linalg.norm(columns, axis=1)[:, None]
    equations = np.hstack([-columns, lengths])
    n = len(problem.targets)
    costs, bounds = np.append(np.zeros(n), -1.0), [(-1.0, 1.0)] * n + [(0.0, None)]
    found = linprog(costs, A_ub=equations, b_ub=np.zeros(len(columns)), bounds=bounds, method="highs").x
    return np.zeros(n) if found is None else found[:-1]


def _proves(inputs: np.ndarray, targets: np.ndarray, proof: np.ndarray) -> bool:
    """Whether X' mu >= 0 > <mu, y> in exact arithmetic, which is needed only where rounding could hide the sign."""
    columns = np.vstack([inputs.T, -targets])
    pull, blur = columns @ proof, gamma(len(proof)) * (np.abs(columns) @ np.abs(proof)) + np.finfo(float).tiny
    near = np.abs(pull) <= blur
    exact = [sum(Fraction(x) * Fraction(m) for x, m in zip(row, proof, strict=True)) for row in columns[near]]
    signs = np.sign(pull)
    signs[near] = [np.sign(float(one.numerator > 0) - float(one.numerator < 0)) for one in exact]
    return bool((signs[:-1] >= 0).all() and signs[-1] > 0)


def positive_part(inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Which coefficients are positive in some nonnegative interpolant, and mu with X' mu = 0 on those and < 0 on the others.

    The others are 0 in every nonnegative interpolant. Maximise $\sum_j\min(1, \theta_j)$ over the cone of interpolants of multiples (at least 1)
    of the targets: every coefficient that can be positive reaches 1, and the multipliers of the program are mu.
    """
    problem, d = Canonical(inputs, targets), inputs.shape[1]
    equations = np.hstack([problem.rows, problem.rows, -problem.targets[:, None]])
    costs = np.concatenate([-np.ones(d), np.zeros(d + 1)])
    bounds = [(0.0, 1.0)] * d + [(0.0, None)] * d + [(1.0, None)]
    result = linprog(costs, A_eq=equations, b_eq=np.zeros(len(problem.rows)), bounds=bounds, method="highs")
    if not result.success:
        raise PenchantError(f"The program for the positive coefficients was not solved: {result.message}")
    return result.x[:d] > 0.5, problem.lift @ np.asarray(result.eqlin.marginals)


def least_cost(costs: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """x >= 0 of least cost with rows @ x = targets, and multipliers, both to more digits than HiGHS gives; None if it is not solved.

    What a solution misses, of equations, signs and reduced costs, is enlarged to size 1 and solved for as the next program (Gleixner,
    Steffy and Wolter, 2016).
    """
    rows, best, least = rows.astype(np.longdouble), None, np.inf
    x, y = np.zeros(rows.shape[1], np.longdouble), np.zeros(len(rows), np.longdouble)
    primal = dual = np.longdouble(1)
    for _ in range(_ROUNDS):
        given = [np.asarray(part, float) for part in (dual * (costs - y @ rows), rows, primal * (targets - rows @ x))]
        bounds = [(float(low), None) for low in -primal * x]
        found = linprog(given[0], A_eq=given[1], b_eq=given[2], bounds=bounds, method="highs")
        if not found.success:
            break
        x, y = x + found.x / primal, y + found.eqlin.marginals / dual
        missed = max(np.abs(targets - rows @ x).max(), -x.min()), max(-(costs - y @ rows).min(), 0)
        if max(missed) < least:
            best, least = (x, y), max(missed)
        primal, dual = (
            min(_ZOOM * was, 2.0 ** -np.frexp(max(one, _EXACT))[1])
            for was, one in zip((primal, dual), missed, strict=True)
        )
        if least <= _EXACT:
            break
    return best


_GAP = 1e-9  # certified relative width above which the program is solved again
_ENTRIES = 4_000_000  # entries of a program that is refined
LARGEST = 8  # of sign products, the shorter one: its signs are all tried, and beyond it the programs take minutes
_CHEAPEST = 2.0**-29  # least unit of a column: HiGHS would drop a smaller one from the norm


@watched
def polyhedral_margin(data: object, norm: Norm) -> Solution:
    """The maximum-margin weight in the l1 or the linf norm."""
    data = require_margins(data, "polyhedral_margin")
    if getattr(norm, "name", "") not in ("l1", "linf"):
        raise ArgumentError("norm", "polyhedral_margin", "L1() or Linf()", kind(norm))
    active = data.constrained()
    features, found = feature_rows(data, active), []
    for solve in (_least, _largest):
        pair = solve(features, str(norm.name))
        if pair is not None:
            weight, dual = pair[0].reshape(data.weight_shape), placed(np.maximum(pair[1], 0.0), active)
            found.append(Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm))
        best = min(found, key=lambda one: (one.bracket.upper == np.inf, one.bracket.gap), default=None)
        if best is not None and best.bracket.gap <= _GAP:
            return best
    if best is None or best.bracket.upper == np.inf:
        raise infeasible(data, active, contradiction(features))
    return best


def _least(features: np.ndarray, norm: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Weight and multipliers of the program as it stands, in one unit for all of it."""
    scale = np.abs(features).max()  # the tolerances of the solver are absolute
    features = features / scale
    n, size = features.shape
    if norm == "l1":  # w = p - q with p, q >= 0
        result = linprog(np.ones(2 * size), A_ub=-np.hstack([features, -features]), b_ub=-np.ones(n), method="highs")
    else:  # -b <= w <= b
        sides = np.hstack([np.vstack([np.eye(size), -np.eye(size)]), -np.ones((2 * size, 1))])
        rows = np.vstack([np.hstack([-features, np.zeros((n, 1))]), sides])
        cost, limit = np.append(np.zeros(size), 1.0), np.append(-np.ones(n), np.zeros(2 * size))
        result = linprog(cost, A_ub=rows, b_ub=limit, bounds=(None, None), method="highs")
    if not result.success:
        return None
    weight = result.x[:size] - result.x[size:] if norm == "l1" else result.x[:size]
    return weight / scale, -result.ineqlin.marginals[:n] / scale


def _largest(features: np.ndarray, norm: str) -> tuple[np.ndarray, np.ndarray] | None:
    """max t with margins of at least t and a norm of 1: p - q = w, and what exceeds t is s, in powers of two as units."""
    n, size = features.shape
    if n * (n + 2 * size) > _ENTRIES:
        return None
    columns = _unit(np.abs(features).max(axis=0))
    columns = np.maximum(columns / columns.max(), _CHEAPEST)
    rows = _unit(np.abs(features * columns).max(axis=1))
    scaled, levels = features * columns * rows[:, None], rows / rows.max()
    top = np.hstack([scaled, -scaled, -levels[:, None], -np.eye(n)])
    sums = columns[None] if norm == "l1" else np.eye(size)
    rest = np.hstack([sums, sums, np.zeros((len(sums), n + 1))])
    goal = np.concatenate([np.zeros(n), np.ones(1) if norm == "l1" else 1 / columns])
    found = least_cost(-1.0 * (np.arange(top.shape[1]) == 2 * size), np.vstack([top, rest]), goal)
    if found is None or not found[0][2 * size] > 0:
        return None
    x, y = found
    share = x[2 * size] / rows.max()  # the smallest margin
    return np.asarray((x[:size] - x[size : 2 * size]) * columns / share, float), np.asarray(y[:n] * rows, float)


def _unit(sizes: np.ndarray) -> np.ndarray:
    """Powers of two next to 1 / size; 1 for a size of 0."""
    return 2.0 ** -np.frexp(np.where(sizes > 0, sizes, 1.0))[1]


def diagonal_margin(data: DiagonalTokens) -> Solution:
    """min ||w||_1 subject to margins >= 1 for `DiagonalTokens`.

    Raises `NotSeparableError` with the proof; the message says whether a full matrix would do.
    """
    try:
        max_margin(data)
    except NotSeparableError as error:
        largest = largest_pairs(data, error.weights)
        raise inseparable_diagonal(error.weights, error.norm, _feasible(data.tokens), largest) from None
    return polyhedral_margin(data, L1())


def _feasible(tokens: TokenSelection) -> bool:
    try:
        max_margin(tokens)
    except NotSeparableError:
        return False
    return True


@watched
def sign_product_margin(data: object) -> Solution:
    """The maximum-margin matrix of token data in the norm of sign products.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 1.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[1.0, 3.0]])
    >>> round(sign_product_margin(data).value, 9)                       # one pair: 1 / ((2 + 1) (1 + 3))
    0.083333333
    """
    data = require_tokens(data, "sign_product_margin")
    if min(data.weight_shape) > LARGEST:
        wanted = f"tokens or queries of dimension at most {LARGEST}, so that all signs can be tried"
        raise ArgumentError("data", "sign_product_margin", wanted, f"weights of shape {data.weight_shape}")
    active = data.constrained()
    pairs = feature_rows(data, active).reshape(-1, *data.weight_shape)
    unit = np.abs(pairs).sum(axis=(1, 2)).max()  # the tolerances of the solver are absolute
    limit = (
        np.abs(max_margin(data).weight).sum() * unit
    )  # an entry of W is a sign product on average: no dual is larger
    found, products, shares = least_products(pairs / unit, np.ones(len(pairs)), (0.0, None), limit)
    shared = np.maximum(found, 0.0)
    weight = np.tensordot(shares, products, 1)
    weight = weight / np.tensordot(pairs, weight, 2).min()
    norm = SignProduct()
    dual = placed(shared / norm.dual(np.tensordot(shared, pairs, 1)), active)
    return provable(data, active, Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm))
