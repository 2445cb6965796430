"""Claims on w+^D - w-^D, a diagonal network of depth D: its potential."""

import numpy as np

from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...references.interpolation import minimum_potential
from ...settings.potentials import PowerEntropy, q_alpha
from ...settings.square_models import SignedPowers
from ...theory.families.interpolation import distance
from ...verdict import Verdict, all_of, at_most
from .evidence import DERIVED, parameter_flow, small, summed
from .q_alpha import WOODWORTH, certified_gap

_DEPTHS = (3, 4)
_D = 25


def _potential(depth: int, alpha: float, d: int) -> PowerEntropy:
    return PowerEntropy(np.full(d, depth * np.log(alpha)), depth)


@recipe
def _flow(lab: Lab, depth: int, relaxations: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parameter flow from 0.5 after so many relaxation times of the slowest direction: weight, w+ and w-, integral of the residuals."""
    data, potential = small(lab)[0], _potential(depth, 0.5, _D)
    inputs, limit = np.asarray(data.inputs), minimum_potential(data, potential).weight
    curvature = potential.rate * potential.curvature(potential.gradient(limit))
    slowest = np.linalg.eigvalsh((inputs * curvature) @ inputs.T)[0]
    return parameter_flow(data, np.full((2, _D), 0.5), float(relaxations / slowest), depth)


@recipe
def _dual_end(lab: Lab, depth: int) -> np.ndarray:
    return follow_dual(summed(small(lab)[0], SignedPowers(0.5, depth)), tolerance=1e-7).dual[-1]


@claim("depth/three-routes", f"{WOODWORTH}; {DERIVED}", "ours", slow=True)
def three_routes(lab: Lab, planted: bool) -> Verdict:
    """The flow on w+^D - w-^D from alpha converges to the interpolant of least Q_alpha of depth D, the integral of the inverse of the trajectory form.
    Parameter flow, dual flow and Newton's method at depth 3 and 4; planted: Q_alpha of squares with the same scale alpha^D."""
    worst, gap, data = 0.0, 0.0, small(lab)[0]
    for depth in _DEPTHS:
        weight, _, accumulated = _flow(lab, depth, 30.0)
        potential = _potential(depth, 0.5, _D)
        limit = minimum_potential(data, q_alpha(0.5 ** (depth / 2), _D) if planted else potential).weight
        dual_end = potential.link(_dual_end(lab, depth) @ np.asarray(data.inputs))
        worst = max(worst, distance(weight, limit), distance(dual_end, limit))
        gap = max(gap, certified_gap(data, weight, -potential.rate * accumulated, potential))
    return all_of(
        at_most(worst, 1e-9, "largest relative distance between the three limits at depths 3 and 4"),
        at_most(gap, 1e-9, "certified gap plus relative residual of the run on the parameters, from its own residuals"),
    )
