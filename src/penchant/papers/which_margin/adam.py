"""Memory: momentum that outlives the loss, the speed limit of Adam without an epsilon, and Adam that divides by old gradients."""

from collections.abc import Iterator

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from ...diagnostics.direction import misalignment
from ...lab import Lab, claim, derived, observed
from ...norms import WeightedL2
from ...references.norm_margin import norm_margin
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_least, at_most
from .comparison import APART, THETA
from .evidence import best, compared, drawn, exponents, features, gammas, last, pace, runs
from .theorems import FAN, ZHANG

_BETA, _SHORT = 0.9, (0.5, 0.9)  # of Signum, and of an Adam that forgets


def steady_ratio(rate: float, b1: float, b2: float) -> float:
    """Theta(r): m/sqrt(v) of Adam where gradients shrink by e^-r per step.

    >>> round(float(steady_ratio(0.0, 0.9, 0.999)), 12)
    1.0
    """
    return (1 - b1) / (1 - b1 * np.exp(rate)) * np.sqrt((1 - b2 * np.exp(2 * rate)) / (1 - b2))


def steady_rate(sign_rate: float, b1: float, b2: float) -> float:
    """The pace r of log L with r = h margin Theta(r); never above log(1/b2)/2."""
    limit = min(-np.log(b2) / 2, -np.log(b1))
    return brentq(lambda r: r - sign_rate * steady_ratio(r, b1, b2), 0.0, limit)  # pyright: ignore[reportReturnType]


@derived("which-margin/stale-momentum", slow=True)
def stale_momentum(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """Momentum of constant steps forgets only below h_c = log(1/beta)/margin: at 0.8 h_c Signum finds the max-norm margin, at 1.5 h_c it never does.
    Less than 0.02 is missing there, more than five times that here. On twenty data sets, beta = 0.9. Planted: twice that threshold."""
    critical = -np.log(_BETA) / gammas(lab, "max") * (2 if planted else 1)
    share = lambda times: last(lab, "constant signum", "max", loss="exponential", size=tuple(times * critical))
    yield at_least(float(share(0.8).min()), 1 - THETA, "smallest share at 0.8 h_c")
    yield at_most(float(share(1.5).max()), 1 - APART * THETA, "largest share at 1.5 h_c")


@derived("which-margin/speed-limit", slow=True)
def speed_limit(lab: Lab, planted: bool) -> Iterator[Verdict]:
    """With constant steps log L falls by the r with r = h margin Theta(r) per step, and never by more than log(1/b2)/2, however long the steps.
    Adam with eps = 0 and b = (0.5, 0.9) on twenty data sets. Planted: the pace h margin of signs."""
    for sign_rate in (0.035, 0.2):
        sizes = tuple(sign_rate / gammas(lab, "max"))
        found = [pace(run) for run in runs(lab, "short adam", "exponential", 4000, sizes)]
        law = sign_rate if planted else steady_rate(sign_rate, *_SHORT)
        yield at_most(
            float(np.max(np.abs(np.array(found) / law - 1))), 0.02, f"error of the pace at h margin = {sign_rate:g}"
        )
        yield at_most(float(np.max(found)), -np.log(_SHORT[1]) / 2 * 1.01, "largest pace against log(1/b2)/2")


@claim("which-margin/adam", f"{ZHANG}; {FAN}, abstract (ADAM)", "proved", slow=True)
def fresh(lab: Lab, planted: bool) -> Verdict:
    """Adam with eps = 0 and falling steps maximises the max-norm margin, once h_t margin is below (1 - b2)/2: what is missing falls at least like t^(-1/4) from there on.
    That is the rate of the theorem for steps like 1/sqrt t. b = (0.9, 0.95), steps 0.1/sqrt t, from t* = (0.2 margin/(1 - b2))^2, the latest of twenty data sets, to step 10 000 on each of them.
    Planted: steps 3/sqrt t, whose t* has not come."""
    begins = (0.2 * gammas(lab, "max").max() / (1 - 0.95)) ** 2
    found = compared(lab, "adam", steps=10_000, size=3.0 if planted else 0.1)
    return at_most(float(exponents(found, "max", begins).max()), -0.25, "largest exponent of what is missing")


def _old_squares(run: Trajectory, features_of: np.ndarray, b2: float) -> np.ndarray:
    """sqrt of Adam's second moment at the end, up to a factor, from every gradient of the run."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(np.tensordot(run.weights, features_of, 1))) + run.log_excess[:, None, None]
    logs = 2 * logs - np.log(b2) * run.steps[:, None, None]
    total = logsumexp(logs[:-1], axis=0)
    return np.exp((total - total.max()) / 2)


@observed("which-margin/stale-adam", slow=True)
def stale(lab: Lab, planted: bool) -> Verdict:
    """Where steps are too long for its memory, Adam with eps = 0 is gradient descent divided by its first gradients: it goes to the l2 margin weighted by sqrt(v).
    Constant steps 0.1 of the default Adam, on twenty data sets: 1 - corr to the weighted solution over that to the max-norm one. Planted: the unweighted l2 solution."""
    ratios = []
    for seed, run in enumerate(runs(lab, "constant adam", "exponential", 4000, 0.1, every=1)):
        sizes = _old_squares(run, features(lab, seed), 0.999)
        solution = norm_margin(drawn(lab)[seed], WeightedL2(np.ones_like(sizes) if planted else sizes)).weight
        near = misalignment(run.weight(), solution)
        ratios.append(near / misalignment(run.weight(), best(lab)[seed]["max"].weight))
    what = "median of 1 - corr to the weighted l2 solution, over that to the max-norm one"
    return at_most(float(np.median(ratios)), 0.5, what)
