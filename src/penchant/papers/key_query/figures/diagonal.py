"""Diagonal keys and queries: the l1 norm, the potential at finite margins, and how far the paper's own conditions are met."""

from itertools import product
from typing import NamedTuple

import numpy as np

from ....diagnostics.direction import misalignment
from ....errors import InfeasibleDiagonal
from ....exhibits import Figure, Table, log_figure, table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study, recipe
from ....norms import L1
from ....references.base import Solution
from ....references.bracket import adjoint
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
_TIGHT = 1e-3  # a margin this near the smallest one, relatively, counts as tight


class Residuals(NamedTuple):
    """How far a diagonal run is from the optimality conditions in the form of the paper.

    `stationarity` is |I - B lam| with I the signs on the support of the solution and B lam clipped to [-1, 1] off it,
    `complementarity` the largest lam_k (margin_k / margin - 1), `off_support` the size of w / margin off the support, `tight`
    the number of tight margins. The multipliers lam are the gathered ones, scaled to feasibility.
    """

    stationarity: float
    complementarity: float
    off_support: float
    tight: int


def residuals(run: Trajectory, record: int, reference: Solution) -> Residuals:
    pull = np.asarray(adjoint(run.setting.data, np.maximum(run.dual[record], 0.0)))
    largest = np.abs(pull).max()
    pull, multipliers = pull / largest, np.maximum(run.dual[record], 0.0) / largest
    margin = run.margins[record].min()
    weight, on = run.weight(record) / margin, np.abs(reference.weight) > 1e-9
    wanted = np.where(on, np.sign(weight), np.clip(pull, -1, 1))
    slack = run.margins[record] / margin - 1
    return Residuals(
        float(np.linalg.norm(wanted - pull)),
        float((multipliers * slack).max()),
        float(np.linalg.norm(weight[~on])),
        int((slack < _TIGHT).sum()),
    )


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


def finite_figure(lab: Lab) -> Figure:
    run, _ = shown_run(lab)
    margin = run.smallest_margin()
    shown = [k for k in late(run) if margin[k] >= 1][::4]
    least = (finite_margin(run.setting.data, 1.0, float(margin[k])).weight for k in shown)
    distance = [misalignment(run.weight(k), weight) for k, weight in zip(shown, least, strict=True)]
    title = "Distance to the weight of least potential at the same margin"
    caption = (
        "The potential whose gradient is the gathered multipliers; its minimiser leads from the l2 to the l1 solution."
    )
    lines = (curve("run", margin[shown], np.array(distance)),)
    return log_figure("finite-margin", title, "margin", "1 - corr", lines, caption)


def decades_table(run: Trajectory, records: list[int], reference: Solution) -> Table:
    bounds, rows, wanted = certificates(run, L1()), [], int(reference.support.sum())
    for k in records:
        margin, weight = float(run.smallest_margin()[k]), run.weight(k)
        found = residuals(run, k, reference)
        lower = (1 - getattr(bounds, kind)[k] / reference.value for kind in ("accumulated", "instant"))
        finite = finite_margin(run.setting.data, 1.0, margin).weight / margin
        away = (apart(weight / margin, target) for target in (reference.weight, finite))
        constant = (bounds.upper[k] - bounds.accumulated[k]) * np.log(2 * np.abs(weight).max())
        start = margin, run.log_time[k], bounds.upper[k] / reference.value - 1
        rows.append((*start, *lower, *away, constant, *found[:3], f"{found.tight} of {wanted}"))
    columns = {"margin": ".0e", "log t": ".2f", "excess": ".2e", "1 - accumulated/N": ".3f", "1 - instant/N": ".2e"}
    columns |= {"distance to l1": ".2e", "distance to finite margin": ".2e", "gap * log(2 max|w|)": ".3f"}
    columns |= {"stationarity": ".2e", "complementarity": ".2e", "off support": ".2e", "tight margins": ""}
    caption = (
        "From a start of scale 1. Distances are |w/margin - w*| / |w*|, with w* the solution at margin 1; the last four columns are the paper's approximate conditions "
        "with the gathered multipliers, and the tight margins against those of the solution: fewer means that the active set is unfinished."
    )
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
            tight = f"{residuals(run, -1, reference).tight} of {int(reference.support.sum())}"
            rows.append((number, scale, value, distance, constants[-1], tight, "best" if value == min(found) else ""))
    columns = {"data": "", "start": "g", "excess": ".2e", "distance to l1": ".2g"}
    columns |= {"gap constant over its limit": ".3f", "tight margins": "", "least excess": ""}
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
        exhibits=(coordinates_figure, certificates_figure, finite_figure, shown_decades, scales_table, beyond_table),
        definitions=DEFINED,
    ),
)
