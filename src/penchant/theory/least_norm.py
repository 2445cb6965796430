"""Verdicts on a norm: how far a weight is above the least norm, and whether a rival is as short."""

from typing import Any

import numpy as np

from ..norms import Norm
from ..references.base import Solution
from ..references.bracket import margins
from ..verdict import Outcome, Verdict
from .base import COINCIDENT, Prediction, Rival

_SEPARABLE = 1e-6  # rivals whose norm exceeds the optimum by less than this cannot be told from it


_CLOSE = 1e-2  # a run this near the optimum counts as there, if the rivals are ten times farther


def excess(data: Any, weight: np.ndarray, reference: Solution) -> float:
    """norm(W) / margin(W) over its minimum, minus 1; infinite while the margin is not positive."""
    margin = np.asarray(margins(data, weight))[data.constrained()].min()
    return reference.measure.value(weight) / margin / reference.value - 1 if margin > 0 else float("inf")


def judge_value(prediction: Prediction, weight: np.ndarray, norm: Norm) -> Verdict:
    """Confirmed: the excess is below a tenth of that of the nearest rival (and 1e-2). Refuted: the weight is a rival.

    A rival in the direction of the reference is none: `remarks` names it. One in another direction that has the same norm leaves
    undecided whether training minimises this norm or finds that direction for a reason of its own.
    Against a reference that is not certified nothing is decided: its norm may not be the minimum.
    """
    data, reference = prediction.setting.data, prediction.reference
    others = {rival.name: excess(data, rival.weight, reference) for rival in _apart(prediction)}
    nearest = min(others.values(), default=float("inf"))
    measured = excess(data, np.asarray(weight), reference)
    text = f"{norm.name} norm at margin 1 over its minimum - 1 = {measured:.3g}"
    if not np.isfinite(measured):
        return Verdict(Outcome.undecided, "the smallest margin is not positive: not separating", None, measured)
    if not reference.certified:
        known = f"the minimum is known only to a relative {reference.bracket.gap:.1e}"
        return Verdict(Outcome.undecided, f"{text}, but {known}", None, measured)
    if nearest < _SEPARABLE:
        return Verdict(
            Outcome.undecided,
            f"{text}, but a rival is within {nearest:.1e} of the optimum: these data cannot tell them apart",
            None,
            measured,
        )
    bound = min(_CLOSE, nearest / 10)
    if measured <= bound:
        detail = f"nearest rival at {nearest:.3g}" if np.isfinite(nearest) else "no other rival separates"
        return Verdict(Outcome.confirmed, f"{text} <= {bound:.3g}", bound, measured, detail)
    for name, value in others.items():
        scaled = [np.asarray(w) / np.linalg.norm(w) for w in (weight, _named(prediction, name))]
        if np.linalg.norm(scaled[0] - scaled[1]) <= _CLOSE and abs(measured - value) <= 0.1 * value:
            return Verdict(Outcome.refuted, f"{text} > {bound:.3g}", bound, measured, f"it is the rival '{name}'")
    return Verdict(Outcome.undecided, f"{text} > {bound:.3g}, and no rival is near", bound, measured)


def _apart(prediction: Prediction) -> list[Rival]:
    """The rivals in other directions than the reference."""
    return [rival for rival in prediction.rivals if rival.separation > COINCIDENT]


def _named(prediction: Prediction, name: str) -> np.ndarray:
    return next(rival.weight for rival in prediction.rivals if rival.name == name)
