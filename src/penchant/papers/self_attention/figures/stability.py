"""Polyak's step against its stability number: where it is stable, and where the iterates go beyond that."""

import numpy as np

from ....diagnostics.rates import linear_slope
from ....exhibits import DEFINITIONS, Figure, Line, table
from ....lab import Lab, Study
from ....optimisers.base import polyak
from ....theory.token_hypotheses import stability_number
from ....training.recorders import At
from ....training.train import train
from .. import sharp
from ..evidence import preset

_DROP = "drop of log(L - L*) per step, times c"


def _hard(lab: Lab) -> dict[int, tuple]:
    """Settings of preset H with their references, by seed."""
    return {seed: preset(lab, "H", seed) for seed in range(lab.seed, lab.seed + (10 if lab.full else 5))}


def drops(lab: Lab) -> tuple:
    """The drop of log(L - L*) per Polyak step times c against chi/c: exactly 1 below 2, less above."""
    pairs, rows = _hard(lab), []
    for c in (1.0, 2.0, 4.0) if lab.full else (1.0, 2.0):
        lab.progress(f"Polyak with c = {c:g}, {len(pairs)} data sets")
        settings = [setting for setting, _ in pairs.values()]
        runs = train(settings, polyak(c), steps=10_000, recorder=At(tuple(range(2500, 10_000, 125))))
        for (seed, (setting, found)), run in zip(pairs.items(), runs, strict=True):
            chi = stability_number(setting.data, found)
            drop = -c * linear_slope(run.steps, run.log_excess, (5e3, 1e4))
            rows.append((seed, c, chi, chi / c, drop, "stable" if chi / c < 2 else "unstable"))
    ratio, drop = np.array(sorted(row[3:5] for row in rows)).T
    limit = Line("stable limit", np.array([2.0, 2.0]), np.array([drop.min(), 1.0]), "prediction")
    columns = {"seed": "", "c": "g", "chi": ".4f", "chi / c": ".4f", "c * drop": ".4f", "predicted": ""}
    caption, title = "Preset H; fitted over steps 5 000 to 10 000.", "Polyak's step against the stability number"
    lines = (Line("runs", ratio, drop, "points"), limit)
    return (
        Figure("stability", "The stability number decides", "chi / c", _DROP, lines, caption),
        table("stability", title, columns, rows, "chi is computed from the data alone."),
    )


def swing_figure(lab: Lab) -> Figure:
    """The last iterates across W_mm, against chi/c."""
    ratios, kept = np.linspace(1.6, 6.0, 121 if lab.full else 45), 64 if lab.full else 16
    setting, found = preset(lab, "H", lab.seed)
    swings = sharp.late_swings([setting], [found], ratios, 4000, kept)[0]
    limit = Line("stable limit", np.array([2.0, 2.0]), np.array([swings.min(), swings.max()]), "prediction")
    points = Line(f"last {kept} steps", np.repeat(ratios, kept), swings.ravel(), "points")
    caption = (
        f"Preset H, first seed; {len(ratios)} divisors c, 4 000 steps each. One point below the limit; beyond it two, whose distance "
        "starts like (chi/c - 2)^(1/2)."
    )
    title = "Beyond the limit: two points, then many"
    return Figure("bifurcation", title, "chi / c", "<V, W>", (points, limit), caption)


def drop_figure(lab: Lab) -> Figure:
    """What is left of the drop of log(L - L*) per step, against chi/c, one line per data set."""
    ratios, pairs = np.linspace(1.0, 6.0, 41 if lab.full else 11), _hard(lab)
    numbers = [stability_number(one.data, found) for one, found in pairs.values()]
    c = np.array([chi / ratio for chi in numbers for ratio in ratios])
    repeated = [one for one, _ in pairs.values() for _ in ratios]
    runs = train(repeated, polyak(c), steps=4000, recorder=At((2000,)))
    pace = [(run.log_excess[1] - run.log_excess[-1]) / (run.steps[-1] - run.steps[1]) for run in runs]
    left = (c * np.array(pace)).reshape(len(pairs), len(ratios))
    named = zip(pairs, numbers, left, strict=True)
    lines = [Line(f"seed {seed}, chi = {chi:.2f}", ratios, row) for seed, chi, row in named]
    lines.append(Line("stable limit", np.array([2.0, 2.0]), np.array([left.min(), 1.0]), "prediction"))
    caption = "Preset H; mean over steps 2 000 to 4 000. All lines are 1 up to the limit and fall from there on."
    return Figure("map", "The divisor c against the stability number", "chi / c", _DROP, tuple(lines), caption)


_WORDS = {
    **DEFINITIONS,
    "chi": "largest curvature of log(L - L*) across W_mm relative to the step Polyak takes; stable below 2c",
    "V": "the unit direction of that curvature, orthogonal to W_mm",
}
STUDIES = (
    Study(
        "polyak-stability",
        "Where Polyak's step is stable",
        claims=(sharp.polyak_drop, sharp.bifurcation, sharp.critical_steps),
        exhibits=(drops, swing_figure, drop_figure),
        definitions=_WORDS,
    ),
)
