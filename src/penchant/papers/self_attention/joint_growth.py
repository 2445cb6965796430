"""Claims on joint training without full support: the ratio at which |u| and |W| grow decides which program W solves."""

import numpy as np

from ...diagnostics.direction import misalignment
from ...diagnostics.joint import joint_misalignments
from ...diagnostics.rates import settling
from ...lab import Lab, claim
from ...theory.joint_limits import joint_references
from ...verdict import Verdict, all_of, at_least, at_most, covers
from .joint_evidence import RATIOS, leaning_rate, leaning_runs


@claim(
    "self-attention-joint/theorem-3-repaired-joint",
    "Joint normalisation without full support: W turns to the maximum margin of the samples that support the decoder.",
    "Vasudeva, Deora, Thrampoulidis, Implicit bias and fast convergence rates for self-attention, 2024, arXiv 2402.05738, Theorem 3 without its C3, by us",
    kind="sharpened",
    slow=True,
)
def repaired_joint(lab: Lab, planted: bool) -> Verdict:
    """Joint normalisation, under which |u| outgrows |W|: 1 - corr to the program of the supporting samples.

    Its exponent in log t is that of Theorem 3 or better. Planted: the program of all samples, which W leaves.
    """
    found = leaning_rate(lab, "joint NGD", "attention" if planted else "support_only")
    growth = min(float(run.norm_u[-1] / run.norm_W[-1]) for run in leaning_runs(lab, "joint NGD"))
    program = "all" if planted else "the supporting"
    text = f"upper end of the exponent {found} in log t of 1 - corr to the program of {program} samples, seeds 0-9,"
    return all_of(
        at_most(found.high, -1.0, text),
        at_least(growth, 100.0, "|u| / |W| after 1e5 steps, smallest of the seeds"),
    )


@claim(
    "self-attention-joint/theorem-3-repaired-ratio",
    "Block-normalised descent with lengths in the ratio r, without full support: 1 - corr of W to the offset program of r falls like t^-2.",
    "Vasudeva, Deora, Thrampoulidis, Implicit bias and fast convergence rates for self-attention, 2024, arXiv 2402.05738, Theorem 3 without its C3, by us",
    kind="sharpened",
    slow=True,
)
def repaired_ratio(lab: Lab, planted: bool) -> Verdict:
    """Blocks with lengths in the ratio r: 1 - corr of W to the offset program of r falls like t^-2, for r = 0.1 to 0.5.

    Planted: the program of a ratio one tenth larger.
    """
    series, apart = [], []
    for run, ratio in zip(leaning_runs(lab, "ratios"), RATIOS, strict=True):
        own = joint_references(run.data, ratio=ratio * (1.1 if planted else 1.0)).offset.weight
        distance = joint_misalignments(run, own)
        series.append((run.steps, distance))
        apart.append(distance[-1] / misalignment(own, joint_references(run.data).offset.weight))
    text = "exponent of 1 - corr of W to the offset program of |u|/|W|, ratios 0.1 to 0.5, seeds 0-9"
    return all_of(
        covers(settling(series, (1e3, 1e4)), -2.0, text, rival=-1.0),
        at_most(float(np.max(apart)), 1e-3, "1 - corr of W over the distance of that program from the one of ratio 1"),
    )
