"""Claims on Q_alpha, the potential between l1 and l2: its minimiser by three routes, its certificate and its two ends."""

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...references.interpolation import basis_pursuit, minimum_potential
from ...references.interpolation_bracket import interpolation_bracket
from ...references.l1_uniqueness import strict_dual
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.potentials import HyperbolicEntropy, q_alpha
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares
from ...theory.interpolants import distance
from ...verdict import Outcome, Verdict, all_of, at_least, at_most, close
from .evidence import DERIVED, parameter_flow, path_at, sparse
from .margin_theorems import NOTES

WOODWORTH = "Woodworth, Gunasekar, Lee, Moroshko, Savarese, Golan, Soudry, Srebro, Kernel and rich regimes in overparametrized models, COLT 2020"


@recipe
def _routes(lab: Lab, alpha: float, seed: int) -> tuple[Regression, np.ndarray, np.ndarray, np.ndarray]:
    """The ends of the dual flow (a weight) and of the parameter flow (w+ and w-) from alpha, and -4 times the residuals of the latter, accumulated."""
    data, _ = sparse_regression(10, 25, 2, 3 + seed)
    inputs, potential = np.asarray(data.inputs), q_alpha(alpha, 25)
    setting = Setting(data, SignedSquares(alpha), Squared(), "sum")
    weight = potential.link(follow_dual(setting, tolerance=1e-9).dual[-1] @ inputs)
    slowest = np.linalg.eigvalsh((inputs * potential.curvature(potential.gradient(weight))) @ inputs.T)[0]
    ends, accumulated = parameter_flow(inputs, np.asarray(data.targets), np.full((2, 25), alpha), 8 / slowest)
    return data, weight, ends, -4 * accumulated


@claim(
    "q-alpha/three-routes",
    "Flow on w+^2 - w-^2 from alpha converges to arg min Q_alpha, with the constants of the notes; w+ w- is conserved.",
    f"{NOTES}, Theorem 9.18; {WOODWORTH}",
    kind="proved",
    slow=True,
)
def three_routes(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    """Parameter flow, dual flow and Newton's method; planted: the potential with 2 alpha^2 for alpha^2."""
    worst = drift = 0.0
    for alpha in (2.0, 0.3, 0.05):
        data, weight, ends, _ = _routes(lab, alpha, seed)
        limit = minimum_potential(data, q_alpha(alpha * (np.sqrt(2) if planted else 1), 25)).weight
        worst = max(worst, distance(weight, limit), distance(ends[0] ** 2 - ends[1] ** 2, limit))
        drift = max(drift, float(np.abs(ends[0] * ends[1] / alpha**2 - 1).max()))
    return all_of(
        at_most(worst, 1e-9, "largest relative distance between the three limits"),
        at_most(drift, 1e-8, "largest relative change of w+ w- along the parameter flow"),
    )


@claim(
    "q-alpha/certified",
    "Strong duality for Q_alpha: weight and multipliers of Newton's method certify each other, for starts from 1e3 to 1e-14.",
    DERIVED,
    kind="ours",
)
def certified(lab: Lab, planted: bool) -> Verdict:
    """The bracket of arg min Q_alpha from alpha = 1e3 to 1e-14; planted: multipliers 1 % too large."""
    data, _ = sparse(lab)
    alphas = (1e3, 1.0, 1e-1, 1e-3, 1e-6, 1e-10, 1e-14)
    gaps = []
    for alpha, found in zip(alphas, path_at(lab, alphas), strict=True):
        dual = found.dual * (1.01 if planted else 1.0)
        bracket = interpolation_bracket(data, found.weight, dual, q_alpha(alpha, 100))
        gaps.append(abs(bracket.gap) + bracket.infeasibility)
    return at_most(max(gaps), 1e-12, "largest certified gap plus relative residual, alpha from 1e3 to 1e-14")


@claim(
    "q-alpha/accumulated",
    "The residuals that training accumulates, times -4, are the optimal multipliers: a run on the parameters certifies its own limit.",
    f"{NOTES}, (9.125); {DERIVED}",
    kind="sharpened",
    slow=True,
)
def accumulated(lab: Lab, planted: bool) -> Verdict:
    """The bracket from nothing but a run on the parameters: its last weight and its accumulated residuals; planted: 1 % too large."""
    gaps = []
    for alpha in (2.0, 0.3, 0.05):
        data, _, ends, dual = _routes(lab, alpha, 0)
        bracket = interpolation_bracket(
            data, ends[0] ** 2 - ends[1] ** 2, dual * (1.01 if planted else 1.0), q_alpha(alpha, 25)
        )
        gaps.append(abs(bracket.gap) + bracket.infeasibility)
    return at_most(
        max(gaps), 1e-9, "largest certified gap plus relative residual, from -4 times the integral of the residuals"
    )


def kernel_deviation(data: Regression, alpha: float) -> tuple[float, float]:
    """Half a relaxation time of the slowest direction, and the relative distance of flow and tangent kernel at it."""
    inputs = np.asarray(data.inputs)
    left, sizes, right = np.linalg.svd(inputs, full_matrices=False)
    time = float(0.5 / (8 * alpha**2 * sizes[-1] ** 2))
    setting = Setting(data, SignedSquares(alpha), Squared(), "sum")
    dual = follow_dual(setting, log_times=[np.log(time)], tolerance=1e-9).dual[-1]
    kernel = (-np.expm1(-8 * alpha**2 * sizes**2 * time) / sizes * (left.T @ np.asarray(data.targets))) @ right
    return time, distance(q_alpha(alpha, inputs.shape[1]).link(dual @ inputs), kernel)


@recipe
def _kernel_exponent(lab: Lab) -> float:
    data, alphas = sparse_regression(10, 25, 2, 3)[0], (1.0, 3.0, 10.0)
    gaps = [kernel_deviation(data, alpha)[1] for alpha in alphas]
    return log_log_slope(np.array(alphas), np.array(gaps), (1.0, 10.0))


@claim(
    "q-alpha/kernel-limit",
    "For large alpha the flow follows its tangent kernel, with a deviation of order alpha^-4.",
    f"{NOTES}, section 9.3; exponent {DERIVED}",
    kind="sharpened",
    slow=True,
)
def kernel_limit(lab: Lab, planted: bool) -> Verdict:
    """At half a relaxation time the flow differs from its tangent kernel by O(alpha^-4); planted: by O(alpha^-2)."""
    return close(
        _kernel_exponent(lab),
        -2.0 if planted else -4.0,
        0.02,
        "exponent of the distance between flow and tangent kernel in alpha",
    )


@claim(
    "q-alpha/sparse-rate",
    "Off-support coefficients of arg min Q_alpha vanish like alpha^(2(1 - rho)), rho the strict dual certificate.",
    DERIVED,
    kind="ours",
)
def sparse_rate(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    """Off-support coefficients fall like alpha^(2(1 - rho)); planted: like alpha^2."""
    data, weight = sparse(lab, seed)
    rho = 0.0 if planted else strict_dual(data, weight)
    alphas = np.geomspace(1e-12, 1e-8, 5)
    path = path_at(lab, tuple(alphas), seed)
    known = np.array([found.resolved for found in path])  # below the resolution of float64 there is no rate to fit
    off = np.array([np.abs(found.weight[weight == 0]).max() for found in path])
    slope = log_log_slope(alphas[known], off[known], (1e-12, 1e-8))
    return close(
        slope, 2 * (1 - rho), 0.005, "exponent of the largest off-support coefficient in alpha", f"rho = {rho:.7f}"
    )


def _small_alpha(spurious: float, planted: bool) -> Verdict:
    """Q_alpha over |theta|_1 log(1/alpha^2) alpha^-spurious, extrapolated to alpha = 0."""
    theta = np.array([1.0, -0.3, 0.02])
    target = np.abs(theta).sum() * (2.0 if planted else 1.0)
    logs = np.array([200.0, 300.0])  # log(1/alpha^2)
    values = [HyperbolicEntropy(np.full(3, -log), np.zeros(3)).value(theta) * np.exp(-spurious * log) for log in logs]
    growth = float(np.diff(values)[0] / np.diff(logs)[0])
    return close(growth, target, 1e-9, "growth of Q_alpha per unit of log(1/alpha^2), against |theta|_1")


@claim(
    "q-alpha/small-limit",
    "Q_alpha ~ |theta|_1 log(1/alpha^2) as alpha -> 0.",
    f"{NOTES}, (9.104) without its factor 1/alpha^2",
    kind="repaired",
)
def small_alpha(lab: Lab, planted: bool) -> Verdict:
    return _small_alpha(0.0, planted)


@claim(
    "q-alpha/small-limit-as-printed",
    "Q_alpha ~ |theta|_1 / alpha^2 log(1/alpha^2) as alpha -> 0, as printed.",
    f"{NOTES}, (9.104)",
    kind="proved",
    expected=Outcome.refuted,
)
def small_alpha_printed(lab: Lab, planted: bool) -> Verdict:
    return _small_alpha(1.0, planted)


@claim(
    "q-alpha/any-start",
    "From any positive w+, w- the limit minimises the hyperbolic entropy with scale w+ w- and shift log(w+/w-).",
    DERIVED,
    kind="ours",
)
def any_start(lab: Lab, planted: bool) -> Verdict:
    """A start with w+ and w- different in every coordinate; planted: its shift log(w+/w-) forgotten."""
    data, _ = sparse_regression(10, 25, 2, 3)
    start = np.exp(0.5 * np.random.default_rng(4).standard_normal((2, 25)) - 1)
    inputs = np.asarray(data.inputs)
    potential = SignedSquares(1.0).potential(start)
    if planted:
        potential = HyperbolicEntropy(potential.log_scale, np.zeros(25))
    limit = minimum_potential(data, potential).weight
    slowest = np.linalg.eigvalsh((inputs * potential.curvature(potential.gradient(limit))) @ inputs.T)[0]
    ends, _ = parameter_flow(inputs, np.asarray(data.targets), start, 8 / slowest)
    return at_most(
        distance(ends[0] ** 2 - ends[1] ** 2, limit),
        1e-9,
        "relative distance of the parameter flow to the predicted limit",
    )


@claim(
    "q-alpha/basis-pursuit",
    "The least l1 norm recovers the sparse weight of the embedded data, with a strict certificate: rho <= 0.9.",
    f"{NOTES}, section 9.2",
    kind="proved",
)
def unique_sparse(lab: Lab, planted: bool) -> Verdict:
    """Least l1 norm recovers the sparse weight, certified; planted: a weight with as many entries elsewhere."""
    data, weight = sparse(lab)
    found = basis_pursuit(data)
    truth = np.roll(weight, 1) if planted else weight
    return all_of(
        at_most(abs(found.bracket.gap), 1e-9, "certified gap of basis pursuit"),
        at_most(distance(found.weight, truth), 1e-9, "relative distance of the l1 solution to the sparse weight"),
        at_least(1 - strict_dual(data, weight), 0.1, "1 - rho, the slack of the strict dual certificate,"),
    )
