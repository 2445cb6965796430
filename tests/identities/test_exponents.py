"""Exponents over seeds 0 to 9 on the three presets: norm and 1 - corr, steps 1e3 to 1e4, against the published intervals."""

from functools import cache

import numpy as np
import pytest

import penchant as pt
from penchant.diagnostics.rates import log_log_slope, rate
from penchant.settings.generators import signal_tokens

RECORDS = pt.training.At(tuple(np.unique(np.geomspace(1e3, 1e4, 60).round().astype(int)).tolist()))
RULES = {
    "gd": lambda length: pt.gradient_descent(1.0),
    "ngd": pt.normalised_descent,
    "momentum": pt.momentum,
    "polyak": lambda length: pt.polyak(),
    "polyak capped": lambda length: pt.polyak(cap=100.0),
    "ngd capped": lambda length: pt.normalised_descent(length, cap=100.0),
}
# Exponents of the norm (None: not published) and of 1 - corr, each with the half-width of its interval.
PUBLISHED = {
    ("E", "gd"): ((0.1122, 0.0004), (-0.145, 0.013)),
    ("E", "ngd"): ((1.0002, 0.0001), (-1.9997, 0.0003)),
    ("E", "momentum"): ((1.0034, 0.0001), (-2.0068, 0.0002)),
    ("E", "polyak"): ((0.9989, 0.0001), (-1.9979, 0.0001)),
    ("E", "polyak capped"): ((0.0735, 0.0002), (-0.114, 0.004)),
    ("E", "ngd capped"): ((0.0774, 0.0002), (-0.110, 0.005)),
    ("H", "gd"): ((0.305, 0.019), (-0.70, 0.12)),
    ("H", "ngd"): ((1.007, 0.002), (-1.64, 0.03)),
    ("H", "momentum"): ((1.006, 0.001), (-1.87, 0.08)),
    ("H", "polyak"): ((0.999, 0.0005), (-1.95, 0.05)),
    ("antipodal", "gd"): (None, (-0.171, 0.012)),
    ("antipodal", "ngd"): (None, (-1.999, 0.002)),
    ("antipodal", "momentum"): (None, (-2.007, 0.0003)),
    ("antipodal", "polyak"): (None, (-1.998, 0.0001)),
}


@cache
def preset(name):
    make = {
        "E": lambda seed: signal_tokens(seed=seed),
        "H": lambda seed: signal_tokens(20, 5, 50, 1.0, 0.1, seed),
        "antipodal": lambda seed: signal_tokens(seed=seed, antipodal=True),
    }[name]
    sets = [make(seed) for seed in range(10)]
    return [pt.Setting(data, pt.settings.Gram(data), pt.Exponential()) for data in sets], [
        pt.references.max_margin(data) for data in sets
    ]


def last_digit(value):
    """Half a unit of the last printed digit of the centre."""
    return 0.55 * 10.0 ** -len(f"{value}".split(".")[1])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), PUBLISHED)
def test_exponents_lie_in_the_published_intervals(name, rule):
    settings, references = preset(name)
    runs = pt.train(settings, RULES[rule](0.1 if name == "H" else 0.05), steps=10_000, recorder=RECORDS)
    norm, direction = PUBLISHED[name, rule]
    if norm is not None:
        found = rate([log_log_slope(run.steps, run.norm, (1e3, 1e4)) for run in runs])
        assert abs(found.slope - norm[0]) <= norm[1] + last_digit(norm[0]), found
    pairs = zip(runs, references, strict=True)
    found = rate([log_log_slope(run.steps, pt.diagnostics.misalignments(run, best), (1e3, 1e4)) for run, best in pairs])
    assert abs(found.slope - direction[0]) <= direction[1] + last_digit(direction[0]), found
