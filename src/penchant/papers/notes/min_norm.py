"""Claims on how interpolation is reached: least norm from any start, the flow as mirror descent, its last relaxation."""

from collections.abc import Callable

import numpy as np

from ...flow.mirror import DualPath, follow_dual
from ...lab import Lab, claim, recipe
from ...norms import L2
from ...optimisers.base import Adam, Descent, gradient_descent
from ...optimisers.memory import HeavyBall
from ...optimisers.step_rules import Constant
from ...references.interpolation import minimum_norm, minimum_potential
from ...settings.base import Setting
from ...settings.losses import Squared
from ...settings.parametrisations import Direct
from ...settings.potentials import AbstractPotential
from ...settings.regression import Regression
from ...settings.square_models import SignedPowers, SignedSquares, Squares
from ...theory.families.interpolation import distance
from ...training.noise import sample_noise
from ...training.train import train
from ...verdict import Verdict, all_of, at_most, close
from .evidence import ADAM, DERIVED, arrays, dense, recovery, small, square_setting, summed
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
