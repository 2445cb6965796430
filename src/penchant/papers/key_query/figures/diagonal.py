"""Diagonal keys and queries: the l1 norm, and the potential at finite margins."""

import numpy as np

from ....exhibits import Figure, Table, log_figure, table
from ....lab import Lab, Study, recipe
from ....norms import L1
from ....references.base import Solution
from ....references.finite_margin import finite_margin
from ....references.polyhedral_margin import diagonal_margin
from ....theory.certificates import certificates, certified
from ....training.trajectory import Trajectory
from .. import limits, proof, rates
from ..evidence import diagonal
from . import DEFINED, apart, certificate_figure, curve, late, path_to


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


def decades_table(run: Trajectory, records: list[int], reference: Solution) -> Table:
    bounds, rows = certificates(run, L1()), []
    for k in records:
        margin, weight = float(run.smallest_margin()[k]), run.weight(k)
        lower = (1 - getattr(bounds, kind)[k] / reference.value for kind in ("accumulated", "instant"))
        finite = finite_margin(run.setting.data, 1.0, margin).weight / margin
        away = (apart(weight / margin, target) for target in (reference.weight, finite))
        constant = (bounds.upper[k] - bounds.accumulated[k]) * np.log(2 * np.abs(weight).max())
        start = margin, run.log_time[k], bounds.upper[k] / reference.value - 1
        rows.append((*start, *lower, *away, constant))
    columns = {"margin": ".0e", "log t": ".2f", "excess": ".2e", "1 - accumulated/N": ".3f", "1 - instant/N": ".2e"}
    columns |= {"distance to l1": ".2e", "distance to finite margin": ".2e", "gap * log(2 max|w|)": ".3f"}
    caption = "From a start of scale 1. Distances are |w/margin - w*| / |w*|, with w* the solution at margin 1."
    return table("decades", "The run at every decade of the margin", columns, rows, caption)


def shown_decades(lab: Lab) -> Table:
    run, reference = shown_run(lab)
    nearest = [int(np.argmin(np.abs(run.smallest_margin() / 10.0**k - 1))) for k in range(2, 7)]
    return decades_table(run, nearest, reference)


STUDIES = (
    Study(
        "key-query-diagonal",
        "Diagonal keys and queries: the l1 norm (Theorem 4.1)",
        claims=(
            *(proof.theorem41, proof.lemma42, limits.finite_limit, limits.without_assumption3, rates.diagonal_constant),
            *(rates.gap_decomposition, rates.drift, rates.finite_margin_path),
        ),
        exhibits=(coordinates_figure, certificates_figure, shown_decades),
        definitions=DEFINED,
    ),
)
