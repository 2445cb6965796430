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
SHORT, LONG, FLOW_STEPS = 20, 320, 10

ABOUT = """Each of n, L and d is multiplied by the factors in the second column, the others staying put; the exponents are the slopes of log time
against log size from each factor to the next. The time of a step is a difference between a long and a short run,
which leaves out the fixed cost of a call. "expected" are the exponents of n, L and d in the dominating arithmetic, with N = n(L-1) margins."""


def compare(limits: Limits, quick: bool) -> Section:
    kinds = {"reference": ((50, 10, 50), (1, 2, 4), _reference, "N²d + N³: 2 to 3, 2 to 3, 0 to 1")}
    if not quick:
        kinds |= {
            "step, Direct": ((16, 8, 32), (1, 4, 16), _direct, "nd² + nLd: 1, 0 to 1, 1 to 2"),
            "step, Gram": ((16, 8, 32), (1, 4, 16), _gram, "N²: 2, 2, 0"),
            "step of the flow": ((16, 8, 32), (1, 4), _flow, "N³ + nd²: 1 to 3, 3, 0 to 2"),
            "nuclear reference": ((20, 10, 30), (1, 2, 4), _nuclear, "rounds x (N²r + N³): 2 to 3, 2 to 3, 0 to 1"),
            "step of the flow, K and Q": ((16, 8, 32), (1, 4), _product_flow, "N³ + nd²: 1 to 3, 3, 0 to 2"),
        }
    rows = [_row(kind, *what) for kind, what in kinds.items()]
    notes = [
        "First exponents below the expected ones are fixed costs that still dominate at the base; the last ones come closer. A Gram matrix that outgrows the caches adds to the exponent of its step.",
    ]
    return Section("growth", "Growth of our costs", ABOUT, rows, notes)


def _row(
    kind: str, base: Size, factors: tuple[int, ...], measure: Callable[[Size], Timing], expected: str
) -> dict[str, Any]:
    times: dict[Size, Timing] = {}
    cells: dict[str, Any] = {}
    for axis, name in enumerate(AXES):
        ladder = [tuple(value * (factor if i == axis else 1) for i, value in enumerate(base)) for factor in factors]
        for size in ladder:
            if size not in times:
                say(f"growth: {kind}, n={size[0]} L={size[1]} d={size[2]}")
                times[size] = measure(size)
        cells[f"largest {name}"] = times[ladder[-1]]
        slopes = np.diff(np.log([times[size].median for size in ladder])) / np.diff(np.log(factors))
        cells[f"exponents of {name}"] = ", ".join(f"{slope:.1f}" for slope in slopes)
    start = {
        "cost of": kind,
        "factors": ", ".join(map(str, factors)),
        "base n, L, d": ", ".join(map(str, base)),
        "at the base": times[base],
    }
    return {**start, **cells, "expected": expected}


def _descend(setting: pt.Setting) -> Timing:
    train = lambda steps: pt.train(setting, pt.normalised_descent(0.1), steps=steps, recorder=pt.training.At(()))
    train(1)
    times = alternate({"short": lambda: train(SHORT), "long": lambda: train(LONG)}, 5)
    return _less(times["long"], times["short"]).scaled(1 / (LONG - SHORT))


def _less(long: Timing, short: Timing) -> Timing:
    return Timing(long.median - short.median, long.low - short.median, long.high - short.median, long.repeats)


def _direct(size: Size) -> Timing:
    return _descend(pt.Setting(random_tokens(*size, 0, equal_scores=True), pt.Direct(), pt.Logistic()))


def _gram(size: Size) -> Timing:
    data = random_tokens(*size, 0, equal_scores=True)
    return _descend(pt.Setting(data, pt.settings.Gram(data), pt.Logistic()))


def _reference(size: Size) -> Timing:
    data = random_tokens(*size, 0)
    pt.references.max_margin(data)
    return alternate({"": lambda: pt.references.max_margin(data)}, 5)[""]


def _nuclear(size: Size) -> Timing:
    data = random_tokens(*size, 0)
    pt.references.nuclear_margin(data)
    return alternate({"": lambda: pt.references.nuclear_margin(data)}, 3)[""]


def _product_flow(size: Size) -> Timing:
    return _flow(size, pt.KeyQuery())


def _flow(size: Size, parametrisation: Any = None) -> Timing:
    data = random_tokens(*size, 0, equal_scores=True)
    setting = pt.Setting(data, pt.Direct() if parametrisation is None else parametrisation, pt.Logistic())
    start = setting.start() if parametrisation is None else setting.start(0, 0.1)
    train = lambda: pt.train(setting, pt.GradientFlow(), start, steps=FLOW_STEPS)
    train()
    return alternate({"": train}, 3)[""].scaled(1 / FLOW_STEPS)
