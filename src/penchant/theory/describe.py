"""A prediction for programs and for people: one dictionary of plain values, and the lines of text that are made of it."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..optimisers.layerwise import risk_bounds, sharp_smoothness, smoothness
from ..problem import Problem
from ..references.base import Interpolant, Solution
from ..settings.deep_linear import DeepLinear, layer_norms
from ..settings.factored import selection
from .base import Prediction, made_of
from .families.interpolation import own_potential, unresolved, what_is_selected
from .families.layers import network_constants, vector

Content = dict[str, Any]  # JSON values by name


def describe(prediction: Prediction, start: PyTree = None) -> Content:
    """Theorem, hypotheses, certified reference, rate and rivals as JSON values; with the `start` of a deep linear network its constants too."""
    theorem = prediction.theorem
    return {
        **{name: getattr(theorem, name) for name in ("statement", "citation", "paper")},
        "theorem": theorem.name,
        "holds": prediction.holds,
        "hypotheses": [vars(hypothesis) for hypothesis in prediction.hypotheses],
        "reference": {"norm": prediction.reference.norm, **_reference(prediction)},
        "rate": prediction.rate,
        "notes": [*prediction.notes, *_queries(prediction.setting)],
        "rivals": [{"name": rival.name, "separation": rival.separation} for rival in prediction.rivals],
        **_network(prediction, start),
    }


def _reference(prediction: Prediction) -> Content:
    """The certified value, and the margin or what is least; no value where an interpolant is not resolved, with the reason."""
    found = prediction.reference
    if isinstance(found, Solution):
        return {**_bounds(found), "margin": found.margin}
    if not isinstance(found, Interpolant):
        return {}
    open_ = {"value": None, "lower": None, "upper": None, "reason": unresolved(found)} if not found.certified else {}
    least = own_potential(prediction.setting, prediction.start).least
    kind = what_is_selected(prediction.setting.data)
    known = {"resolved": found.resolved, "least": least, "kind": kind, "allowance": found.allowance}
    return {**(open_ or _bounds(found)), **known}


def _bounds(found: Solution | Interpolant) -> Content:
    bounds = {"value": found.value, "lower": found.bracket.lower, "upper": found.bracket.upper}
    return {**bounds, "certified": found.certified}


def _queries(setting: Problem) -> tuple[str, ...]:
    """A note where the queries are the default ones, which a reader of the data cannot see."""
    found = selection(getattr(setting, "data", None))
    if found is None or not np.array_equal(found.queries, np.asarray(found.tokens)[:, 0]):
        return ()
    return ("queries: the first token of each sample (the default; an array `queries` names others)",)


def _network(prediction: Prediction, start: PyTree) -> Content:
    """The constants of the laws under `network`, which are those of the l2 maximum margin. What theory does not know is null."""
    setting = prediction.setting
    if not made_of(setting, object, DeepLinear) or start is None or prediction.reference.norm != "l2":
        return {}
    found = network_constants(setting, start, prediction.reference)
    geometry, radius = found.geometry, max(1.0, float(layer_norms(start).max()))
    known, bounds = not math.isnan(found.tail), risk_bounds(setting, start)
    finite = lambda value: value if math.isfinite(value) else None
    content = {
        **{name: getattr(geometry, name).tolist() for name in ("direction", "support", "shares")},
        "entropy": geometry.entropy,
        "tail": found.tail if known else None,
        "offset": found.offset.tolist() if known else None,
        "offset_norm": float(np.linalg.norm(found.offset)) if known else None,
        "critical_drop": finite(found.critical_drop) if known else None,
        "imbalance": found.imbalance,
        "hull_radius": finite(geometry.radius),
        "thresholds": {name: finite(value) for name, value in found.thresholds.items()},
        "radius": radius,
        "loss_bounds": None if bounds is None else list(bounds),
        "smoothness": None if bounds is None else float(smoothness(radius, found.depth, *bounds)),
        "sharp_smoothness": None if bounds is None else float(sharp_smoothness(radius, found.depth, *bounds)),
    }
    return {"network": content}


def lines(content: Content) -> Iterator[str]:
    """What `penchant predict` prints of a prediction, and `print(prediction)`."""
    reference = content["reference"]
    yield f"theorem    {content['theorem']}: {content['statement']}\n           {content['citation']}"
    yield from hypothesis_lines(content["hypotheses"])
    yield f"reference  {_reference_line(reference)}"
    if "margin" in reference:
        margin = f"{reference['margin']:.12g}" if reference["certified"] else f"at least {reference['margin']:.8g}"
        yield f"           maximum margin per unit of norm: {margin}"
    yield from proof_lines(content)
    yield from _network_lines(content["network"]) if "network" in content else ()
    if "optimiser" in content:
        yield f"optimiser  {content['optimiser']}"
    yield f"rate       {content['rate']}"
    yield from (f"note       {note}" for note in content["notes"])
    measure = {"least": "relative distance to the reference", "margin": "1 - corr to the reference"}
    measure = next((words for name, words in measure.items() if name in reference), "separation")
    yield from (f"rival      {one['name']}: {measure} {one['separation']:.4g}" for one in content["rivals"])


def _reference_line(found: Content) -> str:
    if "margin" not in found and "least" not in found:
        return found["norm"]
    what = f"minimum {found['norm']} norm with margins >= 1"
    what = f"{found['kind']} of least {found['least']}" if "least" in found else what
    if found["value"] is None:
        return f"{what}: not resolved, {found['reason']}"
    if not found["certified"]:
        return f"{what}: between {found['lower']:.8g} and {found['upper']:.8g}, more float64 does not say"
    text = f"{what}: {found['value']:.12g}, certified in [{found['lower']:.15g}, {found['upper']:.15g}]"
    if not found.get("allowance"):
        return text
    return f"{text} for targets within {found['allowance']:g} of these, relative to the sizes of their terms"


def number(value: float | None) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value + 0.0:.4g}"  # -0 is 0


def hypothesis_lines(hypotheses: Iterable[Content]) -> Iterator[str]:
    for one in hypotheses:
        mark = {None: "  ?  ", True: "holds", False: "FAILS"}[one["holds"]]
        offender = f", worst: {one['offender']}" if one["offender"] else ""
        meaning = "; ".join(part for part in (one["detail"], one["exactness"]) if part)
        yield f"hypothesis {mark}  {one['name']}: slack {number(one['slack'])}{offender} ({meaning})"


def proof_lines(content: Mapping) -> Iterator[str]:
    """What `--exact` proved."""
    if "exact" in content:
        found = content["exact"]
        yield f"exact      proved in [{found['lower']!r}, {found['upper']!r}]; penchant check {found['certificate']}"


def _network_lines(found: Content) -> Iterator[str]:
    samples = ", ".join(map(str, found["support"]))
    yield f"network    direction u = {vector(found['direction'])}; support vectors {samples}"
    yield f"           dual weights p = {vector(found['shares'])}, entropy H(p) = {found['entropy']:.8g}"
    if found["offset"] is None:
        yield "           offset unknown: the loss has no exponential tail"
    else:
        rate = f"tail rate a = {found['tail']:.6g}"
        yield f"           offset {vector(found['offset'])}, length {found['offset_norm']:.8g} ({rate})"
    if found["critical_drop"] is not None:
        drop = found["critical_drop"]
        yield f"           descent settles with step sizes below {drop:.6g} R / |grad R|^2, beyond it alternates"
    shown = lambda value, form, missing: missing if value is None else format(value, form)
    thresholds = ", ".join(f"{shown(value, '.6g', 'none')} ({name})" for name, value in found["thresholds"].items())
    lemma = f"; K of Lemma 4: {thresholds}" if thresholds else ""
    hull = shown(found["hull_radius"], ".8g", "infinite")
    yield f"           D = {found['imbalance']:.8g} of the start; hull radius alpha = {hull}{lemma}"
    if found["loss_bounds"] is not None:
        curvature, slope = found["loss_bounds"]
        bounds = f"with l'' <= {curvature:.6g}, |l'| <= {slope:.6g}"
        sizes = f"{found['smoothness']:.6g}, sharp {found['sharp_smoothness']:.6g}, at R = {found['radius']:.6g}"
        yield f"           smoothness beta(R) = {sizes} {bounds}"
