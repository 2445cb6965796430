"""From which starts the flow reaches the infimum within a budget of time: scale of the start, score gap and size against the slack of Assumption 3."""

from typing import NamedTuple

import numpy as np

from ....exhibits import Figure, Finding, Line, Result, Shown, Table
from ....flow.flow import GradientFlow, Levels
from ....lab import Lab, Study
from ....settings.base import Setting
from ....settings.factored import KeyQuery
from ....settings.losses import Exponential
from ....settings.token_generators import equal_score_tokens
from ....training.events import LogTimeAbove, MarginAbove
from ....training.train import train
from ....verdict import at_least
from ..hypotheses import initial_loss
from .curves import DEFINED

_MARGIN, _LOG_TIME = 20.0, 100.0  # a global run has this margin by then: its log t is near the margin
_SCALES = (0.1, 1.0, 2.0, 4.0, 8.0)
_BINS = np.array([-np.inf, -1.0, -0.75, -0.5, 0.0, np.inf])


class Started(NamedTuple):
    """One start: its slack of Assumption 3, whether it is global in time, and how many samples attend to a wrong token at the end."""

    size: tuple[int, int]
    gap: float
    scale: float
    slack: float
    reached: bool
    wrong: int


def started(size: tuple[int, int], gap: float, scale: float, draw: int) -> Started:
    """Data and start of one draw, followed to a margin of 20 or log t = 100."""
    dimension = 5 if size[0] < 5 else 8  # more samples than that no matrix separates for sure
    data = equal_score_tokens(*size, dimension, draw, gap=gap)
    setting = Setting(data, KeyQuery(), Exponential())
    start = setting.start(draw, scale / np.sqrt(dimension))
    until = (MarginAbove(_MARGIN), LogTimeAbove(_LOG_TIME))
    run = train(setting, GradientFlow(), start, until=until, steps=2000, recorder=Levels("margin", ()))
    wrong = (run.margins[-1].reshape(size[0], -1) < 0).any(axis=1)
    reached = float(run.smallest_margin()[-1]) >= _MARGIN * (1 - 1e-6)
    return Started(size, gap, scale, initial_loss(setting, data, start).slack, reached, int(wrong.sum()))


def run_basin(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    found = []
    for size in ((3, 4), (5, 4), (3, 6)) if full else ((3, 4),):
        for gap in (1.0, 6.0, 12.0) if full else (1.0, 6.0):
            for scale in _SCALES:
                progress(f"n, L = {size}, gap {gap:g}, start {scale:g}")
                found += [started(size, gap, scale, draw) for draw in range(seed, seed + (10 if full else 4))]
    inside, outside = ([one for one in found if (one.slack >= 0) is holds] for holds in (True, False))
    findings = (
        Finding(
            "Where Assumption 3 holds every start is global.",
            at_least(float(np.mean([one.reached for one in inside])), 1.0, f"share of {len(inside)} starts"),
            "Assumption 3",
        ),
        Finding(
            "The assumption is far from necessary: most starts that fail it are global too.",
            at_least(float(np.mean([one.reached for one in outside])), 0.5, f"share of {len(outside)} starts"),
            "observed",
        ),
    )
    return Result(findings, (_figure(found),), (_table(found),), {}, DEFINED)


def _figure(found: list[Started]) -> Figure:
    slack, reached = np.array([one.slack for one in found]), np.array([one.reached for one in found])
    lines, places = [], np.digitize(slack, _BINS) - 1
    full = [k for k in range(len(_BINS) - 1) if (places == k).any()]
    middle = np.array([slack[places == k].mean() for k in full])
    lines.append(Line("share of the starts in a bin", middle, np.array([reached[places == k].mean() for k in full])))
    order = np.argsort(slack)
    lines.append(Line("starts", slack[order], reached[order].astype(float), "points"))
    caption = f"1: margin {_MARGIN:g} by log t = {_LOG_TIME:g}. At a slack of 0 or more the assumption holds."
    return Figure("basin", "Global starts", "slack of Assumption 3", "share that is global", tuple(lines), caption)


def _table(found: list[Started]) -> Table:
    rows = []
    for size, gap, scale in dict.fromkeys((one.size, one.gap, one.scale) for one in found):
        cell = [one for one in found if (one.size, one.gap, one.scale) == (size, gap, scale)]
        slacks, wrong = [one.slack for one in cell], sorted(one.wrong for one in cell if not one.reached)
        counts = ", ".join(f"{wrong.count(k)} with {k} of {size[0]}" for k in dict.fromkeys(wrong)) or "-"
        share = float(np.mean([one.reached for one in cell]))
        span = f"{min(slacks):.2f} to {max(slacks):.2f}"
        rows.append((f"{size[0]}, {size[1]}", Shown(gap, "g"), Shown(scale, "g"), span, Shown(share, ".2f"), counts))
    columns = (
        "n, L",
        "score gap",
        "start",
        "slack of Assumption 3",
        "share global",
        "others: samples on a wrong token",
    )
    caption = f"Random data and starts, followed to margin {_MARGIN:g} or log t = {_LOG_TIME:g}: what is not global by then may still become so."
    return Table("basin", "Which starts are global", columns, tuple(rows), caption)


STUDIES = (Study("key-query-basin", "Keys and queries: the basin of global convergence", run_basin),)
