"""Adam with an epsilon: signs up to the margin log(1/eps), gradient descent beyond it, and the law of the turn."""

from collections.abc import Iterator

import numpy as np

from ...diagnostics.direction import misalignment
from ...lab import Lab, claim, derived, recipe
from ...verdict import Verdict, at_most
from .evidence import SHAPE, along, best, drawn, features, gammas, past_turn
from .flows import Path, follow, frobenius, soft_sign
from .theorems import WANG

_EPS, _FINE, _TOLERANCE = 1e-4, 1e-6, 1e-6
_FAR = 50.0  # times log(1/eps): the margin at which the end of the turn is read


@recipe
def turn(lab: Lab, seed: int, eps: float) -> Path:
    """The flow g/(|g| + eps) of the exponential loss to a margin far beyond log(1/eps), in the clock of the largest entry that moved."""
    end = 2 * _FAR * -np.log(eps) / best(lab)[seed]["max"].margin
    times = np.concatenate([[0.0], np.geomspace(0.1, end, 200)])
    return follow(features(lab, seed), soft_sign(float(np.log(eps))), times, tolerance=min(_TOLERANCE, eps))


def sine(lab: Lab, seed: int, path: Path) -> np.ndarray:
    """Of the angle to the Frobenius solution, along a path after its start."""
    apart = np.array([misalignment(weight, best(lab)[seed]["frobenius"].weight) for weight in path.weights[1:]])
    return np.sqrt(apart * (2 - apart))


@recipe
def angle_constant(lab: Lab, seed: int, eps: float) -> tuple[float, float]:
    """sine times margin over log(1/eps) at the end of the turn, and the kappa that gradient flow from the weight at that margin predicts."""
    path, unit = turn(lab, seed, eps), -np.log(eps)
    at = int(np.flatnonzero(path.margins[1:] <= _FAR * unit)[-1])
    corner = path.weights[1:][int(np.flatnonzero(path.margins[1:] <= unit)[-1])]
    start = 1e4 * corner / np.tensordot(features(lab, seed), corner, 2).min()
    times = np.array([0.0, 25 * float(np.linalg.norm(start))])
    ahead = follow(features(lab, seed), frobenius, times, start, _TOLERANCE)
    measured = sine(lab, seed, path)[at] * path.margins[1 + at] / unit
    return float(measured), float(sine(lab, seed, ahead)[-1] * ahead.margins[-1] / 1e4)


@claim("which-margin/epsilon-limit", WANG, "proved", slow=True)
def limit(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Adam with eps > 0 ends at the Frobenius margin: far beyond the margin log(1/eps) its share there is 1, and that of the max-norm margin is what the Frobenius solution has of it.
    The flow of the rule without memory on twenty data sets. With s = kappa log(1/eps)/margin the sine of the angle that is left, the Frobenius share may miss log(N)/margin, by the
    soft minimum of N margins, and s^2/2; the max-norm share as much and s over the largest entry of the unit solution. Planted: it ends at the max-norm margin."""
    paths = [turn(lab, seed, _EPS) for seed in range(len(drawn(lab)))]
    sine_left = lambda seed: -angle_constant(lab, seed, _EPS)[1] * np.log(_EPS) / paths[seed].margins[-1]
    return past_turn(lab, paths, "max", [sine_left(seed) for seed in range(len(paths))], planted)


@derived("which-margin/turn", slow=True)
def where(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Adam leaves the max-norm margin at log(1/eps): there its share peaks, and the sine of the angle to gradient descent is kappa log(1/eps)/margin afterwards.
    The k d coordinates of the gradient share the best margin there: a mean one is eps where n L = n k d eps/(best margin), and the smallest margin is then above -log(n L), by log N at most.
    The mean place of the peak on that way is in [0, 1]; sine times margin over log(1/eps) is the same for eps = 1e-4 and 1e-6, twenty data sets;
    the law is of leading order in 1/log(1/eps), and both constants may be off by that. Planted: sine times margin itself is the same."""
    peaks, ratios = [], []
    for seed in range(len(drawn(lab))):
        coarse, fine = (angle_constant(lab, seed, eps)[0] for eps in (_EPS, _FINE))
        ratios.append(fine / coarse * (np.log(_FINE) / np.log(_EPS) if planted else 1.0))
        path = turn(lab, seed, _EPS)
        peaks.append(path.margins[1:][along(lab, seed, path, "max").argmax()])
    begins = np.log(gammas(lab, "max") / (np.prod(SHAPE) * _EPS))
    place = float(np.mean(peaks - begins)) / np.log(len(features(lab, 0)))
    yield at_most(abs(place - 0.5), 0.5, "mean place of the peak, from the middle of its way")
    order = float(-1 / np.log(_EPS) - 1 / np.log(_FINE))
    yield at_most(float(np.abs(np.log(ratios)).mean()), order, "mean |log of the ratio of angle constants|")


@derived("which-margin/angle", slow=True)
def angle(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """The constant kappa of the angle is that of gradient flow from where the run was at margin log(1/eps).
    The soft minimum of N margins leaves the margin of the turn open by log N: its weight, and so kappa, may be off by log(N)/log(1/eps) of itself.
    Mean errors over twenty data sets, eps = 1e-4 and 1e-6, both at many times that margin. Planted: half of kappa, that of the sine squared."""
    for eps in (_EPS, _FINE):
        found = np.array([angle_constant(lab, seed, eps) for seed in range(len(drawn(lab)))])
        errors = np.abs(found[:, 0] / found[:, 1] / (0.5 if planted else 1.0) - 1)
        allowed = float(-np.log(len(features(lab, 0))) / np.log(eps))
        yield at_most(float(errors.mean()), allowed, f"for eps of {eps:g}, the mean error of kappa")
