"""Flows that start on a plateau, and what is recorded when a run ends between levels."""

import numpy as np
import pytest

import penchant as pt
from penchant.training.status import Status


@pytest.mark.slow
def test_a_start_that_attends_to_wrong_tokens_is_left_in_the_end():
    setting = pt.Setting(pt.equal_score_tokens(3, 4, 5, 1), pt.KeyQuery(), pt.Exponential())
    start = setting.start(0, 8 / np.sqrt(5))
    run = pt.train(setting, pt.GradientFlow(), start, until=pt.MarginAbove(100.0), steps=3000)
    assert run.status is Status.reached_target
    wrong = np.log(2 / 3 * -np.expm1(-6.0))  # two of three samples on a token that scores 6 less
    assert abs(run.log_excess[0] - wrong) <= 1e-9
    one = np.log(1 / 3 * -np.expm1(-6.0))  # the next plateau: one sample still wrong
    held = run.log_time[np.abs(run.log_excess - one) <= 1e-3]
    assert held.max() > 100  # it stands there at time e^100, to a thousandth
    assert np.diff(run.log_excess).max() <= 1e-9


def test_the_last_point_is_recorded_also_between_levels():
    setting = pt.Setting(pt.separable(), pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), steps=7, recorder=pt.Levels("margin", ()))
    whole = pt.train(setting, pt.GradientFlow(), steps=7)
    assert run.steps.tolist() == [0, 7]
    assert np.array_equal(run.weight(), whole.weight())
