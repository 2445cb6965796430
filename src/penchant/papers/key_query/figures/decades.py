"""Runs on K and Q at margins 1e2, 1e4 and 1e6: both norms, both bounds, and the inverse of the gap between them."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ....exhibits import Shown, Table
from ....norms import L2, Nuclear
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....theory.certificates import certificates
from ....training.trajectory import Trajectory
from ....verdict import Verdict, at_most

DECADES = (1e2, 1e4, 1e6)


class Decade(NamedTuple):
    """One run at one margin: excess of the nuclear and the Frobenius norm, what the bounds miss of the optimum, optimum / gap."""

    data: str
    scale: float
    margin: float
    nuclear: float
    frobenius: float
    accumulated: float
    instant: float
    inverse: float


def decade_rows(data: str, scale: float, run: Trajectory, reference: Solution) -> list[Decade]:
    bounds, value, least = certificates(run, Nuclear()), reference.value, max_margin(run.setting.data).value
    rows = []
    for margin in DECADES:
        k = int(np.argmin(np.abs(run.smallest_margin() / margin - 1)))
        frobenius = L2().value(run.weight(k)) / run.smallest_margin()[k] / least - 1
        gathered, instant = (float(1 - bound[k] / value) for bound in (bounds.accumulated, bounds.instant))
        inverse = float(value / (bounds.upper[k] - bounds.accumulated[k]))
        rows.append(
            Decade(
                data, scale, margin, float(bounds.upper[k] / value - 1), float(frobenius), gathered, instant, inverse
            )
        )
    return rows


def falling(rows: list[Decade]) -> Verdict:
    """Every run's nuclear excess is smaller at the next of the margins."""
    worst: dict[tuple[str, float], float] = {}
    for earlier, later in pairwise(rows):
        run = (later.data, later.scale)
        if run == (earlier.data, earlier.scale):
            worst[run] = max(worst.get(run, 0.0), later.nuclear / earlier.nuclear)
    return at_most(max(worst.values()), 1.0, f"largest ratio of the excess two decades apart, {len(worst)} runs")


def decades_table(rows: list[Decade]) -> Table:
    shown = tuple(
        (
            one.data,
            Shown(one.scale, "g"),
            Shown(one.margin, ".0e"),
            Shown(one.nuclear, ".2e"),
            Shown(one.frobenius, ".4f"),
            Shown(one.accumulated, ".4f"),
            Shown(one.instant, ".1e"),
            Shown(one.inverse, ".2f"),
        )
        for one in rows
    )
    columns = (
        "data",
        "start",
        "margin",
        "nuclear excess",
        "Frobenius excess",
        "1 - accumulated/N",
        "1 - instant/N",
        "N / gap",
    )
    caption = "N is the least nuclear norm; N / gap, with the gap of gathered multipliers, is linear in log margin."
    return Table("decades", "The runs at margins 1e2, 1e4 and 1e6", columns, shown, caption)
