"""Certificates: a lower and an upper bound on an optimum from any primal and any dual point.

This file knows no solver. Feed it the output of ours, of another one, or the training run itself: its weights are a primal
point, and the multipliers it accumulated on the margins are a dual point.
"""

from functools import partial

import equinox as eqx
import numpy as np

from ..errors import ArgumentError
from ..norms import L2, Norm
from ..rounding import FLUSHED, absolute_sums, down, gamma, measured, rounding_of, scaled, up
from ..settings.base import Data
from ..settings.check import real_array
from .base import Bracket, feature_rows, require_margins, require_regression
from .interpolation_bracket import interpolation_bracket

margins = eqx.filter_jit(lambda data, weight: data.margins(weight))  # compiled once per shape
adjoint = eqx.filter_jit(lambda data, coefficients: data.adjoint(coefficients))


def sums(data: Data, weight: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, ...]:
    """Margins of a weight and the pull of nonnegative multipliers, each followed by a bound of what rounding did to it."""
    # Products and additions, a difference of tokens and a product with a query; multipliers of 0 add nothing.
    of_margins, of_pull = gamma(sum(weight.shape) + 2), gamma(np.count_nonzero(multipliers) + 2)
    reached, pull = np.asarray(margins(data, weight)), np.asarray(adjoint(data, multipliers))
    terms, weights = getattr(data, "sizes", partial(_sizes, data))(weight, multipliers)
    return reached, of_margins * terms + FLUSHED, pull, of_pull * weights + FLUSHED


def _sizes(data: Data, weight: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From the features, where data do not say what their own sums are made of."""
    rows = feature_rows(data, np.ones(len(multipliers), bool))
    of_margins, of_pull = absolute_sums(rows, weight.ravel(), multipliers)
    return of_margins, of_pull.reshape(weight.shape)


def bracket(data: object, primal: object, dual: object, norm: object = None) -> Bracket:
    """Bounds on min ||W|| subject to margins >= 1, from any weight `primal` and any multipliers `dual`.

    On a `Regression` the constraints are the targets, X theta = y, and `norm` may be a potential (`interpolation_bracket`).

    Weak duality: for lam >= 0 and any feasible W, sum(lam) <= sum(lam * margins(W)) = <V, W> <= ||V||_dual ||W|| with
    V = sum_k lam_k Z_k. Negative multipliers are clipped to 0, which keeps the bound and shows in `negativity`.
    Margins, V, norms and quotients are moved to the safe side by what rounding may have done to them: a primal whose margins are
    not provably positive bounds nothing.

    >>> import penchant as pt
    >>> data = pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    >>> found = pt.bracket(data, primal=[1.0, 1.0], dual=[1.0, 1.0])      # neither is optimal: the optimum is sqrt(5)/2
    >>> round(found.lower, 4), round(found.upper, 4)
    (0.8944, 1.4142)
    """
    norm = L2() if norm is None else norm
    if hasattr(data, "fitted"):
        return interpolation_bracket(require_regression(data, "bracket"), primal, dual, norm)  # pyright: ignore[reportArgumentType]
    return _margin_bracket(require_margins(data, "bracket"), primal, dual, norm)  # pyright: ignore[reportArgumentType]


def _margin_bracket(data: Data, primal: object, dual: object, norm: Norm) -> Bracket:
    active, shape = data.constrained(), data.weight_shape
    weight = real_array(primal, "primal", "bracket", str(shape), len(shape), np.inf)
    dual = real_array(dual, "dual", "bracket", str(active.shape), 1, np.inf)
    if weight.shape != shape:
        raise ArgumentError("primal", "bracket", f"of shape {shape}", f"shape {weight.shape}")
    if dual.shape != active.shape:
        wanted = f"of shape {active.shape}, one multiplier per margin"
        raise ArgumentError("dual", "bracket", wanted, f"shape {dual.shape}")
    weight, exponent = scaled(weight)
    multipliers = scaled(np.where(active, np.maximum(dual, 0.0), 0.0))[0]
    reached, blur, pull, haze = sums(data, weight, multipliers)
    reached, certain = reached[active], down(reached - up(blur))[active].min()
    size, reach, smallest = measured(norm.value, weight), measured(norm.dual, pull), reached.min()
    mass, used, spare = multipliers.sum(), np.count_nonzero(multipliers), 1 + up(rounding_of(norm, shape))
    farthest = up(up(reach + measured(getattr(norm, "spread", norm.dual), haze)) * spare)
    lower = float(down(down(mass * (1 - gamma(used))) / farthest)) if used else 0.0
    upper = float(up(up(size * spare) / certain)) if certain > 0 else float("inf")
    widened = upper / lower - size * reach / (smallest * mass) if lower > 0 and certain > 0 else float("inf")
    shares = multipliers[active] / mass if mass > 0 else multipliers[active]
    return Bracket(
        lower=lower,
        upper=upper,
        infeasibility=float(max(0.0, 1 - np.ldexp(smallest, exponent))),
        negativity=float(max(0.0, -dual[active].min()) / max(np.abs(dual).max(), np.finfo(float).tiny)),
        complementarity=float(shares @ (reached - smallest) / smallest) if smallest > 0 else float("inf"),
        misalignment=float(1 - np.vdot(weight, pull) / (size * reach)) if size * reach > 0 else float("nan"),
        rounding=float(widened),
    )
