"""How our own costs grow with n, L and d."""

from collections.abc import Callable
from typing import Any

import numpy as np

import penchant as pt
from penchant.settings.generators import random_tokens

from .machine import Limits
from .section import Section
from .timing import Timing, alternate, say

Size = tuple[int, int, int]
AXES = ("n", "L", "d")
STEPS, FLOW_STEPS = 200, 10

ABOUT = """Each of n, L and d is doubled twice from a base, the others staying put; the exponent is the slope of log time against log size over
the three points. The steps and the flow start from n, L, d = 16, 8, 32, the reference from 50, 10, 50. "expected" counts the
dominating arithmetic, with N = n(L-1) margins."""


def compare(limits: Limits, quick: bool) -> Section:
    doublings = 1 if quick else 2
    kinds = {
        "step, Direct": (_direct, (16, 8, 32), "nd² + nLd: 1, 0 to 1, 1 to 2"),
        "step, Gram": (_gram, (16, 8, 32), "N²: 2, 2, 0"),
        "reference": (_reference, (50, 10, 50), "N² d + N³: 2 to 3, 2 to 3, 0 to 1"),
    }
    if not quick:
        kinds["flow step"] = (_flow, (16, 8, 32), "N³ + N d²: 1 to 3, 1 to 3, 0 to 2")
    rows = [_row(kind, *what, doublings) for kind, what in kinds.items()]
    notes = [
        "Exponents below the expected ones mean that fixed costs (dispatching some hundred small operations) still dominate at the base: they rise with the size.",
    ]
    return Section("growth", "Growth of our costs", ABOUT, rows, notes)


def _row(kind: str, prepare: Callable[[Size], tuple[Callable[[], Any], int]], base: Size, expected: str, doublings: int) -> dict[str, Any]:
    times: dict[Size, Timing] = {}
    cells: dict[str, Any] = {"cost of": kind}
    for axis, name in enumerate(AXES):
        ladder = [tuple(value * 2**k if k and i == axis else value for i, value in enumerate(base)) for k in range(doublings + 1)]
        for size in ladder:
            if size not in times:
                say(f"growth: {kind}, n={size[0]} L={size[1]} d={size[2]}")
                times[size] = _time(prepare, size)
        cells[f"{name} = {ladder[-1][axis]}"] = times[ladder[-1]]
        cells[f"exponent of {name}"] = _exponent([size[axis] for size in ladder], [times[size].median for size in ladder])
    return {"cost of": kind, "at the base": times[base], **_shared(cells), "expected": expected}


def _shared(cells: dict[str, Any]) -> dict[str, Any]:
    """Columns that do not depend on the base: the last size of each axis goes into the title "n x 4"."""
    renamed = {}
    for name, cell in cells.items():
        axis, _, value = name.partition(" = ")
        renamed[f"{axis} at its largest" if value else name] = cell
    return renamed


def _time(prepare: Callable[[Size], tuple[Callable[[], Any], int]], size: Size) -> Timing:
    task, count = prepare(size)
    task()
    return alternate({"": task}, 5)[""].scaled(1 / count)


def _exponent(sizes: list[int], times: list[float]) -> float:
    return round(float(np.polyfit(np.log(sizes), np.log(times), 1)[0]), 2)


def _descend(setting: pt.Setting) -> tuple[Callable[[], Any], int]:
    return lambda: pt.train(setting, pt.normalised_descent(0.1), steps=STEPS, recorder=pt.At(())), STEPS


def _direct(size: Size) -> tuple[Callable[[], Any], int]:
    return _descend(pt.Setting(random_tokens(*size, 0, equal_scores=True), pt.Direct(), pt.Logistic()))


def _gram(size: Size) -> tuple[Callable[[], Any], int]:
    data = random_tokens(*size, 0, equal_scores=True)
    return _descend(pt.Setting(data, pt.Gram(data), pt.Logistic()))


def _reference(size: Size) -> tuple[Callable[[], Any], int]:
    data = random_tokens(*size, 0)
    return lambda: pt.max_margin(data), 1


def _flow(size: Size) -> tuple[Callable[[], Any], int]:
    setting = pt.Setting(random_tokens(*size, 0, equal_scores=True), pt.Direct(), pt.Logistic())
    return lambda: pt.train(setting, pt.GradientFlow(), steps=FLOW_STEPS), FLOW_STEPS
