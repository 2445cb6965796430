"""Rates of token selection with confidence: proved, sharp and measured exponents side by side, two ways to be faster, and where Polyak's step is stable."""

from functools import partial

import numpy as np

from ....diagnostics.direction import misalignments
from ....diagnostics.rates import linear_slope, log_log_slope, rate
from ....exhibits import Figure, Line, Table, log_figure, table
from ....lab import Lab, Study
from ....optimisers.base import polyak
from ....theory.token_hypotheses import stability_number
from ....training.recorders import At
from ....training.train import train
from .. import fixed, joint_evidence, joint_findings, sharp
from ..evidence import alignments, fleet, preset, sharp_constant
from .directions import WORDS, values_table

_WINDOW = (1e3, 1e4)
_BETAS = (0.0, 0.5, 0.9, 0.99)
_DROP = "drop of log(L - L*) per step, times c"


def memory_table(lab: Lab) -> Table:
    """Heavy ball changes the constant by (1 - beta)^2, dual acceleration the exponent."""
    plain, rows = [distance[-1] for _, distance in alignments(fleet(lab, "NGD"))], []
    named = {f"heavy ball, beta = {beta:g}": sharp.heavy_balls(lab, beta) for beta in _BETAS}
    for name, runs in {**named, "dual acceleration": fleet(lab, "dual acceleration")}.items():
        slope = rate([log_log_slope(*one, _WINDOW) for one in alignments(runs)])
        ends = np.array([misalignments(run, found)[-1] for run, found in runs])
        constants = [run.norm[-1] ** 2 / sharp_constant(run.setting, found) for run, found in runs]
        rows.append((name, slope, np.mean(ends / plain), np.mean(ends * constants)))
    columns = {
        "rule": "",
        "exponent of 1 - corr": "",
        "ratio to no momentum": ".4g",
        "norm^2 (1 - corr) / predicted": ".4f",
    }
    caption = (
        "Preset E, seeds 0-9; steps of length 0.05; ratios at 10 000 steps, exponents over steps 1e3 to 1e4. Heavy ball is predicted to have the ratio (1 - beta)^2; "
        "an exponent beyond -2 is the lag of the velocity, beta/(1 - beta) steps: 1 - corr ~ (t - lag)^-2."
    )
    return table("memory", "Momentum changes the constant, acceleration the exponent", columns, rows, caption)


def memory_figure(lab: Lab) -> Figure:
    named = {f"beta = {beta:g}": sharp.heavy_balls(lab, beta)[:1] for beta in _BETAS}
    named["dual acceleration"] = fleet(lab, "dual acceleration")[:1]
    lines = (Line(name, steps[1:], y[1:]) for name, runs in named.items() for steps, y in alignments(runs))
    return log_figure("memory", "Momentum and acceleration", "step", "1 - corr to W_mm", lines, "Preset E, seed 0.")


def joint_memory_table(lab: Lab) -> Table:
    """The same rules where the decoder is trained as well."""
    lab.progress("both blocks trained: heavy ball and acceleration")
    rows = []
    for name in ("NGD", joint_evidence.HEAVY, joint_evidence.DUAL):
        runs, found = joint_evidence.fleet(lab, name), joint_evidence.alignments(lab, name)
        norms = (joint_evidence.norm_rate(lab, name, block) for block in ("W", "u"))
        ends = found[0][1][-1], runs[0].log_excess[-1]
        rows.append((name, *norms, joint_evidence.attention_rate(lab, name), *ends))
    columns = {
        "rule": "",
        "exponent of |W|": "",
        "of |u|": "",
        "of 1 - corr of W": "",
        "1 - corr of W at 1e4": ".3g",
        "log L at 1e4": ".6g",
    }
    caption = (
        "Figure 3 data; exponents over steps 1e3 to 1e4 with 95 % Student interval over seeds 0-9, values of seed 0. "
        "Acceleration lowers the loss fastest, but |W| grows only like log t under it, and its direction stands still."
    )
    return table("joint-memory", "Decoder trained as well", columns, rows, caption)


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
    **WORDS,
    "GD, NGD, Polyak": "gradient descent of step size 1; normalised steps of fixed length (0.05 on preset E, 0.1 on H); steps (L - L*) / |gradient|^2 times the gradient, without a cap",
    "momentum, heavy ball": "NGD that keeps the share beta of its last step",
    "dual acceleration": "weighted average of all gradients of log(L - L*), by which W moves; step size half of 1 over the largest squared feature",
    "proved, sharp": "exponent p of 1 - corr ~ t^p: what the paper proves (up to powers of log t), and what theory beyond the paper predicts",
    "chi": "largest curvature of log(L - L*) across W_mm relative to the step Polyak takes; stable below 2c",
    "V": "the unit direction of that curvature, orthogonal to W_mm",
    "predicted": "the constant to which norm^2 (1 - corr) tends, from the data alone",
    "NGD, block-normalised": "W and u each move by a step of length 0.05 along their own normalised gradient",
}
STUDIES = (
    Study(
        "self-attention-rates",
        "Proved, sharp and measured exponents of token selection, and two ways to be faster",
        claims=(fixed.theorem1_rate, sharp.heavy_ball, sharp.acceleration, joint_findings.joint_acceleration),
        exhibits=(
            partial(values_table, name="E"),
            partial(values_table, name="H"),
            memory_table,
            memory_figure,
            joint_memory_table,
        ),
        definitions=_WORDS,
        aliases=("momentum-and-acceleration",),
    ),
    Study(
        "polyak-stability",
        "Where Polyak's step is stable",
        claims=(sharp.polyak_drop, sharp.bifurcation, sharp.critical_steps),
        exhibits=(drops, swing_figure, drop_figure),
        definitions=_WORDS,
    ),
)
