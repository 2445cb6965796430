"""Claims on Q_alpha, the potential between l1 and l2: its minimiser by three routes, its certificate and its two ends."""

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...references.interpolation import basis_pursuit, minimum_potential, potential_path
from ...references.interpolation_bracket import interpolation_bracket
from ...references.l1_uniqueness import strict_dual
from ...settings.generators import sparse_regression
from ...settings.potentials import AbstractPotential, Entropy, HyperbolicEntropy, q_alpha
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares
from ...theory.families.interpolation import distance
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import DERIVED, arrays, parameter_flow, small, sparse, summed
from .theorems import NOTES

WOODWORTH = "Woodworth, Gunasekar, Lee, Moroshko, Savarese, Golan, Soudry, Srebro, Kernel and rich regimes in overparametrized models, COLT 2020"
_STARTS = (2.0, 0.3, 0.05)


def slowest(data: Regression, potential: AbstractPotential, weight: np.ndarray) -> float:
    """Smallest eigenvalue of X C X' at a weight."""
    inputs = np.asarray(data.inputs)
    return np.linalg.eigvalsh((inputs * potential.curvature(potential.gradient(weight))) @ inputs.T)[0]


@recipe
def _routes(lab: Lab, alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ends of the dual flow (a weight) and of the parameter flow (a weight, w+ and w-) from alpha, and -4 times the residuals of the latter, accumulated."""
    (data, _), potential = small(lab), q_alpha(alpha, 25)
    dual = follow_dual(summed(data, SignedSquares(alpha)), tolerance=1e-9).dual[-1]
    weight = potential.link(dual @ np.asarray(data.inputs))
    end, params, accumulated = parameter_flow(data, np.full((2, 25), alpha), 8 / slowest(data, potential, weight))
    return weight, end, params, -4 * accumulated


@claim("q-alpha/three-routes", f"{NOTES}, Theorem 9.18; {WOODWORTH}", "proved", slow=True)
def three_routes(lab: Lab, planted: bool) -> Verdict:
    """Flow on w+^2 - w-^2 from alpha converges to arg min Q_alpha, with the constants of the notes; w+ w- is conserved.
    Parameter flow, dual flow and Newton's method; planted: the potential with 2 alpha^2 for alpha^2."""
    worst = drift = 0.0
    for alpha in _STARTS:
        weight, end, params, _ = _routes(lab, alpha)
        limit = minimum_potential(small(lab)[0], q_alpha(alpha * (np.sqrt(2) if planted else 1), 25)).weight
        worst = max(worst, distance(weight, limit), distance(end, limit))
        drift = max(drift, float(np.abs(params[0] * params[1] / alpha**2 - 1).max()))
    return all_of(
        at_most(worst, 1e-9, "largest relative distance between the three limits"),
        at_most(drift, 1e-8, "largest relative change of w+ w- along the parameter flow"),
    )


def certified_gap(data: Regression, weight: np.ndarray, dual: np.ndarray, potential: AbstractPotential) -> float:
    """What weight and multipliers leave open: the gap of their bracket plus the relative residual."""
    found = interpolation_bracket(data, weight, dual, potential)
    return abs(found.gap) + found.infeasibility


@claim("q-alpha/certified", DERIVED, "ours")
def certified(lab: Lab, planted: bool) -> Verdict:
    """Strong duality for Q_alpha: weight and multipliers of Newton's method certify each other, for starts from 1e3 to 1e-14.
    The bracket of arg min Q_alpha from alpha = 1e3 to 1e-14; planted: multipliers 1 % too large."""
    (data, _), alphas, scale = sparse(lab), (1e3, 1.0, 1e-1, 1e-3, 1e-6, 1e-10, 1e-14), 1.01 if planted else 1.0
    gaps = [
        certified_gap(data, found.weight, found.dual * scale, q_alpha(alpha, 100))
        for alpha, found in zip(alphas, potential_path(data, q_alpha(1.0, 100), tuple(np.log(alphas))), strict=True)
    ]
    return at_most(max(gaps), 1e-12, "largest certified gap plus relative residual, alpha from 1e3 to 1e-14")


@claim("q-alpha/accumulated", f"{NOTES}, (9.125); {DERIVED}", "sharpened", slow=True)
def accumulated(lab: Lab, planted: bool) -> Verdict:
    """The residuals that training accumulates, times -4, are the optimal multipliers: a run on the parameters certifies its own limit.
    The bracket from nothing but a run on the parameters: its last weight and its accumulated residuals; planted: 1 % too large."""
    gaps = []
    for alpha in _STARTS:
        _, end, _, dual = _routes(lab, alpha)
        gaps.append(certified_gap(small(lab)[0], end, dual * (1.01 if planted else 1.0), q_alpha(alpha, 25)))
    text = "largest certified gap plus relative residual, from -4 times the integral of the residuals"
    return at_most(max(gaps), 1e-9, text)


def kernel_deviation(data: Regression, alpha: float) -> tuple[float, float]:
    """Half a relaxation time of the slowest direction, and the relative distance of flow and tangent kernel at it."""
    inputs, targets = arrays(data)
    left, sizes, right = np.linalg.svd(inputs, full_matrices=False)
    time = float(0.5 / (8 * alpha**2 * sizes[-1] ** 2))
    dual = follow_dual(summed(data, SignedSquares(alpha)), log_times=[np.log(time)], tolerance=1e-9).dual[-1]
    kernel = (-np.expm1(-8 * alpha**2 * sizes**2 * time) / sizes * (left.T @ targets)) @ right
    return time, distance(q_alpha(alpha, inputs.shape[1]).link(dual @ inputs), kernel)


@recipe
def _kernel_exponent(lab: Lab) -> float:
    alphas = np.array([1.0, 3.0, 10.0])
    gaps = [kernel_deviation(small(lab)[0], float(alpha))[1] for alpha in alphas]
    return log_log_slope(alphas, np.array(gaps), (1.0, 10.0))


@claim("q-alpha/kernel-limit", f"{NOTES}, section 9.3; exponent {DERIVED}", "sharpened", slow=True)
def kernel_limit(lab: Lab, planted: bool) -> Verdict:
    """For large alpha the flow follows its tangent kernel, with a deviation of order alpha^-4.
    At half a relaxation time the flow differs from its tangent kernel by O(alpha^-4); planted: by O(alpha^-2)."""
    text = "exponent of the distance between flow and tangent kernel in alpha"
    return close(_kernel_exponent(lab), -2.0 if planted else -4.0, 0.02, text)


@claim("q-alpha/sparse-rate", DERIVED, "ours")
def sparse_rate(lab: Lab, planted: bool) -> Verdict:
    """Off-support coefficients of arg min Q_alpha vanish like alpha^(2(1 - rho)), rho the strict dual certificate; those of arg min KL among nonnegative weights like alpha^(2(1 - rho+)).
    Signed squares, and squares on nonnegative signals; planted: like alpha^2."""
    nonnegative = sparse_regression(40, 100, 5, lab.seed, signed=False)
    cases = (
        ("Q_alpha", *sparse(lab), q_alpha(1.0, 100), np.geomspace(1e-12, 1e-8, 5), 0.005),
        ("KL", *nonnegative, Entropy(np.zeros(100)), np.geomspace(1e-6, 1e-4, 4), 0.01),
    )
    checks = []
    for name, data, weight, potential, alphas, tolerance in cases:
        rho = 0.0 if planted else strict_dual(data, weight, nonnegative=potential.nonnegative)
        path = potential_path(data, potential, tuple(np.log(alphas)))
        known = np.array([found.resolved for found in path])  # below the resolution of float64 there is no rate to fit
        off = np.array([np.abs(found.weight[weight == 0]).max() for found in path])
        slope = log_log_slope(alphas[known], off[known], (alphas[0], alphas[-1]))
        text = f"{name}: exponent of the largest off-support coefficient in alpha"
        checks.append(close(slope, 2 * (1 - rho), tolerance, text, f"rho = {rho:.7f}"))
    return all_of(*checks)


@claim("q-alpha/small-limit", f"repair of {NOTES}, (9.104)", "repaired")
def small_alpha(lab: Lab, planted: bool) -> Verdict:
    """Q_alpha ~ |theta|_1 log(1/alpha^2) as alpha -> 0, without the further factor 1/alpha^2 as printed.
    Growth of Q_alpha in log(1/alpha^2); planted: of alpha^2 Q_alpha, as printed."""
    theta, logs = np.array([1.0, -0.3, 0.02]), np.array([200.0, 300.0])  # log(1/alpha^2)
    printed = np.exp(-logs) if planted else np.ones(2)
    values = [HyperbolicEntropy(np.full(3, -log), np.zeros(3)).value(theta) for log in logs] * printed
    growth = float(np.diff(values)[0] / np.diff(logs)[0])
    return close(growth, np.abs(theta).sum(), 1e-9, "growth of Q_alpha per unit of log(1/alpha^2), against |theta|_1")


@claim("q-alpha/any-start", DERIVED, "ours")
def any_start(lab: Lab, planted: bool) -> Verdict:
    """From any positive w+, w- the limit minimises the hyperbolic entropy with scale w+ w- and shift log(w+/w-).
    A start with w+ and w- different in every coordinate; planted: its shift log(w+/w-) forgotten."""
    data, _ = small(lab)
    start = np.exp(0.5 * np.random.default_rng(4).standard_normal((2, 25)) - 1)
    potential = SignedSquares(1.0).potential(start)
    if planted:
        potential = HyperbolicEntropy(potential.log_scale, np.zeros(25))
    limit = minimum_potential(data, potential).weight
    end, *_ = parameter_flow(data, start, 8 / slowest(data, potential, limit))
    return at_most(distance(end, limit), 1e-9, "relative distance of the parameter flow to the predicted limit")


@claim("q-alpha/basis-pursuit", f"{NOTES}, Remark 9.8; certificate {DERIVED}", "sharpened")
def unique_sparse(lab: Lab, planted: bool) -> Verdict:
    """The least l1 norm recovers the sparse weight, with a strict certificate: rho <= 0.9.
    On forty samples in a hundred dimensions; planted: a weight with as many entries elsewhere."""
    data, weight = sparse(lab)
    found = basis_pursuit(data)
    truth = np.roll(weight, 1) if planted else weight
    return all_of(
        at_most(abs(found.bracket.gap), 1e-9, "certified gap of basis pursuit"),
        at_most(distance(found.weight, truth), 1e-9, "relative distance of the l1 solution to the sparse weight"),
        at_least(1 - strict_dual(data, weight), 0.1, "1 - rho, the slack of the strict dual certificate,"),
    )
