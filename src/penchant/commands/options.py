"""From the options of the command line to a setting; files that must not be there, and losses that the user wrote."""

from argparse import Namespace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..errors import ArgumentError, DataFileError, warn
from ..flow.flow import is_flow
from ..optimisers.base import Optimiser
from ..settings.base import Setting
from ..settings.files import LOSSES, default_loss, guess, read_arrays
from ..settings.losses import AbstractLoss
from ..training import asked
from ..training.asked import Trainer
from ..training.flags import refuse_elsewhere
from ..training.trajectory import Memory, carried, load_memory

_OWN_LOSS = ("linear", "deep-linear")  # elsewhere the infimum is not 0, and its excess needs a closed form


def setting_and_start(options: Namespace) -> tuple[Setting, PyTree]:
    arrays = read_arrays(options.data)
    kind = options.setting or guess(arrays)
    refuse_elsewhere(options, kind)
    return asked.setting_and_start(options, kind, arrays, loss_of(options.loss or default_loss(kind), kind))


def resumed(options: Namespace, setting: Setting, optimiser: Trainer, start: PyTree) -> Memory | None:
    """What the optimiser of the run in the file of --start carried; a warning where that is lost, or this one would carry something and starts with nothing."""
    arrays = read_arrays(options.start) if options.start.endswith(".npz") else {}
    if "header" not in arrays:
        return None
    silent = is_flow(optimiser) or hasattr(optimiser, "account")
    asking = setting, cast(Optimiser, optimiser), start
    found = None if silent else load_memory(options.start, *asking)
    lost = any(name.startswith("memory_") for name in arrays)
    if found is None and (lost or (not silent and jax.tree.leaves(carried(*asking)))):
        dropped = "what another optimiser, or this one on other data, carried, which is dropped"
        kept = dropped if lost else "no memory of this optimiser on these data"
        text = f"'{options.start}' holds the weights of a run and {kept}: {options.optimiser} starts with none"
        warn(f"{text}, so this run is not the exact continuation of that one.")
    return found


def npz_name(path: str) -> str:
    if not path.endswith(".npz"):
        raise ArgumentError("--save", "penchant", "a file name ending in .npz", repr(path))
    return path


def loss_of(text: str, setting: str) -> AbstractLoss:
    """`exponential`, `logistic`, or `FILE.py:NAME` with NAME a loss such as `UserLoss(log_value, log_slope)`; the file is executed."""
    if text in LOSSES:
        return LOSSES[text]()
    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name:
        raise ArgumentError("--loss", "penchant", f"one of {', '.join(LOSSES)}, or FILE.py:NAME", repr(text))
    if setting not in _OWN_LOSS:
        raise ArgumentError("--loss", "penchant", f"one of {', '.join(LOSSES)} with --setting {setting}", repr(text))
    found = attribute(Path(path), name)
    if not isinstance(found, AbstractLoss):
        fix = f"{name} = penchant.UserLoss(lambda z: -2 * z, lambda z: jnp.log(2.0) - 2 * z)"
        raise ArgumentError("--loss", "penchant", f"a loss named '{name}' in '{path}'", repr(found), fix)
    try:  # what it raises would come out of the middle of a run
        for part in (found.log_value, found.log_slope):
            part(jnp.ones(2))
    except Exception as error:
        raise DataFileError(f"The loss of '{path}' raises {type(error).__name__}: {error}") from error
    return found


def attribute(file: Path, name: str) -> object:
    """What a script of the user's own calls by a name; the file is executed."""
    if not file.is_file():
        raise DataFileError(f"There is no file '{file}'.")
    module = ModuleType("penchant_user_script")
    module.__file__ = str(file)
    try:
        SourceFileLoader(module.__name__, str(file)).exec_module(module)
    except (Exception, SystemExit) as error:
        raise DataFileError(f"'{file}' could not be executed: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        known = ", ".join(word for word in vars(module) if not word.startswith("_"))
        raise ArgumentError("name", f"'{file}'", f"one of {known}", repr(name))
    return getattr(module, name)
