"""The page of the user's own regression: which interpolant training selects, and how near the run is to it."""

from typing import Any

import numpy as np

from ...exhibits import Result
from ...flow.flow import GradientFlow
from ...norms import L2
from ...references.bracket import Bracket
from ...references.interpolation import reachable, shifted
from ...references.interpolation_bracket import interpolation_bracket
from ...settings.base import Setting
from ...settings.square_models import Squares
from ...theory.base import Prediction
from ...theory.families.interpolation import own_potential
from ...theory.interpolants import distance, relative_residual, unresolved, what_is_selected
from ...training.trajectory import Trajectory
from ...verdict import Verdict
from .parts import assemble, axis, hypotheses, places, series, summary, where


def own_bracket(run: Trajectory, record: int = -1) -> Bracket:
    """Bounds on the least potential, or on the l2 distance to the start, from the run's own weight and accumulated residuals."""
    data, weight, begin = run.setting.data, run.weight(record), run.weight(0)
    potential = own_potential(run.setting, run.at(0))
    if potential.name == "l2":
        left = shifted(np.asarray(data.inputs), np.asarray(data.fitted), begin)
        return interpolation_bracket(left, weight - begin, run.dual[record], L2())
    return interpolation_bracket(data, weight, potential.rate * run.dual[record], potential)


def what_is_least(setting: Setting, start: Any) -> str:
    """The quantity that the selected interpolant minimises, in words."""
    potential = own_potential(setting, start)
    if potential.name != "l2":
        return potential.name
    return "l2 distance to the start" if potential.start.any() else "l2 norm"


def what_log_excess_is(run: Trajectory) -> str:
    """log(L - L*), with the infimum where it is not 0 or where no weight of the parametrisation attains it."""
    data, infimum = run.setting.data, run.setting.infimum().value
    if isinstance(run.setting.parametrisation, Squares) and not reachable(data):
        return "log(L - L*): L* is that of least squares, which no nonnegative weight attains"
    return "log(L - L*)" if data.consistent else f"log(L - L*): no weight interpolates, L* = {infimum:.6g}"


def distances(prediction: Prediction, run: Trajectory) -> dict[str, float]:
    """Distance of the final weight to the reference and to each rival, all in units of the reference, as rivals are in a prediction."""
    weight, unit = run.weight(), float(np.linalg.norm(prediction.reference.weight)) or 1.0
    return {name: float(np.linalg.norm(weight - place)) / unit for name, place in places(prediction).items()}


def page(prediction: Prediction, run: Trajectory, verdict: Verdict, optimiser: Any) -> Result:
    """Everything the report shows about one run on the user's regression."""
    along = axis(run, optimiser)
    far = np.array([distance(run.weight(k), prediction.reference.weight) for k in range(1, len(run))])
    residual = np.array([relative_residual(run.setting.data, margins) for margins in run.margins[1:]])
    scales = ("linear" if isinstance(optimiser, GradientFlow) else "log", "log")
    title = f"Distance to the predicted {what_is_selected(run.setting.data)}"
    figures = (
        series("distance", title, along, ("relative distance", far), "To the reference weight.", scales),
        series(
            "residual",
            "Residual",
            along,
            ("relative residual", residual),
            "Norm of X theta - y over the norm of y (y: its least-squares fit).",
            scales,
        ),
    )
    found, own = prediction.reference.bracket, own_bracket(run)
    least = what_is_least(run.setting, run.at(0))
    rows = (
        (f"least {least}, certified by the solver's dual", f"[{found.lower:.12g}, {found.upper:.12g}]")
        if prediction.reference.certified
        else (f"least {least}", f"not resolved: {unresolved(prediction.reference)}"),
        (f"least {least}, certified by the run itself", f"[{own.lower:.8g}, {own.upper:.8g}]"),
    )
    tables = (
        summary(prediction, run, rows, "Both intervals bound the same number."),
        hypotheses(prediction.hypotheses),
        where("distances", ("weight", "relative distance"), distances(prediction, run)),
    )
    return assemble(prediction, run, verdict, figures, tables)
