"""The page of the user's own data: which theorem applies, which hypothesis fails, where training goes, the certificate, the rate."""

from typing import Any

import numpy as np

from ..diagnostics.direction import misalignment, misalignments
from ..diagnostics.margin import normalised_margins
from ..diagnostics.rates import log_log_slope
from ..errors import ArgumentError
from ..flow.flow import GradientFlow
from ..references.bracket import Bracket, Euclidean, bracket
from ..settings.regression import Regression
from ..theorems.base import Prediction
from ..theorems.key_query import norm_of
from ..training.trajectory import Trajectory
from ..verdict import Verdict
from . import own_regression
from .base import DEFINITIONS, Figure, Finding, Line, Result, Table


def own_bracket(run: Trajectory, record: int = -1, prediction: Prediction | None = None) -> Bracket:
    """The better of the two certificates a run carries, from its accumulated and its instantaneous multipliers, in the predicted norm."""
    if isinstance(run.setting.data, Regression):
        return own_regression.own_bracket(run, record)
    data, weight = run.setting.data, run.weight(record)
    norm = Euclidean() if prediction is None else norm_of(prediction.reference)
    found = [bracket(data, weight, dual[record], norm) for dual in (run.dual, run.weights)]
    return max(found, key=lambda one: one.lower)


def directions(prediction: Prediction | None, run: Trajectory) -> dict[str, float]:
    """1 - corr of the final weight to the reference and to each rival (for a regression, the relative distance)."""
    weight = run.weight()
    if prediction is None or not weight.any():
        return {}
    if isinstance(run.setting.data, Regression):
        return own_regression.distances(prediction, run)
    named = {
        prediction.reference.norm: prediction.reference.weight,
        **{rival.name: rival.weight for rival in prediction.rivals},
    }
    return {name: misalignment(weight, direction) for name, direction in named.items()}


def measured_rate(run: Trajectory, distance: np.ndarray, optimiser: Any) -> str:
    """Slope of log(1 - corr) over the last decade of steps, or of log time for the flow."""
    x = run.log_time if isinstance(optimiser, GradientFlow) else run.steps.astype(float)
    unit = "log t" if isinstance(optimiser, GradientFlow) else "steps"
    if not (np.isfinite(x[-1]) and x[-1] > 10):
        return "too short a run to fit"
    try:
        return f"1 - corr ~ ({unit})^{log_log_slope(x, np.nan_to_num(distance), (x[-1] / 10, x[-1])):.3f} over the last decade"
    except ArgumentError:
        return "too few records to fit"


def tables(prediction: Prediction, run: Trajectory, optimiser: Any) -> tuple[Table, ...]:
    found, own = prediction.reference.bracket, own_bracket(run, prediction=prediction)
    distance = misalignments(run, prediction.reference)
    hypotheses = tuple(
        (h.name, "holds" if h.holds else "fails", f"{h.slack:.4g}", h.offender, h.detail) for h in prediction.hypotheses
    )
    summary = (
        ("theorem", prediction.theorem.name),
        ("statement", prediction.theorem.statement),
        ("predicted rate", prediction.rate),
        ("measured rate", measured_rate(run, distance, optimiser)),
        ("ending", f"{run.status.name}: {run.status.message}"),
        ("best norm, certified by the solver's dual", f"[{found.lower:.12g}, {found.upper:.12g}]"),
        ("best norm, certified by the run itself", f"[{own.lower:.8g}, {own.upper:.8g}]"),
        ("log excess, log time", f"{run.log_excess[-1]:.6g}, {run.log_time[-1]:.6g}"),
    )
    others = tuple((name, f"{value:.4g}") for name, value in directions(prediction, run).items())
    return (
        Table(
            "summary",
            "Prediction and outcome",
            ("what", "value"),
            summary,
            "Norms are for the smallest margin scaled to 1.",
        ),
        Table(
            "hypotheses",
            "Hypotheses",
            ("name", "status", "slack", "worst offender", "meaning"),
            hypotheses,
            "A failed hypothesis does not stop the prediction.",
        ),
        Table(
            "directions", "Where the run is", ("direction", "1 - corr"), others, "The reference first, then its rivals."
        ),
    )


def page(prediction: Prediction, run: Trajectory, verdict: Verdict, optimiser: Any) -> Result:
    """Everything the report shows about one run on the user's data."""
    if isinstance(run.setting.data, Regression):
        return own_regression.page(prediction, run, verdict, optimiser)
    flow = isinstance(optimiser, GradientFlow)
    x, label = (run.log_time[1:], "log t") if flow else (run.steps[1:], "step")
    x_scale = "log" if x[-1] > 100 else "linear"
    line = lambda name, y: (Line(name, x, y),)
    distance = misalignments(run, prediction.reference)[1:]
    gaps = np.array([own_bracket(run, k, prediction).gap for k in range(1, len(run))])
    best = Line("best possible", x, np.full(len(x), prediction.reference.margin), "prediction")
    figures = (
        Figure(
            "direction",
            "Distance to the predicted direction",
            label,
            "1 - corr",
            line("run", distance),
            "To the reference direction.",
            x_scale,
            "log",
        ),
        Figure(
            "margin",
            "Normalised margin",
            label,
            "margin / norm",
            (*line("run", normalised_margins(run)[1:]), best),
            "Smallest margin per unit of norm.",
            x_scale,
        ),
        Figure(
            "excess",
            "Log excess",
            label,
            "log(L - L*)",
            line("run", run.log_excess[1:]),
            "The loss above its infimum, in logarithms.",
            x_scale,
        ),
        Figure(
            "certificate",
            "The run certifies itself",
            label,
            "certified gap",
            line("run", gaps),
            "Relative width of the bracket from the run's own weights and multipliers.",
            x_scale,
            "log",
        ),
    )
    finding = Finding(prediction.theorem.statement, verdict, prediction.theorem.citation)
    return Result((finding,), figures, tables(prediction, run, optimiser), {"run": run}, DEFINITIONS)
