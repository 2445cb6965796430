"""Many small runs: a sweep against one process per run and against an eager PyTorch loop."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from penchant.settings.generators import random_tokens
from penchant.sweeps.boundary import scaled
from penchant.sweeps.store import Store, digest
from penchant.sweeps.sweep import sweep

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
    with tempfile.TemporaryDirectory() as folder:
        rows = [_row(count, begin, peer, eager, folder) for count in (COUNTS[:1] if quick else COUNTS)]
        query = _query(f"{folder}/{rows[-1]['runs']}")
    notes = [
        "The start is two processes that import and load compiled code; what a run costs beyond it does not depend on how many there are.",
        query,
        _boundary(*((200, 20) if quick else (2000, 100))),
        f"Measured with other jobs on the machine: load average {os.getloadavg()[0]:.1f} at the end.",
    ]
    return Section("sweeps", "Thousands of runs", ABOUT, rows, notes)


def _query(folder: str) -> str:
    """How long a grouped question takes over all runs of the table, copied under other keys to make 20 000 of them."""
    store = Store(folder)
    rows = store.rows()
    for copy in range(1, -(-20_000 // len(rows)) if len(rows) > 1000 else 1):
        for first in range(0, len(rows), 256):
            part = [{**row, "key": digest([row["key"], copy])} for row in rows[first : first + 256]]
            store.write(part, {"kind": "sweep"})
    begin = clock()
    (found,) = Store(folder).query("select sum(runs) from (select seed % 20, count(*) as runs from runs group by 1)")[1]
    return f"A store of {int(found[0]):,} such runs answers a grouped query (20 cells) in {seconds(clock() - begin)} of CPU."


def _boundary(runs: int, side: int) -> str:
    """Points near the boundary of two score gaps against those of a grid of the same budget, and its band against a dense grid of `side` squared runs."""
    spec = tomllib.loads((Path(__file__).parents[1] / "docs/examples/local-pair.toml").read_text())
    asked = spec.pop("boundary") | {"runs": runs, "batch": max(runs // 8, 1)}
    say(f"sweeps: a boundary by {runs} runs, and a grid of {side} x {side}")
    found = sweep(spec | {"boundary": asked}, jobs=2).refined
    middles, columns = (np.arange(side) + 0.5) / side, (np.arange(90) + 0.5) / 90
    grid = {asked[axis]["key"]: scaled(asked[axis], middles) for axis in "xy"}
    dense = sweep(spec | {"grid": grid}, jobs=2).column("smallest_margin").reshape(side, side) > 0
    known = (~dense).sum(axis=1) / side  # the height below which the event does not hold, column by column
    at = lambda places: known[np.minimum((places * side).astype(int), side - 1)]
    crosses = lambda places: (at(places) > 0) & (at(places) < 1)
    near = lambda points: (np.abs(points[:, 1] - at(points[:, 0])) < 0.05) & crosses(points[:, 0])
    _, low, high = found.band(columns).T
    meets = (low <= at(columns) + 1 / side) & (high >= at(columns) - 1 / side)
    uniform = np.stack(np.meshgrid(*[(np.arange(int(runs**0.5)) + 0.5) / int(runs**0.5)] * 2), -1).reshape(-1, 2)
    return (
        f"The boundary of `docs/examples/local-pair.toml` by {runs} runs: {100 * near(found.points).mean():.0f} % of the points lie within 0.05 of it, in shares of the height, where "
        f"a grid of the same budget has {100 * near(uniform).mean():.1f} %; the band meets the cell of a dense grid ({side} x {side}) in {(meets & crosses(columns)).sum()} of {crosses(columns).sum()} columns, "
        f"median width {np.nanmedian(high - low):.4f}."
    )


def _children() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def _sweep(count: int, folder: str = "") -> tuple[float, float]:
    """CPU seconds of a sweep with all its processes, and seconds on the wall."""
    say(f"sweeps: {count} runs")
    words = [word for key, value in FIXED.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as other:
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
            f"{folder or other}/{count}",
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


def _row(count: int, begin: float, peer: float, eager: float, folder: str) -> dict[str, Any]:
    cpu, wall = _sweep(count, folder)
    return {
        "runs": count,
        "sweep": seconds(cpu),
        "wall": seconds(wall),
        "start": seconds(begin),
        "a run": seconds(cpu / count),
        "a run, without the start": seconds((cpu - begin) / count) if count > 100 else None,
        "one process per run": seconds(peer * count),
        "PyTorch": seconds(eager * count),
        "faster than processes": Ratio(peer * count / cpu),
        "faster than PyTorch": Ratio(eager * count / cpu),
    }
