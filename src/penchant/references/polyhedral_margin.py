r"""min ||W||_1 or ||W||_inf subject to margins >= 1: linear programs, solved by HiGHS, certified by `bracket`.

HiGHS drops entries below 1e-9 and calls data with margins below its tolerances infeasible. What it does not solve is asked again as the
largest margin of a weight of norm 1, which always exists, in units of the rows and columns, and refined until the signs are right.

The norm of sign products, $\|W\| = \min \sum_j c_j$ with $W = \sum_j c_j a_j b_j^\top$, $c \ge 0$ and signs a, b, is polyhedral, too.
If all entries of K and Q have size at most s, then $W = KQ^\top$ has norm at most width times $s^2$: so this is to steps of equal
size in every entry (sign descent) what the nuclear norm is to gradient descent. The dual norm, the largest $a^\top V b$, is found by going through
the signs of the shorter side. Both the program and the norm are solved from their duals, by linear programs with ever more sign products.
"""

import numpy as np
from scipy.optimize import linprog

from ..errors import ArgumentError, InfeasibleDiagonal, InfeasibleError, kind
from ..norms import L1, Norm, SignProduct, least_products
from ..settings.base import Data
from ..settings.diagonal import DiagonalTokens
from ..settings.tokens import TokenSelection
from .base import Solution, feature_rows, placed, require_margins, require_tokens, watched
from .bracket import bracket
from .euclidean_margin import infeasible, largest_pairs, max_margin, provable
from .feature_margin import contradiction
from .linear_programs import least_cost

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
        found += [] if pair is None else [_certified(data, active, norm, *pair)]
        best = min(found, key=lambda one: (one.bracket.upper == np.inf, one.bracket.gap), default=None)
        if best is not None and best.bracket.gap <= _GAP:
            return best
    if best is None or best.bracket.upper == np.inf:
        raise infeasible(data, active, contradiction(features))
    return best


def _certified(data: Data, active: np.ndarray, norm: Norm, weight: np.ndarray, shares: np.ndarray) -> Solution:
    weight, dual = weight.reshape(data.weight_shape), placed(np.maximum(shares, 0.0), active)
    return Solution(norm.name, weight, dual, bracket(data, weight, dual, norm), norm)


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

    Raises `InfeasibleDiagonal` with the proof; the message says whether a full matrix would do.
    """
    try:
        max_margin(data)
    except InfeasibleError as error:
        largest = largest_pairs(data, error.weights)
        raise InfeasibleDiagonal(error.weights, error.norm, _feasible(data.tokens), largest) from None
    return polyhedral_margin(data, L1())


def _feasible(tokens: TokenSelection) -> bool:
    try:
        max_margin(tokens)
    except InfeasibleError:
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
