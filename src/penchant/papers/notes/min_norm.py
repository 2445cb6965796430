"""Claims on how interpolation is reached: least norm from any start, the flow as mirror descent, its last relaxation."""

from collections.abc import Iterator

import numpy as np

from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...norms import L2
from ...optimisers.base import Adam, Descent, gradient_descent
from ...optimisers.step_rules import Constant, HeavyBall
from ...references.interpolation import basis_pursuit, minimum_norm, minimum_potential
from ...settings.base import Setting
from ...settings.losses import Squared
from ...settings.parametrisations import Direct, SignedPowers, SignedSquares
from ...settings.regression import Regression
from ...theory.families.interpolation import distance
from ...training.noise import sample_noise
from ...training.train import train
from ...verdict import Verdict, all_of, at_most, close
from .evidence import ADAM, DERIVED, arrays, dense, recovery, small, square_setting, summed
from .theorems import NOTES, slowest_rate


@recipe
def _interpolants(lab: Lab) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Twenty-four normal designs of drawn shapes: rows, targets, and an interpolant that solves for as many columns as there are rows."""
    found = []
    for seed in range(24):
        rng = np.random.default_rng((lab.seed, seed))
        n = int(rng.integers(2, 12))
        d = n + int(rng.integers(1, 15))
        inputs, targets = rng.standard_normal((n, d)), rng.standard_normal(n)
        weight, used = np.zeros(d), rng.permutation(d)[:n]
        weight[used] = np.linalg.solve(inputs[:, used], targets)
        found.append((inputs, targets, weight))
    return found


@claim("min-norm/interpolants", f"{NOTES}, Lemma 9.1 and Corollary 9.2", "proved")
def all_interpolants(lab: Lab, planted: bool) -> Verdict:
    """beta has zero loss if and only if beta = X^+ y + zeta with zeta orthogonal to all inputs, so that X^+ y is the interpolant of least norm: |beta|^2 = |X^+ y|^2 + |zeta|^2.
    Both ways on drawn designs: from drawn zeta, and from a solution with d - n zeros. Planted: zeta orthogonal to all inputs but one, and the least l1 norm for X^+ y."""
    there, back, squares = [], [], []
    for inputs, targets, weight in _interpolants(lab):
        least = minimum_norm(Regression(inputs, targets)).weight
        rows = inputs[1:] if planted else inputs
        zeta = np.random.default_rng(lab.seed).standard_normal(inputs.shape[1])
        zeta = zeta - np.linalg.pinv(rows) @ (rows @ zeta)
        there.append(np.linalg.norm(inputs @ (least + zeta) - targets) / np.linalg.norm(inputs, 2))
        back.append(np.linalg.norm(inputs @ (weight - least)) / np.linalg.norm(inputs, 2) / np.linalg.norm(weight))
        short = basis_pursuit(Regression(inputs, targets)).weight if planted else least
        squares.append(abs((short @ short + (weight - short) @ (weight - short)) / (weight @ weight) - 1))
    return all_of(
        at_most(float(max(there)), 1e-12, f"largest residual of X^+ y + zeta, {len(there)} designs"),
        at_most(float(max(back)), 1e-12, "largest relative part along the inputs of an interpolant minus X^+ y"),
        at_most(float(max(squares)), 1e-9, "largest relative error of the sum of squares"),
    )


@claim("min-norm/projection", f"{NOTES}, Theorem 9.3; other starts and rules {DERIVED}", "sharpened", slow=True)
def nearest_solution(lab: Lab, planted: bool) -> Verdict:
    """Descent, heavy ball and single-sample SGD on consistent least squares end at the solution nearest to the start.
    Gradient descent, heavy ball and single-sample SGD, from 0 and from a random start, the first two with multipliers that make up the whole way; planted: Adam."""
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
        runs = [train(setting, rule, begin, steps=5_000) for rule in rules]
        ends = [end for run in runs for end in (run.weight(), begin + inputs.T @ run.dual[-1])]
        ends.append(sample_noise(inputs, data.targets, pace, 60_000, 1, start=begin)[0])
        worst = max(worst, *(distance(end, minimum_norm(data, begin).weight) for end in ends))
    text = "largest relative distance to the projection of the start"
    return at_most(worst, 1e-11, text, "descent and heavy ball, also by their multipliers, single-sample SGD")


_RELAXATIONS = np.array([12.0, 14.0])  # of the slowest direction: all others are gone, and rounding is far away


@recipe
def _final_rates(lab: Lab) -> dict[str, tuple[float, float, float]]:
    """Of three flows the rate at which the residual ends, the predicted one, and that with |theta| for the curvature C."""
    data, found = small(lab)[0], {}
    settings = {
        "signed squares": Setting(data, SignedSquares(0.3), Squared(0.7), "sum"),  # so that kappa is seen
        "depth 3": summed(data, SignedPowers(0.3, 3)),
        "squares": square_setting(recovery(lab)[0], 1e-2),
    }
    for name, setting in settings.items():
        potential, (inputs, targets) = setting.parametrisation.potential(setting.start()), arrays(setting.data)
        limit = minimum_potential(setting.data, potential).weight
        predicted = slowest_rate(setting, potential, limit)
        dual = follow_dual(setting, log_times=np.log(_RELAXATIONS / predicted), tolerance=1e-9).dual[1:]
        left = np.linalg.norm(potential.link(dual @ inputs) @ inputs.T - targets, axis=1)
        scales = np.abs(limit), potential.curvature(potential.gradient(limit))
        other, own = (np.linalg.svd(inputs * np.sqrt(scale), compute_uv=False)[-1] for scale in scales)
        measured = np.log(left[0] / left[1]) / np.diff(_RELAXATIONS)[0] * predicted
        found[name] = float(measured), predicted, float(predicted * (other / own) ** 2)
    return found


@claim("mirror/final-rate", f"{NOTES}, Theorem 9.18; rate {DERIVED}", "sharpened", slow=True)
def final_rate(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The flow ends linearly at the rate c kappa lambda_min(X C X'), c = 4 for squares and D^2 alpha^(D-2) at depth D: for squares after n / lambda_min(2 X diag(theta) X').
    Between 12 and 14 relaxation times of three flows; planted: the modulus of the weight for the curvature of the dual potential."""
    for name, (measured, predicted, other) in _final_rates(lab).items():
        text = f"{name}: rate of the residual between 12 and 14 relaxation times"
        yield close(measured, other if planted else predicted, 0.01, text)
