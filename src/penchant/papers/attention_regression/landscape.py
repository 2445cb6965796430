"""Claims on the landscape of attention regression: saddles, tails, and what happens where A lacks rank."""

from itertools import combinations

import numpy as np

from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim
from ...training.recorders import At, Every, LogSpaced
from ...verdict import Verdict, all_of, at_least, at_most, close
from .evidence import BY_US, layer_of, plain_slope, random_point, random_runs, regularised, rotations, small_problem
from .setting.geometry import balanced_point, eigenbasis, hessian, minimum_spectrum
from .setting.problem import AttentionRegression
from .setting.sample import attention_experiment, prescribed_spectrum
from .theorems import GOEL
from .training.population import AttentionTrajectory, train_population
from .training.riccati import RiccatiFlow, half_height_times
from .training.rules import PreconditionedDescent


@claim("attention-regression/landscape", BY_US, "ours")
def landscape(lab: Lab, planted: bool) -> Verdict:
    """Critical points are subsets of modes with value sum of s_i^2 over the missing ones; all but the minima are strict saddles.
    All critical points: subsets of modes, with their values; all but the full one are strict saddles.

    The planted value counts the sizes of the missing modes, not their squares."""
    problem = small_problem(lab)
    sizes, plus = np.asarray(problem.sizes), eigenbasis(problem).plus
    gradient, value, bend = 0.0, 0.0, -np.inf
    for count in range(4):
        for subset in combinations(range(3), count):
            chosen, missing = list(subset), np.setdiff1d(np.arange(3), subset)
            point = plus[:, chosen] @ (np.sqrt(2 * sizes[chosen])[:, None] * rotations(2, 3)[1][chosen])
            gradient = max(gradient, float(np.linalg.norm(plain_slope(problem)(point))))
            expected = float(np.sum(sizes[missing] ** (1 if planted else 2)))
            value = max(value, abs(regularised(problem, point) - expected))
            if len(missing):
                lowest = float(np.linalg.eigvalsh(hessian(problem, point))[0])
                bend = max(bend, lowest / (2 * sizes[missing].max()))
    return all_of(
        at_most(gradient, 1e-16, "largest gradient at the 8 critical points"),
        at_most(value, 1e-16, "largest |value - sum of squared missing sizes|"),
        at_most(bend, -1 + 1e-9, "least curvature at a saddle over twice its largest missing size"),
    )


@claim("attention-regression/hessian", BY_US, "ours")
def minimum_curvature(lab: Lab, planted: bool) -> Verdict:
    """Hessian eigenvalues at the minima: 0, 2(s_i + s_j), 4 s_i, 2(s_i + s_j) again for all pairs, and 2 s_j m - d times.
    Hessian eigenvalues at random minima against the closed form, for m > d and m = d; planted: without the m - d factor."""
    worst = 0.0
    for outputs in (3, 5):
        problem = prescribed_spectrum(outputs, (0.05, 0.03, 0.01), 5.0, 11)
        for rotation in rotations(3, 3):
            found = np.linalg.eigvalsh(hessian(problem, balanced_point(problem, rotation)))
            expected = minimum_spectrum(problem)
            if planted:
                expected = np.where(np.isclose(expected, 0.02), 0.04, expected)
            worst = max(worst, float(np.abs(found - np.sort(expected)).max()))
    return at_most(worst, 1e-15, "largest error of a Hessian eigenvalue at the minima")


@claim("attention-regression/saddle-start", BY_US, "ours")
def saddle_start(lab: Lab, planted: bool) -> Verdict:
    """A start without overlap with a mode goes to the saddle that lacks it.
    A start without overlap with a mode stays at the excess s_k^2 of its saddle; planted: the overlap is left in."""
    found = attention_experiment(n=10_000)
    problem, mode = found.problem, eigenbasis(found.problem).plus[:, -1:]
    whitened = np.asarray(problem.whiten(found.start))
    whitened = whitened if planted else whitened - mode @ (mode.T @ whitened)
    rule = PreconditionedDescent("two_sided", "adaptive")
    run = train_population(problem, rule, layer_of(problem, whitened), steps=1500, recorder=At((500, 1000)))
    level = float(problem.sizes[-1]) ** 2
    return all_of(*(close(float(value), level, 1e-3, "excess against s_5^2") for value in run.excess[1:]))


@claim("attention-regression/tails", BY_US, "ours")
def tails(lab: Lab, planted: bool) -> Verdict:
    """The two-sided flow's excess falls like exp(-4 s_d t), and like exp(-8 s_d t) from starts without a kernel part.
    The flow's excess falls like exp(-4 s_d t), or exp(-8 s_d t) without a kernel part; planted: the exponents swapped."""
    problem, checks = small_problem(lab), []
    start = random_runs(lab)[30].whitened[0]
    kernel = eigenbasis(problem).kernel
    for begin, factor in ((start, 4.0), (start - kernel @ (kernel.T @ start), 8.0)):
        first, last = RiccatiFlow(problem, begin).log_excess([1e5, 1e6])
        predicted = (12.0 - factor if planted else factor) * float(problem.sizes[-1])
        checks.append(close((first - last) / 9e5, predicted, 1e-6, "decay of log excess per time"))
    return all_of(*checks)


def late_run(problem: AttentionRegression, steps: int = 20_000, seed: int = 8) -> AttentionTrajectory:
    """Adaptive steps from a random start."""
    start, rule = layer_of(problem, random_point(problem, seed)), PreconditionedDescent("two_sided", "adaptive")
    return train_population(problem, rule, start, steps=steps, recorder=LogSpaced(60))


@claim("attention-regression/rank-deficient", f"{GOEL}, outside Assumption 2, by us", "ours")
def deficient(lab: Lab, planted: bool) -> Verdict:
    """For rank A = d - 1 the excess falls only like t^-2, and with the regulariser like 1/(16 t^2).
    rank A = d - 1: excess + regulariser tend to 1/(16 t^2), the excess is a fixed share of it; planted: full rank."""
    sizes = (0.05, 0.03, 0.01) if planted else (0.05, 0.03, 0.0)
    run = late_run(prescribed_spectrum(4, sizes, 5.0, 11))
    kept = (run.steps >= (100 if planted else 2000)) & (run.excess > 1e-28)
    growth = np.polyfit(run.steps[kept] * run.step_size[kept], (run.excess[kept] + run.regulariser[kept]) ** -0.5, 1)[0]
    exponent = log_log_slope(run.steps[kept], run.excess[kept], (float(run.steps[kept][0]), 2e4))
    return all_of(
        close(float(growth), 4.0, 1e-2, "growth of (excess + regulariser)^(-1/2) per time"),
        close(exponent, -2.0, 1e-2, "exponent of the excess in t, steps 2e3 to 2e4"),
    )


@claim("attention-regression/wide", f"{GOEL}, outside Assumption 2, by us", "ours")
def wide(lab: Lab, planted: bool) -> Verdict:
    """For m = d - 1 the excess still falls exponentially, and the regulariser like 1/(16 t^2).
    m < d: the excess falls exponentially, the regulariser like 1/(16 t^2) for one missing output; planted: like 1/(4 t^2)."""
    run = late_run(prescribed_spectrum(2, (0.05, 0.03, 0.01), 5.0, 11))
    late = run.steps >= 2000
    time = run.steps[late] * run.step_size[late]
    growth = np.polyfit(time, run.regulariser[late] ** -0.5, 1)[0]
    return all_of(
        at_most(float(run.excess[-1]), 1e-28, "excess after 2e4 steps"),
        close(float(growth), 2.0 if planted else 4.0, 1e-2, "growth of regulariser^(-1/2) per time"),
    )


RISING = 0.05  # step of descent from a small balanced start


def rising_modes(lab: Lab, start: float, steps: int, interval: int) -> tuple[np.ndarray, np.ndarray]:
    """Recorded steps of two-sided descent from a small balanced start, and the modes at each."""
    problem = small_problem(lab)
    left, right = np.asarray(problem.left), np.asarray(problem.right)
    begin, rule = layer_of(problem, start * np.concatenate([left, right])), PreconditionedDescent("two_sided", RISING)
    run = train_population(problem, rule, begin, steps=steps, recorder=Every(interval))
    return run.steps, np.einsum("mi,rmd,rjd,ji->ri", left, run.whitened[:, :4], run.whitened[:, 4:], right)


@claim("attention-regression/saddle-to-saddle", BY_US, "ours")
def saddle_to_saddle(lab: Lab, planted: bool) -> Verdict:
    """From a small balanced start the modes rise one by one, mode k at log(s_k/eps^2 - 1)/(4 s_k).
    Modes of a small balanced start rise one after the other, at log(s/eps^2 - 1)/(4 s); planted: at log(s/eps - 1)/(4 s)."""
    sizes, start = np.asarray(small_problem(lab).sizes), 1e-6
    steps, modes = rising_modes(lab, start, 13_000, 10)
    predicted = half_height_times(sizes, np.sqrt(start) if planted else start)
    checks = []
    for k, size in enumerate(sizes):
        time = RISING * float(np.interp(size / 2, modes[:, k], steps))
        checks.append(close(time, float(predicted[k]), 5e-3, f"half-height time of mode {k}"))
    return all_of(*checks, at_least(float(modes[-1].min() / sizes[-1]), 0.5, "every mode has risen"))
