"""Diagonal keys and queries: the l1 norm, and the potential at finite margins."""

from itertools import product

import numpy as np

from ....errors import InfeasibleDiagonal
from ....exhibits import Figure, Table, log_figure, table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study, recipe
from ....norms import L1
from ....references.base import Solution
from ....references.finite_margin import finite_margin
from ....references.polyhedral_margin import diagonal_margin
from ....settings.base import Setting
from ....settings.diagonal import DiagonalTokens
from ....settings.generators import contrary_pair, equal_score_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....theory.certificates import certificates, certified
from ....training.events import MarginAbove
from ....training.train import train
from ....training.trajectory import Trajectory
from .. import limits, proof, rates
from ..evidence import diagonal, diagonal_run, excess_at, on_diagonals, spread_scores
from . import DEFINED, apart, certificate_figure, curve, late, path_to

_SCALES = (10.0, 1.0, 0.1, 0.01)


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


def scales_table(lab: Lab) -> Table:
    """Where the diagonal flow stands at margin 1e6, by data and scale of the start."""
    rows, constants = [], []
    for number in range(12) if lab.full else (5 + lab.seed, 7 + lab.seed):
        lab.progress(f"data {number} from {len(_SCALES)} starts")
        runs = [diagonal_run(lab, number, scale) for scale in _SCALES]
        found = [excess_at(*one) for one in runs]
        for scale, (run, reference), value in zip(_SCALES, runs, found, strict=True):
            constants.append(rates.gap_constant(run, reference, scale))
            distance = apart(run.weight() / run.smallest_margin()[-1], reference.weight)
            rows.append((number, scale, value, distance, constants[-1], "best" if value == min(found) else ""))
    columns = {"data": "", "start": "g", "excess": ".2e", "distance to l1": ".2g"}
    columns |= {"gap constant over its limit": ".3f", "least excess": ""}
    near = sum(abs(one - 1) <= 0.05 for one in constants)
    caption = (
        "At margin 1e6. A smaller start is not better at a given margin: its wrong coordinates take longer to leave. The gap constant is gap * log(2 max|w| / start^2) over what it "
        f"tends to, from above; it is within 5 % of it in {near} of {len(constants)} runs."
    )
    return table("scales", "l1 excess, direction and gap by data and start", columns, rows, caption)


def _separated(number: int) -> bool:
    try:
        diagonal_margin(DiagonalTokens(equal_score_tokens(4, 4, 5, number)))
    except InfeasibleDiagonal:
        return False
    return True


def beyond_table(lab: Lab) -> Table:
    """What was seen where the theorem assumes: data that no diagonal separates, plateaus, unequal scores."""
    tokens, contrary = contrary_pair((6.0, 1.0), (-3.0, 0.0)), "contrary pair, gaps 6 and 1"
    plateau, whole = limits.plateau(*on_diagonals(tokens)), Setting(tokens, Direct(), Exponential())
    count = sum(not _separated(number) for number in range(40))
    rows = [
        ("separable data sets that no diagonal separates", "40 sets of 4 samples, 4 tokens, 5 dimensions", count),
        ("log(L - L*) at the end of the diagonal flow", contrary, plateau),
        ("log(L - L*) at the end of the flow on W", contrary, limits.plateau(whole, None)),
    ]
    for number, most in product((0, 5), (2.0, 5.0)):
        lab.progress(f"other scores spread over {most:g}, data {number}")
        setting, start = on_diagonals(spread_scores(equal_score_tokens(4, 4, 12, number), most), 1.0)
        run = train(setting, GradientFlow(), start, until=MarginAbove(1e3), steps=5000)
        least = float(np.diff(run.dual, axis=0).min())
        rows.append(("least step of a gathered multiplier", f"data {number}, other scores spread over {most:g}", least))
    caption = "Spread over 2, the scores of the other tokens leave every gathered multiplier increasing; training W leaves the plateau on which the diagonals end."
    return table("beyond", "Beyond the assumptions", {"what": "", "data": "", "value": ".4g"}, rows, caption)


STUDIES = (
    Study(
        "key-query-diagonal",
        "Diagonal keys and queries: the l1 norm (Theorem 4.1)",
        claims=(
            *(proof.theorem41, proof.lemma42, limits.finite_limit, limits.without_assumption3, rates.diagonal_constant),
            *(rates.gap_decomposition, rates.drift, rates.finite_margin_path),
        ),
        exhibits=(coordinates_figure, certificates_figure, shown_decades, scales_table, beyond_table),
        definitions=DEFINED,
    ),
)
