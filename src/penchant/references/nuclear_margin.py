r"""min ||W||_* subject to <Z_k, W> >= 1 in the nuclear norm, for pairs $Z_k = d_k q_k^\top$ of rank one, in factored form.

$\|W\|_* = \min (|K|^2 + |Q|^2)/2$ over $W = KQ^\top$, so the program is an augmented Lagrangian in K and Q. The multipliers of
any iterate, divided by the operator norm of $\Lambda = \sum_k \lambda_k Z_k$, are a dual point: the bracket needs no trust in this file.
First L-BFGS finds the rank and the active pairs; then Newton steps close the gap. Their Hessian is $I \otimes M + \rho J^\top J$ with
$M = [[I, -\Lambda], [-\Lambda^\top, I]]$, inverted through the SVD of $\Lambda$ and one system of the size of the active set.
Own code because a cone solver sees an SDP of size 2d with N dense rows.
"""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from ..errors import PenchantError
from .base import Solution
from .bracket import bracket
from .euclidean_margin import max_margin

_GAP = 1e-7  # certified relative width asked of every solution
_ROUGH = 0.2  # width at which Newton takes over
_ROUNDS = 60
_STIFF = 30.0  # largest penalty, in units where the longest pair has length 1
_STEPS = 40  # Newton steps per round
_INNER = 0.1  # a round ends when the gradient is this fraction of the certified width


class Nuclear(eqx.Module):
    """The sum of singular values; its dual norm is the largest one."""

    name: str = eqx.field(static=True, default="nuclear")

    def value(self, weight: np.ndarray) -> float:
        return float(np.linalg.norm(weight, "nuc"))

    def dual(self, weight: np.ndarray) -> float:
        return float(np.linalg.norm(weight, 2))


class _Pairs(NamedTuple):
    """Differences and queries of the constrained margins, in orthonormal bases of their spans."""

    left: np.ndarray
    right: np.ndarray

    def gather(self, multipliers: np.ndarray) -> np.ndarray:
        return self.left.T @ (multipliers[:, None] * self.right)


class _Point(NamedTuple):
    key: np.ndarray
    query: np.ndarray

    def margins(self, pairs: _Pairs) -> np.ndarray:
        return np.einsum("kr,kr->k", pairs.left @ self.key, pairs.right @ self.query)

    def length(self) -> float:
        return float(np.sqrt((self.key**2).sum() + (self.query**2).sum()))

    def moved(self, length: float, step: "_Point") -> "_Point":
        return _Point(self.key + length * step.key, self.query + length * step.query)


def nuclear_margin(data: Any, gap: float = _GAP) -> Solution:
    """The maximum-margin matrix of token data in the nuclear norm, certified to a relative `gap`.

    Raises `InfeasibleSVM` with the proof if no matrix has a positive margin.

    >>> import penchant as pt
    >>> data = pt.TokenSelection([[[2.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.0]], queries=[[0.0, 3.0]])
    >>> round(nuclear_margin(data).value, 6)                       # one pair: 1 / (2 * 3)
    0.166667
    """
    active = data.constrained()
    n, others = data.others.shape
    left = np.asarray(data.differences()).reshape(n * others, -1)[active]
    right = np.repeat(np.asarray(data.queries), others, axis=0)[active]
    rows, columns = _basis(left), _basis(right)
    scale = np.linalg.norm(left, axis=1).max() * np.linalg.norm(right, axis=1).max()
    pairs = _Pairs(left @ rows / scale, right @ columns)
    found = _solve(pairs, gap)
    if found is None:
        max_margin(data)  # raises, with the proof, if there is no solution at all
        raise PenchantError("The nuclear-norm program was not solved: its margins are too small to be resolved.")
    point, multipliers = found
    dual = np.zeros(len(active))
    dual[active] = multipliers
    weight = rows @ point.key @ point.query.T @ columns.T / (scale * point.margins(pairs).min())
    return Solution("nuclear", weight, dual / scale, bracket(data, weight, dual, Nuclear()))


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows."""
    _, size, basis = np.linalg.svd(rows, full_matrices=False)
    return basis[size > 1e-12 * size[0]].T


def _width(pairs: _Pairs, point: _Point, multipliers: np.ndarray) -> float:
    """Certified relative gap of a point with multipliers."""
    margin, mass = point.margins(pairs).min(), multipliers.sum()
    if margin <= 0 or mass <= 0:
        return np.inf
    upper = np.linalg.norm(point.key @ point.query.T, "nuc") / margin
    return upper * np.linalg.norm(pairs.gather(multipliers), 2) / mass - 1


def _solve(pairs: _Pairs, gap: float) -> tuple[_Point, np.ndarray] | None:
    rank = min(pairs.left.shape[1], pairs.right.shape[1], 2 + int(np.sqrt(2 * len(pairs.left))))
    rng = np.random.default_rng(0)
    start = lambda rows: 0.3 * rng.standard_normal((rows.shape[1], rank))
    point, multipliers, penalty = _Point(start(pairs.left), start(pairs.right)), np.zeros(len(pairs.left)), 1.0
    best, least, last = None, np.inf, np.inf
    for _ in range(_ROUNDS):
        if least > _ROUGH:
            point = _descend(pairs, point, multipliers, penalty)
        else:
            point = _newton(pairs, point, multipliers, penalty, min(1e-2, least) * _INNER)
        shortfall = 1 - point.margins(pairs)
        multipliers = np.maximum(0.0, multipliers + penalty * shortfall)
        width = _width(pairs, point, multipliers)
        if width < least:
            best, least = (point, multipliers), width
        if least <= gap:
            break
        violation = np.maximum(shortfall, 0.0).max()
        slow = violation > 0.25 * last and penalty < _STIFF
        penalty, last = (3 * penalty if slow else penalty), violation
    return best if np.isfinite(least) else None


class _Look(NamedTuple):
    """The augmented Lagrangian at a point: value, gradient, shifted multipliers."""

    value: float
    gradient: _Point
    shifted: np.ndarray
    slopes: tuple[np.ndarray, np.ndarray]


def _look(pairs: _Pairs, point: _Point, multipliers: np.ndarray, penalty: float) -> _Look:
    left, right = pairs.left @ point.key, pairs.right @ point.query
    shifted = np.maximum(0.0, multipliers + penalty * (1 - np.einsum("kr,kr->k", left, right)))
    size = (point.key**2).sum() + (point.query**2).sum()
    key = point.key - pairs.left.T @ (shifted[:, None] * right)
    query = point.query - pairs.right.T @ (shifted[:, None] * left)
    return _Look(0.5 * size + 0.5 * (shifted @ shifted) / penalty, _Point(key, query), shifted, (left, right))


def _descend(pairs: _Pairs, point: _Point, multipliers: np.ndarray, penalty: float) -> _Point:
    split = point.key.size
    shape = lambda x: _Point(x[:split].reshape(point.key.shape), x[split:].reshape(point.query.shape))
    flat = lambda p: np.concatenate([p.key.ravel(), p.query.ravel()])

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        look = _look(pairs, shape(x), multipliers, penalty)
        return look.value, flat(look.gradient)

    options = {"maxiter": 100, "maxcor": 20, "gtol": 1e-10, "ftol": 1e-16}
    return shape(minimize(evaluate, flat(point), jac=True, method="L-BFGS-B", options=options).x)


def _newton(pairs: _Pairs, point: _Point, multipliers: np.ndarray, penalty: float, accuracy: float) -> _Point:
    """Minimise the augmented Lagrangian by semismooth Newton steps with a ridge that follows their success."""
    look, ridge = _look(pairs, point, multipliers, penalty), 1e-2
    for _ in range(_STEPS):
        if look.gradient.length() <= accuracy:
            break
        step = _newton_step(pairs, look, penalty, ridge)
        slope = (step.key * look.gradient.key).sum() + (step.query * look.gradient.query).sum()
        for length in (1.0, 0.3):
            after = _look(pairs, point.moved(length, step), multipliers, penalty)
            if after.value <= look.value + 1e-4 * length * slope + 1e-15 * abs(look.value):
                point, look = point.moved(length, step), after
                ridge = max(ridge / 3, 1e-9) if length == 1 else ridge
                break
        else:
            ridge *= 10
            if ridge > 1e6:
                break
    return point


def _newton_step(pairs: _Pairs, look: _Look, penalty: float, ridge: float) -> _Point:
    """-(I x M + ridge + penalty J'J)^-1 gradient, with the singular values of Lambda clipped to 1, which keeps M semidefinite."""
    active = look.shifted > 0
    left, right = pairs.left[active], pairs.right[active]
    near, far = look.slopes[0][active], look.slopes[1][active]
    solve, blocks = _inverse(pairs.gather(look.shifted), left, right, ridge)
    (ll, lr, rr) = blocks
    cross = lr * (far @ near.T)
    matrix = ll * (far @ far.T) + cross + cross.T + rr * (near @ near.T)
    matrix[np.diag_indices_from(matrix)] += 1 / penalty
    base = solve(look.gradient)
    push = lambda p: np.einsum("kr,kr->k", left @ p.key, far) + np.einsum("kr,kr->k", right @ p.query, near)
    z = cho_solve(cho_factor(matrix, lower=True, check_finite=False), push(base))
    pulled = solve(_Point(left.T @ (z[:, None] * far), right.T @ (z[:, None] * near)))
    return _Point(pulled.key - base.key, pulled.query - base.query)


def _inverse(gathered: np.ndarray, left: np.ndarray, right: np.ndarray, ridge: float) -> tuple[Any, tuple]:
    """The inverse of M + ridge as a map of points, and its blocks between the active rows."""
    u, s, vt = np.linalg.svd(gathered, full_matrices=False)
    s, a = np.minimum(s, 1.0), 1 + ridge
    # On each singular pair M + ridge is [[a, -s], [-s, a]]; elsewhere it is a.
    same, mixed = a / (a * a - s * s) - 1 / a, s / (a * a - s * s)

    def solve(p: _Point) -> _Point:
        uk, vq = u.T @ p.key, vt @ p.query
        return _Point(
            p.key / a + u @ (same[:, None] * uk + mixed[:, None] * vq),
            p.query / a + vt.T @ (same[:, None] * vq + mixed[:, None] * uk),
        )

    lu, rv = left @ u, right @ vt.T
    blocks = (left @ left.T / a + (lu * same) @ lu.T, (lu * mixed) @ rv.T, right @ right.T / a + (rv * same) @ rv.T)
    return solve, blocks
