"""Claims on w+^D - w-^D, a diagonal network of depth D: its potential, how fast small starts become sparse.

And on l1 solutions that are not unique: which point of their face small starts select, for squares and in depth.
"""

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...references.interpolation import minimum_norm, minimum_potential, potential_path
from ...references.l1_uniqueness import entropic_sparse, sparse_face, strict_dual
from ...settings.generators import sparse_regression
from ...settings.potentials import Entropy, PowerEntropy, q_alpha
from ...settings.regression import Regression
from ...settings.square_models import SignedPowers
from ...theory.families.interpolation import distance
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import DERIVED, parameter_flow, small, summed
from .q_alpha import WOODWORTH, certified_gap

_DEPTHS = (3, 4)
_SMALL = {3: (1e-4, 3e-4, 1e-3), 4: (3e-3, 5e-3, 1e-2)}  # starts that float64 resolves, at each depth
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


@recipe
def _signals(lab: Lab) -> tuple[Regression, np.ndarray]:
    """Data of one seed, whatever that of the lab: how small a start must be depends on them, and `_SMALL` is small for these."""
    return sparse_regression()


@recipe
def _largest_off(lab: Lab, depth: int) -> np.ndarray:
    """Largest off-support coefficients for small starts."""
    data, weight = _signals(lab)
    path = potential_path(data, _potential(depth, 1.0, 100), tuple(np.log(_SMALL[depth])))
    return np.array([np.abs(found.weight[weight == 0]).max() for found in path])


@claim("depth/sparse-rate", DERIVED, "ours")
def sparse_rate(lab: Lab, planted: bool) -> Verdict:
    """At depth D >= 3 off-support coefficients of the selected interpolant vanish like alpha^D, whatever rho < 1.
    Off-support coefficients fall like alpha^D whatever rho; planted: like alpha^(D(1 - rho)), which is the law of squares for D = 2."""
    share = 1 - strict_dual(*_signals(lab)) if planted else 1.0
    checks = []
    for depth in _DEPTHS:
        slope = log_log_slope(np.array(_SMALL[depth]), _largest_off(lab, depth), (1e-4, 1.0))
        text = f"exponent of the largest off-support coefficient in alpha at depth {depth}"
        checks.append(close(slope, depth * share, 1e-3, text))
    return all_of(*checks)


_FACE, _WIDE = 7, 14  # columns that touch the bound of the dual solution, and all of them


@recipe
def face_problem(lab: Lab, nonnegative: bool = False) -> Regression:
    """Four samples whose first row is a dual solution: seven columns touch its bound, so that the l1 solutions have three dimensions."""
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((4, _WIDE))
    signs = np.ones(_WIDE) if nonnegative else rng.choice([-1.0, 1.0], _WIDE)
    inputs[0] = np.where(np.arange(_WIDE) < _FACE, signs, rng.uniform(-0.6, 0.6, _WIDE))
    weight = np.where(np.arange(_WIDE) < _FACE, signs * rng.uniform(0.05, 1.5, _WIDE), 0.0)
    return Regression(inputs, inputs @ weight)


def _columns(data: Regression) -> tuple[np.ndarray, np.ndarray]:
    face = sparse_face(data)
    return np.asarray(data.inputs)[:, face != 0] * face[face != 0], face


@claim("q-alpha/largest-entropy", DERIVED, "ours")
def largest_entropy(lab: Lab, planted: bool) -> Verdict:
    """Where the least l1 norm is attained on a face, vanishing starts of squares and signed squares select its point of largest entropy.
    Q_alpha and KL at alpha = 1e-6 against the point of largest entropy; planted: the point of least l2 norm on the face."""
    checks = []
    for name, nonnegative in (("Q_alpha", False), ("KL", True)):
        data = face_problem(lab, nonnegative)
        potential = Entropy(np.zeros(_WIDE)) if nonnegative else q_alpha(1.0, _WIDE)
        found = potential_path(data, potential, (np.log(1e-6),))[0].weight
        predicted = entropic_sparse(data, nonnegative=nonnegative)
        columns, face = _columns(data)
        short = np.zeros(_WIDE)
        short[face != 0] = minimum_norm(Regression(columns, data.targets)).weight
        target = short * face if planted else predicted.weight
        checks += [
            at_most(abs(predicted.bracket.gap), 1e-12, f"{name}: certified gap of that point as an l1 solution"),
            at_least(distance(short * face, predicted.weight), 0.01, f"{name}: distance of the point of least l2 norm"),
            at_most(distance(found, target), 1e-4, f"{name}: relative distance to the predicted point at alpha = 1e-6"),
        ]
    return all_of(*checks)


@claim("depth/face", DERIVED, "ours")
def deeper_face(lab: Lab, planted: bool) -> Verdict:
    """At depth D >= 3 vanishing starts select the point of that face with the largest sum of |theta|^(2/D).
    Stationarity of sum |theta|^(2/D) on the face: its gradient lies in the span of the samples; planted: that of the entropy."""
    data = face_problem(lab)
    columns, face = _columns(data)
    span = np.linalg.pinv(columns) @ columns
    checks = []
    for depth, alpha in ((3, 1e-3), (4, 1e-2)):  # starts that float64 resolves
        found = potential_path(data, PowerEntropy(np.zeros(_WIDE), depth), (np.log(alpha),))[0].weight
        sizes = np.abs(found[face != 0])
        slope = np.log(sizes) if planted else sizes ** (2 / depth - 1)
        text = f"depth {depth}, alpha = {alpha:g}: part of the gradient outside the span of the samples"
        checks.append(at_most(distance(span @ slope, slope), 1e-6, text))
        checks.append(at_most(float(np.abs(found[face == 0]).max()), 1e-5, "largest coefficient off the face"))
    return all_of(*checks)
