"""Is a nuclear excess of 1e-4 reached at margin 1e8? Per data set: what the flow reaches, at what exponent, and whose doing it is."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ....exhibits import Finding, Shown, Table
from ....flow.flow import GradientFlow, Levels
from ....references.nuclear_margin import nuclear_margin
from ....settings.base import Setting
from ....settings.factored import KeyQuery
from ....settings.losses import Exponential
from ....settings.token_generators import equal_score_tokens
from ....theory.least_norm import excess
from ....training.events import MarginAbove
from ....training.train import train
from ....verdict import at_most

TARGET, TOP = 1e-4, 1e8
_SIZE = (6, 5, 10)
_TIGHT = GradientFlow(tolerance=1e-10, margin_tolerance=1e-6, order=6)


class Reached(NamedTuple):
    """Nuclear excess at margins 1e7 and 1e8, to the default and (nan where it was not run) to a thousandfold tighter tolerance."""

    data: int
    before: float
    last: float
    tight: float

    @property
    def exponent(self) -> float:
        return float(np.log10(self.last / self.before))

    @property
    def expected(self) -> float:
        """The margin at which the excess passes the target if the last exponent stays."""
        return TOP * (TARGET / self.last) ** (1 / self.exponent) if self.exponent < 0 else float("inf")


def reached(number: int, tight: bool) -> Reached:
    data = equal_score_tokens(*_SIZE, number, gap=1.0)
    setting, reference = Setting(data, KeyQuery(), Exponential()), nuclear_margin(data)
    start, recorder = setting.start(number + 1, 1e-3), Levels("margin", (TOP / 10,))

    def follow(flow: GradientFlow) -> tuple[float, float]:
        run = train(setting, flow, start, until=MarginAbove(TOP), steps=10_000, recorder=recorder)
        return excess(data, run.weight(-2), reference), excess(data, run.weight(), reference)

    before, last = follow(GradientFlow())
    return Reached(number, before, last, follow(_TIGHT)[1] if tight else float("nan"))


def target_parts(numbers: Iterable[int], progress: Callable[[str], None]) -> tuple[Finding, Table]:
    """The finding that the integration is not to blame, from the first data set, and the table of all."""
    found = []
    for number in numbers:
        progress(f"excess at margin {TOP:g}, data {number}")
        found.append(reached(number, tight=not found))
    first = found[0]
    change = at_most(abs(first.tight / first.last - 1), 1e-3, "relative change of the excess at a tolerance of 1e-10")
    statement = (
        "What is left of the nuclear excess at margin 1e8 is the flow's own rate, not an error of the integration."
    )
    return Finding(statement, change, "observed"), _table(found)


def _table(found: list[Reached]) -> Table:
    rows = tuple(
        (
            one.data,
            Shown(one.last, ".3e"),
            Shown(one.tight, ".3e") if np.isfinite(one.tight) else "-",
            Shown(one.exponent, ".3f"),
            "met" if one.last <= TARGET else "missed",
            Shown(one.expected, ".1e"),
        )
        for one in found
    )
    met = sum(one.last <= TARGET for one in found)
    caption = (
        f"n, L, d = {', '.join(map(str, _SIZE))}, start 1e-3: an excess of {TARGET:g} at margin {TOP:g} is met on {met} of {len(found)} data sets. The exponent "
        "is that of the last decade, and the last column the margin at which the target would be passed if it stayed."
    )
    columns = (
        "data",
        "excess",
        "excess, tight tolerance",
        "exponent",
        f"target {TARGET:g}",
        "margin to expect it at",
    )
    return Table("target", f"Nuclear excess at margin {TOP:g}", columns, rows, caption)
