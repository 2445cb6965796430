"""Certificates for interpolation: bounds on the least norm or potential subject to X theta = y, from any primal and any dual.

This file knows no solver either: the dual variable that a run accumulates on its residuals is as good as a solver's.
"""

from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..settings.potentials import AbstractPotential
from .bracket import Bracket, Norm


def interpolation_bracket(data: Any, primal: Any, dual: Any, objective: Norm | AbstractPotential) -> Bracket:
    r"""Bounds on min f(theta) subject to X theta = y, with f a norm or a potential.

    Weak duality: $f(\theta) \ge \langle\nu, y\rangle - f^*(X^\top\nu)$ for a potential, $\ge \langle\nu, y\rangle/\|X^\top\nu\|_*$ for a norm. The upper bound is f at the
    projection of the primal on the solutions. The residuals are 0 at the optimum: `infeasibility` |X theta - y| / |y| before the
    projection, `negativity` of the smallest coefficient where weights must be nonnegative, `complementarity` the slack of
    Fenchel's inequality relative to f, `misalignment` the same relative to |theta| |X' nu| (for a norm). Both bounds are moved outward by
    the rounding of the sums that they are made of, so that lower <= upper.

    >>> import penchant as pt
    >>> from penchant.references.bracket import Euclidean
    >>> data = pt.Regression([[1.0, 1.0]], [2.0])
    >>> found = interpolation_bracket(data, primal=[2.0, 0.0], dual=[3.0], objective=Euclidean())     # the optimum is sqrt(2)
    >>> round(found.lower, 4), round(found.upper, 4)
    (1.4142, 2.0)
    """
    inputs, targets = np.asarray(data.inputs), np.asarray(data.fitted)
    weight, dual = np.asarray(primal, float), np.asarray(dual, float)
    for name, found, wanted in (("primal", weight, inputs.shape[1:]), ("dual", dual, targets.shape)):
        if found.shape != wanted:
            raise ArgumentError(name, "interpolation_bracket", f"of shape {wanted}", f"shape {found.shape}")
    pull = dual @ inputs
    residual = targets - inputs @ weight
    size = max(float(np.linalg.norm(targets)), np.finfo(float).tiny)
    repaired = weight + np.linalg.lstsq(inputs, residual, rcond=1e-12)[0]
    negativity = 0.0
    if isinstance(objective, AbstractPotential):
        if objective.nonnegative:
            negativity = float(max(0.0, -weight.min()) / max(np.abs(weight).max(), np.finfo(float).tiny))
            repaired = np.where(
                repaired < 0, np.where(repaired > -1e-13 * np.abs(repaired).max(), 0.0, repaired), repaired
            )
        lower, upper = _potential_bounds(objective, inputs, targets, repaired, dual)
        slack = objective.value(repaired) + objective.conjugate(pull) - float(repaired @ pull)
        misalignment = slack / max(float(np.linalg.norm(repaired) * np.linalg.norm(pull)), np.finfo(float).tiny)
    else:
        lower, upper = _norm_bounds(objective, inputs, targets, repaired, dual)
        slack = objective.value(repaired)
        slack -= float(repaired @ pull) / objective.dual(pull) if pull.any() else 0.0
        misalignment = slack / max(upper, np.finfo(float).tiny)
    return Bracket(
        lower=float(lower),
        upper=float(upper),
        infeasibility=float(np.linalg.norm(residual) / size),
        negativity=negativity,
        complementarity=float(slack / upper) if upper > 0 else 0.0,
        misalignment=float(misalignment),
    )


def _rounding(inputs: np.ndarray) -> float:
    """Relative rounding of a sum over samples and columns: its errors add like independent ones, with room for four deviations."""
    return 4 * float(np.finfo(float).eps) * float(np.sqrt(sum(inputs.shape)))


def _left(inputs: np.ndarray, targets: np.ndarray, weight: np.ndarray, dual: np.ndarray) -> float:
    """What the residual that rounding leaves in `weight` could still change, to first order, by the multipliers."""
    return abs(float(dual @ (targets - inputs @ weight)))


def _potential_bounds(
    potential: AbstractPotential, inputs: np.ndarray, targets: np.ndarray, weight: np.ndarray, dual: np.ndarray
) -> tuple[float, float]:
    unit, pull, paired = _rounding(inputs), dual @ inputs, float(dual @ targets)
    conjugate, value = potential.conjugate(pull), potential.value(weight)
    if not (np.isfinite(conjugate) and np.isfinite(value)):
        return paired - conjugate, value
    through = float(np.abs(potential.link(pull)) @ (np.abs(dual) @ np.abs(inputs)))
    lower = paired - conjugate - unit * (float(np.abs(dual) @ np.abs(targets)) + through + abs(conjugate))
    slope = potential.gradient(weight)
    moved = float(np.abs(weight) @ np.abs(np.where(np.isfinite(slope), slope, 0.0)))
    return lower, value + unit * (abs(value) + moved) + _left(inputs, targets, weight, dual)


def _norm_bounds(
    norm: Norm, inputs: np.ndarray, targets: np.ndarray, weight: np.ndarray, dual: np.ndarray
) -> tuple[float, float]:
    unit, paired, value = _rounding(inputs), float(dual @ targets), norm.value(weight)
    reach = norm.dual(dual @ inputs)
    if not reach > 0:
        return 0.0, value * (1 + unit)
    blur = float(np.abs(dual) @ np.abs(targets)) + abs(paired) * norm.dual(np.abs(dual) @ np.abs(inputs)) / reach
    return (paired - unit * blur) / reach, value * (1 + unit) + _left(inputs, targets, weight, dual) / reach
