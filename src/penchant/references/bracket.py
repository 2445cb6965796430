"""Certificates: a lower and an upper bound on an optimum from any primal and any dual point.

This file knows no solver. Feed it the output of ours, of another one, or the training run itself: its weights are a primal
point, and the multipliers it accumulated on the margins are a dual point.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import numpy as np

from ..errors import ArgumentError
from .arguments import require_margins
from .rounding import gamma


@runtime_checkable
class Norm(Protocol):
    """A norm of weights together with its dual norm.

    `rounding(shape)` may say to which relative accuracy both are computed; without it eight roundings per entry are allowed for. The dual norm
    must not shrink where entries are replaced by larger positive ones, as none here does: so a bracket bounds what rounding did to a pull.
    """

    @property
    def name(self) -> str: ...
    def value(self, weight: np.ndarray) -> float: ...
    def dual(self, weight: np.ndarray) -> float: ...


class Euclidean(eqx.Module):
    """The l2 norm of a vector, the Frobenius norm of a matrix; its own dual."""

    name: str = eqx.field(static=True, default="l2")

    def value(self, weight: np.ndarray) -> float:
        return float(np.linalg.norm(np.ravel(weight)))

    def dual(self, weight: np.ndarray) -> float:
        return float(np.linalg.norm(np.ravel(weight)))

    def rounding(self, shape: tuple[int, ...]) -> float:
        return gamma(float(np.prod(shape)) / 2 + 1)


class Bracket(eqx.Module):
    """lower <= min ||W|| subject to margins >= 1 <= upper, and the four residuals of the optimality conditions.

    The residuals are 0 at the optimum: `infeasibility` (shortfall of the smallest margin below 1 after rescaling),
    `negativity` (most negative dual entry, relative to the largest), `complementarity` (dual mass on margins above the
    smallest), `misalignment` (1 - <W, V> / (||W|| ||V||_dual) with V the weight the dual points to).
    """

    lower: float
    upper: float
    infeasibility: float
    negativity: float
    complementarity: float
    misalignment: float

    @property
    def gap(self) -> float:
        """Relative width upper/lower - 1; infinite while one side is missing."""
        return self.upper / self.lower - 1 if self.lower > 0 else float("inf")


margins = eqx.filter_jit(lambda data, weight: data.margins(weight))  # compiled once per shape
adjoint = eqx.filter_jit(lambda data, coefficients: data.adjoint(coefficients))


def bracket(data: Any, primal: Any, dual: Any, norm: Any = None) -> Bracket:
    """Bounds on min ||W|| subject to margins >= 1, from any weight `primal` and any multipliers `dual`.

    On a `Regression` the constraints are the targets, X theta = y, and `norm` may be a potential (`interpolation_bracket`).

    Weak duality: for lam >= 0 and any feasible W, sum(lam) <= sum(lam * margins(W)) = <V, W> <= ||V||_dual ||W|| with
    V = sum_k lam_k Z_k. Negative multipliers are clipped to 0, which keeps the bound and shows in `negativity`.

    >>> import penchant as pt
    >>> data = pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    >>> found = pt.bracket(data, primal=[1.0, 1.0], dual=[1.0, 1.0])      # neither is optimal: the optimum is sqrt(5)/2
    >>> round(found.lower, 4), round(found.upper, 4)
    (0.8944, 1.4142)
    """
    norm = Euclidean() if norm is None else norm
    if hasattr(data, "fitted"):
        from .interpolation_bracket import interpolation_bracket  # it is built on this file

        return interpolation_bracket(data, primal, dual, norm)
    require_margins(data, "bracket")
    weight, dual = np.asarray(primal, float), np.asarray(dual, float)
    active = data.constrained()
    if weight.shape != data.weight_shape:
        raise ArgumentError("primal", "bracket", f"of shape {data.weight_shape}", f"shape {weight.shape}")
    if dual.shape != active.shape:
        raise ArgumentError(
            "dual", "bracket", f"of shape {active.shape}, one multiplier per margin", f"shape {dual.shape}"
        )
    reached = np.asarray(margins(data, weight))[active]
    multipliers = np.where(active, np.maximum(dual, 0.0), 0.0)
    target = np.asarray(adjoint(data, multipliers))
    size, pull, smallest, mass = norm.value(weight), norm.dual(target), reached.min(), multipliers.sum()
    shares = multipliers[active] / mass if mass > 0 else multipliers[active]
    return Bracket(
        lower=float(mass / pull) if pull > 0 else (float("inf") if mass > 0 else 0.0),
        upper=float(size / smallest) if smallest > 0 else float("inf"),
        infeasibility=float(max(0.0, 1 - smallest)),
        negativity=float(max(0.0, -dual[active].min()) / max(np.abs(dual).max(), np.finfo(float).tiny)),
        complementarity=float(shares @ (reached - smallest) / smallest) if smallest > 0 else float("inf"),
        misalignment=float(1 - np.vdot(weight, target) / (size * pull)) if size * pull > 0 else float("nan"),
    )
