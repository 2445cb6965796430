"""Claims on how interpolation is reached: least norm from any start, the flow as mirror descent, its last relaxation, finite steps, tiny starts."""

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

from ...diagnostics.rates import log_log_slope
from ...flow.flow import GradientFlow, Levels
from ...flow.mirror import DualPath, follow_dual
from ...lab import Lab, claim, recipe
from ...norms import L2
from ...optimisers.adam import Adam
from ...optimisers.base import Descent, gradient_descent
from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Constant
from ...references.interpolation import minimum_norm, minimum_potential
from ...settings.base import Setting
from ...settings.losses import Squared
from ...settings.parametrisations import Direct
from ...settings.potentials import AbstractPotential, Entropy, HyperbolicEntropy, q_alpha
from ...settings.power_models import SignedPowers
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares, Squares
from ...theory.families.interpolation import distance, relative_residual
from ...training.noise import sample_noise
from ...training.train import train
from ...verdict import Verdict, all_of, at_most, close
from .evidence import ADAM, DERIVED, arrays, dense, recovery, small, sparse, square_setting, summed
from .hypotheses import slowest_rate
from .theorems import NOTES


@claim("min-norm/projection", f"{NOTES}, Theorem 9.3; other starts and rules {DERIVED}", "sharpened", slow=True)
def nearest_solution(lab: Lab, planted: bool) -> Verdict:
    """Descent, heavy ball and single-sample SGD on consistent least squares end at the solution nearest to the start.
    Gradient descent, heavy ball and single-sample SGD, from 0 and from a random start; planted: Adam."""
    data, start = dense(lab)
    setting, inputs = summed(data, Direct()), np.asarray(data.inputs)
    step, zero = 1 / float(np.linalg.norm(inputs, 2) ** 2), np.zeros(len(start))
    if planted:
        end = train(setting, Adam(**ADAM), steps=20_000).weight()
        text = "Adam: relative distance to the least-norm solution"
        return at_most(distance(end, minimum_norm(data).weight), 1e-11, text)
    worst, pace = 0.0, 0.5 / float((inputs**2).sum(axis=1).max())
    rules = gradient_descent(step), Descent(Constant(step), L2(), HeavyBall(0.9))
    for begin in (zero, start):
        ends = [train(setting, rule, begin, steps=5_000).weight() for rule in rules]
        ends.append(sample_noise(inputs, data.targets, pace, 60_000, 1, start=begin)[0])
        worst = max(worst, *(distance(end, minimum_norm(data, begin).weight) for end in ends))
    text = "largest relative distance to the projection of the start"
    return at_most(worst, 1e-11, text, "descent, heavy ball, single-sample SGD")


@claim("min-norm/closed-form", DERIVED, "ours", slow=True)
def closed_form(lab: Lab, planted: bool) -> Verdict:
    """In each singular direction the error decays like exp(-s^2 t) (flow) or (1 - step s^2)^k (descent).
    Flow and descent against their closed forms in the singular directions; planted: s for s^2."""
    data, start = dense(lab)
    setting, limit = summed(data, Direct()), minimum_norm(data, start).weight
    sizes, right = np.linalg.svd(np.asarray(data.inputs), full_matrices=False)[1:]
    step, rate = 0.5 / sizes[0] ** 2, sizes if planted else sizes**2
    descent = train(setting, gradient_descent(step), start, steps=100)
    flow = train(setting, GradientFlow(tolerance=1e-9), start, recorder=Levels("log_time", np.log([0.01, 0.1])))
    checks = []
    for name, weight, decay in (
        ("100 steps of descent", descent.weight(), (1 - step * rate) ** 100),
        ("flow at t = 0.01", flow.weight(1), np.exp(-0.01 * rate)),
        ("flow at t = 0.1", flow.weight(2), np.exp(-0.1 * rate)),
    ):
        predicted = limit + right.T @ (decay * (right @ (start - limit)))
        checks.append(at_most(distance(weight, predicted), 1e-9, f"{name}: relative distance to the closed form"))
    return all_of(*checks)


_SCALE = 0.7  # a loss scale kappa that is not 1, so that it is seen
_MODELS: dict[str, tuple[Callable[[], object], bool]] = {  # and whether the start is a random one
    "plain weights": (Direct, True),
    "squares": (lambda: Squares(0.3), True),
    "signed squares": (lambda: SignedSquares(0.3), True),
    "depth 3": (lambda: SignedPowers(0.4, 3), False),
}


@recipe
def _flow(lab: Lab, name: str) -> tuple[AbstractPotential, DualPath]:
    """The flow of a model on nonnegative signals, so that squares can interpolate too, from a start with a shape of its own."""
    make, random = _MODELS[name]
    setting = Setting(small(lab, False)[0], make(), Squared(_SCALE), "sum")
    start = np.asarray(setting.start())
    start = start + np.random.default_rng(7).uniform(0.05, 0.5, start.shape) if random else start
    return setting.parametrisation.potential(start), follow_dual(setting, start, tolerance=1e-8)


@claim("mirror/equal-decrease", DERIVED, "ours", slow=True)
def equal_decrease(lab: Lab, planted: bool) -> Verdict:
    """Along the flow the divergence to every interpolant falls at the same rate, c kappa |r|^2: c = 1 for plain weights, 4 for squares and signed squares, D^2 alpha^(D-2) at depth D.
    The divergence to two interpolants falls by c kappa times the integral of |r|^2; planted: the second does not interpolate."""
    data, sparse_one = small(lab, False)
    dense_one = minimum_potential(data, Entropy(np.zeros(25))).weight * (1.1 if planted else 1.0)
    text = "relative error of the predicted fall of the divergence to the sparse one and a dense one"
    return all_of(
        *(at_most(_decrease(lab, name, (sparse_one, dense_one)), 1e-3, f"{name}: {text}") for name in _MODELS)
    )


def _decrease(lab: Lab, name: str, targets: tuple[np.ndarray, ...]) -> float:
    """Largest relative error of c kappa times the integral of |r|^2 as the fall of the divergence to the targets."""
    (potential, path), (inputs, wanted) = _flow(lab, name), arrays(small(lab, False)[0])

    def divergence(target: np.ndarray, dual: np.ndarray) -> float:
        """D(target, theta) by Fenchel: psi(target) + psi*(s) - <s, target>."""
        pull = dual @ inputs
        return potential.value(target) + potential.conjugate(pull) - float(pull @ target)

    time = np.exp(path.log_time[1:])
    residuals = [inputs @ potential.link(dual @ inputs) - wanted for dual in path.dual[1:]]
    square = potential.rate * _SCALE * np.array([(residual**2).sum() for residual in residuals])
    fallen = np.concatenate([[0.0], np.cumsum(np.diff(time) * (square[1:] + square[:-1]) / 2)])  # trapezoidal rule
    worst = 0.0
    for target in targets:
        series = np.array([divergence(target, dual) for dual in path.dual[1:]])
        worst = max(worst, float(np.abs(series[0] - series - fallen).max() / series[0]))
    return worst


@claim("mirror/optimal-at-all-times", DERIVED, "ours", slow=True)
def optimal_at_all_times(lab: Lab, planted: bool) -> Verdict:
    """At every time theta(t) minimises the potential among the weights with the same predictions: for plain weights, squares, signed squares and at depth 3.
    theta(t) = arg min of the potential subject to X theta = X theta(t), at five times; planted: arg min of the l2 norm."""
    inputs, checks = np.asarray(small(lab, False)[0].inputs), []
    for name in _MODELS:
        potential, path = _flow(lab, name)
        records = np.linspace(1, len(path.dual) - 1, 7).astype(int)[1:-1]
        worst = 0.0
        for dual in path.dual[records]:
            weight = potential.link(dual @ inputs)
            partial = Regression(inputs, inputs @ weight)
            found = minimum_norm(partial) if planted else minimum_potential(partial, potential)
            worst = max(worst, distance(found.weight, weight))
        text = f"{name}: largest relative distance between theta(t) and the minimiser on its fibre"
        checks.append(at_most(worst, 1e-9, text))
    return all_of(*checks)


_RELAXATIONS = (12.0, 14.0)  # of the slowest direction: all others are gone, and rounding is far away


def _relaxing(lab: Lab) -> dict[str, Setting]:
    data, _ = small(lab)
    return {
        "signed squares": summed(data, SignedSquares(0.3)),
        "depth 3": summed(data, SignedPowers(0.3, 3)),
        "squares": square_setting(recovery(lab)[0], 1e-2),
    }


@recipe
def _final_rates(lab: Lab, name: str) -> tuple[float, float, float]:
    """Rate at which the residual of the flow ends, the predicted one, and that with |theta| for the curvature C."""
    setting = _relaxing(lab)[name]
    potential, (inputs, targets) = setting.parametrisation.potential(setting.start()), arrays(setting.data)
    limit = minimum_potential(setting.data, potential).weight
    predicted = slowest_rate(setting, potential, limit)
    times = np.array(_RELAXATIONS) / predicted
    path = follow_dual(setting, log_times=np.log(times), tolerance=1e-9)
    left = np.linalg.norm(potential.link(path.dual[1:] @ inputs) @ inputs.T - targets, axis=1)
    curvature = potential.curvature(potential.gradient(limit))
    smallest = [np.linalg.svd(inputs * np.sqrt(scale), compute_uv=False)[-1] for scale in (np.abs(limit), curvature)]
    measured = float(np.log(left[0] / left[1]) / (times[1] - times[0]))
    return measured, predicted, float(predicted * (smallest[0] / smallest[1]) ** 2)


@claim("mirror/final-rate", f"{NOTES}, Theorem 9.18; rate {DERIVED}", "sharpened", slow=True)
def final_rate(lab: Lab, planted: bool) -> Verdict:
    """The flow ends linearly at the rate c kappa lambda_min(X C X'), c = 4 for squares and D^2 alpha^(D-2) at depth D: for squares after n / lambda_min(2 X diag(theta) X').
    The last two relaxation times of three flows; planted: the modulus of the weight for the curvature of the dual potential."""
    checks = []
    for name in _relaxing(lab):
        measured, predicted, other = _final_rates(lab, name)
        text = f"{name}: rate of the residual between {_RELAXATIONS[0]:g} and {_RELAXATIONS[1]:g} relaxation times"
        detail = f"n / lambda_min(2 X diag(theta) X') = {1 / predicted:.4g}" if name == "squares" else ""
        checks.append(close(measured, other if planted else predicted, 0.01, text, detail))
    return all_of(*checks)


_LOADS = np.array([0.4, 0.2, 0.1, 0.05])  # step size times 4 |X|^2


@recipe
def _ends(lab: Lab, alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distances of where descent ends to arg min Q_alpha and to the minimiser for its own product w+ w-, and its residual, per step size."""
    data, _ = small(lab)
    setting = summed(data, SignedSquares(alpha))
    top = 4 * float(np.linalg.norm(np.asarray(data.inputs), 2) ** 2)
    plain, rows = minimum_potential(data, q_alpha(alpha, 25)).weight, []
    for load in _LOADS:
        run = train(setting, gradient_descent(float(load / top)), steps=100_000)
        own = minimum_potential(data, HyperbolicEntropy(np.log(run.at()).sum(axis=0), np.zeros(25))).weight
        left = relative_residual(data, run.margins[-1])
        rows.append((distance(run.weight(), plain), distance(run.weight(), own), left))
    first, second, residual = np.array(rows).T
    return first, second, residual


@claim("q-alpha/step-orders", DERIVED, "ours", slow=True)
def step_orders(lab: Lab, planted: bool) -> Verdict:
    """Descent ends at a distance of first order in the step size from arg min Q_alpha, and of second order from the minimiser for its own product w+ w-.
    Slopes over four step sizes and two starts; planted: order 2 for Q_alpha itself, order 1 with the product."""
    checks = []
    for alpha in (0.3, 0.1):
        *found, residual = _ends(lab, alpha)
        checks.append(at_most(float(residual.max()), 1e-8, f"alpha = {alpha:g}: relative residual where descent ends"))
        names = "arg min Q_alpha", "the minimiser for its own w+ w-"
        for name, gaps, order in zip(names, found, (1, 2), strict=True):
            slope = log_log_slope(_LOADS, gaps, (_LOADS[-1], _LOADS[0]))
            text = f"alpha = {alpha:g}: order in the step size of the distance to {name}"
            detail = f"{gaps[0]:.3g} to {gaps[-1]:.3g}"
            checks.append(close(slope, 3.0 - order if planted else float(order), 0.05, text, detail))
    return all_of(*checks)


@claim("q-alpha/tiny-start", DERIVED, "ours", slow=True)
def tiny_start(lab: Lab, planted: bool) -> Verdict:
    """From alpha = 1e-30 the flow reaches the sparse solution; nothing stalls at the saddle.
    From alpha = 1e-30 the dual flow reaches the sparse solution; planted: a general integrator with an absolute tolerance."""
    data, weight = sparse(lab)
    inputs, targets = arrays(data)
    if planted:

        def field(_: float, state: np.ndarray) -> np.ndarray:
            slope = 2 * (inputs @ (state[:100] ** 2 - state[100:] ** 2) - targets) @ inputs
            return np.concatenate([-slope * state[:100], slope * state[100:]])

        found = solve_ivp(field, (0, 1e4), np.full(200, 1e-30), method="Radau")
        end = found.y[:100, -1] ** 2 - found.y[100:, -1] ** 2
        detail = f"scipy's Radau with its default tolerances reports success = {found.success}"
    else:
        path = follow_dual(summed(data, SignedSquares(1e-30)))
        end = q_alpha(1e-30, 100).link(path.dual[-1] @ inputs)
        detail = f"t = {np.exp(path.log_time[-1]):.2g}, {path.status.name}"
    return at_most(distance(end, weight), 1e-5, "relative distance to the l1 solution, start 1e-30", detail)
