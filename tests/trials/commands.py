"""The command line: exit codes, JSON, tables that can and cannot be read, and the numbers that are printed."""

import contextlib
import io
import json
import os
import signal
import tempfile
from pathlib import Path

import numpy as np

from penchant.cli import main

from . import cases, oracles
from .holding import ERROR, RIGHT, WRONG, Bounds, held


def _run_command(words, folder):
    out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        os.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as end:
        code = end.code
    finally:
        os.chdir(here)
        signal.signal(signal.SIGTERM, handler)
    return code, out.getvalue(), err.getvalue()


def command_line(rng):
    with tempfile.TemporaryDirectory() as folder:
        return _table(rng, folder) if rng.random() < 0.3 else _options(rng, folder)


def _options(rng, folder):
    setting, kind, job, words = cases.command(rng)
    drawn = getattr(cases, kind)(rng, tame=rng.random() < 0.7)
    names = {
        "linear": ("inputs", "labels"),
        "regression": ("inputs", "targets"),
        "tokens": ("tokens", "queries", "scores"),
    }
    np.savez(Path(folder) / "data.npz", **dict(zip(names[kind], drawn, strict=True)))
    words = [job, "data.npz", "--setting", setting, *words]
    code, out, err = _run_command(words, folder)
    rows = oracles.exact(drawn[1][:, None] * drawn[0]) if kind == "linear" else []
    bare = setting == "linear" and not {"--bias", "--normalise"} & set(words)
    return _answer(words, code, out, err, rows if bare else None)


def _table(rng, folder):
    inputs, labels = cases.linear(rng, ((4, 2),), tame=True)
    text, kind, readable = cases.csv_text(rng, inputs, labels)
    (Path(folder) / "data.csv").write_text(text, encoding="utf-8")
    words = ["predict", "data.csv", "--json"]
    code, out, err = _run_command(words, folder)
    said = json.loads(out).get("error", "") if code in (0, 2) else ""
    if not readable and said in ("", "NotSeparableError", "UndecidedMargin"):
        return WRONG, f"a table with the fault '{kind}' was read: {text!r}"
    if readable and said == "DataFileError":
        return WRONG, f"a good table ({kind}) was refused: {err.splitlines()[0]}"
    return _answer([*words, kind], code, out, err, oracles.exact(labels[:, None] * inputs))


def _answer(words, code, out, err, rows):
    """Exit code, JSON and numbers of a command."""
    text = " ".join(words)
    if code not in (0, 1, 2):
        return WRONG, f"exit code {code}: {text}"
    if "--json" not in words:
        return (RIGHT if code == 0 and out else ERROR if code == 2 and err else WRONG), text
    try:
        content = json.loads(out, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return WRONG, f"not JSON: {text}"
    if code == 2:
        return (ERROR if content.get("message") else WRONG), f"{text}: {content.get('message', '')[:60]}"
    found = content if words[0] == "predict" else content.get("prediction")
    reference = (found or {}).get("reference")
    if reference and reference.get("value", 0.0) is None and reference.get("resolved", True):
        return WRONG, f"a reference of null: {text}"
    if rows is None or not reference or reference["norm"] not in ("l1", "l2", "linf"):
        return RIGHT, text
    bounds = [np.nan if reference[name] is None else reference[name] for name in ("lower", "upper")]
    truth = oracles.least_margin_norm(rows, reference["norm"])
    verdict, note = held(Bounds(*bounds), truth, truth, 2 if reference["norm"] == "l2" else 1)
    return verdict, f"{text}: {note}"
