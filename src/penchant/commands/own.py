"""`predict` and `train` on the user's own data: one pipeline, whatever is trained.

A desk is a module that knows one kind of training: `predict(options) -> Predicted`, and `train(options) -> Trained`, the case that the panels
then tell.
"""

import hashlib
import json
import os
import shlex
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import ArrayLike

from ..cache import fingerprint
from ..errors import ArgumentError, PenchantError
from ..exhibits import only
from ..files import check_writable, write_npz
from ..optimisers.base import Optimiser
from ..optimisers.table import OPTIMISERS
from ..settings.files import read_arrays
from ..theory.judge import optimiser_name
from ..training.flags import kind_of, refuse
from ..training.trajectory import settings_of
from . import Said
from .options import npz_name

if TYPE_CHECKING:  # a prediction draws nothing
    from ..exhibits import Result
    from ..report.panel import Panel, Told

PAGE = "own-data"  # the folder of a page, and so one to a directory
_SIZED = tuple(name for name in OPTIMISERS if name != "polyak")  # their steps are chosen by the data
_WORDS = {"momentum": "normalised momentum (heavy ball on gradients of length 1)"}


class Predicted(NamedTuple):
    """A prediction for programs, for people, and the arrays that `--save` keeps."""

    content: dict
    lines: Iterable[str]
    arrays: Mapping[str, ArrayLike]


class Trained(NamedTuple):
    """A case, the panels that tell it, how to save its run, and what is known besides; without a `paper` there is no page."""

    case: "Told"
    panels: Iterable["Panel"]
    save: Callable[[str], Path]
    paper: str
    content: Mapping = MappingProxyType({})
    lines: Iterable[str] = ()


def _desk(options: Namespace) -> ModuleType:
    """The module that knows the kind of training; options that it does not take are refused before."""
    refuse(options)
    name = {"own": "data", "joint": "joint", "attention-regression": "attention"}[kind_of(options)]
    return import_module(f".{name}", __package__)


def predict(options: Namespace) -> Said:
    """Theorem, hypotheses, certified reference and rivals for the user's data, and the same as text."""
    desk = _desk(options)
    if options.save:
        check_writable(npz_name(options.save))
    content, lines, arrays = desk.predict(options)
    if options.save:
        content["saved"] = str(write_npz(options.save, content, arrays))
    return Said(content, [*lines, *written(content)])


def train(options: Namespace) -> Said:
    """Train on the user's data, judge the run against the prediction, and save what was asked for."""
    from ..report.panel import page, tell

    desk = _desk(options)
    for path in (options.save and npz_name(options.save), options.out and str(Path(options.out) / "index.html")):
        if path:
            check_writable(path)  # before the work, not after it
    _check_new(options)
    found = desk.train(options)
    content, text = tell(found.case, found.panels)
    content |= found.content
    if options.save:
        content["saved"] = str(found.save(options.save))
    if options.store:
        from .runs import keep

        told = {"status": content.get("status", ""), **_single(content), "name": Path(options.data).name}
        keep(options.store, "train", [{**told, "asked": _asked(options)}], fingerprint())
    if options.out and found.paper:
        content |= page_of(options, found.paper, lambda: page(found.case, found.panels))
    elif options.out:
        print("No page was written: without a prediction there is nothing to compare the run with.", file=sys.stderr)
    return Said(content, [*text, *found.lines, *written(content)], int("page_error" in content))


def _single(values: Mapping) -> dict:
    """Those that are one number or text."""
    return {name: value for name, value in values.items() if isinstance(value, str | int | float)}


def _asked(options: Namespace) -> str:
    """The options that decide a run, and the digest of its data."""
    kept = _single(vars(options))
    left = ("data", "save", "out", "store", "overwrite", "json")
    data = hashlib.sha256(Path(options.data).read_bytes()).hexdigest()[:16]
    return f"{data} {json.dumps({name: kept[name] for name in sorted(kept) if name not in left})}"


def written(content: dict) -> Iterable[str]:
    """Where the run and its page were written."""
    yield from (f"{name:10} {content[name]}" for name in ("saved", "page") if content.get(name) is not None)
    if "page_error" in content:
        yield f"page       not written ({content['page_error']})"


def page_of(options: Namespace, paper: str, result: "Callable[[], Result]") -> dict:
    """Write the page and say where it is; or why it could not be drawn, so that the verdict is not lost with it."""
    from ..lab import Study
    from ..report.page import render, save

    name = _readable(Path(options.data).name)
    try:
        study = Study(PAGE, f"Your data: {name}")
        save(study, result(), options.out, paper=paper, seed=options.seed)
        return {"page": str(render(options.out))}
    except (OSError, PenchantError) as error:  # those two explain themselves
        return {"page": None, "page_error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {"page": None, "page_error": f"{type(error).__name__}: {error}"}


def _check_new(options: Namespace) -> None:
    """An earlier run or page is replaced only where that was asked for; a page that could not be drawn is none."""
    fix = "--overwrite, or another name"
    if options.save and Path(options.save).exists() and not options.overwrite:
        raise ArgumentError("--save", "penchant train", "a new file", f"'{options.save}', which exists", fix)
    parts = [Path(options.out) / part for part in (PAGE, "index.html")] if options.out else []
    if parts and all(part.exists() for part in parts) and not options.overwrite:
        found = f"'{options.out}', which holds the page of an earlier run"
        raise ArgumentError("--out", "penchant train", "a new directory", found, fix)


def _readable(text: str) -> str:
    """A name of a file need not be text."""
    return os.fsencode(text).decode(errors="replace")


def describe_steps(options: Namespace, optimiser: eqx.Module | Optimiser) -> str:
    """The rule with its numbers, and whether the step size was chosen by the data."""
    open_size = options.step_size is None and options.optimiser in _SIZED
    chosen = " (step size: the default, from the data)" if open_size else ""
    return f"{_WORDS.get(options.optimiser, options.optimiser)}: {optimiser_name(settings_of(optimiser))}{chosen}"


def made(options: Namespace, optimiser: eqx.Module | Optimiser) -> dict[str, str]:
    """What a reader needs to make a run again: the command, the data and their shapes, optimiser, step size, start and seed."""
    shape = lambda array: " x ".join(map(str, np.shape(array))) or "one number"
    arrays = ", ".join(f"{name} {shape(array)}" for name, array in read_arrays(options.data).items())
    command = shlex.join(["penchant", *getattr(options, "words", ())])
    return {
        "command": _readable(command),
        "data": _readable(f"{Path(options.data).name}: {arrays}"),
        "optimiser": describe_steps(options, optimiser),
        "step size": _step({"": settings_of(optimiser)})
        or f"none: {'a flow' if options.optimiser == 'flow' else 'by the rule'}",
        "start": _readable(options.start)
        + (f", scale {options.scale:g}" if options.start == "small" and options.scale else ""),
        "seed": str(options.seed),
    }


def _step(settings: Mapping) -> str:
    """The step size or length among the settings of an optimiser; empty where it has none."""
    numbers = (settings.get(name) for name in ("step", "length"))
    found = (f"{number:.6g}" for number in numbers if type(number) is float)
    return next(found, "") or next(filter(None, map(_step, only(dict, settings.values()))), "")
