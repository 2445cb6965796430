"""Verdicts: what a run says of a prediction, once it is known to be of the same problem, and by which optimiser."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, kind
from ..flow.flow import GradientFlow
from ..logspace import check_float64
from ..training.trajectory import settings_of
from ..verdict import Verdict
from .base import Prediction
from .verdicts import explained

JSON = dict | list | str | float | int | bool | None
_FACTS = {True: "hold", False: "fail", None: "open"}


def judge(prediction: Prediction, run: "Run") -> Verdict:
    """The verdict of the predicting theorem on a run of the same setting: whether its conclusion holds there, and whether its hypotheses do.

    A run by another optimiser is judged, said to be one, and not what the theorem is about.
    """
    if not isinstance(prediction, Prediction):
        raise ArgumentError("prediction", "judge", "what `predict` returned", kind(prediction))
    check_float64()
    _check_same(prediction, run)
    verdict, remark = prediction.theorem.family.judge(prediction, run), other_optimiser(prediction, run)
    verdict = explained(replace(verdict, detail=remark), verdict.detail)
    return replace(verdict, hypotheses="fail" if remark else _FACTS[prediction.holds])


@runtime_checkable
class Run(Protocol):
    """What a verdict asks of a run before it looks at its records: the parts of its problem, none where it saw a sample of it only."""

    @property
    def parts(self) -> dict[str, PyTree]: ...
    @property
    def header(self) -> dict: ...


def _check_same(prediction: Prediction, run: Run) -> None:
    """Raise unless the run is of the setting that was predicted: a verdict on another one would be about nothing."""
    wanted = prediction.setting.parts
    for part, found in run.parts.items():
        difference = _difference(wanted.get(part, prediction.setting), found)
        if difference:
            required, text = f"a run with the {part} of the prediction", f"one with different {part} ({difference})"
            fix = "predict the setting that the run is of" + ": `predict(run.setting, optimiser)`" * hasattr(
                run, "setting"
            )
            raise ArgumentError("run", "judge", required, text, fix)


def _difference(wanted: PyTree, found: PyTree) -> str:
    """What tells two values or modules apart, in words; empty if nothing does."""
    if type(wanted) is not type(found):
        return f"{type(found).__name__} instead of {type(wanted).__name__}"
    if isinstance(wanted, str):
        return "" if wanted == found else f"{found} instead of {wanted}"
    first, second = (jax.tree_util.tree_flatten_with_path(one) for one in (wanted, found))
    for (path, one), (_, other) in zip(first[0], second[0], strict=False):
        name = jax.tree_util.keystr(path).strip(".") or type(wanted).__name__
        if np.shape(one) != np.shape(other):
            return f"'{name}' has shape {np.shape(other)} instead of {np.shape(one)}"
        if not (one is other or np.array_equal(one, other)):
            return f"'{name}' has other values"
    if first[1] != second[1]:
        return f"{optimiser_name(settings_of(found))} instead of {optimiser_name(settings_of(wanted))}"
    return ""


def other_optimiser(prediction: Prediction, run: Run) -> str:
    """A remark where the run is by another optimiser than the prediction; empty where it is by the same one."""
    by = run.header.get("optimiser", run.header.get("rule"))
    if prediction.optimiser is None or by is None:
        return ""
    predicted = settings_of(prediction.optimiser)
    if _agree(predicted, by, run.header.get("member")):
        return ""
    return f"the prediction is for {optimiser_name(predicted)}, the run is by {optimiser_name(by)}"


def _agree(predicted: JSON, by: JSON, member: int | None) -> bool:
    """Equal, or one is a member of the other's batch; flows are one optimiser, however finely they are integrated."""
    match predicted, by:
        case {"kind": GradientFlow.__name__}, {"kind": GradientFlow.__name__}:
            return True
        case dict(), dict():
            return predicted.keys() == by.keys() and all(_agree(predicted[one], by[one], member) for one in predicted)
        case list(), list():
            return predicted == by
        case _, list():
            return predicted == (by[member] if member is not None and member < len(by) else None)
        case list(), _:
            return by in predicted
    return bool(predicted == by)


def optimiser_name(settings: JSON) -> str:
    """Constructor arguments as text, those that are switched off left out.

    >>> import penchant as pt
    >>> optimiser_name(settings_of(pt.normalised_descent(0.05)))
    'Descent(Normalised(length=0.05), L2)'
    """
    match settings:
        case float():
            return f"{settings:g}"
        case {"kind": GradientFlow.__name__}:
            return GradientFlow.__name__
        case dict():
            silent = lambda value: type(value) is bool or value in (None, float("inf"))
            shown = {name: value for name, value in settings.items() if name != "kind" and not silent(value)}
            parts = [f"{name}=" * (type(value) is not dict) + optimiser_name(value) for name, value in shown.items()]
            return str(settings.get("kind")) + f"({', '.join(parts)})" * bool(parts)
    return str(settings)
