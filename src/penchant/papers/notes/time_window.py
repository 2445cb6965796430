"""Claims on the time window of sparse recovery: when the theorem lets descent stop, inside it and beyond."""

import numpy as np

from ...lab import Lab, claim, recipe
from ...optimisers.base import gradient_descent
from ...settings.base import Setting
from ...settings.generators import sparse_regression
from ...settings.losses import Squared
from ...settings.regression import Regression
from ...settings.square_models import Squares
from ...training.recorders import At
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, all_of, at_least, at_most
from .evidence import DERIVED
from .margin_theorems import NOTES

LI = "Li, Ma, Zhang, Algorithmic regularization in over-parameterized matrix sensing and neural networks with quadratic activations, COLT 2018"
STEP = 0.05
INSIDE = (1e-5, 1e-6, 1e-7)  # starts whose window is not empty in 200 dimensions
LARGE = (1e-2, 1e-4)  # starts whose window is empty


def square_setting(data: Regression, alpha: float) -> Setting:
    """beta * beta from alpha with the loss |r|^2 / (4n) of the notes."""
    return Setting(data, Squares(alpha), Squared(0.5), "mean")


def time_window(d: int, alpha: float, step: float) -> tuple[float, float]:
    """Iterations between which Theorem 9.4 speaks, log(d/alpha)/step to 1/(step sqrt(d alpha)); empty if the first is larger."""
    return float(np.log(d / alpha) / step), float(1 / (step * np.sqrt(d * alpha)))


def error_at(run: Trajectory, record: int, weight: np.ndarray) -> float:
    return float(((run.weight(record) - weight) ** 2).sum())


@recipe
def recovery(lab: Lab, seed: int = 0) -> tuple[Regression, np.ndarray]:
    """Three signals in two hundred dimensions, eighty samples."""
    return sparse_regression(80, 200, 3, 1 + seed, signed=False)


def window_counts(alpha: float) -> tuple[int, ...]:
    """Both ends of the window and its geometric middle; where it is empty, the two counts T and 10 T after log(d/alpha)/step."""
    first, last = time_window(200, alpha, STEP)
    if first > last:
        return round(first), 10 * round(first)
    return int(np.ceil(first)), round(np.sqrt(first * last)), int(last)


@recipe
def _errors(lab: Lab, alpha: float, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Steps and squared errors of descent: half way to the first count of the window, then at its counts."""
    data, weight = recovery(lab, seed)
    counts = (window_counts(alpha)[0] // 2, *window_counts(alpha))
    run = train(square_setting(data, alpha), gradient_descent(STEP), steps=counts[-1], recorder=At(counts))
    return counts, tuple(error_at(run, int(np.flatnonzero(run.steps == count)[0]), weight) for count in counts)


def _bounded(lab: Lab, alphas: tuple[float, ...], planted: bool, seed: int) -> list[Verdict]:
    """Largest squared error at the counts against alpha sqrt(d); planted: half way to the first of them."""
    found = []
    for alpha in alphas:
        counts, errors = _errors(lab, alpha, seed)
        used = slice(0, 1) if planted else slice(1, None)
        where = ", ".join(str(count) for count in counts[used])
        bound = float(alpha * np.sqrt(200))
        found.append(at_most(max(errors[used]), bound, f"alpha = {alpha:g}: largest squared error at steps {where}"))
    return found


@claim(
    "sparse/window",
    "Inside the time window the squared error is at most alpha sqrt(d).",
    f"{NOTES}, Theorem 9.4; {LI}",
    kind="proved",
)
def window_bound(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    """At both ends and in the middle of windows that are not empty, which is checked; planted: half way to them."""
    first, last = np.array([time_window(200, alpha, STEP) for alpha in INSIDE]).T
    width = at_least(float((last / first).min()), 1.0, "smallest ratio of end to begin of a window")
    return all_of(*_bounded(lab, INSIDE, planted, seed), width)


@claim(
    "sparse/beyond-window",
    "Where the window is empty, the squared error after log(d/alpha)/step iterations and after ten times as many is at most alpha sqrt(d) all the same.",
    DERIVED,
    kind="ours",
)
def beyond_window(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    """At T and 10 T, T = log(d/alpha)/step, where the window is empty; planted: at T/2."""
    return all_of(*_bounded(lab, LARGE, planted, seed))
