"""Figure 3 of the self-attention paper: attention and decoder trained together by six rules, and what happens without full support."""

from collections.abc import Callable

import numpy as np

from ....diagnostics.direction import misalignment
from ....diagnostics.joint import decoder_margins, joint_misalignments
from ....diagnostics.rates import linear_slope, log_log_slope, rate
from ....exhibits import DEFINITIONS, Figure, Finding, Line, Result, Shown, Table
from ....lab import Lab, Study
from ....optimisers.joint import scheduled_descent
from ....settings.base import Setting
from ....settings.joint import TokenGram, marked_tokens
from ....settings.losses import Exponential
from ....theory.joint_limits import JointReferences, joint_references
from ....theory.judge import judge
from ....training.joint import JointTrajectory, train_joint
from ....training.recorders import At, LogSpaced
from .. import joint_evidence as evidence
from . import joint_support

_SHOWN = (10, 100, 1000, 10_000)


def run(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    data = marked_tokens(seed=seed)
    setting, found = Setting(data, TokenGram(data), Exponential()), joint_references(data)
    runs, findings = {}, []
    for name, rule in evidence.RULES.items():
        progress(f"Figure 3 data: {name}")
        runs[name] = train_joint(data, rule, steps=10_000, recorder=LogSpaced(161))
        prediction = lab.predict(setting, rule)
        verdict = judge(prediction, runs[name])
        findings.append(
            Finding(f"Figure 3 data, {name}: {prediction.theorem.statement}", verdict, prediction.theorem.citation)
        )
    tables = [_values(runs, found), _exponents(lab, progress)]
    figures = _figures(runs, found)
    if full:
        progress("Eq. (13) to 1e6 steps")
        tables.append(_far(lab))
    progress("samples that do not support the decoder")
    leaning_figure, leaning_table, findings_without = joint_support.leaning(lab)
    figure, table, more = joint_support.crowded(lab, full)
    definitions = {
        **DEFINITIONS,
        "W_mm": "maximum-margin direction of the optimal tokens",
        "u_mm": "maximum-margin decoder of the optimal tokens",
        "Eq. (13)": "u moves by length/(t+1)^(2/3) and W by length/(t+1), each along its normalised gradient",
        "NGD": "each block normalised by its own gradient norm; joint NGD: both by the norm of the whole gradient",
        "support-only program": "maximum-margin direction of the samples that support the decoder",
        "offset program": "largest smallest sum of attention margin and decoder margin over unit W",
    }
    kept = (
        {"".join(c for c in name.replace(" ", "-") if c.isalnum() or c == "-"): run for name, run in runs.items()}
        if full
        else {}
    )
    all_figures = (*figures, leaning_figure, figure)
    return Result(
        (*findings, *findings_without, *more), all_figures, (*tables, leaning_table, table), kept, definitions
    )


def _values(runs: dict[str, JointTrajectory], found: JointReferences) -> Table:
    rows = []
    for name, one in runs.items():
        distance = joint_misalignments(one, found.attention.weight)
        at = [int(np.flatnonzero(one.steps >= step)[0]) for step in _SHOWN]
        decoder = misalignment(one.decoder(), found.decoder.weight)
        capped = "" if one.first_capped < 0 else str(one.first_capped)
        rows.append(
            (
                name,
                *(Shown(distance[k], ".3g") for k in at),
                Shown(decoder, ".3g"),
                Shown(one.log_loss[-1], ".5g"),
                Shown(one.norm_W[-1], ".4g"),
                Shown(one.norm_u[-1], ".4g"),
                capped,
            )
        )
    columns = (
        "rule",
        *(f"1 - corr of W, t={step}" for step in _SHOWN),
        "1 - corr of u",
        "log L",
        "|W|",
        "|u|",
        "cap binds at",
    )
    caption = f"|W_mm| = {found.attention.value:.10f}, |u_mm| = {found.decoder.value:.10f}."
    return Table("values", "Joint training, 10 000 steps", columns, tuple(rows), caption)


def _exponents(lab: Lab, progress: Callable[[str], None]) -> Table:
    rows = []
    for name in evidence.RULES:
        progress(f"exponents over seeds 0-9: {name}")
        rates = (
            evidence.norm_rate(lab, name, "W"),
            evidence.norm_rate(lab, name, "u"),
            evidence.attention_rate(lab, name),
        )
        rows.append((name, *(str(one) for one in rates)))
    caption = "Least squares of logarithms over steps 1e3 to 1e4; mean and 95 % Student interval over seeds 0-9."
    return Table("exponents", "Measured exponents", ("rule", "|W|", "|u|", "1 - corr of W"), tuple(rows), caption)


def _figures(runs: dict[str, JointTrajectory], found: JointReferences) -> list[Figure]:
    curve = lambda series: tuple(Line(name, one.steps[2:], series(one)[2:]) for name, one in runs.items())
    attention = lambda one: joint_misalignments(one, found.attention.weight)
    decoder = lambda one: joint_misalignments(one, found.decoder.weight, "u")
    return [
        Figure(
            "loss",
            "Joint loss",
            "step",
            "-log L",
            tuple(Line(line.label, line.x, np.maximum(line.y, 1e-3)) for line in curve(lambda one: -one.log_loss)),
            "Polyak is fastest; block and joint normalisation coincide.",
            "log",
            "log",
        ),
        Figure(
            "direction-W",
            "Direction of W",
            "step",
            "1 - corr to W_mm",
            curve(attention),
            "Block normalisation overtakes Polyak by step 100: whatever divides W by the whole gradient lets |W| grow only like log t.",
            "log",
            "log",
        ),
        Figure(
            "direction-u",
            "Direction of u",
            "step",
            "1 - corr to u_mm",
            curve(decoder),
            "The decoder aligns under every rule.",
            "log",
            "log",
        ),
    ]


def _far(lab: Lab) -> Table:
    """Eq. (13) to a million steps: 1 - corr like (log t)^-2, log L like -3 length t^(1/3) / |u_mm|, the margin of u to its best.

    Values of the first seed; slopes and exponents are fits over the decade, or over the last two, with their interval over seeds.
    """
    records = At(tuple(np.unique(np.geomspace(100, 1e6, 81).round()).astype(int).tolist()))
    runs = train_joint(evidence.figure_data(lab), scheduled_descent(evidence.LONG), steps=10**6, recorder=records)
    pairs = list(zip(runs, evidence.references(lab), strict=True))
    distances = [joint_misalignments(one, found.attention.weight) for one, found in pairs]
    losses = [(np.cbrt(one.steps), one.log_loss * found.decoder.value / (3 * evidence.LONG)) for one, found in pairs]
    first, reference = pairs[0]
    margin = decoder_margins(first) * reference.decoder.value
    rows = []
    for k in range(2, 7):
        at = int(np.searchsorted(first.steps, 10**k))
        window = (10 ** ((k - 1) / 3), 10 ** (k / 3))
        slope = rate([linear_slope(x, y, window) for x, y in losses]) if k > 2 else ""
        rows.append((f"1e{k}", Shown(distances[0][at], ".3g"), slope, Shown(margin[at], ".3f")))
    window = (np.log(1e4), np.log(1e6))
    exponent = rate(
        [log_log_slope(np.log(one.steps[1:]), d[1:], window) for one, d in zip(runs, distances, strict=True)]
    )
    columns = (
        "step",
        "1 - corr of W",
        "slope of log L in t^(1/3) since the last row, over its limit",
        "margin ratio of u",
    )
    caption = (
        f"Length {evidence.LONG:g}; values of seed 0. Slopes with 95 % Student interval over seeds 0-9; "
        f"exponent of 1 - corr in log t over the last two decades {exponent}."
    )
    return Table("far", "Eq. (13) to a million steps", columns, tuple(rows), caption)


STUDIES = (Study("self-attention-joint", "Self-attention and decoder trained together (Figure 3)", run),)
