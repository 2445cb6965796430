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
from ..theorems.interpolation import relative_residual
from ..theorems.key_query import norm_of
from ..training.trajectory import Trajectory
from ..verdict import Verdict
from . import own_regression
from .base import Figure, Line, Result, Table
from .own_pages import assemble, axis, hypotheses, places, series, summary, where


def own_bracket(run: Trajectory, record: int = -1, prediction: Prediction | None = None) -> Bracket:
    """The better of the two certificates a run carries, from its accumulated and its instantaneous multipliers, in the predicted norm."""
    if isinstance(run.setting.data, Regression):
        return own_regression.own_bracket(run, record)
    data, weight = run.setting.data, run.weight(record)
    norm = Euclidean() if prediction is None else norm_of(prediction.reference)
    found = [bracket(data, weight, dual[record], norm) for dual in (run.dual, run.weights)]
    return max(found, key=lambda one: one.lower)


def what_log_excess_is(run: Trajectory, separable: bool) -> str:
    """What the recorded log excess measures on these data."""
    if isinstance(run.setting.data, Regression):
        return own_regression.what_log_excess_is(run)
    return "log(L - L*)" if separable else "log L: no weight has only positive margins, so L* > 0 is not known"


def what_is_bounded(run: Trajectory) -> str:
    """The quantity that the run's own certificate bounds."""
    if isinstance(run.setting.data, Regression):
        return f"least {own_regression.what_is_least(run.setting, run.at(0))}"
    return "best norm with margins >= 1"


def outcome(run: Trajectory) -> dict[str, float]:
    """How well the final weight fits: the smallest margin, or the relative residual of a regression."""
    if isinstance(run.setting.data, Regression):
        return {"residual": relative_residual(run.setting.data, run.margins[-1])}
    return {"margin": float(run.smallest_margin()[-1])}


def directions(prediction: Prediction | None, run: Trajectory) -> dict[str, float]:
    """1 - corr of the final weight to the reference and to each rival (for a regression, the relative distance)."""
    weight = run.weight()
    if prediction is None or not weight.any():
        return {}
    if isinstance(run.setting.data, Regression):
        return own_regression.distances(prediction, run)
    return {name: misalignment(weight, direction) for name, direction in places(prediction).items()}


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
    rows = (
        ("measured rate", measured_rate(run, distance, optimiser)),
        ("best norm, certified by the solver's dual", f"[{found.lower:.12g}, {found.upper:.12g}]"),
        ("best norm, certified by the run itself", f"[{own.lower:.8g}, {own.upper:.8g}]"),
        ("log excess, log time", f"{run.log_excess[-1]:.6g}, {run.log_time[-1]:.6g}"),
    )
    return (
        summary(prediction, run, rows, "Norms are for the smallest margin scaled to 1."),
        hypotheses(prediction),
        where("directions", ("direction", "1 - corr"), directions(prediction, run)),
    )


def page(prediction: Prediction, run: Trajectory, verdict: Verdict, optimiser: Any) -> Result:
    """Everything the report shows about one run on the user's data."""
    if isinstance(run.setting.data, Regression):
        return own_regression.page(prediction, run, verdict, optimiser)
    x, label = along = axis(run, optimiser)
    scale = "log" if x[-1] > 100 else "linear"
    distance = misalignments(run, prediction.reference)[1:]
    gaps = np.array([own_bracket(run, k, prediction).gap for k in range(1, len(run))])
    best = Line("best possible", x, np.full(len(x), prediction.reference.margin), "prediction")
    lines = (Line("run", x, normalised_margins(run)[1:]), best)
    title, width = (
        "Distance to the predicted direction",
        "Relative width of the bracket from the run's own weights and multipliers.",
    )
    excess = "The loss above its infimum, in logarithms."
    figures = (
        series("direction", title, along, ("1 - corr", distance), "To the reference direction.", (scale, "log")),
        Figure(
            "margin", "Normalised margin", label, "margin / norm", lines, "Smallest margin per unit of norm.", scale
        ),
        series("excess", "Log excess", along, ("log(L - L*)", run.log_excess[1:]), excess, (scale,)),
        series("certificate", "The run certifies itself", along, ("certified gap", gaps), width, (scale, "log")),
    )
    return assemble(prediction, run, verdict, figures, tables(prediction, run, optimiser))
