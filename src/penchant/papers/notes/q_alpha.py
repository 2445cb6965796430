"""Claims on Q_alpha, the potential between l1 and l2: its minimiser by three routes, its certificate and its two ends.

Claims on w+^D - w-^D, a diagonal network of depth D: its potential.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...references.interpolation import basis_pursuit, minimum_norm, minimum_potential, potential_path
from ...references.interpolation_bracket import interpolation_bracket
from ...references.l1_uniqueness import strict_dual
from ...settings.generators import sparse_regression
from ...settings.parametrisations import SignedPowers, SignedSquares
from ...settings.potentials import AbstractPotential, Entropy, HyperbolicEntropy, PowerEntropy, q_alpha
from ...settings.regression import Regression
from ...theory.families.interpolation import distance
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import DERIVED, arrays, parameter_flow, sparse, summed
from .theorems import NOTES, slowest_rate

WOODWORTH = "Woodworth, Gunasekar, Lee, Moroshko, Savarese, Golan, Soudry, Srebro, Kernel and rich regimes in overparametrized models, COLT 2020"


@recipe
def _drawn(lab: Lab) -> list[Regression]:
    """Twenty-four sparse problems: five samples in twelve dimensions, two signals."""
    return [sparse_regression(5, 12, 2, 1000 * lab.seed + seed)[0] for seed in range(24)]


_TWICE, _DEEPER = (2,), (3, 4)


class _Route(NamedTuple):
    """A drawn problem with its start and the potential of its depth: where Newton's method, the dual flow and the parameter flow end, w+ and w- there, and the residuals that training gathered."""

    data: Regression
    potential: AbstractPotential
    start: float
    limits: tuple[np.ndarray, np.ndarray, np.ndarray]
    params: np.ndarray
    gathered: np.ndarray


@recipe
def _routes(lab: Lab, depths: tuple[int, ...]) -> list[_Route]:
    """Twenty-four drawn problems from starts between 0.05 and 2, of these depths in turn (beyond 2 between 0.3 and 1), after thirty of the slowest relaxation times."""
    found = []
    for k, data in enumerate(_drawn(lab)):
        depth, rng = depths[k % len(depths)], np.random.default_rng((lab.seed, k))
        alpha = float(np.exp(rng.uniform(*np.log((0.05, 2.0) if depth == 2 else (0.3, 1.0)))))
        setting = summed(data, SignedSquares(alpha) if depth == 2 else SignedPowers(alpha, depth))
        potential = setting.parametrisation.potential(setting.start())
        newton = minimum_potential(data, potential).weight
        time = 30 / slowest_rate(setting, potential, newton)
        end, params, gathered = parameter_flow(data, np.full((2, 12), alpha), time, depth)
        dual = potential.link(follow_dual(setting, tolerance=1e-9).dual[-1] @ np.asarray(data.inputs))
        found.append(_Route(data, potential, alpha, (newton, dual, end), params, gathered))
    return found


def _three_routes(lab: Lab, depths: tuple[int, ...], planted: bool) -> Iterator[Verdict]:
    """That all three ends agree, that the slope of the potential is a combination of the samples where the parameters end, and that -c times the residuals are the optimal multipliers, c = 4 for squares."""
    apart, outside, gaps = [], [], []
    for one in _routes(lab, depths):
        potential, inputs = one.potential, np.asarray(one.data.inputs)
        newton, dual, end = one.limits
        if planted:
            newton = minimum_potential(one.data, potential.scaled(0.01)).weight
        slope = potential.gradient(end)
        apart.append(max(distance(dual, newton), distance(end, newton)))
        outside.append(distance(inputs.T @ np.linalg.lstsq(inputs.T, slope)[0], slope))
        certified = interpolation_bracket(one.data, end, -potential.rate * one.gathered, potential)
        gaps.append(abs(certified.gap) + certified.infeasibility)
    yield at_most(max(apart), 1e-9, f"largest relative distance between the three limits, {len(apart)} problems")
    yield at_most(max(outside), 1e-8, "largest relative part of the potential's slope outside the span of the samples")
    yield at_most(max(gaps), 1e-9, "largest certified gap plus relative residual of the run on the parameters")


@claim("q-alpha/three-routes", f"{NOTES}, Theorem 9.18, (9.113) and (9.125); {WOODWORTH}", "proved", slow=True)
def three_routes(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Flow on w+^2 - w-^2 from alpha converges to arg min Q_alpha, with the constants of the notes; w+ w- is conserved, and the residuals that training accumulates, times -4, are the optimal multipliers.
    Parameter flow, dual flow and Newton's method on drawn problems. Planted: a start one per cent larger."""
    yield from _three_routes(lab, _TWICE, planted)
    drift = max(float(np.abs(one.params[0] * one.params[1] / one.start**2 - 1).max()) for one in _routes(lab, _TWICE))
    yield at_most(drift, 1e-8, "largest relative change of w+ w- along the parameter flow")


@claim("depth/three-routes", f"{WOODWORTH}; {DERIVED}", "ours", slow=True)
def depth_routes(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The flow on w+^D - w-^D from alpha converges to the interpolant of least Q_alpha of depth D, the integral of the inverse of the trajectory form.
    As for squares, at depth 3 and 4 in turn. Planted: a start one per cent larger."""
    yield from _three_routes(lab, _DEEPER, planted)


def kernel_deviation(data: Regression, alpha: float) -> tuple[float, float]:
    """Half a relaxation time of the slowest direction, and the relative distance of flow and tangent kernel at it."""
    inputs, targets = arrays(data)
    left, sizes, right = np.linalg.svd(inputs, full_matrices=False)
    time = float(0.5 / (8 * alpha**2 * sizes[-1] ** 2))
    dual = follow_dual(summed(data, SignedSquares(alpha)), log_times=[np.log(time)], tolerance=1e-9).dual[-1]
    kernel = (-np.expm1(-8 * alpha**2 * sizes**2 * time) / sizes * (left.T @ targets)) @ right
    return time, distance(q_alpha(alpha, inputs.shape[1]).link(dual @ inputs), kernel)


@recipe
def _kernel_gaps(lab: Lab) -> np.ndarray:
    """Distances of flow and tangent kernel at alpha = 5 and 10, drawn problems x 2."""
    return np.array([[kernel_deviation(one, alpha)[1] for alpha in (5.0, 10.0)] for one in _drawn(lab)])


@claim("q-alpha/kernel-limit", f"{NOTES}, section 9.3; exponent {DERIVED}", "sharpened", slow=True)
def kernel_limit(lab: Lab, planted: bool) -> Verdict:
    """For large alpha the flow follows its tangent kernel, with a deviation of order alpha^-4.
    Distances at half a relaxation time, at alpha = 10 over 5 on drawn problems: 1/16 up to the next order, alpha^-4 of that. Planted: alpha^-3.99."""
    gaps = _kernel_gaps(lab)
    worst = np.abs(gaps[:, 1] / gaps[:, 0] * 2 ** (3.99 if planted else 4.0) - 1).max()
    return at_most(float(worst), 5.0**-4, f"largest relative distance of the ratio to 2^-4, {len(gaps)} problems")


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
    Growth of Q_alpha in log(1/alpha^2), 20 drawn theta; planted: of alpha^2 Q_alpha, as printed."""
    thetas, logs = np.random.default_rng(0).standard_normal((20, 3)), np.array([200.0, 300.0])  # log(1/alpha^2)
    printed = np.exp(-logs)[:, None] if planted else 1.0
    entropies = [HyperbolicEntropy(np.full(3, -log), np.zeros(3)) for log in logs]
    values = np.array([[float(one.value(theta)) for theta in thetas] for one in entropies]) * printed
    errors = np.diff(values, axis=0)[0] / np.diff(logs)[0] / np.abs(thetas).sum(axis=1) - 1
    text = "growth of Q_alpha per unit of log(1/alpha^2) over |theta|_1, largest distance from 1"
    return at_most(float(np.abs(errors).max()), 1e-9, text)


@claim("q-alpha/large-limit", f"{NOTES}, Remark 9.19, (9.101) and (9.102); constant {DERIVED}", "sharpened")
def large_alpha(lab: Lab, planted: bool) -> Verdict:
    """As alpha grows Q_alpha is |theta|^2 / (4 alpha^2) up to a share of max theta^2 / (48 alpha^4), and its interpolant the one of least l2 norm up to O(alpha^-4).
    Drawn theta, and the minimisers of drawn problems at alpha = 10 and 30. Planted: 1/2 for 1/4, and O(alpha^-2)."""
    rng, shares, slopes = np.random.default_rng(lab.seed), [], []
    for data in _drawn(lab):
        theta, alpha = rng.standard_normal(12), float(rng.uniform(3.0, 30.0))
        square = theta @ theta / ((2 if planted else 4) * alpha**2)
        shares.append((1 - q_alpha(alpha, 12).value(theta) / square) / (np.abs(theta).max() ** 2 / (48 * alpha**4)))
        least = minimum_norm(data).weight
        gaps = [distance(minimum_potential(data, q_alpha(a, 12)).weight, least) for a in (10.0, 30.0)]
        slopes.append(np.log(gaps[1] / gaps[0]) / np.log(3.0))
    wanted = -2.0 if planted else -4.0
    return all_of(
        at_most(float(np.abs(shares).max()), 1.0, "largest |1 - 4 alpha^2 Q / |theta|^2| over its bound, 24 draws"),
        at_most(float(np.abs(np.array(slopes) - wanted).max()), 0.01, "largest error of the exponent of the distance"),
    )


def _lengths(data: Regression, alpha: float) -> tuple[float, float]:
    """|w - alpha| for w+ and w- of the least Q_alpha, and for the nearest interpolating pair.

    That pair has w+- = alpha / (1 -+ u) with u in the row span: the link of depth 4 at the level alpha^2, whose potential is twice the distance squared."""
    d = data.inputs.shape[1]
    pull = minimum_potential(data, q_alpha(alpha, d)).dual @ np.asarray(data.inputs) / 2
    squared = PowerEntropy(np.full(d, 2 * np.log(alpha)), 4)
    nearest = squared.value(minimum_potential(data, squared).weight)
    return float(alpha * np.linalg.norm(np.expm1([pull, -pull]))), float(np.sqrt(nearest / 2))


@claim("q-alpha/nearest", f"{NOTES}, Remark 9.20; law {DERIVED}", "sharpened", slow=True)
def nearest_start(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """As alpha -> 0 the solution is the global minimum nearest to the start, up to the excess of its l1 norm, which vanishes; for alpha > 0 it is not exactly that.
    Squared distance of the limit to the start minus the least one, at alpha = 0.1, and at 1e-6 against that excess: as |w|^2 is |theta|_1 up to 2 d alpha^2 and |w . 1| <= sqrt(2d) |w|, they differ by at most 2 d alpha^2 + 2 alpha sqrt(2d) |w|. Planted: an excess one per cent larger."""
    farther, apart, d = [], [], 12
    for data in _drawn(lab):
        (limit, nearest), (far, near) = (_lengths(data, alpha) for alpha in (0.1, 1e-6))
        farther.append(limit / nearest - 1)
        weight, least = minimum_potential(data, q_alpha(1e-6, d)).weight, basis_pursuit(data).value
        excess = (np.abs(weight).sum() - least) * (1.01 if planted else 1.0)
        allowed = 2 * d * 1e-12 + 2e-6 * np.sqrt(2 * d) * (max(far, near) + 1e-6 * np.sqrt(2 * d))
        apart.append(abs(far**2 - near**2 - excess) / allowed)
    # distances are those of two programs that are solved to 1e-12
    yield at_least(
        min(farther), 1e-9, f"alpha = 0.1: smallest distance over the least one - 1, {len(farther)} problems"
    )
    text = "alpha = 1e-6: largest difference of (distance^2 - the least one) from the excess of the l1 norm, over its bound"
    yield at_most(float(max(apart)), 1.0, text)


@claim("q-alpha/basis-pursuit", f"{NOTES}, Remark 9.8; certificate {DERIVED}", "sharpened")
def unique_sparse(lab: Lab, planted: bool) -> Verdict:
    """The sparse weight is the interpolant of least |beta|^2 = |theta|_1, the only one where the strict dual certificate rho is below 1.
    Five signals among a hundred, forty samples, 24 draws. Planted: sixteen samples."""
    drawn = [sparse_regression(16 if planted else 40, 100, 5, 1000 * lab.seed + k, signed=False) for k in range(24)]
    grid = [
        np.round(np.asarray(one.inputs) * 2**20) / 2**20 for one, _ in drawn
    ]  # no target is rounded: weights fit exactly
    data = [(Regression(inputs, inputs @ weight), weight) for inputs, (_, weight) in zip(grid, drawn, strict=True)]
    apart = [distance(basis_pursuit(one, nonnegative=True).weight, weight) for one, weight in data]
    largest = max(strict_dual(one, weight, nonnegative=True) for one, weight in data)
    return all_of(
        at_most(largest, 1.0, f"largest rho, {len(data)} draws"),
        at_most(max(apart), 1e-9, "largest relative distance of the nonnegative l1 solution to the sparse weight"),
    )
