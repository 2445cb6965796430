"""Rates of token selection with confidence: proved, sharp and measured exponents side by side, and two ways to be faster."""

from functools import partial

import numpy as np

from ....diagnostics.direction import misalignments
from ....diagnostics.rates import log_log_slope, rate
from ....exhibits import DEFINITIONS, Figure, Line, Table, log_figure, table
from ....lab import Lab, Study
from .. import fixed, joint_evidence, joint_findings, sharp
from ..evidence import alignments, fleet, sharp_constant
from .directions import values_table

_WINDOW = (1e3, 1e4)
_BETAS = (0.0, 0.5, 0.9, 0.99)


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
        ends = found[0][1][-1], runs[0].log_loss[-1]
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


_WORDS = {
    **DEFINITIONS,
    "W_mm": "shortest W that gives the optimal token of every sample a logit larger by 1 than all others; 1 - corr is to its direction",
    "preset E": "signal_tokens(): Example 1 of the paper, which satisfies the condition on pairs of tokens",
    "preset H": "signal_tokens(20, 5, 50, 1.0, 0.1): Example 1 with more noise than that condition allows",
    "GD, NGD, Polyak": "gradient descent of step size 1; normalised steps of fixed length (0.05 on preset E, 0.1 on H); steps (L - L*) / |gradient|^2 times the gradient, without a cap",
    "momentum, heavy ball": "NGD that keeps the share beta of its last step",
    "dual acceleration": "weighted average of all gradients of log(L - L*), by which W moves; step size half of 1 over the largest squared feature",
    "proved, sharp": "exponent p of 1 - corr ~ t^p: what the paper proves (up to powers of log t), and what theory beyond the paper predicts",
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
)
