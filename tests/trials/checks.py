"""A case is checked: in limited time, with what is raised told apart from what is said."""

import contextlib
import signal
import traceback
import warnings
from pathlib import Path

import numpy as np

import penchant
from penchant.errors import PenchantError

from . import commands, junk, programs, runs
from .holding import ENDLESS, ERROR, TRACEBACK, UNCHECKED

HOME = Path(penchant.__file__).parent
CHECKS = {
    "l2 margin": programs.l2_margin,
    "polyhedral margin": programs.polyhedral,
    "token margin": programs.token_margin,
    "interpolation": programs.interpolation,
    "training": runs.training,
    "command line": commands.command_line,
    "junk argument": junk.junk_argument,
    "exponent margin": programs.exponent_margin,
}


class OutOfTime(BaseException):
    """The CPU time of a case is used up; not an Exception, so that nothing on the way swallows it."""


@contextlib.contextmanager
def limited(seconds):
    """CPU seconds, not those of the clock: the cores are shared."""

    def stop(*_):
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds / 4)  # again, should the first one be lost in a callback
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check(case, seconds=60.0):
    """(category, note) of a case: an error on purpose, anything else that is raised, or what its family says."""
    try:
        with limited(seconds), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return CHECKS[case.family](case.rng)
    except PenchantError as error:
        return ERROR, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    except (Exception, OutOfTime) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if HOME in Path(frame.filename).parents]
        place = "".join(f" {Path(frame.filename).name}:{frame.lineno}" for frame in frames[-2:])
        if isinstance(error, OutOfTime):
            return (ENDLESS if frames else UNCHECKED), f"more than {seconds:g} CPU seconds, at{place}"
        if not frames:  # a fault of the trial itself
            raise
        return TRACEBACK, f"{type(error).__name__}: {str(error)[:100]} at{place}"
