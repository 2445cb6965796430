"""Claims on training with the population: guarantees and exact factors, and gradients that are not exact (Lemmas 3 and 4)."""

import numpy as np

from ...diagnostics.rates import Interval, exponent
from ...lab import Lab, claim, recipe
from ...training.events import Every
from ...verdict import Verdict, all_of, at_most, close, covers
from .diagnostics import Perturbation, covariance_error, perturbation
from .evidence import (
    BY_US,
    around,
    layer_of,
    plain_slope,
    scaling_problem,
    small_problem,
    start_near,
)
from .setting.balanced_minima import nearest_minimum
from .setting.geometry import (
    AbstractGeometry,
    Euclidean,
    Left,
    TwoSided,
    attraction_radius,
    contraction,
    geometry_of,
)
from .setting.problem import AttentionRegression
from .setting.sample import draw_sample, prescribed_spectrum, spectral_layer
from .theorems import GOEL, asymptotic_factor
from .training.algorithm1 import train_attention, train_population
from .training.rules import PreconditionedDescent
from .training.run import AttentionRun
from .training.sources import FullSample, Minibatch


def distance_after(
    problem: AttentionRegression, geometry: AbstractGeometry, whitened: np.ndarray, step: float
) -> float:
    """Distance to the minima after one step of a geometry."""
    turn = np.asarray(problem.covariance) if geometry.columns else np.eye(problem.inputs)
    return nearest_minimum(problem, whitened - step * plain_slope(problem)(whitened) @ turn, geometry).distance


@claim("attention-regression/guaranteed-rate", f"{GOEL}, Theorem 1.3, constants by us", "sharpened", slow=True)
def guaranteed_step(lab: Lab, planted: bool) -> Verdict:
    """Within r_0 one step of alpha/beta^2 multiplies dist^2 by at most 1 - alpha^2/beta^2, in both geometries.
    dist^2 falls by 1 - alpha^2/beta^2 in one step of alpha/beta^2; planted: by the square of 1 - step * largest curvature."""
    problem, checks = small_problem(lab), []
    for geometry in (TwoSided(), Left()):
        sure = contraction(problem, geometry)
        points = around(problem, geometry, sure.radius, 60)
        worst = max(distance_after(problem, geometry, one, sure.step) ** 2 / found.distance**2 for one, found in points)
        promised = (1 - sure.step * 4 * float(problem.sizes[0])) ** 2 if planted else sure.factor
        checks.append(at_most(worst, promised, f"largest dist^2 after / before, {geometry.name}, 60 points within r_0"))
    return all_of(*checks)


@claim("attention-regression/lemma-4", f"{GOEL}, Lemma 4, constants by us", "sharpened", slow=True)
def lemma4(lab: Lab, planted: bool) -> Verdict:
    """With gradients off by eps: dist^2 <= (1 - eta alpha + 2 eta^2 beta^2) dist^2 + (eta/alpha + 2 eta^2) eps^2.
    Gradients off by eps away from the minima: the recursion at every step, and its limit; planted: no noise term."""
    problem = small_problem(lab)
    sure = contraction(problem, TwoSided())
    step, size = sure.step / 4, 3e-4
    gain = 1 - step * sure.alpha + 2 * step**2 * sure.beta**2
    added = 0.0 if planted else (step / sure.alpha + 2 * step**2) * size**2
    whitened, worst, slope = start_near(problem, 1e-3, 3), 0.0, plain_slope(problem)
    found = nearest_minimum(problem, whitened, TwoSided())
    for _ in range(1000):
        away = (whitened - found.whitened) / found.distance
        whitened = whitened - step * (slope(whitened) - size * away)
        before, found = found.distance, nearest_minimum(problem, whitened, TwoSided())
        worst = max(worst, found.distance**2 / (gain * before**2 + added))
    limit = (1 / sure.alpha + 2 * step) / (sure.alpha - 2 * step * sure.beta**2) * size**2
    return all_of(
        at_most(worst, 1.0, "largest dist^2 / (right-hand side of the recursion), 1000 steps of outward noise"),
        at_most(found.distance**2, limit, "dist^2 at the end against the limit of the recursion"),
    )


@recipe
def tail_run(lab: Lab, name: str) -> AttentionRun:
    """A run at the default step from distance r_0 in a problem with condition number 10."""
    problem = prescribed_spectrum(6, (0.05, 0.04, 0.03, 0.02), 10.0, 4)
    start = layer_of(problem, start_near(problem, attraction_radius(problem, TwoSided()), 2))
    return train_population(problem, PreconditionedDescent(name), start, steps=2000, recorder=Every(1))


def measured_factor(run: AttentionRun, below: float = 1e-6) -> float:
    """Factor of the distance per step, fitted where the excess is between `below` and 1e-12 of its first value, above rounding."""
    share = run.excess / run.excess[0]
    inside = (share < below) & (share > 1e-12) & (run.excess > 1e-32)
    return float(np.exp(np.polyfit(run.steps[inside], np.log(run.excess[inside]), 1)[0] / 2))


@claim("attention-regression/exact-rate", BY_US, "ours", slow=True)
def exact_factor(lab: Lab, planted: bool) -> Verdict:
    """The distance falls by max |1 - step * curvature| per step, with the curvatures of the geometry in use.
    max |1 - step * curvature| at the gauge where the run ends; planted: the smallest curvature of a square problem, 4 s_d."""
    checks = []
    for geometry, tolerance in ((TwoSided(), 1e-4), (Left(), 1e-3), (Euclidean(), 1e-3)):
        run = tail_run(lab, geometry.name)
        problem, step = run.problem, float(run.step_size[0])
        rotation = nearest_minimum(problem, run.whitened[-1], TwoSided()).rotation
        predicted = asymptotic_factor(problem, geometry, step, rotation)
        if planted:
            predicted = 1 - 2 * (1 - predicted)
        text = f"factor of the distance per step, {geometry.name}"
        checks.append(close(1 - measured_factor(run), 1 - predicted, tolerance * predicted / (1 - predicted), text))
    return all_of(*checks)


@claim("attention-regression/covariance-free", f"{GOEL}, Figure 2, made exact by us", "sharpened")
def covariance_free(lab: Lab, planted: bool) -> Verdict:
    """Two-sided preconditioning removes the covariance: the number of steps does not depend on its condition number.
    Two-sided iterations to 1e-10 of the excess do not depend on the covariance; planted: neither do those of `left`."""
    name, counts = "left" if planted else "two_sided", []
    for condition in (1.0, 10.0, 100.0):
        problem = prescribed_spectrum(6, (0.05, 0.04, 0.03, 0.02), condition, 4)
        whitened = start_near(problem, 0.05, 2)
        rule = PreconditionedDescent(name, "optimal")
        begin = layer_of(problem, whitened)
        run = train_population(problem, rule, begin, steps=3000, excess_below=1e-10 * float(problem.excess(begin)))
        counts.append(int(run.steps[-1]))
    return at_most(float(max(counts) - min(counts)), 0.0, f"spread of the step counts {counts}, {name}")


COUNTS = (400, 1600, 6400)
_SETS = 60


@recipe
def sampled_steps(
    lab: Lab, source: str, geometry: str = "two_sided", count: int = 300, steps: int = 150
) -> Perturbation:
    """Steps of alpha/(4 beta^2) from the spectral start: on all samples ("full"), or on minibatches of half of them ("batch")."""
    truth = scaling_problem(lab, 1e-3)
    sample = draw_sample(truth, count, np.random.default_rng(5))
    chosen = FullSample(sample) if source == "full" else Minibatch(sample, count // 2)
    rule = PreconditionedDescent(geometry, contraction(truth, geometry_of(geometry)).step / 4)
    start = spectral_layer(sample.estimated)
    run = train_attention(chosen, rule, start, steps=steps, recorder=Every(1), truth=truth)
    return perturbation(run, rule, truth)


@claim("attention-regression/lemma-4-samples", f"{GOEL}, Lemma 4 with explicit constants", "sharpened", slow=True)
def lemma4_on_samples(lab: Lab, planted: bool) -> Verdict:
    """With the gradients, regulariser and preconditioner of a sample dist^2 falls by the factor 1 - step alpha + 2 step^2 beta^2, up to (step/alpha + 2 step^2) epsilon^2.
    The recursion at every step, and the bound it gives at every layer; planted: the contraction of exact gradients, without epsilon."""
    checks = []
    for source in ("full", "batch"):
        found = sampled_steps(lab, source)
        before, after = found.distance[:-1] ** 2, found.distance[1:] ** 2
        allowed = found.gain * before if planted else found.allowed
        checks += [
            at_most(float(found.distance.max()), found.sure.radius, f"largest distance, {source}, bound r_0"),
            at_most(float((after / allowed).max()), 1.0, f"largest dist^2 / right-hand side, {source}, 150 steps"),
            at_most(float((after / found.bound[1:]).max()), 1.0, "largest dist^2 over the accumulated bound"),
            at_most(float(found.distance[-1] ** 2), found.limit, "dist^2 at the end, bound its limit"),
        ]
    return all_of(*checks)


@recipe
def covariance_errors(lab: Lab) -> Interval:
    """The exponent in n of |Sigma^(1/2) S^-1 Sigma^(1/2) - 1|, S the covariance of n samples."""
    truth = scaling_problem(lab, 1e-3)

    def errors(count: int) -> np.ndarray:
        rng = np.random.default_rng([3, count])
        draws = (rng.standard_normal((count, truth.inputs)) @ np.asarray(truth.root) for _ in range(_SETS))
        return np.array([covariance_error(truth, rows.T @ rows / count) for rows in draws])

    return exponent({count: errors(count) for count in COUNTS})


@claim("attention-regression/lemma-3-covariance", f"{GOEL}, Lemma 3, second event", "proved")
def lemma3_covariance(lab: Lab, planted: bool) -> Verdict:
    """The covariance of n samples preconditions like the true one up to a relative error O(n^-1/2).
    The 95 % interval of the exponent; planted: 1/n."""
    return covers(covariance_errors(lab), -1.0 if planted else -0.5, "exponent of the error in n", rival=-1.0)
