"""Diagonal keys and queries: the l1 norm."""

import numpy as np

from ....exhibits import Figure, log_figure
from ....lab import Lab, Study, recipe
from ....norms import L1
from ....references.base import Solution
from ....references.polyhedral_margin import diagonal_margin
from ....theory.certificates import certified
from ....training.trajectory import Trajectory
from .. import limits, proof, rates
from ..evidence import diagonal
from . import DEFINED, certificate_figure, curve, late, path_to


@recipe
def shown_run(lab: Lab) -> tuple[Trajectory, Solution]:
    lab.progress("gradient flow on diagonal K and Q to margin 1e6")
    run = path_to(*diagonal(5 + lab.seed, 1.0))
    return run, diagonal_margin(run.setting.data)


def coordinates_figure(lab: Lab) -> Figure:
    run, reference = shown_run(lab)
    records, margin = late(run), run.smallest_margin()
    weights, on = np.array([np.abs(run.weight(k)) / margin[k] for k in records]), np.abs(reference.weight) > 1e-9
    style = lambda j: "line" if on[j] else "prediction"
    lines = (curve(f"|w_{j}| / margin", run.log_time[records], weights[:, j], style(j)) for j in range(len(on)))
    caption = f"The l1 solution has {int(on.sum())} non-zero entries; the others are dashed."
    return log_figure("coordinates", "Coordinates of the diagonal", "log t", "|w| / margin", lines, caption)


def certificates_figure(lab: Lab) -> tuple:
    run, reference = shown_run(lab)
    return certificate_figure("diagonal", run, L1(), reference), {"diagonal": certified(run, L1(), reference)}


STUDIES = (
    Study(
        "key-query-diagonal",
        "Diagonal keys and queries: the l1 norm (Theorem 4.1)",
        claims=(
            *(proof.theorem41, proof.lemma42, limits.finite_limit, limits.without_assumption3),
            rates.gap_decomposition,
        ),
        exhibits=(coordinates_figure, certificates_figure),
        definitions=DEFINED,
    ),
)
