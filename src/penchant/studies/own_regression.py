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
from .base import Result
from .own_pages import assemble, axis, hypotheses, places, series, summary, where


def own_bracket(run: Trajectory, record: int = -1) -> Bracket:
    """Bounds on the least potential from the run's own weight and accumulated residuals."""
    potential = run.setting.parametrisation.potential(run.at(0))
    return interpolation_bracket(run.setting.data, run.weight(record), potential.rate * run.dual[record], potential)


def distances(prediction: Prediction, run: Trajectory) -> dict[str, float]:
    """Relative distance of the final weight to the reference and to each rival."""
    return {name: distance(run.weight(), weight) for name, weight in places(prediction).items()}


def page(prediction: Prediction, run: Trajectory, verdict: Verdict, optimiser: Any) -> Result:
    """Everything the report shows about one run on the user's regression."""
    along = axis(run, optimiser)
    far = np.array([distance(run.weight(k), prediction.reference.weight) for k in range(1, len(run))])
    fitted = np.asarray(run.setting.data.fitted)
    residual = np.linalg.norm(run.margins[1:] - fitted, axis=1) / float(np.linalg.norm(fitted))
    scales = ("linear" if isinstance(optimiser, GradientFlow) else "log", "log")
    title = "Distance to the predicted interpolant"
    figures = (
        series("distance", title, along, ("relative distance", far), "To the reference weight.", scales),
        series(
            "residual",
            "Residual",
            along,
            ("relative residual", residual),
            "Norm of X theta - y over the norm of y.",
            scales,
        ),
    )
    found, own = prediction.reference.bracket, own_bracket(run)
    rows = (
        ("least potential, certified by the solver's dual", f"[{found.lower:.12g}, {found.upper:.12g}]"),
        ("least potential, certified by the run itself", f"[{own.lower:.8g}, {own.upper:.8g}]"),
    )
    tables = (
        summary(prediction, run, rows, "The first interval is for the norm where the reference is a norm."),
        hypotheses(prediction.hypotheses),
        where("distances", ("weight", "relative distance"), distances(prediction, run)),
    )
    return assemble(prediction, run, verdict, figures, tables)
