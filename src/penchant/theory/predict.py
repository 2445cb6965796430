"""What theory says of a setting: the first theorem that speaks about it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from ..errors import ArgumentError, kind
from ..settings.base import Parametrisation, Setting, is_module
from ..training.batch import single_start
from .base import Prediction, Theorem


def predict(theorems: Iterable[Theorem], setting: Any, optimiser: Any, start: Any = None) -> Prediction:
    """The prediction of the first of `theorems` that speaks about training `setting` with `optimiser`; see `penchant.predict`."""
    for theorem in _speaking(theorems, setting, optimiser):
        if theorem.applies(setting, optimiser):
            if start is None:
                return replace(theorem.predict(setting, optimiser), optimiser=optimiser)
            start = single_start(setting, start, "predict") if _has_arrays(setting) else start
            found = theorem.predict(setting, optimiser, *((start,) if theorem.from_start else ()))
            asked = theorem.at_start(setting, optimiser, start)
            names = {one.name for one in asked}
            kept = tuple(one for one in found.hypotheses if one.name not in names)  # those were about the default start
            return replace(found, hypotheses=kept + asked, optimiser=optimiser)
    found = f"{type(setting.data).__name__} with {type(setting.parametrisation).__name__}"
    raise ArgumentError("setting", "predict", "one that a theorem of the catalogue speaks about", found)


def _has_arrays(setting: Any) -> bool:
    """Whether starts of a setting are trees of arrays; those of joint training and of layers are kinds of their own."""
    return isinstance(setting, Setting) and isinstance(setting.parametrisation, Parametrisation)


def _speaking(theorems: Iterable[Theorem], setting: Any, optimiser: Any) -> Iterator[Theorem]:
    """The theorems about this kind of problem, each asked for when the one before has nothing to say; an error where there is none."""
    found = (theorem for theorem in theorems if isinstance(setting, theorem.problem))
    first = next(found, None)
    if first is None:
        wanted, fix = "a Setting or an AttentionRegression", "Setting(data, Direct(), Exponential())"
        raise ArgumentError("setting", "predict", wanted, kind(setting), fix)
    if not is_module(optimiser):
        wanted = "an optimiser such as GradientFlow() or gradient_descent(0.1)"
        raise ArgumentError("optimiser", "predict", wanted, kind(optimiser))
    return chain((first,), found)
