"""Polyak's step beyond its stability limit: where the iterates go, and how much of their pace is left."""

from collections.abc import Sequence

import numpy as np

from ....exhibits import Figure, Line
from ....optimisers.base import polyak
from ....references.base import Solution
from ....settings.base import Setting
from ....theory.token_hypotheses import stability_number
from ....training.recorders import At
from ....training.train import train
from ..stability import late_swings


def swing_figure(setting: Setting, reference: Solution, full: bool) -> Figure:
    """The last iterates across W_mm, against chi/c."""
    ratios, kept = np.linspace(1.6, 6.0, 121 if full else 45), 64 if full else 16
    swings = late_swings([setting], [reference], ratios, 4000, kept)[0]
    ends = np.array([swings.min(), swings.max()])
    return Figure(
        "bifurcation",
        "Beyond the limit: two points, then many",
        "chi / c",
        "<V, W>",
        (
            Line(f"last {kept} steps", np.repeat(ratios, kept), swings.ravel(), "points"),
            Line("stable limit", np.array([2.0, 2.0]), ends, "prediction"),
        ),
        f"Preset H, first seed; {len(ratios)} divisors c, 4 000 steps each. One point below the limit; beyond it two, whose distance "
        "starts like (chi/c - 2)^(1/2).",
    )


def drop_figure(
    settings: Sequence[Setting], references: Sequence[Solution], seeds: Sequence[int], full: bool
) -> Figure:
    """What is left of the drop of log(L - L*) per step, against chi/c, one line per data set."""
    ratios = np.linspace(1.0, 6.0, 41 if full else 11)
    pairs = list(zip(settings, references, strict=True))
    c = np.array([stability_number(one.data, found) / ratio for one, found in pairs for ratio in ratios])
    runs = train([one for one, _ in pairs for _ in ratios], polyak(c), steps=4000, recorder=At((2000,)))
    pace = [(run.log_excess[1] - run.log_excess[-1]) / (run.steps[-1] - run.steps[1]) for run in runs]
    drops = (c * np.array(pace)).reshape(len(pairs), len(ratios))
    numbers = [stability_number(one.data, found) for one, found in pairs]
    lines = [
        Line(f"seed {seed}, chi = {chi:.2f}", ratios, row) for seed, chi, row in zip(seeds, numbers, drops, strict=True)
    ]
    return Figure(
        "map",
        "The divisor c against the stability number",
        "chi / c",
        "drop of log(L - L*) per step, times c",
        (*lines, Line("stable limit", np.array([2.0, 2.0]), np.array([drops.min(), 1.0]), "prediction")),
        "Preset H; mean over steps 2 000 to 4 000. All lines are 1 up to the limit and fall from there on.",
    )
