"""The slow drift of the diagonal flow: which margins are tight for how long, at what exponents wrong coordinates leave, which start is best in a given time."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ....exhibits import Finding, Shown, Table
from ....flow.flow import GradientFlow, Levels
from ....references.bracket import adjoint
from ....references.polyhedral_margin import diagonal_margin
from ....settings.base import Setting
from ....settings.diagonal import DiagonalTokens
from ....settings.factored import Hadamard
from ....settings.losses import Exponential
from ....settings.token_generators import equal_score_tokens
from ....theory.least_norm import excess
from ....training.events import LogTimeAbove
from ....training.train import train
from ....training.trajectory import Trajectory
from ....verdict import at_most
from .curves import Progress, flow_to, late

TIGHT = 1e-3  # a margin this near the smallest one, relatively, counts as tight
_SCALES = (10.0, 1.0, 0.1, 0.01)
_BUDGETS = (1e2, 1e4, 1e6)


class Visit(NamedTuple):
    """A set of tight margins with the margins between which it was tight, the largest exponent meanwhile, and the largest error of one at the end."""

    tight: tuple[int, ...]
    first: float
    last: float
    fastest: float
    error: float

    @property
    def dwell(self) -> float:
        return float(np.log(self.last / self.first))


def exponents(run: Trajectory, record: int) -> np.ndarray:
    """d log|w_j| / d log margin as the multipliers of the moment give them: (|w|_1 / margin) |B weights|_j / sum of weights."""
    weights = run.weights[record] / run.weights[record].sum()
    pull = np.abs(np.asarray(adjoint(run.setting.data, weights)))
    return np.abs(run.weight(record)).sum() / run.smallest_margin()[record] * pull


def visits(run: Trajectory, least: float = 10.0) -> list[Visit]:
    """The sets of tight margins in the order in which a run has them, from a margin on."""
    margin = run.smallest_margin()
    records = [k for k in late(run) if margin[k] >= least]
    tight = {k: tuple(np.flatnonzero(run.margins[k] / margin[k] - 1 < TIGHT).tolist()) for k in records}
    found: list[Visit] = []
    for before, after in pairwise(records):
        growth = np.log(margin[after] / margin[before])
        measured = np.log(np.abs(run.weight(after) / run.weight(before))) / growth
        expected = (exponents(run, before) + exponents(run, after)) / 2
        grown = (
            np.abs(run.weight(before)) > 1e-6 * np.abs(run.weight(before)).max()
        )  # below, sinh is not yet an exponential
        error = float(np.abs(measured - expected)[grown].max())
        fastest = float(expected.max())
        if found and found[-1].tight == tight[before]:
            last = found.pop()
            found.append(Visit(last.tight, last.first, float(margin[after]), max(last.fastest, fastest), error))
        else:
            found.append(Visit(tight[before], float(margin[before]), float(margin[after]), fastest, error))
    return found


def drift_parts(number: int, progress: Progress) -> tuple[Finding, tuple[Table, Table]]:
    """Sets and exponents of a run that drifts, and the best start at each budget of time."""
    data = DiagonalTokens(equal_score_tokens(4, 4, 12, number))
    setting, reference = Setting(data, Hadamard(), Exponential()), diagonal_margin(data)
    first = lambda scale: Hadamard().one_sided(data, scale, np.random.default_rng(0))
    progress(f"drift on data {number}")
    found = visits(flow_to(setting, first(0.1), 1e6))
    finding = Finding(
        "Coordinates that are wrong leave at the exponents that the multipliers of the moment give.",
        at_most(found[-1].error, 2e-2, "largest error of an exponent at the end"),
        "derived for penchant",
    )
    measured = {}
    for scale in _SCALES:
        progress(f"data {number}, start {scale:g}, by time")
        recorder = Levels("log_time", _BUDGETS[:-1])
        run = train(
            setting, GradientFlow(), first(scale), until=LogTimeAbove(_BUDGETS[-1]), steps=10_000, recorder=recorder
        )
        records = [int(np.argmin(np.abs(run.log_time / budget - 1))) for budget in _BUDGETS]
        measured[scale] = [excess(data, run.weight(k), reference) for k in records]
    return finding, (_visits_table(number, found, int(reference.support.sum())), _budget_table(number, measured))


def _visits_table(number: int, found: list[Visit], wanted: int) -> Table:
    rows = tuple(
        (
            ", ".join(map(str, one.tight)),
            Shown(one.first, ".1e"),
            Shown(one.dwell, ".2f"),
            Shown(one.fastest, ".3f"),
            Shown(one.error, ".1e"),
        )
        for one in found
    )
    columns = (
        "tight margins",
        "from margin",
        "dwell in log margin",
        "largest exponent",
        "largest error of an exponent",
    )
    caption = (
        f"Data {number}, start 0.1; at the solution {wanted} margins are tight. The exponents are those of |w_j| in the margin: above 1 a coordinate still gains on the others, "
        "and the active set is unfinished."
    )
    return Table("drift", "Active sets on the way", columns, rows, caption)


def _budget_table(number: int, measured: dict[float, list[float]]) -> Table:
    rows = tuple(
        (
            Shown(budget, ".0e"),
            *(Shown(values[k], ".2e") for values in measured.values()),
            Shown(min(measured, key=lambda scale: measured[scale][k]), "g"),
        )
        for k, budget in enumerate(_BUDGETS)
    )
    columns = ("log t", *(f"excess, start {scale:g}" for scale in measured), "best start")
    caption = f"Data {number}: l1 excess at a given time. Log t is the margin up to its logarithm, so a budget of time is one of margin."
    return Table("budget", "The best start in a given time", columns, rows, caption)
