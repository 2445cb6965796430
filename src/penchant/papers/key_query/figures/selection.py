"""Separately trained keys and queries: which norm is minimised, seen in the singular values over astronomical times."""

from collections.abc import Callable

import numpy as np

from ....diagnostics.rates import log_log_slope
from ....errors import InfeasibleDiagonal
from ....exhibits import Figure, Finding, Line, Result, Shown, Table
from ....flow.flow import GradientFlow
from ....lab import Lab, Study
from ....norms import L1, L2, Nuclear
from ....references.base import Solution
from ....references.euclidean_margin import max_margin
from ....references.nuclear_margin import nuclear_margin
from ....references.polyhedral_margin import diagonal_margin, polyhedral_margin
from ....settings.base import Setting
from ....settings.diagonal import DiagonalTokens
from ....settings.factored import KeyQuery
from ....settings.losses import Exponential
from ....settings.parametrisations import Direct
from ....settings.token_generators import Aligned, aligned_tokens, equal_score_tokens
from ....settings.tokens import TokenSelection
from ....theory.certificates import certificates, certified
from ....theory.judge import judge
from ....theory.uniqueness import certified_rank, uniqueness
from ....training.trajectory import Trajectory
from ....verdict import ROUNDING, all_of, at_least, at_most
from ..theorems import SHEEN
from .curves import (
    DEFINED,
    Programs,
    certificate_figure,
    clock_figure,
    distance_figure,
    excesses,
    flow_to,
    inverse_gap_figure,
    late,
    paths_figure,
    shown,
)
from .race import race_parts
from .target import target_parts

ENTRIES = "l1 of the entries"


def run_contrast(lab: Lab) -> Result:
    seed, full, progress = lab.seed, lab.full, lab.progress
    n, length, d, top = (20, 8, 32, 1e6) if full else (6, 5, 10, 1e8)
    data = equal_score_tokens(n, length, d, seed, gap=1.0)
    progress("references: nuclear, Frobenius, l1 of the entries")
    product, direct = Setting(data, KeyQuery(), Exponential()), Setting(data, Direct(), Exponential())
    programs = {
        "nuclear": (nuclear_margin(data), Nuclear()),
        "Frobenius": (max_margin(data), L2()),
        ENTRIES: (polyhedral_margin(data, L1()), L1()),
    }
    progress(f"gradient flow on K and Q to margin {top:g}")
    runs = {"K Q": flow_to(product, product.start(seed + 1, 1e-3), top)}
    progress("gradient flow on W")
    runs["W"] = flow_to(direct, None, min(top, 1e6))
    prediction, matrix = lab.predict(product, GradientFlow()), lab.predict(direct, GradientFlow())
    bounds, optimum = certificates(runs["K Q"], Nuclear()), programs["nuclear"][0]
    finding, target = target_parts(range(12) if full else (seed,), progress)
    raced, table = race_parts(seed, full, progress)
    findings = (
        Finding(prediction.theorem.statement, judge(prediction, runs["K Q"]), prediction.theorem.citation),
        Finding(matrix.theorem.statement, judge(matrix, runs["W"]), matrix.theorem.citation),
        Finding(
            "The run's own bounds enclose the optimum at every record.",
            all_of(
                at_most(float(bounds.lower.max()), optimum.bracket.upper * (1 + ROUNDING), "largest lower bound"),
                at_least(float(bounds.upper.min()), optimum.bracket.lower * (1 - ROUNDING), "smallest upper bound"),
            ),
            "weak duality",
        ),
        _rival_finding(runs, programs),
        finding,
        raced,
    )
    named = {"K Q": runs["K Q"], "W": runs["W"]}
    figures = (
        _excess_figure(named, programs),
        paths_figure("key-query", runs["K Q"], "Singular values when K and Q are trained"),
        paths_figure("direct", runs["W"], "Singular values when W is trained"),
        _norms_figure(named, programs),
        certificate_figure("key-query", runs["K Q"], Nuclear(), programs["nuclear"][0]),
        _loss_figure(named),
        inverse_gap_figure(runs["K Q"], Nuclear(), programs["nuclear"][0]),
        clock_figure(named, _late_rates(programs)),
        distance_figure(named, programs),
    )
    kept = {"key-query": certified(runs["K Q"], Nuclear(), programs["nuclear"][0])}
    kept["direct"] = certified(runs["W"], L2(), programs["Frobenius"][0])
    return Result(findings, figures, (_excess_table(data, named, programs), target, table), kept, DEFINED)


def _late_rates(programs: Programs) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    nuclear, frobenius = programs["nuclear"][0].value, programs["Frobenius"][0].value
    return {"K Q": lambda margin: 2 * margin / nuclear, "W": lambda margin: np.full(len(margin), 1 / frobenius**2)}


def _rival_finding(runs: dict[str, Trajectory], programs: Programs) -> Finding:
    """The l1 norm of all entries is a rival that neither flow minimises."""
    found, norm = programs[ENTRIES]
    least = min(float(excesses(run, found.value, norm)[-1]) for run in runs.values())
    verdict = at_least(least, 0.05, "smallest l1 excess at the end of the two flows")
    return Finding("Neither flow minimises the l1 norm of the entries of W.", verdict, "observed")


def _diagonal_program(data: TokenSelection) -> str:
    """The optimum of the diagonal program, which diagonal K and Q would minimise, for comparison."""
    try:
        value = diagonal_margin(DiagonalTokens(data)).value
    except InfeasibleDiagonal:
        return "no diagonal matrix separates these data"
    return f"the best diagonal matrix has l1 norm {value:.6g}"


def _excess_figure(runs: dict[str, Trajectory], programs: Programs) -> Figure:
    lines = tuple(
        Line(
            f"{label} excess, flow on {name}",
            run.smallest_margin()[late(run)],
            shown(excesses(run, found.value, norm)),
        )
        for label, (found, norm) in programs.items()
        for name, run in runs.items()
    )
    caption = (
        "The same data and loss; only what is trained differs. The l1 norm of the entries is a rival that neither training minimises; "
        "the l1 norm of a trained diagonal is the study `key-query-diagonal`."
    )
    return Figure("excess", "Each training minimises its own norm", "margin", "excess", lines, caption, "log", "log")


def _norms_figure(runs: dict[str, Trajectory], programs: Programs) -> Figure:
    lines, longest = [], runs["K Q"]
    span = longest.log_time[late(longest)]
    for label, (found, norm) in programs.items():
        for name, run in runs.items():
            values = found.value * (1 + excesses(run, found.value, norm))
            lines.append(Line(f"{label}, flow on {name}", run.log_time[late(run)], values))
        lines.append(Line(f"{label}, its minimum", span, np.full(len(span), found.value), "prediction"))
    return Figure("norms", "Norms at margin 1", "log t", "norm / margin", tuple(lines), "Dashed: optima.", "log", "log")


def _loss_figure(runs: dict[str, Trajectory]) -> Figure:
    lines = tuple(
        Line(f"flow on {name}", run.log_time[late(run)], -run.log_excess[late(run)]) for name, run in runs.items()
    )
    return Figure(
        "loss", "Loss above its infimum", "log t", "-log(L - L*)", lines, "Both losses fall like 1/t.", "log", "log"
    )


def _excess_table(data: TokenSelection, runs: dict[str, Trajectory], programs: Programs) -> Table:
    rows = []
    for name, run in runs.items():
        margin = run.smallest_margin()[late(run)]
        for label, (found, norm) in programs.items():
            values = excesses(run, found.value, norm)
            slope = log_log_slope(margin, values, (margin[-1] / 100, margin[-1]))
            rows.append((f"flow on {name}", label, Shown(values[-1], ".3e"), Shown(slope, ".3f")))
    nuclear, frobenius, entries = (found for found, _ in programs.values())
    sizes = np.linalg.svd(nuclear.weight, compute_uv=False)
    rank = certified_rank(data, nuclear)
    caption = (
        f"Optima: nuclear {nuclear.value:.9f} (certified gap {nuclear.bracket.gap:.1e}; rank {rank} certified by the dual, singular values "
        f"{', '.join(f'{size:.4f}' for size in sizes[:rank])}; {uniqueness(data, nuclear)}), Frobenius {frobenius.value:.9f}, l1 of the entries {entries.value:.9f}; {_diagonal_program(data)}. "
        "The exponent is the slope of log excess against log margin over the last two decades."
    )
    return Table(
        "excess", "Excess of each norm at the end", ("run", "norm", "excess", "exponent"), tuple(rows), caption
    )


def run_aligned(lab: Lab) -> Result:
    seed, progress = lab.seed, lab.progress
    aligned = aligned_tokens(seed=1 + seed)
    setting = Setting(aligned.data, KeyQuery(7), Exponential())
    start = aligned.start((0.1, 0.2, 0.15, 0.1, 0.3, 0.2), 7, 5 + seed)
    progress("gradient flow on aligned data to margin 1e6")
    run, reference = flow_to(setting, start, 1e6), nuclear_margin(aligned.data)
    target, records = aligned.solution(), late(run)
    margin = run.smallest_margin()[records]
    error = np.array(
        [
            np.linalg.norm(run.weight(k) / m - target) / np.linalg.norm(target)
            for k, m in zip(records, margin, strict=True)
        ]
    )
    residual = np.array([aligned.residual(run.at(int(k))) for k in records])
    findings = (
        Finding(
            "The flow preserves alignment.",
            at_most(float(residual.max()), 1e-11, "largest alignment residual"),
            f"{SHEEN}, Lemma 5.1",
        ),
        Finding(
            "W / margin tends to the closed form.",
            at_most(float(error[-1]), 1e-6, "|W/margin - W*| / |W*|"),
            f"{SHEEN}, Theorem 5.1",
        ),
    )
    distance = Figure(
        "closed-form",
        "Distance to the closed form",
        "margin",
        "|W/margin - W*| / |W*|",
        (
            Line("measured", margin, error),
            Line("error at the end * (last margin / margin)", margin, error[-1] * margin[-1] / margin, "prediction"),
        ),
        "On aligned data the nuclear and the Frobenius solution are the same matrix: this theorem cannot tell the two biases apart.",
        "log",
        "log",
    )
    figures = (
        distance,
        paths_figure("aligned", run, "Singular values on aligned data"),
        certificate_figure("aligned", run, Nuclear(), reference),
    )
    table = _aligned_table(aligned, run, reference, float(residual.max()), float(error[-1]))
    words = {
        **DEFINED,
        "aligned": "data whose optimal tokens and queries are orthogonal frames with the other tokens in pairs around them; K and Q diagonal in those frames",
        "alignment residual": "how far K and Q are from diagonal in those frames, relative to |K|^2 + |Q|^2",
        "W*": "the closed form of the solution, sum_i u_i v_i' / b_i with the frames u, v and b_i = (1 - c_i) |optimal token| |query|",
        "N_*, N_F": "least nuclear and least Frobenius norm with all margins at least 1",
    }
    return Result(findings, figures, (table,), {"aligned": certified(run, Nuclear(), reference)}, words)


def _aligned_table(aligned: Aligned, run: Trajectory, reference: Solution, residual: float, error: float) -> Table:
    """The two optima in closed form and by the solvers, and where the run stands at its end."""
    frobenius, inverse = max_margin(aligned.data), 1 / aligned.strengths
    target, bounds = aligned.solution(), certificates(run, Nuclear())
    margins = run.margins[-1].reshape(len(inverse), -1).min(axis=1)
    rows = (
        ("N_*, closed form sum 1/b_i", Shown(inverse.sum(), ".10g")),
        ("N_*, solver", Shown(reference.value, ".10g")),
        ("N_F, closed form", Shown(np.sqrt((inverse**2).sum()), ".10g")),
        ("N_F, solver", Shown(frobenius.value, ".10g")),
        ("|Frobenius solution - W*| / |W*|", Shown(_apart(frobenius.weight, target), ".3g")),
        ("|nuclear solution - W*| / |W*|", Shown(_apart(reference.weight, target), ".3g")),
        ("smallest margin of the run", Shown(margins.min(), ".10g")),
        *((f"margin of sample {i} above it", Shown(m - margins.min(), ".5f")) for i, m in enumerate(margins)),
        ("largest alignment residual", Shown(residual, ".3g")),
        ("|W/margin - W*| / |W*|", Shown(error, ".4g")),
        ("1 - accumulated bound / N_*", Shown(1 - bounds.accumulated[-1] / reference.value, ".4g")),
        ("1 - instant bound / N_*", Shown(1 - bounds.instant[-1] / reference.value, ".4g")),
    )
    return Table("aligned", "Closed forms, solvers and the run", ("what", "value"), rows, "At the end of the flow.")


def _apart(weight: np.ndarray, target: np.ndarray) -> float:
    return float(np.linalg.norm(weight - target) / np.linalg.norm(target))


STUDIES = (
    Study("key-query", "Keys and queries: nuclear against Frobenius against l1 norm", run_contrast),
    Study("key-query-aligned", "Keys and queries on aligned data (Theorem 5.1)", run_aligned),
)
