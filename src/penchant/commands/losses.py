"""The loss of the command line: a name, or an object in a Python file of the user's own."""

import importlib.util
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, DataFileError
from ..settings.files import LOSSES
from ..settings.losses import AbstractLoss

_WHERE = ("linear", "deep-linear")  # elsewhere the infimum is not 0, and its excess needs a closed form


def loss_of(text: str, setting: str) -> AbstractLoss:
    """`exponential`, `logistic`, or `FILE.py:NAME` with NAME a loss such as `UserLoss(log_value, log_slope)`; the file is executed."""
    if text in LOSSES:
        return LOSSES[text]()
    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name:
        raise ArgumentError("--loss", "penchant", f"one of {', '.join(LOSSES)}, or FILE.py:NAME", repr(text))
    if setting not in _WHERE:
        raise ArgumentError("--loss", "penchant", f"one of {', '.join(LOSSES)} with --setting {setting}", repr(text))
    found = _attribute(Path(path), name)
    if not isinstance(found, AbstractLoss):
        fix = f"{name} = penchant.UserLoss(lambda z: -2 * z, lambda z: jnp.log(2.0) - 2 * z)"
        raise ArgumentError("--loss", "penchant", f"a loss named '{name}' in '{path}'", repr(found), fix)
    return found


def _attribute(file: Path, name: str) -> Any:
    if not file.is_file():
        raise DataFileError(f"There is no file '{file}'.")
    module_spec = importlib.util.spec_from_file_location("penchant_user_loss", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise DataFileError(f"'{file}' could not be executed: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise DataFileError(f"'{file}' defines no '{name}'.")
    return getattr(module, name)
