"""`predict` and `train` on the user's own data: one pipeline, whatever is trained.

A desk is a module that knows one kind of training: `predict(options) -> Predicted`, and `train(options) -> Trained`, the case that the panels
then tell.
"""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..report.panel import Panel, page, tell
from ..settings.files import read_arrays
from ..training.trajectory import settings_of, write_npz
from .advice import describe_steps
from .flags import kind_of, refuse
from .options import check_writable, npz_name
from .pages import check_new_page, write_page


class Predicted(NamedTuple):
    """A prediction for programs, for people, and the arrays that `--save` keeps."""

    content: dict[str, Any]
    lines: Iterable[str]
    arrays: dict[str, Any]


class Trained(NamedTuple):
    """A case, the panels that tell it, how to save its run, and what is known besides; without a `paper` there is no page."""

    case: Any
    panels: Iterable[Panel]
    save: Callable[[str], Path]
    paper: str
    content: Mapping[str, Any] = MappingProxyType({})
    lines: Iterable[str] = ()


def _desk(options: Namespace) -> ModuleType:
    """The module that knows the kind of training; options that it does not take are refused before."""
    refuse(options)
    name = {"own": "data", "joint": "joint", "attention-regression": "attention"}[kind_of(options)]
    return import_module(f".{name}", __package__)


def predict(options: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Theorem, hypotheses, certified reference and rivals for the user's data, and the same as text."""
    desk = _desk(options)
    if options.save:
        check_writable(npz_name(options.save))
    content, lines, arrays = desk.predict(options)
    if options.save:
        content["saved"] = str(write_npz(options.save, content, arrays))
    return content, [*lines, *_files(content)]


def train(options: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Train on the user's data, judge the run against the prediction, and save what was asked for."""
    desk = _desk(options)
    check_new_page(options)
    for path in (options.save and npz_name(options.save), options.out and str(Path(options.out) / "index.html")):
        if path:
            check_writable(path)  # before the work, not after it
    found = desk.train(options)
    content, text = tell(found.case, found.panels)
    content |= found.content
    if options.save:
        content["saved"] = str(found.save(options.save))
    if options.out and found.paper:
        write_page(content, options, found.paper, lambda: page(found.case, found.panels))
    elif options.out:
        print("No page was written: without a prediction there is nothing to compare the run with.", file=sys.stderr)
    return content, [*text, *found.lines, *_files(content)]


def _files(content: dict[str, Any]) -> Iterable[str]:
    """Where the run and its page were written."""
    yield from (f"{name:10} {content[name]}" for name in ("saved", "page") if content.get(name) is not None)
    if "page_error" in content:
        yield f"page       not written ({content['page_error']})"


def made(options: Namespace, optimiser: Any) -> dict[str, str]:
    """What a reader needs to make a run again: the command, the data and their shapes, optimiser, step size, start and seed."""
    shape = lambda array: " x ".join(map(str, np.shape(array))) or "one number"
    arrays = ", ".join(f"{name} {shape(array)}" for name, array in read_arrays(options.data).items())
    command = shlex.join(["penchant", *getattr(options, "words", ())])
    readable = lambda text: os.fsencode(text).decode(errors="replace")  # a name of a file need not be text
    return {
        "command": readable(command),
        "data": readable(f"{Path(options.data).name}: {arrays}"),
        "optimiser": describe_steps(options, optimiser),
        "step size": _step(settings_of(optimiser))
        or "none: " + ("a flow" if options.optimiser == "flow" else "by the rule"),
        "start": readable(options.start),
        "seed": str(options.seed),
    }


def _step(settings: Any) -> str:
    """The step size or length among the settings of an optimiser; empty where it has none."""
    if not isinstance(settings, dict):
        return ""
    found = (f"{settings[name]:.6g}" for name in ("step", "length") if isinstance(settings.get(name), float))
    return next(found, "") or next(filter(None, map(_step, settings.values())), "")
