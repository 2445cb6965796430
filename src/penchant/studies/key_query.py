"""Separately trained keys and queries: which norm is minimised, seen in the singular values over astronomical times."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..flow.flow import GradientFlow, Levels
from ..references.base import Solution
from ..references.bracket import Euclidean, Norm
from ..references.diagonal_margin import diagonal_margin
from ..references.euclidean_margin import max_margin
from ..references.nuclear_margin import Nuclear, nuclear_margin
from ..references.polyhedral_margin import L1
from ..settings.attention_generators import aligned_tokens, equal_score_tokens
from ..settings.base import Setting
from ..settings.diagonal import DiagonalTokens
from ..settings.factored import Hadamard, KeyQuery
from ..settings.losses import Exponential
from ..settings.parametrisations import Direct
from ..theorems.catalogue import judge, predict
from ..theorems.certificates import certificates
from ..theorems.key_query import excess
from ..theorems.uniqueness import certified_rank
from ..training.events import MarginAbove
from ..training.train import train
from ..training.trajectory import Trajectory
from ..verdict import at_most
from .base import DEFINITIONS, Figure, Finding, Line, Result, Study, Table

PAPER = "kq_attention"
_STEPS = 10_000
Progress = Callable[[str], None]
DEFINED = {
    **DEFINITIONS,
    "nuclear norm": "sum of the singular values of W",
    "excess": "norm at margin 1 (norm / margin) over its minimum, minus 1; 0 at the solution of that norm's program",
    "accumulated, window, instant": "lower bounds from the multipliers gathered since the start, since margin^0.8, and at this moment",
}


def _levels(top: float) -> Levels:
    return Levels("margin", np.geomspace(1.0, top, int(8 * np.log10(top)) + 1)[:-1])


def _flow(setting: Setting, start: Any, top: float) -> Trajectory:
    return train(setting, GradientFlow(), start, until=MarginAbove(top), steps=_STEPS, recorder=_levels(top))


def _late(run: Trajectory) -> np.ndarray:
    """Records with a positive margin and a time."""
    return np.flatnonzero((run.smallest_margin() > 0) & np.isfinite(run.log_time))


def singular_values(run: Trajectory) -> np.ndarray:
    """Singular values of W / margin at the records with a positive margin."""
    margin = run.smallest_margin()
    return np.array([np.linalg.svd(run.weight(k) / margin[k], compute_uv=False) for k in _late(run)])


def _excesses(run: Trajectory, value: float, norm: Norm) -> np.ndarray:
    margin = run.smallest_margin()
    return np.array([norm.value(run.weight(k)) / margin[k] / value - 1 for k in _late(run)])


def _certificate_figure(name: str, run: Trajectory, norm: Norm, reference: Solution) -> Figure:
    found, late = certificates(run, norm), _late(run)
    margin = found.margin[late]
    lower = lambda kind: np.maximum(1 - getattr(found, kind)[late] / reference.value, 1e-16)
    lines = tuple(Line(f"1 - {kind} / optimum", margin, lower(kind)) for kind in ("accumulated", "window", "instant"))
    return Figure(
        f"certificates-{name}",
        "Each run certifies itself",
        "margin",
        "relative distance from the optimum",
        (
            Line("norm / margin / optimum - 1", margin, np.maximum(found.upper[late] / reference.value - 1, 1e-16)),
            *lines,
        ),
        "Upper and lower bounds on the best norm from the run's own weights and multipliers; the optimum is used for the plot only.",
        "log",
        "log",
    )


def _paths(name: str, run: Trajectory, title: str) -> Figure:
    values, time = singular_values(run), run.log_time[_late(run)]
    shown = range(min(values.shape[1], 6))
    lines = tuple(Line(f"singular value {k + 1}", time, np.maximum(values[:, k], 1e-16)) for k in shown)
    return Figure(
        f"singular-values-{name}",
        title,
        "log t",
        "singular values of W / margin",
        lines,
        "Log t is the natural logarithm of physical time.",
        "log",
        "log",
    )


def run_contrast(seed: int, full: bool, progress: Progress) -> Result:
    n, length, d, top = (20, 8, 32, 1e6) if full else (6, 5, 10, 1e8)
    data = equal_score_tokens(n, length, d, seed, gap=1.0)
    progress("references: nuclear, Frobenius, l1")
    nuclear, frobenius = nuclear_margin(data), max_margin(data)
    product, direct = Setting(data, KeyQuery(), Exponential()), Setting(data, Direct(), Exponential())
    progress(f"gradient flow on K and Q to margin {top:g}")
    runs = {"K Q": _flow(product, product.start(seed + 1, 1e-3), top)}
    progress("gradient flow on W")
    runs["W"] = _flow(direct, None, min(top, 1e6))
    prediction, matrix = predict(product, GradientFlow()), predict(direct, GradientFlow())
    findings = (
        Finding(prediction.theorem.statement, judge(prediction, runs["K Q"]), prediction.theorem.citation),
        Finding(matrix.theorem.statement, judge(matrix, runs["W"]), matrix.theorem.citation),
    )
    margins = {name: run.smallest_margin()[_late(run)] for name, run in runs.items()}
    programs = (("nuclear", nuclear, Nuclear()), ("Frobenius", frobenius, Euclidean()))
    gaps = tuple(
        Line(f"{label} excess, flow on {name}", margins[name], np.maximum(_excesses(run, reference.value, norm), 1e-16))
        for label, reference, norm in programs
        for name, run in runs.items()
    )
    value = Figure(
        "excess",
        "Each training minimises its own norm",
        "margin",
        "excess",
        gaps,
        "The same data and loss; only what is trained differs.",
        "log",
        "log",
    )
    loss = Figure(
        "loss",
        "Loss above its infimum",
        "log t",
        "-log(L - L*)",
        tuple(
            Line(f"flow on {name}", run.log_time[_late(run)], -run.log_excess[_late(run)]) for name, run in runs.items()
        ),
        "Both losses fall like 1/t.",
        "log",
        "log",
    )
    rows = [
        (
            f"flow on {name}",
            f"{norm.name if label == 'nuclear' else 'frobenius'}",
            f"{_excesses(run, reference.value, norm)[-1]:.3e}",
        )
        for name, run in runs.items()
        for label, reference, norm in programs
    ]
    rank = certified_rank(data, nuclear)
    caption = f"Nuclear optimum {nuclear.value:.9f} (certified gap {nuclear.bracket.gap:.1e}, rank {rank} certified by the dual); Frobenius optimum {frobenius.value:.9f}."
    table = Table("excess", "Excess of each norm at the end", ("run", "norm", "excess"), tuple(rows), caption)
    figures = (
        value,
        _paths("key-query", runs["K Q"], "Singular values when K and Q are trained"),
        _paths("direct", runs["W"], "Singular values when W is trained"),
        _certificate_figure("key-query", runs["K Q"], Nuclear(), nuclear),
        loss,
    )
    return Result(findings, figures, (table,), {"key-query": runs["K Q"], "direct": runs["W"]}, DEFINED)


def run_aligned(seed: int, full: bool, progress: Progress) -> Result:
    aligned = aligned_tokens(seed=1 + seed)
    setting = Setting(aligned.data, KeyQuery(7), Exponential())
    start = aligned.start((0.1, 0.2, 0.15, 0.1, 0.3, 0.2), 7, 5 + seed)
    progress("gradient flow on aligned data to margin 1e6")
    run, reference = _flow(setting, start, 1e6), nuclear_margin(aligned.data)
    target, late = aligned.solution(), _late(run)
    margin = run.smallest_margin()[late]
    error = np.array(
        [np.linalg.norm(run.weight(k) / m - target) / np.linalg.norm(target) for k, m in zip(late, margin, strict=True)]
    )
    residual = np.array([aligned.residual(run.at(int(k))) for k in late])
    findings = (
        Finding(
            "The flow preserves alignment.",
            at_most(float(residual.max()), 1e-11, "largest alignment residual"),
            "Lemma 5.1",
        ),
        Finding(
            "W / margin tends to the closed form.",
            at_most(float(error[-1]), 1e-6, "|W/margin - W*| / |W*|"),
            "Theorem 5.1",
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
        _paths("aligned", run, "Singular values on aligned data"),
        _certificate_figure("aligned", run, Nuclear(), reference),
    )
    return Result(findings, figures, (), {"aligned": run}, DEFINED)


def run_diagonal(seed: int, full: bool, progress: Progress) -> Result:
    data = DiagonalTokens(equal_score_tokens(4, 4, 12, 5 + seed))
    setting, reference = Setting(data, Hadamard(), Exponential()), diagonal_margin(data)
    progress("gradient flow on diagonal K and Q to margin 1e6")
    run = _flow(setting, Hadamard().one_sided(data, 1.0, np.random.default_rng(seed)), 1e6)
    prediction = predict(setting, GradientFlow())
    findings = (Finding(prediction.theorem.statement, judge(prediction, run), prediction.theorem.citation),)
    late, margin = _late(run), run.smallest_margin()
    weights = np.array([np.abs(run.weight(k)) / margin[k] for k in late])
    lines = tuple(
        Line(f"|w_{j}| / margin", run.log_time[late], np.maximum(weights[:, j], 1e-16)) for j in range(weights.shape[1])
    )
    paths = Figure(
        "coordinates",
        "Coordinates of the diagonal",
        "log t",
        "|w| / margin",
        lines,
        f"The l1 solution has {int((np.abs(reference.weight) > 1e-9).sum())} non-zero entries.",
        "log",
        "log",
    )
    return Result(
        findings, (paths, _certificate_figure("diagonal", run, L1(), reference)), (), {"diagonal": run}, DEFINED
    )


def run_scales(seed: int, full: bool, progress: Progress) -> Result:
    scales, lines, rows, kept = (1.0, 0.1, 0.01), [], [], {}
    seeds = range(8) if full else (seed, seed + 1)
    for number in seeds:
        data = equal_score_tokens(3, 4, 5, number)
        setting, reference = Setting(data, KeyQuery(), Exponential()), nuclear_margin(data)
        found = []
        for scale in scales:
            progress(f"data {number}, start {scale:g}")
            run = _flow(setting, setting.start(100 + number, scale / np.sqrt(5)), 1e6)
            lines.append(
                Line(
                    f"data {number}, start {scale:g}",
                    run.smallest_margin()[_late(run)],
                    np.maximum(_excesses(run, reference.value, Nuclear()), 1e-16),
                )
            )
            found.append(excess(data, run.weight(), reference))
            kept[f"data-{number}-start-{scale:g}"] = run
        far = excess(data, max_margin(data).weight, reference)
        rows.append((number, *(f"{value:.3e}" for value in found), f"{far:.3f}", f"{scales[int(np.argmin(found))]:g}"))
    worst = max(float(value) for row in rows for value in row[1:4])
    findings = (
        Finding(
            "From every start scale the flow minimises the nuclear norm.",
            at_most(worst, 1e-2, "largest nuclear excess at margin 1e6"),
            "conjecture",
        ),
    )
    figure = Figure(
        "scales",
        "Nuclear excess for three scales of the start",
        "margin",
        "excess",
        tuple(lines),
        "A smaller start is not always better at a given margin.",
        "log",
        "log",
    )
    columns = (
        "data",
        *(f"excess, start {scale:g}" for scale in scales),
        "excess of the Frobenius solution",
        "best start",
    )
    table = Table(
        "scales",
        "Nuclear excess at margin 1e6",
        columns,
        tuple(rows),
        "K and Q start with normal entries of deviation scale / sqrt(5).",
    )
    return Result(findings, (figure,), (table,), kept if full else {}, DEFINED)


STUDIES = (
    Study("key-query", "Keys and queries: nuclear against Frobenius norm", PAPER, run_contrast),
    Study("key-query-aligned", "Keys and queries on aligned data (Theorem 5.1)", PAPER, run_aligned),
    Study("key-query-diagonal", "Diagonal keys and queries: the l1 norm (Theorem 4.1)", PAPER, run_diagonal),
    Study("key-query-init-scale", "Keys and queries: the scale of the start", PAPER, run_scales),
)
