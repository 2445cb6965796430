"""Many starts at once against one after the other."""

from typing import Any

import numpy as np

import penchant as pt
from penchant.settings.generators import random_tokens

from . import torch_loop
from .machine import Limits
from .section import Section, ratio, seconds
from .timing import alternate, say

SIZE, STEPS, SAMPLED = (6, 8, 10), 500, 3
COUNTS = (10, 100, 1000)

ABOUT = f"""Normalised descent of {STEPS} steps from random starts (n, L, d = {", ".join(map(str, SIZE))}), every run with its own trajectory.
"one by one" calls `train` per start, compiled beforehand; "together" is one call with all starts. The PyTorch loop was timed on
{SAMPLED} starts and multiplied up."""


def compare(limits: Limits, quick: bool) -> Section:
    data = random_tokens(*SIZE, 0, equal_scores=True)
    setting, optimiser = pt.Setting(data, pt.Direct(), pt.Logistic()), pt.normalised_descent(0.1)
    counts = COUNTS[1:2] if quick else COUNTS
    rows = [_row(setting, optimiser, count, limits) for count in counts]
    notes = [
        "Small batches gain least: ten runs share little overhead. The gain cannot exceed the ratio of dispatching to "
        "arithmetic in a call with a single start, so it is smaller for longer runs and larger problems; only one core is used.",
        "In a batch that stops on an event all members wait for the last one, which these runs of fixed length do not show.",
    ]
    return Section("batch", "A batch of starts against a loop", ABOUT, rows, notes)


def _row(setting: pt.Setting, optimiser: Any, count: int, limits: Limits) -> dict[str, Any]:
    say(f"batch: {count} starts")
    n, length, d = SIZE
    starts = np.random.default_rng(0).standard_normal((count, *setting.data.weight_shape))
    problem, update = torch_loop.Attention(setting.data), torch_loop.normalised_descent(0.1)
    train = lambda start: pt.train(setting, optimiser, start, steps=STEPS, recorder=pt.training.At(()))
    tasks = {
        "together": lambda: train(starts),
        "one by one": lambda: [train(start) for start in starts],
        "PyTorch, extrapolated": lambda: [
            torch_loop.descend(problem, update, STEPS, start) for start in starts[:SAMPLED]
        ],
    }
    apart, joint = (
        [train(start).weight() for start in starts[:SAMPLED]],
        [run.weight() for run in train(starts)[:SAMPLED]],
    )
    times = alternate(tasks, 3)
    times["PyTorch, extrapolated"] = times["PyTorch, extrapolated"].scaled(count / SAMPLED)
    return {
        "starts": count,
        **times,
        "together beats one by one by": ratio(times["one by one"], times["together"]),
        "together beats PyTorch by": ratio(times["PyTorch, extrapolated"], times["together"]),
        "per step and run": seconds(times["together"].median / (count * STEPS)),
        "floor": seconds(limits.seconds(4 * n * d * d + 4 * n * length * d)),
        "differs": float(np.max(np.abs(np.subtract(apart, joint))) / np.max(np.abs(apart))),
    }
