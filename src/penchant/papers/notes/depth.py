"""Claims on w+^D - w-^D, a diagonal network of depth D: its trajectory in closed form, its potential, and how fast small starts become sparse."""

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...references.base import Interpolant
from ...references.interpolation import minimum_norm, minimum_potential, potential_path
from ...references.interpolation_bracket import interpolation_bracket
from ...references.l1_uniqueness import certificate, strict_dual
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.potentials import q_alpha
from ...settings.power_models import PowerEntropy, SignedPowers
from ...settings.regression import Regression
from ...theory.interpolants import distance
from ...verdict import Verdict, all_of, at_most, close
from .evidence import DERIVED, parameter_flow, sparse
from .q_alpha import WOODWORTH

DEPTHS = (3, 4)
_SMALL = {3: (1e-4, 3e-4, 1e-3), 4: (3e-3, 5e-3, 1e-2)}  # starts that float64 resolves, at each depth
_D = 25


@recipe
def _problem(lab: Lab) -> tuple[Regression, np.ndarray]:
    return sparse_regression(10, _D, 2, 3)


@recipe
def _flow(lab: Lab, depth: int, alpha: float, relaxations: float) -> tuple[np.ndarray, np.ndarray]:
    """w+ and w- after so many relaxation times of the slowest direction, and the integral of the residuals until then."""
    data, potential = _problem(lab)[0], _potential(depth, alpha, _D)
    inputs, limit = np.asarray(data.inputs), minimum_potential(data, potential).weight
    curvature = potential.rate * potential.curvature(potential.gradient(limit))
    slowest = np.linalg.eigvalsh((inputs * curvature) @ inputs.T)[0]
    return parameter_flow(
        inputs, np.asarray(data.targets), np.full((2, _D), alpha), float(relaxations / slowest), depth
    )


def _potential(depth: int, alpha: float, d: int) -> PowerEntropy:
    return PowerEntropy(np.full(d, depth * np.log(alpha)), depth)


@claim(
    "depth/trajectory",
    "Along the flow on w+^D - w-^D from alpha, w+ and w- are (alpha^(2-D) -+ D(D-2) S)^(-1/(D-2)) with S = -kappa X' times the integral of the residuals.",
    DERIVED,
    kind="ours",
)
def trajectory_form(lab: Lab, planted: bool) -> Verdict:
    """w+- = (alpha^(2-D) -+ D(D-2) S)^(-1/(D-2)) from the residuals alone; planted: (D-1)(D-2) for D(D-2)."""
    worst = 0.0
    for depth in DEPTHS:
        for relaxations in (0.02, 0.2):
            ends, accumulated = _flow(lab, depth, 0.5, relaxations)
            rate = (depth - 1 if planted else depth) * (depth - 2)
            pull = rate * np.stack([-accumulated, accumulated]) @ np.asarray(_problem(lab)[0].inputs)
            predicted = (0.5 ** (2 - depth) - pull) ** (-1 / (depth - 2))
            worst = max(worst, float(np.abs(ends / predicted - 1).max()))
    return at_most(worst, 1e-9, "largest relative error of w+ and w- at depths 3 and 4, from the accumulated residuals")


@recipe
def _dual_end(lab: Lab, depth: int) -> np.ndarray:
    setting = Setting(_problem(lab)[0], SignedPowers(0.5, depth), Squared(), "sum")
    return follow_dual(setting, tolerance=1e-7).dual[-1]


@claim(
    "depth/three-routes",
    "The flow on w+^D - w-^D from alpha converges to the interpolant of least Q_alpha of depth D, the integral of the inverse of the trajectory form.",
    f"{WOODWORTH}; {DERIVED}",
    kind="ours",
    slow=True,
)
def three_routes(lab: Lab, planted: bool) -> Verdict:
    """Parameter flow, dual flow and Newton's method at depth 3 and 4; planted: Q_alpha of squares with the same scale alpha^D."""
    worst, gap = 0.0, 0.0
    for depth in DEPTHS:
        data, inputs = _problem(lab)[0], np.asarray(_problem(lab)[0].inputs)
        ends, accumulated = _flow(lab, depth, 0.5, 30.0)
        weight, potential = ends[0] ** depth - ends[1] ** depth, _potential(depth, 0.5, _D)
        limit = minimum_potential(data, q_alpha(0.5 ** (depth / 2), _D) if planted else potential).weight
        worst = max(worst, distance(weight, limit), distance(potential.link(_dual_end(lab, depth) @ inputs), limit))
        found = interpolation_bracket(data, weight, -potential.rate * accumulated, potential)
        gap = max(gap, abs(found.gap) + found.infeasibility)
    return all_of(
        at_most(worst, 1e-9, "largest relative distance between the three limits at depths 3 and 4"),
        at_most(gap, 1e-9, "certified gap plus relative residual of the run on the parameters, from its own residuals"),
    )


@recipe
def small_starts(lab: Lab, depth: int) -> list[Interpolant]:
    data, _ = sparse(lab)
    return potential_path(data, _potential(depth, 1.0, 100), tuple(np.log(_SMALL[depth])))


def _largest_off(lab: Lab, depth: int) -> np.ndarray:
    zero = sparse(lab)[1] == 0
    return np.array([np.abs(found.weight[zero]).max() for found in small_starts(lab, depth)])


@claim(
    "depth/sparse-rate",
    "At depth D >= 3 off-support coefficients of the selected interpolant vanish like alpha^D, whatever rho < 1.",
    DERIVED,
    kind="ours",
)
def sparse_rate(lab: Lab, planted: bool) -> Verdict:
    """Off-support coefficients fall like alpha^D whatever rho; planted: like alpha^(D(1 - rho)), which is the law of squares for D = 2."""
    share = 1 - strict_dual(*sparse(lab)) if planted else 1.0
    return all_of(
        *(
            close(
                log_log_slope(np.array(_SMALL[depth]), _largest_off(lab, depth), (1e-4, 1.0)),
                depth * share,
                1e-3,
                f"exponent of the largest off-support coefficient in alpha at depth {depth}",
            )
            for depth in DEPTHS
        )
    )


def _centre(lab: Lab, depth: int) -> np.ndarray:
    """X' mu off the support for vanishing starts: of least conjugate there, among mu with radius * signs on the support.

    Newton's method from the strict dual certificate, which is inside.
    """
    data, weight = sparse(lab)
    inputs, zero = np.asarray(data.inputs), weight == 0
    part = _potential(depth, 1.0, int(zero.sum()))
    free = np.linalg.svd(inputs[:, ~zero].T)[2][(~zero).sum() :] @ inputs[:, zero]  # what mu may still move
    pull = best = part.radius * certificate(data, weight)[1][zero]
    least = np.inf
    while part.conjugate(pull) < least:
        least, best = part.conjugate(pull), pull
        step = np.linalg.solve((free * part.curvature(pull)) @ free.T, free @ part.link(pull)) @ free
        length = 1.0
        while not part.conjugate(pull - length * step) < least and length > 1e-6:
            length /= 2
        pull = pull - length * step
    return best


@claim(
    "depth/sparse-constant",
    "Their constant is the link at the dual point of least conjugate off the support, among those pinned to the signs on it.",
    DERIVED,
    kind="ours",
)
def sparse_constant(lab: Lab, planted: bool) -> Verdict:
    """The largest off-support coefficient over alpha^D, extrapolated to alpha = 0; planted: at the strict dual certificate, as for squares."""
    data, weight = sparse(lab)
    checks = []
    for depth in DEPTHS:
        pull = (
            _potential(depth, 1.0, 1).radius * certificate(data, weight)[1][weight == 0]
            if planted
            else _centre(lab, depth)
        )
        starts, off = np.array(_SMALL[depth]), _largest_off(lab, depth)
        gain = starts ** (depth - 2)  # the order of the correction, by which pins on the support miss the radius
        limit = np.polyfit(gain, off / starts**depth, 1)[1]
        predicted = float(np.abs(_potential(depth, 1.0, len(pull)).link(pull)).max())
        checks.append(
            close(float(limit), predicted, 1e-4, f"largest off-support coefficient over alpha^{depth} as alpha -> 0")
        )
    return all_of(*checks)


@claim(
    "depth/kernel-limit",
    "Large starts at depth D select the least l2 norm up to a relative alpha^(-2D).",
    DERIVED,
    kind="ours",
)
def kernel_limit(lab: Lab, planted: bool) -> Verdict:
    """Large starts: relative distance to the least l2 norm ~ alpha^(-2D); planted: alpha^-4, as for squares."""
    data, starts = _problem(lab)[0], np.array([2.0, 4.0, 8.0])
    least, checks = minimum_norm(data).weight, []
    for depth in DEPTHS:
        path = potential_path(data, _potential(depth, 1.0, _D), tuple(np.log(starts)))
        gaps = np.array([distance(found.weight, least) for found in path])
        checks.append(
            close(
                log_log_slope(starts, gaps, (2.0, 8.0)),
                -4.0 if planted else -2.0 * depth,
                1e-3,
                f"exponent in alpha of the distance to the least l2 norm at depth {depth}",
            )
        )
    return all_of(*checks)
