"""The table of optimisers: every row trains, with the step that it chooses by itself, and refuses what its options refuse."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.optimisers.table import CAP, JOINT, LAYER_RULES, OPTIMISERS, Given, Scale, layer_rule
from penchant.settings.joint import marked_tokens

DATA = pt.settings.separable(6, 2)
SETTING = pt.Setting(DATA, pt.Direct(), pt.Exponential())
LONGEST = float(np.linalg.norm(np.asarray(DATA.signed), axis=1).max())


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_row_lowers_the_loss_by_steps_of_its_own_size(name):
    row = OPTIMISERS[name]
    optimiser = row.make(Given(row.step(Scale(LONGEST), None)))
    run = pt.train(SETTING, optimiser, steps=50)
    assert run.log_excess[-1] < run.log_excess[0]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_cap_counts_where_the_row_takes_one(name):
    row = OPTIMISERS[name]
    size = row.size(Scale(LONGEST), 0.9)
    capped, free = (pt.train(SETTING, row.make(Given(size, cap=cap)), steps=3) for cap in (1e-6, np.inf))
    assert (capped.norm[-1] < 0.5 * free.norm[-1]) == (CAP in row.takes)


@pytest.mark.parametrize("name", JOINT)
def test_every_joint_row_lowers_the_loss(name):
    data, row = marked_tokens(n=4, d=10), JOINT[name]
    longest = float(np.linalg.norm(np.asarray(data.tokens), axis=2).max())
    run = pt.train(pt.settings.joint_setting(data), row.make(Given(row.step(Scale(longest), None))), steps=20)
    assert run.log_excess[-1] < run.log_excess[0]


def test_layer_rules_are_made_from_a_setting_and_bounds():
    small = pt.Classification(np.asarray(DATA.signed) / 4, np.ones(len(DATA.signed)))
    setting = pt.Setting(small, pt.DeepLinear((2, 3, 1)), pt.Logistic())
    rules = {name: layer_rule(name, setting, (0.5, 2.0)) for name in LAYER_RULES}
    assert rules["line-search-capped"].capped != rules["line-search"].capped
    assert (rules["assumption5-tight"].tight, rules["assumption5"].tight) == (True, False)
    assert (rules["sharp"].beta, rules["sharp"].slope) == (0.5, 2.0)


def test_a_sum_of_losses_takes_shorter_steps_and_bad_sizes_are_refused():
    row = OPTIMISERS["gd"]
    assert row.size(Scale(2.0, terms=4), 0.9) == row.size(Scale(2.0), 0.9) / 4 == 0.0625
    with pytest.raises(ArgumentError, match="step"):
        row.make(Given(-1.0))
