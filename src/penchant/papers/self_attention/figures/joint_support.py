"""What joint training selects when a sample does not support the decoder: on nearly orthogonal and on crowded tokens."""

import numpy as np

from ....diagnostics.direction import misalignment
from ....diagnostics.joint import joint_misalignments
from ....exhibits import Figure, Finding, Line, Shown, Table
from ....lab import Lab, claims_in
from ....optimisers.joint import BlockNormalised, scheduled_descent
from ....settings.base import Setting
from ....settings.joint import TokenGram, marked_tokens
from ....settings.losses import Exponential
from ....theory.joint_limits import detect_joint_limit, joint_references
from ....theory.judge import judge
from ....training.joint import train_joint
from ....training.recorders import LogSpaced
from .. import joint_findings as claims
from .. import joint_growth as growth
from ..joint_evidence import leaning_runs
from ..joint_theorems import near_orthogonal


def leaning(lab: Lab) -> tuple[Figure, Table, list[Finding]]:
    """One sample without support, everything else as the theorem asks: Eq. (13) at the step length of the theorem."""
    rows, lines = [], []
    for seed, one in enumerate(leaning_runs(lab, "Eq. (13)")):
        found = joint_references(one.data)
        stated, repaired = (
            joint_misalignments(one, program.weight) for program in (found.attention, found.support_only)
        )
        at = np.searchsorted(one.steps, [100, 1000, 10_000, 100_000])
        missed = f"{1 - near_orthogonal(one.data).slack:.3f}"
        rows.append((seed, missed, *(Shown(stated[k], ".3g") for k in at), *(Shown(repaired[k], ".3g") for k in at)))
        if seed == 0:
            lines.append(Line("to W_mm", one.steps[2:], stated[2:]))
            lines.append(Line("to the support-only program", one.steps[2:], repaired[2:], "prediction"))
    listed = [claim for claim in claims_in(claims, growth) if "support" in claim.name or "repaired-" in claim.name]
    findings = [Finding(claim.statement, claim(lab), claim.citation) for claim in listed]
    steps = ("1e2", "1e3", "1e4", "1e5")
    columns = ("seed", "C3 missed by", *(f"to W_mm, t={t}" for t in steps), *(f"to support-only, t={t}" for t in steps))
    caption = "Eq. (13) at length 1/(4 B^2); 1 - corr of W. Zero start, long optimal tokens and short steps hold; near-orthogonality implies support, so it cannot."
    table = Table("leaning", "One sample that does not support the decoder", columns, tuple(rows), caption)
    text = "Seed 0: W turns away from W_mm, to the direction of the samples that support the decoder."
    title = "Nearly orthogonal tokens without full support"
    return Figure("leaning", title, "step", "1 - corr", tuple(lines), text, "log", "log"), table, findings


def crowded(lab: Lab, full: bool) -> tuple[Figure, Table, list[Finding]]:
    """Data in 14 dimensions: the selection that was reached, and which program W solves for it."""
    seeds = (0, 1, 2, 11, 12, 13, 14, 15) if full else (1, 2)
    sets = [marked_tokens(10, 2, 14, 0.3, 3.0, seed) for seed in seeds]
    rows, lines, findings = [], [], []
    for name, rule in {"NGD": BlockNormalised(0.05), "Eq. (13)": scheduled_descent(0.3)}.items():
        for seed, one in zip(seeds, train_joint(sets, rule, steps=60_000, recorder=LogSpaced(61)), strict=True):
            limit, found = detect_joint_limit(one), joint_references(one.data)
            support = (
                limit.references.decoder.support.sum() if limit.references is not None else found.decoder.support.sum()
            )
            numbers = (
                misalignment(one.weight(), found.attention.weight),
                limit.attention,
                limit.offset,
                limit.support_only,
                limit.decoder,
            )
            rows.append((name, seed, limit.kind, f"{support}/10", *(Shown(value, ".3g") for value in numbers)))
            if seed == 2:
                setting = Setting(one.data, TokenGram(one.data), Exponential())
                prediction = lab.predict(setting, rule)
                statement = f"Without full support, seed 2, {name}: {prediction.theorem.statement}"
                findings.append(Finding(statement, judge(prediction, one), prediction.theorem.citation))
                lines.append(
                    Line(f"{name}: to W_mm", one.steps[2:], joint_misalignments(one, found.attention.weight)[2:])
                )
                offset = joint_misalignments(one, found.offset.weight)[2:]
                lines.append(Line(f"{name}: to the offset program", one.steps[2:], offset, "prediction"))
    columns = (
        "rule",
        "seed",
        "limit",
        "support of u",
        "to W_mm",
        "to W of reached tokens",
        "to offset program",
        "to support-only program",
        "u to its program",
    )
    caption = "60 000 steps: NGD of length 0.05 for both blocks, Eq. (13) with length 0.3; zero start. All distances are 1 - corr; the last four refer to the selection that was reached, or that leads so far where the limit is undecided."
    table = Table(
        "crowded", "When some samples do not support the decoder (n=10, T=2, d=14)", columns, tuple(rows), caption
    )
    figure = Figure(
        "crowded",
        "Without full support W does not tend to W_mm",
        "step",
        "1 - corr",
        tuple(lines),
        "Seed 2: block-normalised descent solves the offset program; under Eq. (13) W turns away from W_mm.",
        "log",
        "log",
    )
    return figure, table, findings
