"""Claims on how interpolation is reached: least norm from any start, the flow as mirror descent, its last relaxation."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from ...flow.mirror import follow_dual
from ...lab import Lab, claim, recipe
from ...norms import L2
from ...optimisers.base import Descent, gradient_descent
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
from .evidence import DERIVED, arrays, recovery, small, square_setting, summed
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


@recipe
def _designs(lab: Lab) -> tuple[list[Regression], np.ndarray]:
    """Twenty-four normal designs of six rows in twenty dimensions, and starts: 0 for every second one, normal for the others."""
    rng = np.random.default_rng((lab.seed, 3))
    data = [Regression(rng.standard_normal((6, 20)), rng.standard_normal(6)) for _ in range(24)]
    return data, rng.standard_normal((24, 20)) * (np.arange(24) % 2)[:, None]


@recipe
def _ends(lab: Lab) -> list[tuple[np.ndarray, ...]]:
    """Where gradient descent, heavy ball and single-sample SGD end, the first two also by their multipliers."""
    data, starts = _designs(lab)
    settings, rows = [summed(one, Direct()) for one in data], [np.asarray(one.inputs) for one in data]
    steps = np.array([1 / np.linalg.norm(inputs, 2) ** 2 for inputs in rows])
    rules = gradient_descent(steps), Descent(Constant(steps), L2(), HeavyBall(0.9))
    found = [train(settings, rule, jnp.asarray(starts), steps=2_000) for rule in rules]
    ends = []
    for k, (one, inputs, start) in enumerate(zip(data, rows, starts, strict=True)):
        pace = 0.5 / float((inputs**2).sum(axis=1).max())
        alone = sample_noise(inputs, one.targets, pace, 20_000, 1, start=start)[0]
        ends.append(
            (alone, *(end for runs in found for end in (runs[k].weight(), start + inputs.T @ runs[k].dual[-1])))
        )
    return ends


@claim("min-norm/projection", f"{NOTES}, Theorem 9.3; other starts and rules {DERIVED}", "sharpened", slow=True)
def nearest_solution(lab: Lab, planted: bool) -> Verdict:
    """Descent, heavy ball and single-sample SGD on consistent least squares end at the solution nearest to the start.
    On drawn designs, every second one from 0, descent and heavy ball also by the multipliers that make up the whole way. Planted: nearest to a start one per cent longer."""
    data, starts = _designs(lab)
    nearest = [minimum_norm(*pair).weight for pair in zip(data, starts * (1.01 if planted else 1.0), strict=True)]
    apart = [distance(end, weight) for ends, weight in zip(_ends(lab), nearest, strict=True) for end in ends]
    above = f"{sum(value > 1e-11 for value in apart)} of {len(apart)} above"
    return at_most(
        max(apart), 1e-11, f"largest relative distance to the projection of the start, {len(data)} designs", above
    )


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
