"""The page of the user's own regression: which interpolant training selects, and how near the run is to it."""

from typing import Any

import numpy as np

from ..flow.flow import GradientFlow
from ..references.bracket import Bracket
from ..references.interpolation_bracket import interpolation_bracket
from ..theorems.base import Prediction
from ..theorems.interpolation import distance
from ..training.trajectory import Trajectory
from ..verdict import Verdict
from .base import DEFINITIONS, Figure, Finding, Line, Result, Table


def own_bracket(run: Trajectory, record: int = -1) -> Bracket:
    """Bounds on the least potential from the run's own weight and accumulated residuals."""
    potential = run.setting.parametrisation.potential(run.at(0))
    return interpolation_bracket(run.setting.data, run.weight(record), potential.rate * run.dual[record], potential)


def distances(prediction: Prediction, run: Trajectory) -> dict[str, float]:
    """Relative distance of the final weight to the reference and to each rival."""
    named = {prediction.reference.norm: prediction.reference.weight}
    named |= {rival.name: rival.weight for rival in prediction.rivals}
    return {name: distance(run.weight(), weight) for name, weight in named.items()}


def page(prediction: Prediction, run: Trajectory, verdict: Verdict, optimiser: Any) -> Result:
    """Everything the report shows about one run on the user's regression."""
    flow = isinstance(optimiser, GradientFlow)
    x, label = (run.log_time[1:], "log t") if flow else (run.steps[1:].astype(float), "step")
    records = range(1, len(run))
    far = np.array([distance(run.weight(k), prediction.reference.weight) for k in records])
    size = float(np.linalg.norm(np.asarray(run.setting.data.fitted)))
    residual = np.linalg.norm(run.margins[1:] - np.asarray(run.setting.data.fitted), axis=1) / size
    scale = "linear" if flow else "log"
    figures = (
        Figure(
            "distance",
            "Distance to the predicted interpolant",
            label,
            "relative distance",
            (Line("run", x, far),),
            "To the reference weight.",
            scale,
            "log",
        ),
        Figure(
            "residual",
            "Residual",
            label,
            "relative residual",
            (Line("run", x, residual),),
            "Norm of X theta - y over the norm of y.",
            scale,
            "log",
        ),
    )
    found, own = prediction.reference.bracket, own_bracket(run)
    summary = (
        ("theorem", prediction.theorem.name),
        ("predicted rate", prediction.rate),
        ("ending", f"{run.status.name}: {run.status.message}"),
        ("least potential, certified by the solver's dual", f"[{found.lower:.12g}, {found.upper:.12g}]"),
        ("least potential, certified by the run itself", f"[{own.lower:.8g}, {own.upper:.8g}]"),
    )
    hypotheses = tuple(
        (h.name, "holds" if h.holds else "fails", f"{h.slack:.4g}", h.offender, h.detail) for h in prediction.hypotheses
    )
    tables = (
        Table(
            "summary",
            "Prediction and outcome",
            ("what", "value"),
            summary,
            "The first interval is for the norm where the reference is a norm.",
        ),
        Table(
            "hypotheses",
            "Hypotheses",
            ("name", "status", "slack", "worst offender", "meaning"),
            hypotheses,
            "A failed hypothesis does not stop the prediction.",
        ),
        Table(
            "distances",
            "Where the run is",
            ("weight", "relative distance"),
            tuple((name, f"{value:.4g}") for name, value in distances(prediction, run).items()),
            "The reference first, then its rivals.",
        ),
    )
    finding = Finding(prediction.theorem.statement, verdict, prediction.theorem.citation)
    return Result((finding,), figures, tables, {"run": run}, DEFINITIONS)
