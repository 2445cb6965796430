"""A run that goes on with the memory of an earlier one is that run, longer."""

import jax
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.optimisers.base import scheduled_descent
from penchant.settings.generators import random_tokens
from penchant.settings.joint import joint_setting, marked_tokens
from penchant.training.trajectory import load_memory

PAIR = pt.Setting(pt.Classification([[2.0, 0.3], [-1.0, 1.0]], [1, 1]), pt.Direct(), pt.Exponential())
OPTIMISERS = {
    "momentum": pt.momentum(0.1),
    "adam": pt.Adam(0.01, 1e-8),
    "accelerated": pt.Accelerated(0.1),
    "signum": pt.optimisers.signum(0.1),
}


def _same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one.at(), other.at())
    for name in ("log_excess", "margins", "weights", "norm"):
        np.testing.assert_array_equal(getattr(one, name)[-1], getattr(other, name)[-1])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_two_parts_are_the_whole_to_the_bit(name):
    optimiser = OPTIMISERS[name]
    whole, first = (pt.train(PAIR, optimiser, steps=steps) for steps in (60, 25))
    second = pt.train(PAIR, optimiser, first.at(), steps=35, memory=first.memory)
    _same(second, whole)
    assert second.steps[-1] == 35
    assert int(second.memory.steps) == 60
    without = pt.train(PAIR, optimiser, first.at(), steps=35)
    assert np.abs(without.weight() - whole.weight()).max() > 1e-4 * np.abs(whole.weight()).max()


def test_the_length_of_a_schedule_goes_on():
    setting = joint_setting(marked_tokens(4, 3, 6, 0.4, 2.0, seed=1))
    whole, first = (pt.train(setting, scheduled_descent(0.1), steps=steps) for steps in (30, 12))
    _same(pt.train(setting, scheduled_descent(0.1), first.at(), steps=18, memory=first.memory), whole)


def test_margins_that_travel_agree_to_rounding():
    """In Gram form a run recomputes its margins at its records, which a continuation has elsewhere."""
    data = random_tokens(3, 3, 4, 1)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Logistic())
    whole, first = (pt.train(setting, pt.momentum(0.1), steps=steps) for steps in (60, 25))
    second = pt.train(setting, pt.momentum(0.1), first.at(), steps=35, memory=first.memory)
    np.testing.assert_allclose(second.weight(), whole.weight(), rtol=1e-13, atol=1e-14)


def test_a_file_gives_back_the_memory_of_its_own_optimiser_only(tmp_path):
    run = pt.train(PAIR, pt.momentum(0.1), steps=25)
    path = run.save(tmp_path / "run.npz")
    found = load_memory(path, PAIR, pt.momentum(0.1), run.at())
    jax.tree.map(np.testing.assert_array_equal, (found.kept, found.steps), (run.memory.kept, run.memory.steps))
    assert load_memory(path, PAIR, pt.momentum(0.1, 0.8), run.at()) is None
    other = pt.Setting(pt.Classification([[2.0, 0.0], [1.0, 2.0]], [1, 1]), pt.Direct(), pt.Exponential())
    assert load_memory(path, other, pt.momentum(0.1), run.at()) is None
    np.savez(tmp_path / "own.npz", header=np.ones(3), W=np.ones(2))
    assert load_memory(tmp_path / "own.npz", PAIR, pt.momentum(0.1), run.at()) is None


def test_memory_is_refused_where_it_does_not_fit():
    memory = pt.train(PAIR, pt.momentum(0.1), steps=5).memory
    for optimiser, start in ((pt.Adam(0.1, 0.0), None), (pt.momentum([0.1, 0.2]), None), (pt.GradientFlow(), None)):
        with pytest.raises(ArgumentError, match="'memory' argument of train"):
            pt.train(PAIR, optimiser, start, steps=5, memory=memory)
