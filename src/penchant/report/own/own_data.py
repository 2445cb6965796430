"""The page of the user's own data: which theorem applies, which hypothesis fails, where training goes, the certificate, the rate."""

from typing import Any

import numpy as np

from ...diagnostics.direction import misalignment, misalignments
from ...diagnostics.margin import normalised_margins
from ...diagnostics.rates import log_log_slope
from ...errors import ArgumentError
from ...exhibits import DEFINITIONS, Figure, Line, Result, Table
from ...flow.flow import GradientFlow
from ...norms import L2, Norm
from ...references.bracket import Bracket
from ...settings.deep_linear import DeepLinear
from ...settings.diagonal import DiagonalTokens
from ...settings.regression import Regression
from ...settings.tokens import TokenSelection
from ...theory.base import Prediction
from ...theory.certificates import KINDS, Certificates, brackets, certificates
from ...theory.interpolants import relative_residual
from ...theory.selections import detect_limit
from ...training.trajectory import Trajectory
from ...verdict import Verdict
from . import (
    deep_linear as own_deep_linear,
)
from . import (
    deep_linear_figures as own_deep_linear_figures,
)
from . import (
    regression as own_regression,
)
from .parts import assemble, axis, hypotheses, places, series, summary, where

_SHOWN = 6  # singular values drawn
_NORMS = {  # besides the l2 norm, which the common definitions have
    "nuclear": "sum of the singular values of the weight W",
    "l1": "sum of the absolute values of the weight",
    "linf": "largest absolute value of the weight",
}
_EXCESS = {"excess of the norm": "norm / margin over the minimum of that norm with margins >= 1, minus 1"}
_KINDS = {
    "accumulated, window, instant": "multipliers gathered since the start, since the margin was margin^0.8, and at this moment: each proves a lower bound on the best norm",
}


def _norm(prediction: Prediction | None) -> Norm:
    return L2() if prediction is None else prediction.reference.measure


def own_brackets(run: Trajectory, record: int = -1, prediction: Prediction | None = None) -> dict[str, Bracket]:
    """The certificates a run carries in the predicted norm, by the multipliers that prove their lower bounds."""
    if isinstance(run.setting.data, Regression):
        return {"accumulated": own_regression.own_bracket(run, record)}
    return brackets(run, _norm(prediction), record)


def own_bracket(run: Trajectory, record: int = -1, prediction: Prediction | None = None) -> Bracket:
    """The best of the certificates a run carries."""
    return max(own_brackets(run, record, prediction).values(), key=lambda one: one.lower)


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


def _is_deep(prediction: Prediction) -> bool:
    """Whether the laws of deep linear networks speak here: they are about the l2 maximum margin."""
    return isinstance(prediction.setting.parametrisation, DeepLinear) and prediction.reference.norm == "l2"


def tables(prediction: Prediction, run: Trajectory, optimiser: Any) -> tuple[Table, ...]:
    found, own = prediction.reference.bracket, own_bracket(run, prediction=prediction)
    distance = misalignments(run, prediction.reference)
    deep = _is_deep(prediction)
    rate = own_deep_linear.measured_rate(run, prediction) if deep else measured_rate(run, distance, optimiser)
    rows = (
        ("measured rate", rate),
        ("best norm, certified by the solver's dual", f"[{found.lower:.12g}, {found.upper:.12g}]"),
        ("best norm, certified by the run itself", f"[{own.lower:.8g}, {own.upper:.8g}]"),
        ("log excess, log time", f"{run.log_excess[-1]:.6g}, {run.log_time[-1]:.6g}"),
        *_limit(run),
    )
    return (
        summary(prediction, run, rows, f"Norms ({prediction.reference.norm}) are for the smallest margin scaled to 1."),
        hypotheses(prediction.hypotheses),
        where("directions", ("direction", "1 - corr"), directions(prediction, run)),
    )


def definitions(prediction: Prediction) -> dict[str, str]:
    """The common ones, with the norm that this reference minimises."""
    name = prediction.reference.norm
    norm = {"norm": f"{name} norm: {_NORMS[name]}", **_EXCESS} if name in _NORMS else {}
    return {**DEFINITIONS, **norm, **_KINDS}


def _bounds(found: Certificates, prediction: Prediction, along: tuple, scale: str) -> tuple[Figure, ...]:
    """The three certificates, and for a norm whose minimiser need not be unique how far it is from its minimum."""
    x, label = along
    kinds = tuple(Line(kind, x, found.gap(kind)[1:]) for kind in KINDS)
    gap = "Relative width of the bracket from the run's own weights and multipliers."
    if not any(np.isfinite(line.y).any() for line in kinds):
        gap += " There is none on this run: its smallest margin never was positive."
    certificate = Figure("certificate", "The run certifies itself", label, "certified gap", kinds, gap, scale, "log")
    if prediction.reference.norm not in _NORMS:
        return (certificate,)
    excess = found.upper / prediction.reference.value - 1
    what = "Norm at margin 1 over its minimum, minus 1; shown where the margin is positive."
    return (
        series("norm-excess", "Excess of the norm", along, ("excess of the norm", excess[1:]), what, (scale, "log")),
        certificate,
    )


def _singular_values(prediction: Prediction, run: Trajectory, along: tuple, scale: str) -> tuple[Figure, ...]:
    """Which directions of W grow with the margin and which fall behind, for the norm that sums them."""
    if prediction.reference.norm != "nuclear":
        return ()
    (x, label), margin = along, run.smallest_margin()[1:]
    sizes = np.stack([np.linalg.svd(run.weight(k), compute_uv=False) for k in range(1, len(run))])[:, :_SHOWN]
    sizes = np.where(margin[:, None] > 0, sizes / np.where(margin > 0, margin, 1.0)[:, None], np.nan)
    wanted = np.linalg.svd(prediction.reference.weight, compute_uv=False)
    kept = wanted[wanted > 1e-4 * wanted[0]][:_SHOWN]  # below, the solver does not know them
    lines = [Line(f"{k + 1}", x, sizes[:, k]) for k in range(sizes.shape[1])]
    lines += [Line(f"{k + 1}, predicted", x[[0, -1]], np.full(2, size), "prediction") for k, size in enumerate(kept)]
    caption = "Of W, divided by the smallest margin; shown where that is positive."
    name, title = "singular-values", "Singular values"
    return (Figure(name, title, label, "singular value / margin", tuple(lines), caption, scale, "log"),)


def _limit(run: Trajectory) -> tuple[tuple[str, str], ...]:
    """The tokens that attention has settled on, and the plateau of the loss where they are not the optimal ones."""
    if not isinstance(run.setting.data, TokenSelection | DiagonalTokens):
        return ()
    found = detect_limit(run)
    rows = [("limit", f"{found.kind}, most attended tokens {list(found.tokens)}")]
    if found.reached is not None:
        text = f"{found.misalignment:.4g} (locally optimal: {found.reached.locally_optimal})"
        rows.append(("1 - corr to the direction of these tokens", text))
    if found.kind == "local":
        rows.append(("plateau of log excess", f"{found.plateau:.8g}, still {found.plateau_distance:.3g} away"))
    return tuple(rows)


def page(prediction: Prediction, run: Trajectory, verdict: Verdict, optimiser: Any) -> Result:
    """Everything the report shows about one run on the user's data."""
    if isinstance(run.setting.data, Regression):
        return own_regression.page(prediction, run, verdict, optimiser)
    x, label = along = axis(run, optimiser)
    scale = "log" if len(x) and x[-1] > 100 else "linear"
    distance = misalignments(run, prediction.reference)[1:]
    norm = _norm(prediction)
    best = Line("best possible", x, np.full(len(x), prediction.reference.margin), "prediction")
    lines = (Line("run", x, normalised_margins(run, norm.value)[1:]), best)
    title, per_norm = "Distance to the predicted direction", f"margin / {prediction.reference.norm} norm"
    caption = f"Smallest margin per unit of the {prediction.reference.norm} norm of the weight."
    excess = "The loss above its infimum, in logarithms."
    figures = (
        series("direction", title, along, ("1 - corr", distance), "To the reference direction.", (scale, "log")),
        Figure("margin", "Normalised margin", label, per_norm, lines, caption, scale),
        series("excess", "Log excess", along, ("log(L - L*)", run.log_excess[1:]), excess, (scale,)),
        *_bounds(certificates(run, norm), prediction, along, scale),
        *_singular_values(prediction, run, along, scale),
    )
    shown, words = tables(prediction, run, optimiser), definitions(prediction)
    if _is_deep(prediction):
        words = words | own_deep_linear.words(run)
        figures += own_deep_linear_figures.figures(run, prediction)
        shown += own_deep_linear.tables(run, prediction)
    return assemble(prediction, run, verdict, figures, shown, words)
