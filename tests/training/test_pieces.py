"""Runs in pieces are the same runs."""

import jax
import numpy as np
import pytest

import penchant as pt
from penchant.settings.generators import random_tokens
from penchant.training import loop

PAIR = pt.Setting(pt.Classification([[2.0, 0.0], [1.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())


def _gram():
    """Margins travel with the parameters and are recomputed now and then: a cut elsewhere would change the digits."""
    data = random_tokens(3, 3, 4, 1)
    return pt.Setting(data, pt.settings.Gram(data), pt.Logistic())


CASES = {
    "gram": (_gram, pt.gradient_descent(1.0), {"steps": 5600, "recorder": pt.training.At((2300,))}),
    "batch with an early end": (
        lambda: PAIR,
        pt.normalised_descent([0.5, 2e9]),
        {"steps": 5600, "recorder": pt.training.At(())},
    ),
    "event between records": (
        lambda: PAIR,
        pt.gradient_descent(1.0),
        {"steps": 10**9, "until": pt.LogTimeAbove(8.0), "recorder": pt.training.At(())},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_pieces_are_the_whole_run_to_the_bit(name, monkeypatch):
    make, optimiser, options = CASES[name]
    setting = make()
    monkeypatch.setattr(loop, "_PIECE", 10**9)
    whole = pt.train(setting, optimiser, **options)
    monkeypatch.setattr(loop, "_PIECE", loop.REFRESH)
    cut = pt.train(setting, optimiser, **options)
    for one, other in zip(*(run if isinstance(run, list) else [run] for run in (whole, cut)), strict=True):
        assert one.status is other.status
        jax.tree.map(np.testing.assert_array_equal, _arrays(one), _arrays(other))


def _arrays(run):
    names = ("steps", "log_time", "log_excess", "log_slope", "norm", "margins", "weights", "dual", "params")
    return {name: getattr(run, name) for name in names}


def test_a_long_run_can_be_interrupted(monkeypatch):
    """A signal is heard between two pieces; here the clock that times them stands for it."""

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_PIECE", loop.REFRESH)
    monkeypatch.setattr(loop.time, "monotonic", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pt.train(PAIR, pt.gradient_descent(0.1), steps=10**12)
