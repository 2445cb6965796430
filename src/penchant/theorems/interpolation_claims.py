"""Claims on interpolation: least norm, the potential Q_alpha between l1 and l2, and the mirror flow behind them."""

from functools import cache

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import linprog

from ..diagnostics.rates import log_log_slope
from ..flow.flow import GradientFlow, Levels
from ..flow.mirror import follow_dual
from ..optimisers.base import Descent, gradient_descent
from ..optimisers.geometry import L2
from ..optimisers.memory import Adam, HeavyBall
from ..optimisers.step_rules import Constant
from ..references.base import Interpolant
from ..references.interpolation import basis_pursuit, minimum_norm, minimum_potential, potential_path
from ..references.interpolation_bracket import interpolation_bracket
from ..settings.base import Setting
from ..settings.generators import sparse_regression
from ..settings.losses import Squared
from ..settings.parametrisations import Direct
from ..settings.potentials import HyperbolicEntropy, q_alpha
from ..settings.regression import Regression
from ..settings.square_models import SignedSquares
from ..training.noise import sample_noise
from ..training.train import train
from ..verdict import Outcome, Verdict, all_of, at_most, close
from .base import Claim
from .interpolation import distance
from .linear_models import NOTES

PAPER = "linear_models"
WOODWORTH = "Woodworth, Gunasekar, Lee, Moroshko, Savarese, Golan, Soudry, Srebro, Kernel and rich regimes in overparametrized models, COLT 2020"
DERIVED = "derived for penchant"


@cache
def _dense() -> tuple[Regression, np.ndarray]:
    """Twenty normal samples in fifty dimensions, and a start."""
    rng = np.random.default_rng(0)
    data = Regression(rng.standard_normal((20, 50)), rng.standard_normal(20))
    return data, rng.standard_normal(50)


@cache
def _sparse() -> tuple[Regression, np.ndarray]:
    return sparse_regression()


def _signed(alpha: float) -> Setting:
    return Setting(_sparse()[0], SignedSquares(alpha), Squared(), "sum")


@cache
def path_at(alphas: tuple[float, ...]) -> list[Interpolant]:
    """Minimisers of Q_alpha on the embedded sparse data."""
    return potential_path(_sparse()[0], q_alpha(1.0, 100), tuple(np.log(alphas)))


def nearest_solution(planted: bool) -> Verdict:
    """Gradient descent, heavy ball and single-sample SGD, from 0 and from a random start; planted: Adam."""
    data, start = _dense()
    setting = Setting(data, Direct(), Squared(), "sum")
    inputs, step = np.asarray(data.inputs), 1 / float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2)
    if planted:
        run = train(setting, Adam(1e-3, eps=1e-8), steps=20_000)
        return at_most(
            distance(run.weight(), minimum_norm(data).weight),
            1e-11,
            "Adam: relative distance to the least-norm solution",
        )
    worst = 0.0
    for begin in (np.zeros(50), start):
        limit = minimum_norm(data, begin).weight
        ends = [
            train(setting, rule, begin, steps=5_000).weight()
            for rule in (gradient_descent(step), Descent(Constant(step), L2(), HeavyBall(0.9)))
        ]
        pace = 0.5 / float((inputs**2).sum(axis=1).max())
        ends.append(sample_noise(inputs, data.targets, pace, 60_000, 1, start=begin)[0])
        worst = max(worst, *(distance(end, limit) for end in ends))
    return at_most(
        worst,
        1e-11,
        "largest relative distance to the projection of the start",
        "descent, heavy ball, single-sample SGD",
    )


def closed_form(planted: bool) -> Verdict:
    """Flow and descent against their closed forms in the singular directions."""
    data, start = _dense()
    setting = Setting(data, Direct(), Squared(), "sum")
    sizes, right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[1:]
    limit = minimum_norm(data, start).weight
    step = 0.5 / sizes[0] ** 2
    rate = sizes if planted else sizes**2
    descent = train(setting, gradient_descent(step), start, steps=100)
    flow = train(setting, GradientFlow(tolerance=1e-9), start, recorder=Levels("log_time", np.log([0.01, 0.1])))
    checks = []
    for name, weight, decay in (
        ("100 steps of descent", descent.weight(), (1 - step * rate) ** 100),
        ("flow at t = 0.01", flow.weight(1), np.exp(-0.01 * rate)),
        ("flow at t = 0.1", flow.weight(2), np.exp(-0.1 * rate)),
    ):
        predicted = limit + right.T @ ((decay) * (right @ (start - limit)))
        checks.append(at_most(distance(weight, predicted), 1e-9, f"{name}: relative distance to the closed form"))
    return all_of(*checks)


def parameter_flow(inputs: np.ndarray, targets: np.ndarray, start: np.ndarray, time: float) -> np.ndarray:
    """w+ and w- by a general integrator on the parameters themselves: an independent route."""
    d = inputs.shape[1]

    def field(_: float, state: np.ndarray) -> np.ndarray:
        plus, minus = state[:d], state[d:]
        slope = 2 * (inputs @ (plus**2 - minus**2) - targets) @ inputs
        return np.concatenate([-slope * plus, slope * minus])

    found = solve_ivp(field, (0, time), np.ravel(start), method="LSODA", rtol=1e-11, atol=1e-13)
    return found.y[:, -1].reshape(2, d)


@cache
def _routes(alpha: float) -> tuple[Regression, np.ndarray, np.ndarray]:
    """The ends of the dual flow (a weight) and of the parameter flow (w+ and w-) from alpha."""
    data, _ = sparse_regression(10, 25, 2, 3)
    inputs, potential = np.asarray(data.inputs), q_alpha(alpha, 25)
    setting = Setting(data, SignedSquares(alpha), Squared(), "sum")
    weight = potential.link(follow_dual(setting, tolerance=1e-9).dual[-1] @ inputs)
    slowest = np.linalg.eigvalsh((inputs * potential.curvature(potential.gradient(weight))) @ inputs.T)[0]
    return data, weight, parameter_flow(inputs, np.asarray(data.targets), np.full((2, 25), alpha), 8 / slowest)


def three_routes(planted: bool) -> Verdict:
    """Parameter flow, dual flow and Newton's method; planted: the potential with 2 alpha^2 for alpha^2."""
    worst = drift = 0.0
    for alpha in (2.0, 0.3, 0.05):
        data, weight, ends = _routes(alpha)
        limit = minimum_potential(data, q_alpha(alpha * (np.sqrt(2) if planted else 1), 25)).weight
        worst = max(worst, distance(weight, limit), distance(ends[0] ** 2 - ends[1] ** 2, limit))
        drift = max(drift, float(np.abs(ends[0] * ends[1] / alpha**2 - 1).max()))
    return all_of(
        at_most(worst, 1e-9, "largest relative distance between the three limits"),
        at_most(drift, 1e-8, "largest relative change of w+ w- along the parameter flow"),
    )


def certified(planted: bool) -> Verdict:
    """The bracket of arg min Q_alpha from alpha = 1e3 to 1e-14; planted: multipliers 1 % too large."""
    data, _ = _sparse()
    alphas = (1e3, 1.0, 1e-1, 1e-3, 1e-6, 1e-10, 1e-14)
    gaps = []
    for alpha, found in zip(alphas, path_at(alphas), strict=True):
        dual = found.dual * (1.01 if planted else 1.0)
        bracket = interpolation_bracket(data, found.weight, dual, q_alpha(alpha, 100))
        gaps.append(abs(bracket.gap) + bracket.infeasibility)
    return at_most(max(gaps), 1e-12, "largest certified gap plus relative residual, alpha from 1e3 to 1e-14")


@cache
def _kernel_exponent() -> float:
    data, _ = sparse_regression(10, 25, 2, 3)
    inputs = np.asarray(data.inputs)
    left, sizes, right = np.linalg.svd(inputs, full_matrices=False)
    alphas, gaps = np.array([1.0, 3.0, 10.0]), []
    for alpha in alphas:
        time = 0.5 / (8 * alpha**2 * sizes[-1] ** 2)
        setting = Setting(data, SignedSquares(float(alpha)), Squared(), "sum")
        dual = follow_dual(setting, log_times=[np.log(time)], tolerance=1e-9).dual[-1]
        kernel = (-np.expm1(-8 * alpha**2 * sizes**2 * time) / sizes * (left.T @ np.asarray(data.targets))) @ right
        gaps.append(distance(q_alpha(float(alpha), 25).link(dual @ inputs), kernel))
    return log_log_slope(alphas, np.array(gaps), (1.0, 10.0))


def kernel_limit(planted: bool) -> Verdict:
    """At half a relaxation time the flow differs from its tangent kernel by O(alpha^-4); planted: by O(alpha^-2)."""
    return close(
        _kernel_exponent(),
        -2.0 if planted else -4.0,
        0.02,
        "exponent of the distance between flow and tangent kernel in alpha",
    )


def strict_dual(data: Regression, weight: np.ndarray) -> float:
    """rho = min max off-support |X' mu| subject to X_S' mu = signs: below 1 the l1 solution is unique, and it sets the rate."""
    inputs, support = np.asarray(data.inputs), np.abs(weight) > 1e-9
    n, rest = len(inputs), inputs[:, ~support].T
    ones = -np.ones((len(rest), 1))
    found = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.vstack([np.hstack([rest, ones]), np.hstack([-rest, ones])]),
        b_ub=np.zeros(2 * len(rest)),
        A_eq=np.hstack([inputs[:, support].T, np.zeros((support.sum(), 1))]),
        b_eq=np.sign(weight[support]),
        bounds=(None, None),
        method="highs",
    )
    return float(found.fun)


def sparse_rate(planted: bool) -> Verdict:
    """Off-support coefficients fall like alpha^(2(1 - rho)); planted: like alpha^2."""
    data, weight = _sparse()
    rho = 0.0 if planted else strict_dual(data, weight)
    alphas = np.geomspace(1e-12, 1e-8, 5)
    off = np.array([np.abs(found.weight[weight == 0]).max() for found in path_at(tuple(alphas))])
    slope = log_log_slope(alphas, off, (1e-12, 1e-8))
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


def small_alpha(planted: bool) -> Verdict:
    return _small_alpha(0.0, planted)


def small_alpha_printed(planted: bool) -> Verdict:
    return _small_alpha(1.0, planted)


def equal_decrease(planted: bool) -> Verdict:
    """The divergence to an interpolant falls by 4 kappa times the integral of |r|^2; planted: the target does not interpolate."""
    data, weight = _sparse()
    inputs = np.asarray(data.inputs)
    other = minimum_norm(data).weight * (1.1 if planted else 1.0)
    path, potential = follow_dual(_signed(0.1)), q_alpha(0.1, 100)

    def divergence(target: np.ndarray, dual: np.ndarray) -> float:
        """D(target, theta) by Fenchel: psi(target) + psi*(s) - <s, target>."""
        pull = dual @ inputs
        return potential.value(target) + potential.conjugate(pull) - float(pull @ target)

    time, checks = np.exp(path.log_time[1:]), []
    square = np.array(
        [((inputs @ potential.link(dual @ inputs) - np.asarray(data.targets)) ** 2).sum() for dual in path.dual[1:]]
    )
    fallen = 4 * np.concatenate([[0.0], np.cumsum(np.diff(time) * (square[1:] + square[:-1]) / 2)])  # trapezoidal rule
    for name, target in (("the sparse one", weight), ("the one of least norm", other)):
        series = np.array([divergence(target, dual) for dual in path.dual[1:]])
        error = float(np.abs(series[0] - series - fallen).max() / series[0])
        checks.append(at_most(error, 1e-3, f"relative error of the predicted fall of the divergence to {name}"))
    return all_of(*checks)


def optimal_at_all_times(planted: bool) -> Verdict:
    """theta(t) = arg min Q_alpha subject to X theta = X theta(t); planted: arg min of the l2 norm."""
    data, _ = _sparse()
    inputs, potential = np.asarray(data.inputs), q_alpha(0.1, 100)
    path = follow_dual(_signed(0.1), log_times=np.log([1e-3, 1e-2, 3e-2]), tolerance=1e-10)
    worst = 0.0
    for dual in path.dual[1:]:
        weight = potential.link(dual @ inputs)
        partial = Regression(inputs, inputs @ weight)
        found = minimum_norm(partial) if planted else minimum_potential(partial, potential)
        worst = max(worst, distance(found.weight, weight))
    return at_most(worst, 1e-9, "largest relative distance between theta(t) and the minimiser on its fibre")


def any_start(planted: bool) -> Verdict:
    """A start with w+ and w- different in every coordinate; planted: its shift log(w+/w-) forgotten."""
    data, _ = sparse_regression(10, 25, 2, 3)
    start = np.exp(0.5 * np.random.default_rng(4).standard_normal((2, 25)) - 1)
    inputs = np.asarray(data.inputs)
    potential = SignedSquares(1.0).potential(start)
    if planted:
        potential = HyperbolicEntropy(potential.log_scale, np.zeros(25))
    limit = minimum_potential(data, potential).weight
    slowest = np.linalg.eigvalsh((inputs * potential.curvature(potential.gradient(limit))) @ inputs.T)[0]
    ends = parameter_flow(inputs, np.asarray(data.targets), start, 8 / slowest)
    return at_most(
        distance(ends[0] ** 2 - ends[1] ** 2, limit),
        1e-9,
        "relative distance of the parameter flow to the predicted limit",
    )


def finite_steps(planted: bool) -> Verdict:
    """Descent ends at the minimiser for the start shrunk by its own steps, nearer than to Q_alpha by far; planted: the start as it was."""
    data, _ = _sparse()
    setting, alpha = _signed(0.3), 0.3
    step = 0.5 / (4 * float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2))
    run = train(setting, gradient_descent(step), steps=200_000)
    ends = run.at()
    scale = np.full(100, 2 * np.log(alpha)) if planted else np.log(ends[0]) + np.log(ends[1])
    limit = minimum_potential(data, HyperbolicEntropy(scale, np.zeros(100))).weight
    return at_most(
        distance(run.weight(), limit),
        2e-4,
        "relative distance of descent to arg min of the potential of w+ w- at the end",
    )


def tiny_start(planted: bool) -> Verdict:
    """From alpha = 1e-30 the dual flow reaches the sparse solution; planted: a general integrator with an absolute tolerance."""
    data, weight = _sparse()
    if planted:
        inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)

        def field(_: float, state: np.ndarray) -> np.ndarray:
            slope = 2 * (inputs @ (state[:100] ** 2 - state[100:] ** 2) - targets) @ inputs
            return np.concatenate([-slope * state[:100], slope * state[100:]])

        found = solve_ivp(field, (0, 1e4), np.full(200, 1e-30), method="Radau")
        end = found.y[:100, -1] ** 2 - found.y[100:, -1] ** 2
        detail = f"scipy's Radau with its default tolerances reports success = {found.success}"
    else:
        path = follow_dual(_signed(1e-30))
        end = q_alpha(1e-30, 100).link(path.dual[-1] @ np.asarray(data.inputs))
        detail = f"t = {np.exp(path.log_time[-1]):.2g}, {path.status.name}"
    return at_most(distance(end, weight), 1e-5, "relative distance to the l1 solution, start 1e-30", detail)


def unique_sparse(planted: bool) -> Verdict:
    """Least l1 norm recovers the sparse weight, certified; planted: a weight with as many entries elsewhere."""
    data, weight = _sparse()
    found = basis_pursuit(data)
    truth = np.roll(weight, 1) if planted else weight
    return all_of(
        at_most(abs(found.bracket.gap), 1e-9, "certified gap of basis pursuit"),
        at_most(distance(found.weight, truth), 1e-9, "relative distance of the l1 solution to the sparse weight"),
        at_most(strict_dual(data, weight), 1.0, "strict dual certificate rho"),
    )


CLAIMS = (
    Claim(
        "min-norm/projection",
        PAPER,
        "Descent, heavy ball and single-sample SGD on consistent least squares end at the solution nearest to the start.",
        f"{NOTES}, Theorem 9.3",
        nearest_solution,
    ),
    Claim(
        "min-norm/closed-form",
        PAPER,
        "In each singular direction the error decays like exp(-s^2 t) (flow) or (1 - step s^2)^k (descent).",
        f"{NOTES}, section 9.1",
        closed_form,
    ),
    Claim(
        "q-alpha/three-routes",
        PAPER,
        "Flow on w+^2 - w-^2 from alpha converges to arg min Q_alpha, with the constants of the notes; w+ w- is conserved.",
        f"{NOTES}, Theorem 9.18; {WOODWORTH}",
        three_routes,
    ),
    Claim(
        "q-alpha/certified",
        PAPER,
        "Strong duality for Q_alpha: the accumulated residuals are the optimal multipliers.",
        DERIVED,
        certified,
    ),
    Claim(
        "q-alpha/kernel-limit",
        PAPER,
        "For large alpha the flow follows its tangent kernel, with a deviation of order alpha^-4.",
        f"{NOTES}, section 9.3; exponent {DERIVED}",
        kernel_limit,
    ),
    Claim(
        "q-alpha/sparse-rate",
        PAPER,
        "Off-support coefficients of arg min Q_alpha vanish like alpha^(2(1 - rho)), rho the strict dual certificate.",
        DERIVED,
        sparse_rate,
    ),
    Claim(
        "q-alpha/small-limit-as-printed",
        PAPER,
        "Q_alpha ~ |theta|_1 / alpha^2 log(1/alpha^2) as alpha -> 0, as printed.",
        f"{NOTES}, (9.104)",
        small_alpha_printed,
        Outcome.refuted,
    ),
    Claim(
        "q-alpha/small-limit",
        PAPER,
        "Q_alpha ~ |theta|_1 log(1/alpha^2) as alpha -> 0.",
        f"{NOTES}, (9.104) without its factor 1/alpha^2",
        small_alpha,
    ),
    Claim(
        "q-alpha/any-start",
        PAPER,
        "From any positive w+, w- the limit minimises the hyperbolic entropy with scale w+ w- and shift log(w+/w-).",
        DERIVED,
        any_start,
    ),
    Claim(
        "q-alpha/finite-steps",
        PAPER,
        "Descent with finite steps ends at the minimiser of the potential of its own shrunken product w+ w-.",
        DERIVED,
        finite_steps,
    ),
    Claim(
        "q-alpha/tiny-start",
        PAPER,
        "From alpha = 1e-30 the flow reaches the sparse solution; nothing stalls at the saddle.",
        DERIVED,
        tiny_start,
    ),
    Claim(
        "q-alpha/basis-pursuit",
        PAPER,
        "The least l1 norm recovers the sparse weight of the embedded data, with a strict certificate.",
        f"{NOTES}, section 9.2",
        unique_sparse,
    ),
    Claim(
        "mirror/equal-decrease",
        PAPER,
        "Along the flow the divergence to every interpolant falls at the same rate, 4 kappa |r|^2.",
        DERIVED,
        equal_decrease,
    ),
    Claim(
        "mirror/optimal-at-all-times",
        PAPER,
        "At every time theta(t) minimises the potential among the weights with the same predictions.",
        DERIVED,
        optimal_at_all_times,
    ),
)
