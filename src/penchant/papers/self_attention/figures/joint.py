"""Figure 3 of the self-attention paper: attention and decoder trained together by six rules."""

import numpy as np

from ....diagnostics.direction import misalignment
from ....diagnostics.joint import joint_misalignments, log_joint_attention, optimal_entries
from ....exhibits import DEFINITIONS, Figure, Line, log_figure, table
from ....lab import Lab, Study, claims_in, recipe
from ....settings.joint import joint_setting, marked_tokens
from ....theory.joint import JointReferences, joint_references
from ....training.recorders import LogSpaced
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import joint, joint_findings
from .. import joint_evidence as evidence

_SHOWN = (10, 100, 1000, 10_000)


@recipe
def shown_runs(lab: Lab) -> tuple[dict[str, Trajectory], JointReferences]:
    data, runs = marked_tokens(seed=lab.seed), {}
    for name, rule in evidence.RULES.items():
        lab.progress(f"Figure 3 data: {name}")
        runs[name] = train(joint_setting(data), rule, steps=10_000, recorder=LogSpaced(161))
    return runs, joint_references(data)


def _blank(step: int | None) -> str:
    return "" if step is None else str(step)


def values_table(lab: Lab) -> tuple:
    """Where the rules stand, and with `full` their runs."""
    (runs, found), rows = shown_runs(lab), []
    for name, one in runs.items():
        distance = joint_misalignments(one, found.attention.weight)
        at = [distance[int(np.flatnonzero(one.steps >= step)[0])] for step in _SHOWN]
        ends = misalignment(one.named()["u"], found.decoder.weight), one.log_excess[-1], one.norm_W[-1], one.norm_u[-1]
        lab.progress(f"exponents over seeds 0-9: {name}")
        rates = *(evidence.norm_rate(lab, name, block) for block in ("W", "u")), evidence.attention_rate(lab, name)
        rows.append((name, *at, *ends, _blank(one.header["first_capped"]), *rates))
    columns = {
        "rule": "",
        **{f"1 - corr of W, t={step}": ".3g" for step in _SHOWN},
        "1 - corr of u": ".3g",
        "log L": ".5g",
        "|W|": ".4g",
        "|u|": ".4g",
        "cap binds at": "",
        "exponent of |W|": "",
        "of |u|": "",
        "of 1 - corr of W": "",
    }
    caption = (
        f"|W_mm| = {found.attention.value:.10f}, |u_mm| = {found.decoder.value:.10f}. Exponents: least squares of logarithms over steps 1e3 to 1e4; "
        "mean and 95 % Student interval over seeds 0-9."
    )
    kept = {"".join(c for c in name.replace(" ", "-") if c.isalnum() or c == "-"): run for name, run in runs.items()}
    return table("values", "Joint training, 10 000 steps", columns, rows, caption), kept if lab.full else {}


def curve_figures(lab: Lab) -> tuple[Figure, ...]:
    """Every panel of the paper's Figure 3, by the step."""
    runs, found = shown_runs(lab)
    drawn = (
        ("loss", "Joint loss", "-log L", lambda run: np.maximum(-run.log_excess, 1e-3),
         "Polyak is fastest; block and joint normalisation coincide."),
        ("norm-W", "Norm of W", "|W|", lambda run: run.norm_W,
         "Like t where W has a norm of its own to be divided by, like log t where it shares that of u, and under Eq. (13)."),
        ("norm-u", "Norm of u", "|u|", lambda run: run.norm_u, "Like t under normalised and Polyak steps, like t^(1/3) under Eq. (13)."),
        ("optimal-attention", "Attention on the optimal token", "s_opt, mean over samples",
         lambda run: np.exp(optimal_entries(run, log_joint_attention(run))).mean(axis=1), "From 1/2 to 1."),
        ("direction-W", "Direction of W", "1 - corr to W_mm", lambda run: joint_misalignments(run, found.attention.weight),
         "Block normalisation overtakes Polyak by step 100: whatever divides W by the whole gradient lets |W| grow only like log t."),
        ("direction-u", "Direction of u", "1 - corr to u_mm", lambda run: joint_misalignments(run, found.decoder.weight, "u"),
         "The decoder aligns under every rule."),
    )  # fmt: skip
    figures = []
    for key, title, label, series, caption in drawn:
        lines = (Line(name, one.steps[2:], series(one)[2:]) for name, one in runs.items())
        figures.append(log_figure(key, title, "step", label, lines, caption))
    return tuple(figures)


_WORDS = {
    **DEFINITIONS,
    "W_mm": "maximum-margin direction of the optimal tokens",
    "u_mm": "maximum-margin decoder of the optimal tokens",
    "Eq. (13)": "u moves by length/(t+1)^(2/3) and W by length/(t+1), each along its normalised gradient",
    "NGD": "each block normalised by its own gradient norm; joint NGD: both by the norm of the whole gradient",
    "support-only program": "maximum-margin direction of the samples that support the decoder",
    "offset program": "largest smallest sum of attention margin and decoder margin over unit W",
}
STUDIES = (
    Study(
        "self-attention-joint",
        "Self-attention and decoder trained together (Figure 3)",
        claims=(joint.theorem2, joint.theorem3_direction, joint.theorem4, *claims_in(joint_findings)),
        exhibits=(values_table, curve_figures),
        definitions=_WORDS,
    ),
)
