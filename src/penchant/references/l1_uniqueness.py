r"""Whether the least l1 norm is attained once, how fast small starts get there, and which of several solutions they select.

A solution with support S and signs $\varsigma$ is the only one if and only if the columns $X_S$ are independent and
$\rho = \min\{\|X_{S^c}^\top\mu\|_\infty : X_S^\top\mu = \varsigma\} < 1$. Then off-support coefficients of the minimiser of $Q_\alpha$ vanish like $\alpha^{2(1-\rho)}$.

For $\alpha\to0$ the potentials of squares are $\|\theta\|_1\log\alpha^{-2}$ plus $\sum_j|\theta_j|\log|\theta_j| - |\theta_j|$. Among solutions of equal l1 norm the second part decides:
the one of largest entropy is selected. All solutions have the signs of $X^\top\mu$, for a dual solution $\mu$, and vanish where $|X^\top\mu| < 1$: they are the nonnegative solutions in the other columns.
"""

import equinox as eqx
import numpy as np
from scipy.optimize import OptimizeResult, linprog

from ..errors import ArgumentError, PenchantError
from ..settings.regression import Regression
from .interpolation import basis_pursuit, costs_of
from .linear_programs import positive_part

_SUPPORT = 1e-9  # coefficients below this fraction of the largest are 0
_CLEAR = 1e-6  # distance of rho from 1 that the linear program resolves beyond doubt
_RANK, _DEPENDENT = 1e-10, 1e-13  # columns are independent above the first, dependent below the second
_UNBOUNDED = (3, 4)  # of linprog, which for feasible programs says 4 ("unbounded or infeasible") too
_MOVED, _EXACT = (
    1e-6,
    1e-14,
)  # a second solution is that far from the first, with that little more norm or residual (norm 1)


class L1Uniqueness(eqx.Module):
    """`unique`, None where rho is too near to 1 to tell; `rho`; `smallest` singular value of the support's columns over the largest."""

    unique: bool | None
    rho: float
    smallest: float
    support: tuple[int, ...]

    def __str__(self) -> str:
        word = {True: "unique", False: "not unique", None: "unique or not, undecided"}[self.unique]
        return f"{word}: rho = {self.rho:.6g} on a support of {len(self.support)}, smallest singular value {self.smallest:.3g}"


def _support(data: Regression, weight: object, owner: str) -> tuple[np.ndarray, np.ndarray]:
    weight = np.asarray(weight, float)
    d = data.inputs.shape[1]
    if weight.shape != (d,) or not np.isfinite(weight).all():
        raise ArgumentError("weight", owner, f"{d} finite numbers", f"shape {weight.shape}")
    return weight, np.abs(weight) > _SUPPORT * np.abs(weight).max()


def strict_dual(data: Regression, weight: object, weights: object = None, *, nonnegative: bool = False) -> float:
    """rho = min max off-support |X' mu|_j / c_j (X' mu, where weights are nonnegative) subject to X_S' mu = signs * c.

    `weight` is an l1 solution. Below 1 the l1 solution is unique, and rho sets the rate at which the other coefficients vanish.
    Among nonnegative weights rho may be negative, and minus infinity where the other coefficients are 0 in every interpolant.

    >>> import penchant as pt
    >>> round(strict_dual(pt.Regression([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0]), [0.0, 1.0, 0.0]), 9)
    0.333333333
    """
    return certificate(data, weight, weights, nonnegative=nonnegative)[0]


def certificate(
    data: Regression, weight: object, weights: object = None, *, nonnegative: bool = False
) -> tuple[float, np.ndarray]:
    """rho, and X' mu / c of the program with rho >= 0, which decides unless rho is negative."""
    weight, support = _support(data, weight, "strict_dual")
    inputs = np.asarray(data.inputs) / costs_of(data, weights, "strict_dual")
    inputs = inputs / np.abs(inputs).max()  # mu absorbs the unit: the program's tolerance is absolute
    if not support.any():
        return 0.0, np.zeros(len(weight))
    found = _program(inputs, support, np.sign(weight[support]), nonnegative, 0.0)
    if found.x is None:
        reason = f"signs that no X' mu attains ({found.message.splitlines()[0]})"
        raise ArgumentError("weight", "strict_dual", "a solution of least l1 norm", reason, "use `basis_pursuit`")
    pull = found.x[:-1] @ inputs
    if not nonnegative or found.fun > _CLEAR:
        return float(found.fun), pull
    below = _program(inputs, support, np.sign(weight[support]), nonnegative, None)
    if below.x is None and below.status not in _UNBOUNDED:
        raise PenchantError(f"The program for rho was not solved: {below.message}")
    return -np.inf if below.x is None else float(below.fun), pull


def _program(
    inputs: np.ndarray, support: np.ndarray, signs: np.ndarray, nonnegative: bool, least: float | None
) -> OptimizeResult:
    """min t >= least subject to X_j' mu <= t off the support (in modulus, unless nonnegative) and X_S' mu = signs."""
    n, rest = len(inputs), inputs[:, ~support].T
    sides = (rest,) if nonnegative else (rest, -rest)
    ones = -np.ones((len(rest), 1))
    return linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.vstack([np.hstack([side, ones]) for side in sides]) if len(rest) else None,
        b_ub=np.zeros(len(sides) * len(rest)) if len(rest) else None,
        A_eq=np.hstack([inputs[:, support].T, np.zeros((support.sum(), 1))]),
        b_eq=signs,
        bounds=(*[(None, None)] * n, (least, None)),
        method="highs",
    )


def l1_uniqueness(
    data: Regression, weight: object, weights: object = None, *, nonnegative: bool = False
) -> L1Uniqueness:
    """Whether `weight`, of least l1 norm (weighted by `weights`, or among nonnegative ones), is the only such interpolant.

    Not unique only where a second solution is exhibited, to rounding; near the border, without one, `unique` is None.

    >>> import penchant as pt
    >>> data = pt.Regression([[1.0, 1.0, 0.5]], [1.0])
    >>> print(l1_uniqueness(data, pt.references.basis_pursuit(data).weight))
    not unique: rho = 1 on a support of 1, smallest singular value 1
    """
    found, support = _support(data, weight, "l1_uniqueness")
    sizes = np.linalg.svd(np.asarray(data.inputs)[:, support], compute_uv=False) if support.any() else np.ones(1)
    smallest = float(sizes[-1] / sizes[0]) if len(sizes) >= support.sum() else 0.0
    rho, pull = certificate(data, found, weights, nonnegative=nonnegative)
    if rho > 1 + _CLEAR:
        found = f"a weight whose best dual vector exceeds 1, at {rho:.6g}, off its support"
        raise ArgumentError("weight", "l1_uniqueness", "a solution of least l1 norm", found, "use `basis_pursuit`")
    if smallest > _RANK and rho < 1 - _CLEAR:
        unique = True
    elif smallest <= _DEPENDENT:  # along the null vector of these columns the norm does not change
        unique = False
    else:
        scale = costs_of(data, weights, "l1_uniqueness")
        unique = False if _second(np.asarray(data.inputs) / scale, found * scale, pull, nonnegative) else None
    return L1Uniqueness(unique, rho, smallest, tuple(int(j) for j in np.flatnonzero(support)))


def _second(inputs: np.ndarray, weight: np.ndarray, pull: np.ndarray, nonnegative: bool) -> bool:
    """Whether there is another solution: all have the signs of the dual, and only where it touches its bound."""
    weight = weight / np.abs(weight).sum()
    inputs = inputs / np.abs(inputs).max()
    signs = np.where(weight != 0, np.sign(weight), 1.0 if nonnegative else np.sign(pull))
    face = ((pull if nonnegative else np.abs(pull)) >= 1 - 2 * _CLEAR) | (np.abs(weight) > _SUPPORT)
    columns, off = inputs[:, face] * signs[face], np.abs(weight[face]) <= _SUPPORT
    reached = linprog(-off.astype(float), A_eq=columns, b_eq=inputs @ weight, bounds=(0.0, 2.0), method="highs")
    if reached.x is None:
        return False
    used = reached.x > _SUPPORT  # a vertex, whose columns are independent: solved again, to rounding
    other = np.zeros(len(off))
    other[used] = np.linalg.lstsq(columns[:, used], inputs @ weight, rcond=None)[0]
    error = float(np.abs(columns @ other - inputs @ weight).max())
    moved = float(np.abs(other - np.abs(weight[face])).max())
    return bool(moved > _MOVED and max(error, other.sum() - 1) <= _EXACT and other.min() >= 0)


_TOUCHING = 1e-7  # distance of X' mu from its bound within which a column may carry weight


def sparse_face(data: Regression, *, nonnegative: bool = False) -> np.ndarray:
    """The signs of the coefficients that are not 0 in some solution of least l1 norm, 0 for the others.

    >>> import penchant as pt
    >>> sparse_face(pt.Regression([[1.0, -1.0, 0.5]], [1.0])).tolist()
    [1.0, -1.0, 0.0]
    """
    found, inputs = basis_pursuit(data, nonnegative=nonnegative), np.asarray(data.inputs)
    pull = found.dual @ inputs
    touching = np.flatnonzero((pull if nonnegative else np.abs(pull)) >= 1 - _TOUCHING)
    signs = np.sign(pull[touching])
    carried, _ = positive_part(inputs[:, touching] * signs, np.asarray(data.fitted))
    face = np.zeros(inputs.shape[1])
    face[touching[carried]] = signs[carried]
    return face
