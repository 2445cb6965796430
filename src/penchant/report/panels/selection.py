"""What was selected: distances to the reference and its rivals, the margin, the run's own certificates, the tokens, the singular values."""

import math
from collections.abc import Iterator

import numpy as np

from ...case import Case
from ...diagnostics.alignment import sine
from ...diagnostics.direction import misalignments, normalised_margins
from ...diagnostics.rates import log_log_slope
from ...errors import ArgumentError
from ...exhibits import Figure, Line, Table
from ...settings.deep_linear import layered
from ...theory.describe import number
from ...theory.families.interpolation import own_potential, unresolved, what_is_selected
from ...theory.judge import KINDS
from ..panel import Panel, drawn_elsewhere
from .run import axis, is_flow, series

_SHOWN = 6  # singular values drawn
_EQUAL = 1e-30  # of 1 - corr, half a squared distance of unit vectors: below it is their rounding, and nothing to draw
_NORMS = {  # besides the l2 norm, which the common definitions have
    "nuclear": "sum of the singular values of the weight W",
    "l1": "sum of the absolute values of the weight",
    **dict.fromkeys(("linf", "max"), "largest absolute value of the weight"),
    "spectral": "largest singular value of the weight W",
}


def is_layered(case: Case) -> bool:
    return not case.joint and layered(case.run.setting)


def is_deep(case: Case) -> bool:
    """Whether the laws of deep linear networks speak here: they are about the l2 maximum margin."""
    return is_layered(case) and case.prediction is not None and case.foreseen.reference.norm == "l2"


def slope(level: np.ndarray, values: np.ndarray) -> str:
    """Slope over the last decade, or why there is none."""
    try:
        return f"{log_log_slope(level, values, (level[-1] / 10, level[-1])):.4f}"
    except ArgumentError:
        return "too short a run"


def _measured_rate(case: Case) -> str:
    """Slope of log(1 - corr) over the last decade of steps, of log time for the flow, of the risk level for layers."""
    run, reference = case.run, case.foreseen.reference
    if is_deep(case):
        weights = [run.weight(k) for k in range(len(run))]
        unit = reference.weight / np.linalg.norm(reference.weight)
        sines = np.array([sine(weight, unit) if weight.any() else np.nan for weight in weights])
        found = slope(-run.log_excess, sines)
        return f"sin(angle) ~ (-log R)^{found} over the last decade of -log R" if found[-1].isdigit() else found
    x, unit = (run.log_time, "log t") if is_flow(case) else (run.steps.astype(float), "steps")
    long = np.isfinite(x[-1]) and x[-1] > 10
    found = slope(x, np.nan_to_num(misalignments(run, reference))) if long else "too short a run"
    return f"1 - corr ~ ({unit})^{found} over the last decade" if found[-1].isdigit() else found


def _direction_lines(case: Case, found: dict) -> Iterator[str]:
    measure = "relative distance" if case.regression else "1 - corr"
    yield from (f"direction  {measure} to {name}: {value:.4g}" for name, value in found["directions"].items())


def _directions(case: Case) -> Iterator[Figure | Table]:
    """The reference and its rivals along the run, and where it is at the end."""
    if case.prediction is None:
        return
    x, label, scale = axis(case)
    far, (first, *_) = case.distances(), case.places
    if not case.regression:
        far[first] = misalignments(case.run, case.foreseen.reference)[1:]
    what = "relative distance" if case.regression else "1 - corr"
    drawn = lambda values: np.where(values > _EQUAL, values, np.nan)
    lines = tuple(Line(_place(case, name), x, drawn(values)) for name, values in far.items())
    title = f"Distance to the predicted {what_is_selected(case.run.setting.data) if case.regression else 'direction'}"
    name, caption = "distance" if case.regression else "direction", "To the reference, and to its rivals."
    yield Figure(name, title, label, what, lines, caption, scale, "log")
    rows = tuple((place, f"{value:.4g}") for place, value in case.directions.items())
    columns = ("weight" if case.regression else "direction", what)
    yield Table(f"{name}s", "Where the run is", columns, rows, "The reference first, then its rivals.")


def _place(case: Case, name: str) -> str:
    return f"{name} reference" if name == case.foreseen.reference.norm else f"rival: {name}"


def _margin(case: Case) -> Iterator[Figure]:
    (x, label, scale), reference = axis(case), case.foreseen.reference
    best = Line("best possible", x, np.full(len(x), reference.margin), "prediction")
    lines = (Line("run", x, normalised_margins(case.run, case.norm.value)[1:]), best)
    caption = f"Smallest margin per unit of the {reference.norm} norm of the weight."
    yield Figure("margin", "Normalised margin", label, f"margin / {reference.norm} norm", lines, caption, scale)


def _bracket(case: Case) -> dict:
    found = case.brackets
    least = lambda: f"least {own_potential(case.run.setting, case.run.at(0)).least}"
    lower, upper = {kind: one.lower for kind, one in found.items()}, next(iter(found.values())).upper
    of = least() if case.regression else "best norm with margins >= 1"
    return {"bracket": {"lower": max(lower.values()), "upper": upper, "of": of, **lower}}


def _bracket_lines(case: Case, found: dict) -> Iterator[str]:
    bounds = found["bracket"]
    text = f"in [{bounds['lower']:.10g}, {bounds['upper']:.10g}]"
    if not math.isfinite(bounds["upper"]):
        text = f"at least {bounds['lower']:.10g}, without an upper bound"
    yield f"bracket    {bounds['of']} {text}, certified by the run itself"
    if "window" in bounds:
        yield "           " + ", ".join(f"{kind} multipliers {bounds[kind]:.6g}" for kind in KINDS)


def _bracket_rows(case: Case) -> Iterator[tuple[str, str]]:
    if case.prediction is None:
        return
    reference, own = case.foreseen.reference, max(case.brackets.values(), key=lambda one: one.lower)
    what = _bracket(case)["bracket"]["of"] if case.regression else f"best {reference.norm} norm at margin 1"
    if case.regression and not reference.certified:
        yield what, f"not resolved: {unresolved(reference)}"
    else:
        bounds = f"[{reference.bracket.lower:.12g}, {reference.bracket.upper:.12g}]"
        yield f"{what}, certified by the solver's dual", bounds
    yield f"{what}, certified by the run itself", f"[{own.lower:.8g}, {own.upper:.8g}]"
    if not case.regression:
        yield "measured rate", _measured_rate(case)
        if not np.isfinite(case.certificates.upper).any():
            yield "bounds along the run", "none: its smallest margin never was positive"


def _bounds(case: Case) -> Iterator[Figure]:
    """The three certificates, and for a norm whose minimiser need not be unique how far it is from its minimum."""
    (x, label, scale), found, reference = axis(case), case.certificates, case.foreseen.reference
    if reference.norm in _NORMS:
        what = "Norm at margin 1 over its minimum, minus 1; shown where the margin is positive."
        excess = found.upper / reference.value - 1
        yield series(case, "norm-excess", "Excess of the norm", "excess of the norm", excess, what, "log")
    kinds = tuple(Line(kind, x, found.gap(kind)[1:]) for kind in KINDS)
    gap = "Relative width of the bracket from the run's own weights and multipliers."
    yield Figure("certificate", "The run certifies itself", label, "certified gap", kinds, gap, scale, "log")


def _bound_words(case: Case) -> dict[str, str]:
    """The norm that this reference minimises, and the multipliers."""
    name = case.foreseen.reference.norm
    words = {
        "accumulated, window, instant": "multipliers gathered since the start, since the margin was margin^0.8, and at this moment: each proves a lower bound on the best norm"
    }
    if name in _NORMS:
        words["norm"] = f"{name} norm: {_NORMS[name]}"
        words["excess of the norm"] = "norm / margin over the minimum of that norm with margins >= 1, minus 1"
    return words


def _singular_values(case: Case) -> Iterator[Figure]:
    """Which directions of W grow with the margin and which fall behind, for the norm that sums them."""
    (x, label, scale), run, margin = axis(case), case.run, case.run.smallest_margin()[1:]
    sizes = np.stack([np.linalg.svd(run.weight(k), compute_uv=False) for k in range(1, len(run))])[:, :_SHOWN]
    sizes = np.where(margin[:, None] > 0, sizes / np.where(margin > 0, margin, 1.0)[:, None], np.nan)
    wanted = np.linalg.svd(case.foreseen.reference.weight, compute_uv=False)
    kept = wanted[wanted > 1e-4 * wanted[0]][:_SHOWN]  # below, the solver does not know them
    lines = [Line(f"{k + 1}", x, sizes[:, k]) for k in range(sizes.shape[1])]
    lines += [Line(f"{k + 1}, predicted", x[[0, -1]], np.full(2, size), "prediction") for k, size in enumerate(kept)]
    caption, label_y = "Of W, divided by the smallest margin; shown where that is positive.", "singular value / margin"
    yield Figure("singular-values", "Singular values", label, label_y, tuple(lines), caption, scale, "log")


def _limit(case: Case) -> dict:
    """The tokens a run has settled on, their maximum-margin direction W^alpha, and the plateau of the loss there."""
    limit, found = case.limit, case.limit.reached
    content: dict = {"limit": limit.kind, "tokens": list(limit.tokens), "reached": None, "plateau": None}
    if found is not None:
        content["reached"] = {
            **{name: getattr(found, name) for name in ("locally_optimal", "slack", "sample")},
            "norm": None if found.solution is None else found.solution.value,
            "margin": None if found.solution is None else found.solution.margin,
            "misalignment": limit.misalignment,
            "global_misalignment": limit.global_misalignment,
        }
    if limit.kind == "local":
        content["plateau"] = {"log_excess": limit.plateau, "distance": limit.plateau_distance}
    return content


def _limit_lines(case: Case, content: dict) -> Iterator[str]:
    found, plateau = content["reached"], content["plateau"]
    text = f"limit      {content['limit']}, most attended tokens {content['tokens']}"
    if found is not None:
        kind = "locally optimal" if found["locally_optimal"] else "not locally optimal"
        own, best = number(found["misalignment"]), number(found["global_misalignment"])
        text += f" ({kind}); 1 - corr to their direction W^alpha {own}, to W_mm {best}"
    yield text
    if plateau is not None:
        away = f"and is {plateau['distance']:.3g} away from it"
        yield f"plateau    log excess tends to {plateau['log_excess']:.10g}, {away}"


def _classified(case: Case) -> bool:
    return not case.joint and not case.regression and case.prediction is not None


DIRECTIONS = Panel(
    lambda case: not case.joint,
    lambda case: {"directions": case.directions},
    _direction_lines,
    drawn_elsewhere,
    _directions,
)
MARGIN = Panel(_classified, draw=_margin)
_BOUNDED = lambda case: case.regression or not (case.joint or case.run.data.attained)  # something is least
BRACKET = Panel(_BOUNDED, _bracket, _bracket_lines, _bracket_rows)
BOUNDS = Panel(_classified, draw=_bounds, words=_bound_words)
SINGULAR_VALUES = Panel(
    lambda case: _classified(case) and case.foreseen.reference.norm == "nuclear", draw=_singular_values
)
LIMIT = Panel(lambda case: not case.joint and case.limit is not None, _limit, _limit_lines)
