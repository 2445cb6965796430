"""Times as medians of alternating repeats.

The clock is the CPU time of the process, which is pinned to one core: on a quiet machine it is the time on the wall, and on
a busy one it does not count the time in which others had the core.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

clock = time.process_time
PATIENCE = 4.0


@dataclass(frozen=True)
class Timing:
    """Seconds: the median of `repeats` runs, the fastest and the slowest."""

    median: float
    low: float
    high: float
    repeats: int

    def scaled(self, factor: float) -> "Timing":
        return Timing(factor * self.median, factor * self.low, factor * self.high, self.repeats)


def once(task: Callable[[], Any]) -> tuple[Any, Timing]:
    """The result of one run and its time: for first calls, and for what takes too long to repeat."""
    begin = clock()
    result = task()
    seconds = clock() - begin
    return result, Timing(seconds, seconds, seconds, 1)


def alternate(tasks: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """All tasks in turn, `repeats` times over, so that a slow minute of the machine hits every contestant.

    A task that has taken `PATIENCE` seconds in all is not repeated: long runs vary little.
    """
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            if sum(times[name]) < PATIENCE:
                times[name].append(once(task)[1].median)
    return {name: _summary(found) for name, found in times.items()}


def _summary(found: list[float]) -> Timing:
    return Timing(statistics.median(found), min(found), max(found), len(found))


def evaluation(field: Callable[[jax.Array], jax.Array], point: jax.Array, repeats: int = 2_000) -> Timing:
    """One call of a compiled field, in a compiled loop where each waits for the one before: what a step of any solver costs at least."""
    turn = lambda _, now: now + 1e-300 * field(now)
    loop = jax.jit(lambda begin: jax.lax.fori_loop(0, repeats, turn, begin))
    task = lambda: jax.block_until_ready(loop(point))
    task()
    return alternate({"": task}, 3)[""].scaled(1 / repeats)


def say(text: str) -> None:
    print(f"[{time.perf_counter() - _BEGIN:5.0f} s] {text}", file=sys.stderr, flush=True)


_BEGIN = time.perf_counter()
