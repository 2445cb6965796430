r"""Least potential among nonnegative interpolants, also where some coefficients vanish in all of them.

There the dual has no maximiser: $\theta_j = \alpha_j^2e^{s_j}$ is 0 only in the limit $s_j\to-\infty$, and Newton's method would run after it. The
coefficients that can be positive are found by a linear program and solved for alone; its multipliers mu then push the others to 0
in the dual, $\nu - \tau\mu$ with tau so large that what is left of them is below rounding, which certifies the whole.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..settings.regression import Regression
from .base import Interpolant, pinned
from .interpolation_bracket import interpolation_bracket
from .linear_programs import positive_part

_VANISHED = 45.0  # e^-45 is below the rounding of any start that is not itself negligible


def nonnegative_path(
    solver_of: Callable[[Any, Any], Any], data: Any, potential: Any, factors: Sequence[float]
) -> dict[float, Interpolant]:
    """Minimisers for the start multiplied by exp(factor), by a solver for strictly positive interpolants; factors descend."""
    inputs = np.asarray(data.inputs)
    positive, mu = positive_part(inputs, np.asarray(data.fitted))
    if positive.all():
        solver = solver_of(data, potential)
        return {factor: solver.advance(factor) for factor in factors}
    if not positive.any():  # targets 0: nothing but 0 interpolates
        return {factor: _only_zero(data, potential.scaled(factor), mu) for factor in factors}
    part = Regression(inputs[:, positive], data.fitted)
    solver = solver_of(part, potential.at_levels(potential.levels[positive]))
    return {
        factor: _extended(data, positive, mu, solver.advance(factor), potential.scaled(factor)) for factor in factors
    }


def _extended(data: Any, positive: np.ndarray, mu: np.ndarray, found: Interpolant, potential: Any) -> Interpolant:
    inputs, weight = np.asarray(data.inputs), np.zeros(len(positive))
    weight[positive] = found.weight
    dual = _pushed(inputs, positive, mu, found.dual)
    bracket = interpolation_bracket(data, weight, dual, potential)
    return Interpolant(found.norm, weight, dual, bracket, found.resolved and pinned(bracket), found.iterations)


def _only_zero(data: Any, potential: Any, mu: np.ndarray) -> Interpolant:
    inputs = np.asarray(data.inputs)
    positive, weight = np.zeros(inputs.shape[1], bool), np.zeros(inputs.shape[1])
    dual = _pushed(inputs, positive, mu, np.zeros(len(inputs)))
    bracket = interpolation_bracket(data, weight, dual, potential)
    return Interpolant(potential.name, weight, dual, bracket, pinned(bracket))


def _pushed(inputs: np.ndarray, positive: np.ndarray, mu: np.ndarray, dual: np.ndarray) -> np.ndarray:
    """The dual moved along mu until every coefficient that must vanish is e^-45 of its start, those that need not left alone."""
    outside, direction = ~positive, mu @ inputs
    left = (dual @ inputs)[outside] + _VANISHED
    return dual + max(0.0, float((left / -direction[outside]).max())) * mu
