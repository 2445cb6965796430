"""Claims on training with the population: guarantees and exact factors, and gradients that are not exact (Lemmas 3 and 4)."""

import numpy as np

from ...lab import Lab, claim, recipe
from ...training.events import Every
from ...verdict import Verdict, all_of, at_most, close
from .evidence import BY_US, around, drawn_problems, layer_of, metric_root, plain_slope, start_near
from .setting.balanced_minima import nearest_minimum
from .setting.geometry import (
    AbstractGeometry,
    Euclidean,
    Left,
    TwoSided,
    attraction_radius,
    balanced_point,
    contraction,
    hessian,
)
from .setting.problem import AttentionRegression
from .setting.sample import prescribed_spectrum
from .theorems import GOEL, asymptotic_factor
from .training.algorithm1 import train_population
from .training.rules import PreconditionedDescent
from .training.run import AttentionRun


def _weakest(problem: AttentionRegression, radius: float) -> np.ndarray:
    """So far from the minimum of the gauge identity along the direction of least curvature, where alpha is attained for m > d."""
    point, d = balanced_point(problem), problem.inputs
    return point + radius * np.linalg.eigh(hessian(problem, point))[1][:, d * (d - 1) // 2].reshape(point.shape)


def _ratios(problem: AttentionRegression, geometry: AbstractGeometry, seed: int, share: float) -> tuple[list, list]:
    """dist^2 after one step over its bound, at each point: of exact gradients, and of gradients that are off outwards or at random."""
    radius, root, rng = (
        attraction_radius(problem, geometry),
        metric_root(problem, geometry),
        np.random.default_rng(seed),
    )
    near, exact, noisy = _weakest(problem, 0.01 * radius), [], []
    points = [*around(problem, geometry, radius, 3, seed), (near, nearest_minimum(problem, near, geometry))]
    for whitened, nearest in points:
        sure, square, slope = (
            contraction(problem, geometry, nearest.distance),
            nearest.distance**2,
            plain_slope(problem),
        )
        after = lambda move, at=whitened: nearest_minimum(problem, at - move @ root, geometry).distance ** 2
        exact.append(after(sure.step * slope(whitened) @ root) / (sure.factor * square))
        step, size = sure.step / 8, sure.alpha * nearest.distance
        allowed = (1 - step * sure.alpha + 2 * step**2 * sure.beta**2) * square
        allowed += share * (step / sure.alpha + 2 * step**2) * size**2
        outward = (nearest.whitened - whitened) @ np.linalg.inv(root)
        for error in (outward, rng.standard_normal(whitened.shape)):
            used = slope(whitened) @ root + size * error / np.linalg.norm(error)
            noisy.append(after(step * used) / allowed)
    return exact, noisy


@claim("attention-regression/lemma-4", f"{GOEL}, Theorem 1.3 and Lemma 4, constants by us", "sharpened", slow=True)
def lemma4(lab: Lab, planted: bool) -> Verdict:
    """One step of alpha/beta^2 multiplies dist^2 by at most 1 - alpha^2/beta^2; with gradients off by eps dist^2 <= (1 - eta alpha + 2 eta^2 beta^2) dist^2 + (eta/alpha + 2 eta^2) eps^2.
    Both geometries, 20 drawn problems, 3 points within r_0 and one near the minimum, where the second is attained but for eta^2; planted: half of the term in eps."""
    checks = []
    for geometry in (TwoSided(), Left()):
        found = (_ratios(one, geometry, k, 0.5 if planted else 1.0) for k, one in enumerate(drawn_problems(lab)))
        for what, parts in zip(("exact", "inexact"), zip(*found, strict=True), strict=True):
            ratios = np.concatenate(parts)
            text = f"largest dist^2 over its bound after a step, {what} gradients, {geometry.name}, {len(ratios)} steps"
            checks.append(at_most(float(ratios.max()), 1.0, text))
    return all_of(*checks)


@recipe
def tail_run(lab: Lab, name: str) -> AttentionRun:
    """A run at the default step from distance r_0 in a problem with condition number 10."""
    problem = prescribed_spectrum(6, (0.05, 0.04, 0.03, 0.02), 10.0, 4)
    start = layer_of(problem, start_near(problem, attraction_radius(problem, TwoSided()), 2))
    return train_population(problem, PreconditionedDescent(name), start, steps=2000, recorder=Every(1))


def measured_factor(run: AttentionRun) -> float:
    """Factor of the distance per step, fitted where the excess is between 1e-6 and 1e-12 of its first value, above rounding."""
    share = run.excess / run.excess[0]
    inside = (share < 1e-6) & (share > 1e-12) & (run.excess > 1e-32)
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
