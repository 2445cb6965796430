"""Many small runs: a sweep against one process per run and against an eager PyTorch loop."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

from penchant.settings.generators import random_tokens

from . import torch_loop
from .machine import Limits
from .section import Ratio, Section, seconds
from .timing import clock, say

SIZE, STEPS, LENGTH, SAMPLED = (6, 5, 10), 2000, 0.1, 3
COUNTS = (100, 1000, 10_000)
FIXED = {"generator": "random_tokens", "n": 6, "length": 5, "d": 10, "equal_scores": "true", "loss": "logistic"}
FIXED |= {"optimiser": "ngd", "step_size": LENGTH, "steps": STEPS}

ABOUT = f"""Normalised descent of {STEPS} steps (n, L, d = {", ".join(map(str, SIZE))}), each run on data of its own. "sweep" is `penchant sweep` with two processes into a new
store, all that it starts included, with compiled code kept from before; "start" is what a sweep of one run takes. One process per run and the PyTorch loop were timed on {SAMPLED} runs
and multiplied up. CPU seconds but for the column "wall"."""


def compare(limits: Limits, quick: bool) -> Section:
    _sweep(1)
    (begin, _), peer, eager = _sweep(1), _processes(), _torch()
    rows = [_row(count, begin, peer, eager) for count in (COUNTS[:1] if quick else COUNTS)]
    notes = [
        "The start is two processes that import and load compiled code; what a run costs beyond it does not depend on how many there are."
    ]
    return Section("sweeps", "Thousands of runs", ABOUT, rows, notes)


def _children() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def _sweep(count: int) -> tuple[float, float]:
    """CPU seconds of a sweep with all its processes, and seconds on the wall."""
    say(f"sweeps: {count} runs")
    words = [word for key, value in FIXED.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = _children(), time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "penchant.cli",
            "sweep",
            *words,
            "--seeds",
            f"0:{count}",
            "--store",
            folder,
            "--jobs",
            "2",
            "--json",
        ]
        answer = subprocess.run(command, check=True, capture_output=True)
        assert json.loads(answer.stdout)["runs"] == count
        return _children() - cpu, time.perf_counter() - wall


def _processes() -> float:
    """CPU seconds of a process that makes one run."""
    make = "pt.settings.random_tokens(6, 5, 10, {seed}, equal_scores=True)"
    code = f"import penchant as pt; d = {make}; pt.train(pt.Setting(d, pt.settings.Gram(d), pt.Logistic()), pt.normalised_descent({LENGTH}), steps={STEPS})"
    cpu = _children()
    for seed in range(SAMPLED + 1):
        cpu = _children() if seed == 1 else cpu  # the first one compiles
        subprocess.run([sys.executable, "-c", code.format(seed=seed)], check=True)
    return (_children() - cpu) / SAMPLED


def _torch() -> float:
    begin = clock()
    for seed in range(SAMPLED):
        problem = torch_loop.Attention(random_tokens(*SIZE, seed, equal_scores=True))
        torch_loop.descend(
            problem,
            torch_loop.normalised_descent(LENGTH),
            STEPS,
            0 * problem.tokens[0, :1].numpy().T @ problem.tokens[0, :1].numpy(),
        )
    return (clock() - begin) / SAMPLED


def _row(count: int, begin: float, peer: float, eager: float) -> dict[str, Any]:
    cpu, wall = _sweep(count)
    return {
        "runs": count,
        "sweep": seconds(cpu),
        "wall": seconds(wall),
        "start": seconds(begin),
        "a run": seconds(cpu / count),
        "a run, without the start": seconds((cpu - begin) / count),
        "one process per run": seconds(peer * count),
        "PyTorch": seconds(eager * count),
        "faster than processes": Ratio(peer * count / cpu),
        "faster than PyTorch": Ratio(eager * count / cpu),
    }
