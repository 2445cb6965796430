"""Blocks with lengths of their own: what each moves, and the offset program of their ratio in predictions and limits."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.theory.joint import OFFSET

DATA = pt.settings.leaning_tokens()
SETTING = pt.Setting(DATA, pt.settings.TokenGram(DATA), pt.Exponential())
RULE = pt.optimisers.block_normalised(25.0, length_u=7.5)


def offset_of(ratio):
    """The program of a ratio, put together by hand."""
    found = pt.theory.joint_references(DATA)
    reached = np.asarray(DATA.decoder().signed) @ found.decoder.weight / found.decoder.value
    return pt.references.offset_margin(DATA.attention(), ratio * reached).weight


def test_each_block_takes_steps_of_its_own_length():
    run = pt.train(pt.settings.joint_setting(DATA), RULE, steps=3, recorder=pt.training.Every())
    for k in (1, 2):  # the first step of W is 0, because u = 0 leaves it no gradient
        assert np.linalg.norm(run.named(k + 1)["u"] - run.named(k)["u"]) == pytest.approx(7.5, rel=1e-12)
        assert np.linalg.norm(run.weight(k + 1) - run.weight(k)) == pytest.approx(25.0, rel=1e-12)
    same = pt.train(pt.settings.joint_setting(DATA), pt.optimisers.block_normalised(25.0, length_u=25.0), steps=3)
    assert np.array_equal(
        same.weight(), pt.train(pt.settings.joint_setting(DATA), pt.optimisers.block_normalised(25.0), steps=3).weight()
    )


def test_limits_and_predictions_have_the_program_of_the_ratio():
    assert pt.theory.joint_references(DATA, ratio=0.3).offset.weight == pytest.approx(offset_of(0.3), abs=1e-12)
    limit = pt.theory.detect_limit(pt.train(pt.settings.joint_setting(DATA), RULE, steps=3000))
    assert limit.references.ratio == pytest.approx(0.3)
    assert limit.offset < 1e-5 < 1e-2 < min(limit.attention, limit.support_only)
    weights = {rival.name: rival.weight for rival in pt.predict(SETTING, RULE).rivals}
    assert pt.diagnostics.misalignment(weights[OFFSET], offset_of(0.3)) < 1e-15


@pytest.mark.parametrize(
    ("rule", "ratio"),
    [
        (pt.optimisers.block_normalised(2.0), 1.0),
        (pt.optimisers.block_normalised(2.0, 0.5, 0.5, length_u=3.0), 1.5),
        (pt.optimisers.block_normalised(2.0, 2 / 3, 1.0, length_u=3.0), 1.0),  # |u| outgrows |W|: no ratio
        (pt.optimisers.heavy_ball(pt.optimisers.block_normalised(2.0, length_u=0.5)), 0.25),
    ],
)
def test_the_ratio_of_a_rule(rule, ratio):
    assert float(rule.growth_ratio) == ratio


def test_two_lengths_are_not_eq_13():
    assert pt.predict(SETTING, pt.optimisers.scheduled_descent(0.05)).theorem.name == "theorem-3"
    other = pt.optimisers.block_normalised(0.05, 2 / 3, 1.0, length_u=0.1)
    assert pt.predict(SETTING, other).theorem.name == "joint-conjecture"


@pytest.mark.parametrize("ratio", [-0.1, np.inf, np.nan])
def test_bad_ratios_are_named(ratio):
    with pytest.raises(ArgumentError, match="ratio"):
        pt.theory.joint_references(DATA, ratio=ratio)


@pytest.mark.parametrize("length", [-0.1, 0.0, np.nan])
def test_bad_lengths_are_named(length):
    with pytest.raises(ArgumentError, match="length_u"):
        pt.optimisers.block_normalised(1.0, length_u=length)
