"""What the pages of the user's own data share: the axis of a run, the tables of a prediction, and the page around them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...exhibits import DEFINITIONS, Figure, Finding, Line, Result, Table
from ...flow.flow import GradientFlow
from ...theory.base import Hypothesis, Prediction
from ...training.trajectory import Trajectory
from ...verdict import Verdict


def axis(run: Trajectory, optimiser: Any) -> tuple[np.ndarray, str]:
    """What a run is drawn against: log time for the flow, steps otherwise; without the start, where both are empty."""
    if isinstance(optimiser, GradientFlow):
        return run.log_time[1:], "log t"
    return run.steps[1:].astype(float), "step"


def series(name: str, title: str, run_axis: tuple, y: tuple[str, np.ndarray], caption: str, scales: tuple) -> Figure:
    """One series of a run against its axis."""
    (x, x_label), (y_label, values) = run_axis, y
    return Figure(name, title, x_label, y_label, (Line("run", x, values),), caption, *scales)


def summary(prediction: Prediction, run: Trajectory, rows: tuple, caption: str) -> Table:
    """Theorem, statement, predicted rate and ending of a run, then what only its kind knows."""
    shared = (
        ("theorem", prediction.theorem.name),
        ("statement", prediction.theorem.statement),
        ("predicted rate", prediction.rate),
        ("ending", f"{run.status.name}: {run.ending}"),
    )
    return Table("summary", "Prediction and outcome", ("what", "value"), (*shared, *rows), caption)


def hypotheses(
    found: Iterable[Hypothesis], caption: str = "A failed hypothesis does not stop the prediction."
) -> Table:
    """Conditions with slack and worst offender."""
    columns = ("name", "status", "slack", "worst offender", "meaning")
    return Table("hypotheses", "Hypotheses", columns, tuple(_row(one) for one in found), caption)


def _row(found: Hypothesis) -> tuple[str, ...]:
    """What cannot be checked neither holds nor fails, and has no slack."""
    status = {True: "holds", False: "fails", None: "undecided"}[found.holds]
    slack = "unknown" if np.isnan(found.slack) else f"{found.slack + 0.0:.4g}"
    return (found.name, status, slack, found.offender, found.meaning)


def places(prediction: Prediction) -> dict[str, np.ndarray]:
    """The weights that a run is compared with: the reference first, then its rivals."""
    named = {prediction.reference.norm: prediction.reference.weight}
    return named | {rival.name: rival.weight for rival in prediction.rivals}


def where(name: str, columns: tuple[str, str], found: dict[str, float]) -> Table:
    rows = tuple((place, f"{value:.4g}") for place, value in found.items())
    return Table(name, "Where the run is", columns, rows, "The reference first, then its rivals.")


def assemble(
    prediction: Prediction,
    run: Trajectory,
    verdict: Verdict,
    figures: tuple,
    tables: tuple,
    definitions: dict[str, str] = DEFINITIONS,
) -> Result:
    finding = Finding(prediction.theorem.statement, verdict, prediction.theorem.citation)
    return Result((finding,), figures, tables, {"run": run}, definitions)
