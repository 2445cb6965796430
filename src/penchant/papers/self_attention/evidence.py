"""Embedded evidence on token selection with a fixed decoder: the presets of the paper's Figures 2 and 5, and cached runs on them."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.special import lambertw

from ...diagnostics.direction import misalignments
from ...flow.flow import GradientFlow
from ...lab import Lab, recipe
from ...optimisers.base import Accelerated, gradient_descent, momentum, normalised_descent, polyak
from ...references.base import Solution
from ...references.euclidean_margin import max_margin
from ...settings.base import Setting
from ...settings.generators import signal_tokens
from ...settings.losses import Exponential
from ...settings.parametrisations import Gram
from ...settings.tokens import TokenSelection
from ...theory import selections as conditions
from ...training.events import LogExcessBelow, LogSpaced
from ...training.train import train
from ...training.trajectory import Trajectory

SEEDS = range(10)
LENGTH = {"E": 0.05, "H": 0.1, "antipodal": 0.05}  # of normalised steps, by preset
hard_tokens = partial(signal_tokens, 20, 5, 50, 1.0, 0.1)
_DATA = {
    "E": signal_tokens,
    "H": hard_tokens,
    "antipodal": partial(signal_tokens, antipodal=True),
}


@recipe
def preset(lab: Lab, name: str, seed: int = 0) -> tuple[Setting, Solution]:
    """Preset E (nearly orthogonal tokens), H (hard) or antipodal classes, in Gram form, with the maximum-margin reference."""
    data = _DATA[name](seed=seed)
    return Setting(data, Gram(data), Exponential()), max_margin(data)


def rules(length: float, settings: Sequence[Setting]) -> dict[str, Any]:
    """The rules of the paper's figures; the step of the accelerated one is half of 1 over the largest squared feature."""
    longest = np.array([float(np.diag(np.asarray(one.parametrisation.matrix)).max()) for one in settings])
    return {
        "GD": gradient_descent(1.0),
        "NGD": normalised_descent(length),
        **{f"NGD, momentum {beta:g}": momentum(length, beta) for beta in (0.5, 0.9, 0.99)},
        "Polyak": polyak(),
        "Polyak, cap 100": polyak(cap=100.0),
        "NGD, cap 100": normalised_descent(length, 100.0),
        "dual acceleration": Accelerated(0.5 / longest),
    }


@recipe
def fleet(lab: Lab, rule: str, name: str = "E", seeds: range = SEEDS) -> tuple[tuple[Trajectory, Solution], ...]:
    """10 000 steps on data sets of a preset in one vectorised run, with their references."""
    settings, references = zip(*(preset(lab, name, seed) for seed in seeds), strict=True)
    runs = train(list(settings), rules(LENGTH[name], settings)[rule], steps=10_000, recorder=LogSpaced(120))
    return tuple(zip(runs, references, strict=True))


@recipe
def flow_run(lab: Lab) -> Trajectory:
    """The flow on preset E to log excess -1e4."""
    return train(preset(lab, "E")[0], GradientFlow(), until=LogExcessBelow(-1e4))


def alignments(runs: Iterable[tuple[Trajectory, Solution]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Steps and 1 - corr of every run."""
    return [(run.steps, misalignments(run, found)) for run, found in runs]


def sharp_constant(setting: Setting, reference: Solution, outside: float = 0.0) -> float:
    """The limit of |W|^2 (1 - corr): of the support pairs, plus half of `outside`, the square of what W has outside their span.

    That part is 0 where every pair supports; otherwise it depends on the path.
    """
    data: TokenSelection = setting.data
    support = reference.support
    gram, dual = np.asarray(data.gram())[np.ix_(support, support)], reference.dual[support]
    slope = np.repeat(np.asarray(setting.loss.log_slope(data.best_scores())), data.others.shape[1])
    beta = (slope + np.log(np.asarray(data.deficits()).ravel()))[support] - np.log(dual)
    shift = -(dual @ beta) / dual.sum()
    residual = np.linalg.solve(gram, beta + shift)
    return float(0.5 * residual @ gram @ residual + 0.5 * outside)


def lemma2_excess(setting: Setting, reference: Solution, xi: float, norm: np.ndarray) -> np.ndarray:
    """pi(R): by how much <-grad L, W/|W|> may exceed <-grad L, W_mm/|W_mm|> once |W| = R (inverse of R = |W_mm| log(A/pi)/pi)."""
    data: TokenSelection = setting.data
    n, others = data.others.shape
    deficit, best = np.asarray(data.deficits()).max(axis=1), np.asarray(data.best_scores())
    strongest, weakest = (deficit * np.exp(-best + deficit)).max(), (deficit * np.exp(-best)).min()
    scale = 2 * n * others * conditions.token_bound(data) ** 2 * strongest / (xi**2 * weakest)
    argument = scale * reference.value
    return argument * np.exp(-np.real(lambertw(argument * norm / reference.value)))
