"""Separately trained keys and queries: which norm is minimised, seen in the singular values over astronomical times."""

import numpy as np

from ....diagnostics.rates import log_log_slope
from ....errors import InfeasibleDiagonal
from ....exhibits import Figure, Line, Table, log_figure, table
from ....lab import Lab, Study, recipe
from ....norms import L1, L2, Norm, Nuclear
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....references.norm_margin import nuclear_margin
from ....references.polyhedral_margin import diagonal_margin, polyhedral_margin
from ....settings.base import Setting
from ....settings.diagonal import DiagonalTokens
from ....settings.factored import KeyQuery
from ....settings.generators import Aligned, aligned_tokens, equal_score_tokens
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....settings.tokens import TokenSelection
from ....theory.certificates import certificates, certified
from ....theory.uniqueness import certified_rank, uniqueness
from ....training.trajectory import Trajectory
from .. import flow, limits, rates
from ..evidence import W0
from . import DEFINED, apart, certificate_figure, curve, distances, excess_line, excesses, late, path_to, paths_figure


@recipe
def programs(lab: Lab) -> dict[str, tuple[Solution, Norm]]:
    """The data of the contrast are those of these programs; the l1 norm of the entries is a rival that neither training minimises."""
    data = contrast_data(lab)
    lab.progress("references: nuclear, Frobenius, l1 of the entries")
    return {
        "nuclear": (nuclear_margin(data), Nuclear()),
        "Frobenius": (max_margin(data), L2()),
        "l1 of the entries": (polyhedral_margin(data, L1()), L1()),
    }


@recipe
def contrast_data(lab: Lab) -> TokenSelection:
    return equal_score_tokens(*((20, 8, 32) if lab.full else (6, 5, 10)), lab.seed, gap=1.0)


@recipe
def contrast(lab: Lab) -> dict[str, Trajectory]:
    """The flows on K and Q and on W, from the same data."""
    data, top = contrast_data(lab), 1e6 if lab.full else 1e8
    product, direct = Setting(data, KeyQuery(), Exponential()), Setting(data, Direct(), Exponential())
    lab.progress(f"gradient flow on K and Q to margin {top:g}")
    keys = path_to(product, product.start(lab.seed + 1, 1e-3), top)
    lab.progress("gradient flow on W")
    return {"K Q": keys, "W": path_to(direct, None, 1e6)}


def excess_figure(lab: Lab) -> Figure:
    lines = (
        excess_line(f"{label} excess, flow on {name}", run, found.value, norm)
        for label, (found, norm) in programs(lab).items()
        for name, run in contrast(lab).items()
    )
    caption = (
        "The same data and loss; only what is trained differs. The l1 norm of the entries is a rival that neither training minimises; "
        "the l1 norm of a trained diagonal is the study `key-query-diagonal`."
    )
    return log_figure("excess", "Each training minimises its own norm", "margin", "excess", lines, caption)


def own_figures(lab: Lab) -> tuple:
    """Singular values of both flows, what the flow on K and Q certifies, and both runs with their bounds."""
    runs, (nuclear, frobenius, _) = contrast(lab), (found for found, _ in programs(lab).values())
    own = {"key-query": certified(runs["K Q"], Nuclear(), nuclear), "direct": certified(runs["W"], L2(), frobenius)}
    return (
        paths_figure("key-query", runs["K Q"], "Singular values when K and Q are trained"),
        paths_figure("direct", runs["W"], "Singular values when W is trained"),
        certificate_figure("key-query", runs["K Q"], Nuclear(), nuclear),
        own,
    )


def distance_figure(lab: Lab) -> Figure:
    lines = (
        curve(f"flow on {name} to {label}", run.smallest_margin()[late(run)], distances(run, found.weight))
        for name, run in contrast(lab).items()
        for label, (found, _) in programs(lab).items()
    )
    caption = "|W/margin - W*| / |W*| for the solution W* of each norm. Values close long before directions where a solution is flat."
    return log_figure("distances", "Distance to each solution", "margin", "distance", lines, caption)


def _diagonal_program(data: TokenSelection) -> str:
    """The optimum of the diagonal program, which diagonal K and Q would minimise, for comparison."""
    try:
        value = diagonal_margin(DiagonalTokens(data)).value
    except InfeasibleDiagonal:
        return "no diagonal matrix separates these data"
    return f"the best diagonal matrix has l1 norm {value:.6g}"


def excess_table(lab: Lab) -> Table:
    rows, data = [], contrast_data(lab)
    for name, run in contrast(lab).items():
        margin = run.smallest_margin()[late(run)]
        for label, (found, norm) in programs(lab).items():
            values = excesses(run, found.value, norm)
            slope = log_log_slope(margin, values, (margin[-1] / 100, margin[-1]))
            rows.append((f"flow on {name}", label, values[-1], slope))
    nuclear, frobenius, entries = (found for found, _ in programs(lab).values())
    sizes, rank = np.linalg.svd(nuclear.weight, compute_uv=False), certified_rank(data, nuclear)
    caption = (
        f"Optima: nuclear {nuclear.value:.9f} (certified gap {nuclear.bracket.gap:.1e}; rank {rank} certified by the dual, singular values "
        f"{', '.join(f'{size:.4f}' for size in sizes[:rank])}; {uniqueness(data, nuclear)}), Frobenius {frobenius.value:.9f}, l1 of the entries {entries.value:.9f}; {_diagonal_program(data)}. "
        "The exponent is the slope of log excess against log margin over the last two decades."
    )
    columns = {"run": "", "norm": "", "excess": ".3e", "exponent": ".3f"}
    return table("excess", "Excess of each norm at the end", columns, rows, caption)


@recipe
def aligned_path(lab: Lab) -> tuple[Trajectory, Aligned]:
    lab.progress("gradient flow on aligned data to margin 1e6")
    aligned = aligned_tokens(seed=1 + lab.seed)
    return path_to(Setting(aligned.data, KeyQuery(7), Exponential()), aligned.start(W0, 7, 5 + lab.seed)), aligned


def aligned_figures(lab: Lab) -> tuple:
    run, aligned = aligned_path(lab)
    reference, margin = nuclear_margin(aligned.data), run.smallest_margin()[late(run)]
    error = distances(run, aligned.solution())
    lines = (
        Line("measured", margin, error),
        Line("error at the end * (last margin / margin)", margin, error[-1] * margin[-1] / margin, "prediction"),
    )
    caption = "On aligned data the nuclear and the Frobenius solution are the same matrix: this theorem cannot tell the two biases apart."
    axes = "margin", "|W/margin - W*| / |W*|"
    return (
        log_figure("closed-form", "Distance to the closed form", *axes, lines, caption),
        paths_figure("aligned", run, "Singular values on aligned data"),
        certificate_figure("aligned", run, Nuclear(), reference),
        {"aligned": certified(run, Nuclear(), reference)},
    )


def aligned_table(lab: Lab) -> Table:
    """The two optima in closed form and by the solvers, and where the run stands at its end."""
    run, aligned = aligned_path(lab)
    reference, frobenius, inverse = nuclear_margin(aligned.data), max_margin(aligned.data), 1 / aligned.strengths
    target, bounds = aligned.solution(), certificates(run, Nuclear())
    margins = run.margins[-1].reshape(len(inverse), -1).min(axis=1)
    rows = (
        ("N_*, closed form sum 1/b_i", inverse.sum()),
        ("N_*, solver", reference.value),
        ("N_F, closed form", np.sqrt((inverse**2).sum())),
        ("N_F, solver", frobenius.value),
        ("|Frobenius solution - W*| / |W*|", apart(frobenius.weight, target)),
        ("|nuclear solution - W*| / |W*|", apart(reference.weight, target)),
        ("smallest margin of the run", margins.min()),
        *((f"margin of sample {i} above it", m - margins.min()) for i, m in enumerate(margins)),
        ("largest alignment residual", max(aligned.residual(run.at(k)) for k in late(run))),
        ("|W/margin - W*| / |W*|", distances(run, target)[-1]),
        ("1 - accumulated bound / N_*", 1 - bounds.accumulated[-1] / reference.value),
        ("1 - instant bound / N_*", 1 - bounds.instant[-1] / reference.value),
    )
    title = "Closed forms, solvers and the run"
    return table("aligned", title, {"what": "", "value": ".10g"}, rows, "At the end of the flow.")


_ALIGNED = {
    "aligned": "data whose optimal tokens and queries are orthogonal frames with the other tokens in pairs around them; K and Q diagonal in those frames",
    "alignment residual": "how far K and Q are from diagonal in those frames, relative to |K|^2 + |Q|^2",
    "W*": "the closed form of the solution, sum_i u_i v_i' / b_i with the frames u, v and b_i = (1 - c_i) |optimal token| |query|",
    "N_*, N_F": "least nuclear and least Frobenius norm with all margins at least 1",
}
STUDIES = (
    Study(
        "key-query",
        "Keys and queries: nuclear against Frobenius against l1 norm",
        claims=(
            *(flow.contrast, limits.generic_data, rates.accumulated_rate),
            *(rates.direct_rate, rates.late_clock, rates.rank_one_rate),
        ),
        exhibits=(excess_figure, own_figures, distance_figure, excess_table),
        definitions=DEFINED,
    ),
    Study(
        "key-query-aligned",
        "Keys and queries on aligned data (Theorem 5.1)",
        claims=(
            *(flow.lemma51, flow.theorem51, flow.aligned_closed_form),
            *(limits.off_alignment, limits.unique_solution, limits.line_of_solutions),
        ),
        exhibits=(aligned_figures, aligned_table),
        definitions={**DEFINED, **_ALIGNED},
    ),
)
