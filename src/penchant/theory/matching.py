"""Whether a run is what a prediction is about: the same data, parametrisation and loss, and by which optimiser."""

from typing import Any

import jax
import numpy as np

from ..errors import ArgumentError
from ..flow.flow import GradientFlow
from ..settings.joint import TokenGram
from ..settings.parametrisations import Direct, Gram
from ..settings.square_models import SignedPowers, SignedSquares, Squares
from ..training.trajectory import settings_of
from .base import Prediction


def check_same_setting(prediction: Prediction, run: Any) -> None:
    """Raise unless the run is of the setting that was predicted: a verdict on another one would be about nothing."""
    fix = "predict the setting that the run is of"
    fix += ": `predict(run.setting, optimiser)`" if hasattr(run, "setting") else ""
    for part, (wanted, found) in _parts(prediction.setting, run).items():
        difference = _difference(wanted, found)
        if difference:
            required, text = f"a run with the {part} of the prediction", f"one with different {part} ({difference})"
            raise ArgumentError("run", "judge", required, text, fix)


def _parts(setting: Any, run: Any) -> dict[str, tuple[Any, Any]]:
    """What a prediction and a run must have in common."""
    if getattr(
        run, "estimated", False
    ):  # on a sample it has an estimate of the problem: `judge_layer` compares the shapes
        return {}
    if hasattr(run, "problem"):  # on the population of attention regression the problem is everything
        return {"problem": (setting, run.problem)}
    trained = run.setting
    return {
        "data": (setting.data, trained.data),
        "parametrisation": (_form(setting.parametrisation), _form(trained.parametrisation)),
        "loss": (setting.loss, trained.loss),
        "reduction": (setting.reduction, trained.reduction),
    }


def _form(parametrisation: Any) -> Any:
    """The Gram form is that of plain weights; the alpha of squares and powers is their start, which is compared as such."""
    if isinstance(parametrisation, Direct | Gram | TokenGram):
        return "plain weights"
    if isinstance(parametrisation, SignedPowers):
        return f"SignedPowers of depth {parametrisation.depth}"
    return type(parametrisation).__name__ if isinstance(parametrisation, Squares | SignedSquares) else parametrisation


def _difference(wanted: Any, found: Any) -> str:
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


def other_optimiser(prediction: Prediction, run: Any) -> str:
    """A remark where the run is by another optimiser than the prediction; empty where it is by the same one."""
    by = run.header.get("optimiser", run.header.get("rule"))
    if prediction.optimiser is None or by is None:
        return ""
    predicted = settings_of(prediction.optimiser)
    if _agree(predicted, by, run.header.get("member")):
        return ""
    return f"the prediction is for {optimiser_name(predicted)}, the run is by {optimiser_name(by)}"


def _agree(predicted: Any, by: Any, member: int | None) -> bool:
    """Equal, or one is a member of the other's batch; flows are one optimiser, however finely they are integrated."""
    if isinstance(predicted, dict) and isinstance(by, dict):
        if predicted.get("kind") == by.get("kind") == GradientFlow.__name__:
            return True
        return predicted.keys() == by.keys() and all(_agree(predicted[name], by[name], member) for name in predicted)
    if isinstance(by, list) and not isinstance(predicted, list):
        return predicted == (by[member] if member is not None and member < len(by) else None)
    if isinstance(predicted, list) and not isinstance(by, list):
        return by in predicted
    return bool(predicted == by)


def optimiser_name(settings: Any) -> str:
    """Constructor arguments as text, those that are switched off left out.

    >>> import penchant as pt
    >>> optimiser_name(settings_of(pt.normalised_descent(0.05)))
    'Descent(Normalised(length=0.05), L2)'
    """
    if not isinstance(settings, dict):
        return f"{settings:g}" if isinstance(settings, float) else str(settings)
    if settings.get("kind") == GradientFlow.__name__:
        return GradientFlow.__name__
    parts = [
        optimiser_name(value) if isinstance(value, dict) else f"{name}={optimiser_name(value)}"
        for name, value in settings.items()
        if name != "kind" and not isinstance(value, bool) and value not in (None, float("inf"))
    ]
    return f"{settings.get('kind', 'settings')}({', '.join(parts)})" if parts else str(settings.get("kind"))
