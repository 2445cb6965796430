"""What the page of the user's own data adds for deep linear networks: how the layers align, and the laws measured next to their predictions."""

from typing import Any

import numpy as np

from ..diagnostics.alignment import (
    Alignment,
    alignment_limits,
    alignments,
    clock_error,
    conservation_drift,
    sandwich,
    sine,
)
from ..diagnostics.rates import log_log_slope
from ..errors import ArgumentError
from ..references.support_geometry import SupportGeometry, support_geometry
from ..settings.deep_linear import imbalance_constant
from ..theorems.base import Prediction
from ..training.trajectory import Trajectory
from .base import Figure, Line, Table

WORDS = {
    "-log R": "risk level: minus the natural logarithm of the mean loss above its infimum",
    "ratio": "spectral over Frobenius norm of a layer; 1 means rank one",
    "excess": "squared Frobenius minus squared spectral norm of a layer",
    "<v, u>": "inner product of the top right singular vector of a layer and the top left one of the layer before it",
    "offset": "part of the network's weight orthogonal to the maximum-margin direction",
    "conservation drift": "change of W_k W_k' - W_{k+1}' W_{k+1} since the start; 0 for the exact flow",
    "margin sandwich": "smallest margin per norm of the weight, and |sum of q_i z_i| with the run's own weights q: they enclose the best margin",
}


def figures(run: Trajectory, prediction: Prediction) -> tuple[Figure, ...]:
    """Ratios, alignments, offset, margin sandwich and drift, against the risk level."""
    level, found = -run.log_excess, alignments(run)
    depth, pairs = found.deficit.shape[1], found.misfit.shape[1]
    later = level > 0  # a logarithmic axis begins where the risk is below 1
    line = lambda label, values, style="line": Line(label, level[later], np.asarray(values)[later], style)
    ratios = tuple(line(f"layer {k + 1}", found.deficit[:, k]) for k in range(depth))
    fits = tuple(line(f"layers {k + 1}, {k + 2}", found.misfit[:, k]) for k in range(pairs))
    lower, upper = sandwich(run)
    enclosed = (line("lower", lower), line("upper", upper))
    best = line("best possible", np.full(len(level), prediction.reference.margin), "prediction")
    drawn = [
        Figure("ratios", "Layers tend to rank one", "-log R", "1 - ratio", ratios, "One line per layer.", "log", "log"),
        Figure(
            "sandwich",
            "Margin sandwich",
            "-log R",
            "margin / norm",
            (*enclosed, best),
            "Of the product of the layers.",
            "log",
        ),
    ]
    if pairs:
        text = "Of the top singular vectors of adjacent layers."
        drawn.insert(
            1, Figure("alignment", "Adjacent layers align", "-log R", "1 - |<v, u>|", fits, text, "log", "log")
        )
        drift = (line("run", conservation_drift(run)),)
        drawn.append(
            Figure(
                "drift", "Conservation drift", "-log R", "spectral norm", drift, "0 for the exact flow.", "log", "log"
            )
        )
    return tuple(drawn)


def _slope(level: np.ndarray, values: np.ndarray) -> str:
    """Slope over the last decade of the risk level, or why there is none."""
    try:
        return f"{log_log_slope(level, values, (level[-1] / 10, level[-1])):.4f}"
    except ArgumentError:
        return "too short a run"


def measured_rate(run: Trajectory, prediction: Prediction) -> str:
    """Slope of the sine of the angle to the maximum margin over the last decade of the risk level."""
    unit = prediction.reference.weight / np.linalg.norm(prediction.reference.weight)
    sines = np.array([sine(run.weight(k), unit) if run.weight(k).any() else np.nan for k in range(len(run))])
    found = _slope(-run.log_excess, sines)
    return f"sin(angle) ~ (-log R)^{found} over the last decade of -log R" if found[-1].isdigit() else found


def tables(run: Trajectory, prediction: Prediction) -> tuple[Table, ...]:
    """The layers one by one, and the laws of the whole network."""
    found = alignments(run)
    return _layers(run, found), _laws(run, found, support_geometry(run.setting.data, prediction.reference))


def _layers(run: Trajectory, found: Alignment) -> Table:
    level, depth = -run.log_excess, found.deficit.shape[1]
    limits = alignment_limits(run.at(0), run.at())
    rows = []
    for k in range(depth):
        inner = k < depth - 1
        misfit = found.misfit[:, k] * (2 - found.misfit[:, k]) if inner else np.zeros(len(level))
        scaled = found.spectral[-1, k + 1] ** 4 * misfit[-1] if inner else np.nan
        pair = (f"{scaled:.5g}", f"{limits.misfit[k]:.5g}", _slope(level, misfit)) if inner else ("", "", "")
        expected = f"{limits.excess[k]:.5g}" if inner else ""
        ratio = _slope(level, found.deficit[:, k]) if found.deficit[-1, k] > 0 else "rank one"
        rows.append(
            (
                k + 1,
                f"{found.frobenius[-1, k]:.6g}",
                f"{found.deficit[-1, k]:.3e}",
                ratio,
                f"{found.excess[-1, k]:.5g}",
                expected,
                *pair,
            )
        )
    columns = (
        "layer",
        "Frobenius norm",
        "1 - ratio",
        "its slope",
        "excess",
        "limit",
        "spectral^4 (1 - <v, u>^2)",
        "limit",
        "slope",
    )
    caption = (
        f"At the end. Slopes in -log R over its last decade: theory -{2 / depth:.4g} for 1 - ratio, -{4 / depth:.4g} for 1 - <v, u>^2 with the next "
        "layer. Limits from the conserved matrices of the start, for the flow."
    )
    return Table("layers", "Layers", columns, tuple(rows), caption)


def _laws(run: Trajectory, found: Alignment, geometry: SupportGeometry) -> Table:
    level, weight = float(-run.log_excess[-1]), run.weight()
    along = float(weight @ geometry.direction)
    across = float(np.linalg.norm(weight - along * geometry.direction))
    size = geometry.margin * along - level + np.log(len(run.setting.data.signed))
    shares = ", ".join(f"{share:.4g}" for share in geometry.shares)
    rows = [
        ("support vectors", ", ".join(str(k) for k in geometry.support), ""),
        ("their dual weights p", shares, ""),
        ("size law: margin <w, u> + log n + log R", f"{size:.6g}", f"entropy of p, {geometry.entropy:.6g}"),
        ("offset |w - <w, u> u|", f"{across:.6g}", _expected_offset(geometry)),
        ("|w| / product of Frobenius norms", f"{1 - found.product[-1]:.8g}", "1"),
        ("largest excess", f"{found.excess[-1].max():.6g}", f"at most D = {imbalance_constant(run.at(0)):.6g} (flow)"),
        ("conservation drift", f"{conservation_drift(run).max():.3g}", "0 for the exact flow"),
    ]
    error = _clock(run)
    if error is not None:
        rows.append(("clock error of -log R", f"{error:.3g}", "0"))
    return Table(
        "laws", "Laws of the whole network", ("what", "measured", "predicted"), tuple(rows), "At the end of the run."
    )


def _expected_offset(geometry: SupportGeometry) -> str:
    value = f"{float(np.linalg.norm(geometry.offset)):.6g}"
    return value if geometry.spans else f"{value} inside the span of the support vectors; outside it grows"


def _clock(run: Any) -> float | None:
    try:
        return clock_error(run)
    except ArgumentError:
        return None
