"""What the programs accept: data with margins, or a regression; anything else is named, with what to pass instead."""

from typing import Any

from ..errors import ArgumentError, kind
from ..settings.base import Data, Setting
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection


def require_margins(data: Any, owner: str) -> None:
    """Raise unless `data` can be asked for margins that are to exceed 1."""
    wanted = "data with margins, such as Classification(inputs, labels)"
    if isinstance(data, Regression):
        raise ArgumentError("data", owner, wanted, "a Regression", "`minimum_norm(data)` is its program")
    if isinstance(data, type) or not isinstance(data, Data):
        raise ArgumentError("data", owner, wanted, kind(data), _fix(data))


def require_tokens(data: Any, owner: str) -> None:
    """Raise unless `data` are tokens, whose weight is a matrix."""
    if not isinstance(data, TokenSelection):
        raise ArgumentError("data", owner, "a TokenSelection", kind(data), _fix(data))


def require_regression(data: Any, owner: str) -> None:
    """Raise unless `data` are inputs with targets to interpolate."""
    if not isinstance(data, Regression):
        raise ArgumentError("data", owner, "a Regression(inputs, targets)", kind(data), _fix(data))


def _fix(data: Any) -> str:
    return "pass `setting.data`" if isinstance(data, Setting) else ""
