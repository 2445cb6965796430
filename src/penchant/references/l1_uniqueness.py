r"""Whether the least l1 norm is attained once, and how fast small starts get there: the strict dual certificate.

A solution with support S and signs $\varsigma$ is the only one if and only if the columns $X_S$ are independent and
$\rho = \min\{\|X_{S^c}^\top\mu\|_\infty : X_S^\top\mu = \varsigma\} < 1$. Then off-support coefficients of the minimiser of $Q_\alpha$ vanish like $\alpha^{2(1-\rho)}$.
"""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.optimize import linprog

from ..errors import ArgumentError

_SUPPORT = 1e-9  # coefficients below this fraction of the largest are 0
_CLEAR = 1e-6  # distance of rho from 1 that the linear program resolves beyond doubt
_RANK = 1e-10


class L1Uniqueness(eqx.Module):
    """`unique`, None where rho is too near to 1 to tell; `rho`; `smallest` singular value of the support's columns over the largest."""

    unique: bool | None
    rho: float
    smallest: float
    support: tuple[int, ...]

    @property
    def slack(self) -> float:
        """How far the dual vector stays below its bound off the support."""
        return 1 - self.rho

    def __str__(self) -> str:
        word = {True: "unique", False: "not unique", None: "unique or not, undecided"}[self.unique]
        return f"{word}: rho = {self.rho:.6g} on a support of {len(self.support)}, smallest singular value {self.smallest:.3g}"


def _support(data: Any, weight: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
    weight = np.asarray(weight, float)
    d = data.inputs.shape[1]
    if weight.shape != (d,) or not np.isfinite(weight).all():
        raise ArgumentError("weight", owner, f"{d} finite numbers", f"shape {weight.shape}")
    return weight, np.abs(weight) > _SUPPORT * np.abs(weight).max()


def _costs(data: Any, weights: Any, owner: str) -> np.ndarray:
    d = data.inputs.shape[1]
    costs = np.ones(d) if weights is None else np.asarray(weights, float)
    if costs.shape != (d,) or not ((costs > 0) & np.isfinite(costs)).all():
        raise ArgumentError("weights", owner, f"{d} positive and finite numbers", weights)
    return costs


def strict_dual(data: Any, weight: Any, weights: Any = None, *, nonnegative: bool = False) -> float:
    """rho = min max off-support |X' mu|_j / c_j (X' mu, where weights are nonnegative) subject to X_S' mu = signs * c.

    `weight` is an l1 solution. Below 1 the l1 solution is unique, and rho sets the rate at which the other coefficients vanish.

    >>> import penchant as pt
    >>> round(strict_dual(pt.Regression([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [2.0, 1.0]), [0.0, 1.0, 0.0]), 9)
    0.333333333
    """
    weight, support = _support(data, weight, "strict_dual")
    inputs = np.asarray(data.inputs) / _costs(data, weights, "strict_dual")
    inputs = inputs / np.abs(inputs).max()  # mu absorbs the unit: the program's tolerance is absolute
    n, rest = len(inputs), inputs[:, ~support].T
    if not support.any():
        return 0.0
    ones = -np.ones((len(rest), 1))
    sides = (rest,) if nonnegative else (rest, -rest)
    found = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.vstack([np.hstack([side, ones]) for side in sides]) if len(rest) else None,
        b_ub=np.zeros(len(sides) * len(rest)) if len(rest) else None,
        A_eq=np.hstack([inputs[:, support].T, np.zeros((support.sum(), 1))]),
        b_eq=np.sign(weight[support]),
        bounds=(*[(None, None)] * n, (-1.0 if nonnegative else 0.0, None)),
        method="highs",
    )
    if found.x is None:
        reason = f"signs that no X' mu attains ({found.message.splitlines()[0]})"
        raise ArgumentError("weight", "strict_dual", "a solution of least l1 norm", reason, "use `basis_pursuit`")
    return float(found.fun)


def l1_uniqueness(data: Any, weight: Any, weights: Any = None, *, nonnegative: bool = False) -> L1Uniqueness:
    """Whether `weight`, of least l1 norm (weighted by `weights`, or among nonnegative ones), is the only such interpolant.

    >>> import penchant as pt
    >>> data = pt.Regression([[1.0, 1.0, 0.5]], [1.0])
    >>> print(l1_uniqueness(data, pt.basis_pursuit(data).weight))
    not unique: rho = 1 on a support of 1, smallest singular value 1
    """
    found, support = _support(data, weight, "l1_uniqueness")
    sizes = np.linalg.svd(np.asarray(data.inputs)[:, support], compute_uv=False) if support.any() else np.ones(1)
    smallest = float(sizes[-1] / sizes[0]) if len(sizes) >= support.sum() else 0.0
    rho = strict_dual(data, found, weights, nonnegative=nonnegative)
    if rho > 1 + _CLEAR:
        found = f"a weight whose best dual vector exceeds 1, at {rho:.6g}, off its support"
        raise ArgumentError("weight", "l1_uniqueness", "a solution of least l1 norm", found, "use `basis_pursuit`")
    determined = smallest > _RANK
    unique = True if determined and rho < 1 - _CLEAR else None if determined and rho < 1 - _CLEAR / 10 else False
    return L1Uniqueness(unique, rho, smallest, tuple(int(j) for j in np.flatnonzero(support)))
