"""Twenty drawn data sets, the best margins in every norm, and runs of all of them at once."""

from collections.abc import Callable, Iterator

import numpy as np

from ...lab import Lab, recipe
from ...norms import norm_named
from ...optimisers.base import Adam, Decayed, Optimiser, muon, signum, steepest
from ...references.base import Solution, feature_rows
from ...settings.base import Setting
from ...settings.classification import Multiclass
from ...settings.generators import clusters
from ...settings.losses import AbstractLoss, CrossEntropy, Exponential, Logistic, PolynomialTail
from ...settings.parametrisations import Direct
from ...training.events import Every, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory
from ...verdict import Verdict, at_most
from .comparison import NAMES, Comparison, best_margins, compare
from .flows import Path

COUNT, SHAPE = 20, (4, 8, 12)  # data sets, and classes, dimension and samples of each
LOSSES: dict[str, AbstractLoss] = {
    "cross-entropy": CrossEntropy(),
    "exponential": Exponential(),
    "pairwise": Logistic(),
    "polynomial": PolynomialTail(2.0),
}
_falling = lambda name: lambda scale: steepest(scale, norm_named(name), 0.5)
RULES: dict[str, Callable[[object], Optimiser]] = {  # of a step size, or of one for each data set
    **{name: _falling(name) for name in NAMES},
    "signum": lambda size: signum(size, 0.9, 0.5),
    "constant signum": lambda size: signum(size, 0.9),
    "muon": lambda size: muon(size, 0.95, 0.5, nesterov=True),
    "ns5": lambda size: muon(size, 0.0, 0.5, orthogonaliser="ns5"),
    "muon ns5": lambda size: muon(size, 0.95, 0.5, nesterov=True, orthogonaliser="ns5"),
    "adam": lambda size: Adam(size, 0.0, 0.9, 0.95, decay=0.5),
    "default adam": lambda size: Adam(size, 0.0, decay=0.5),
    "constant adam": lambda size: Adam(size, 0.0),
    "short adam": lambda size: Adam(size, 0.0, 0.5, 0.9),
    "frank-wolfe max": lambda size: Decayed(steepest(size, norm_named("max"), 1.0), 1 / np.asarray(size)),
    "frank-wolfe spectral": lambda size: Decayed(steepest(size, norm_named("spectral"), 1.0), 1 / np.asarray(size)),
    "frank-wolfe ns5": lambda size: Decayed(muon(size, 0.0, 1.0, orthogonaliser="ns5"), 1 / np.asarray(size)),
}


@recipe
def drawn(lab: Lab, count: int = COUNT) -> list[Multiclass]:
    return [clusters(*SHAPE, 1.0, seed) for seed in range(count)]


@recipe
def best(lab: Lab, count: int = COUNT) -> list[dict[str, Solution]]:
    return [best_margins(data) for data in drawn(lab, count)]


@recipe
def features(lab: Lab, seed: int) -> np.ndarray:
    """The features (e_y - e_c) x' of a data set."""
    data = drawn(lab)[seed]
    return feature_rows(data, data.constrained()).reshape(-1, *data.weight_shape)


def gammas(lab: Lab, norm: str) -> np.ndarray:
    """The best margin of every data set in a norm."""
    return np.array([found[norm].margin for found in best(lab)])


@recipe
def runs(
    lab: Lab, rule: str, loss: str = "cross-entropy", steps: int = 3000, size: float | tuple = 0.3, every: int = 0
) -> list[Trajectory]:
    """A rule on all data sets; a tuple has a step size for each of them. Whatever the sizes, one compiled program does it."""
    settings = [Setting(data, Direct(), LOSSES[loss]) for data in drawn(lab)]
    sizes = np.broadcast_to(np.asarray(size, float), len(settings))
    return train(settings, RULES[rule](sizes), steps=steps, recorder=Every(every) if every else LogSpaced(60))


@recipe
def compared(
    lab: Lab, rule: str, loss: str = "cross-entropy", steps: int = 3000, size: float | tuple = 0.3
) -> list[Comparison]:
    found = runs(lab, rule, loss, steps, size)
    return [compare(run, one) for run, one in zip(found, best(lab), strict=True)]


def last(lab: Lab, rule: str, norm: str, **options: object) -> np.ndarray:
    """The share of the best margin in a norm that a rule reaches, for every data set."""
    return np.array([one.last[norm] for one in compared(lab, rule, **options)])  # pyright: ignore[reportArgumentType]


def tends(lab: Lab, rule: str, norm: str, **options: object) -> np.ndarray:
    """The share that a rule tends to, for every data set, if what is missing falls like 1/sqrt t: twice the last one, less that of a quarter of the steps.

    An exponent that is off by 0.15 makes an error of a fifth of what is missing there: 0.02 of a tenth."""
    found = compared(lab, rule, **options)  # pyright: ignore[reportArgumentType]
    quarter = lambda one: np.interp(one.steps[-1] / 4, one.steps, one.shares[norm])
    return np.array([2 * one.last[norm] - quarter(one) for one in found])


def exponents(found: list[Comparison], norm: str, since: float) -> np.ndarray:
    """The powers of t by which what is missing of the best margin falls from a step on, for every data set."""
    late = found[0].steps >= since
    logs = [np.log(1 - one.shares[norm][late]) for one in found]
    return np.polyfit(np.log(found[0].steps[late]), np.transpose(logs), 1)[0]


def along(lab: Lab, seed: int, path: Path, norm: str) -> np.ndarray:
    """The share of the best margin in a norm along a flow, after its start."""
    found = best(lab)[seed][norm]
    return path.margins[1:] / [found.measure.value(weight) for weight in path.weights[1:]] / found.margin


def past_turn(lab: Lab, paths: list[Path], norm: str, sines: list[float], planted: bool) -> Iterator[Verdict]:
    """At the end of flows that have turned to gradient descent: what the Frobenius share misses, and how far the share in another norm is from that of the
    Frobenius solution. With `sines` of the angles that are left the Frobenius share may miss log(N)/margin, by the soft minimum of N margins, and
    sine^2/2; the other share as much, and the sine over the norm of the unit solution. Planted: the flows end at the other margin."""
    missing, apart = [], []
    for seed, (path, sine) in enumerate(zip(paths, sines, strict=True)):
        found, solution, rows = best(lab)[seed][norm], best(lab)[seed]["frobenius"].weight, features(lab, seed)
        size, allowed = found.measure.value(solution), np.log(len(rows)) / path.margins[-1] + sine**2 / 2
        share = 1.0 if planted else np.tensordot(rows, solution, 2).min() / size / found.margin
        missing.append((1 - along(lab, seed, path, norm if planted else "frobenius")[-1]) / allowed)
        blur = allowed + sine * np.linalg.norm(solution) / size
        apart.append(abs(along(lab, seed, path, norm)[-1] / share - 1) / blur)
    for what, ratios in (("missing Frobenius share", missing), (f"distance of the {norm} share", apart)):
        yield at_most(float(max(ratios)), 1.0, f"largest {what} over what is allowed")


def pace(run: Trajectory) -> float:
    """By how much log L falls per step, over the last half of the steps."""
    late = run.steps >= run.steps[-1] / 2
    return -float(np.polyfit(run.steps[late], run.log_excess[late], 1)[0])


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """The mean of draws, and two standard errors of it."""
    return float(values.mean()), float(2 * values.std(ddof=1) / np.sqrt(len(values)))
