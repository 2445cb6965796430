"""The page of a run on the user's own data, written after everything else is known."""

import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from ..errors import ArgumentError, PenchantError
from ..exhibits import Result
from ..lab import Study
from ..report.page import render, save

NAME = "own-data"  # of the folder, and so one to a directory


def check_new_page(options: Namespace) -> None:
    """An earlier page is replaced only where that was asked for; one that could not be drawn is none."""
    if options.overwrite or not options.out:
        return
    if all((Path(options.out) / part).exists() for part in (NAME, "index.html")):
        found = f"'{options.out}', which holds the page of an earlier run"
        raise ArgumentError("--out", "penchant train", "a new directory", found, "--overwrite, or another name")


def write_page(content: dict, options: Namespace, paper: str, result: Callable[[], Result]) -> None:
    """Write the page and put its place into `content`; a failure is put there instead, so that the verdict is not lost with it."""
    name = os.fsencode(Path(options.data).name).decode(errors="replace")  # a name of a file need not be text
    study = Study(NAME, f"Your data: {name}", lambda lab: result())
    try:
        save(study, result(), options.out, paper=paper, seed=options.seed, full=False, seconds=0.0)
        content["page"] = str(render(options.out))
    except Exception as error:
        if not isinstance(error, OSError | PenchantError):  # those two explain themselves
            traceback.print_exc(file=sys.stderr)
        content["page"], content["page_error"] = None, f"{type(error).__name__}: {error}"
