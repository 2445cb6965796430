"""A verdict is about the setting that was predicted; a run by another optimiser is judged and named."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError

DATA = pt.settings.separable(n=8, d=3, seed=1)
SETTING = pt.Setting(DATA, pt.Direct(), pt.Exponential())
RULE = pt.normalised_descent(0.1)
PREDICTION = pt.predict(SETTING, RULE)
SPARSE = pt.Regression([[1.0, 2.0, 0.5], [0.0, 1.0, 1.0]], [2.0, 1.0])


def short(setting, rule=RULE):
    return pt.train(setting, rule, steps=10)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            pt.Setting(pt.settings.separable(n=8, d=3, seed=2), pt.Direct(), pt.Exponential()),
            "data .'signed' has other values",
        ),
        (
            pt.Setting(pt.settings.separable(n=9, d=3, seed=1), pt.Direct(), pt.Exponential()),
            r"shape .9, 3. instead of .8, 3",
        ),
        (pt.Setting(DATA, pt.Direct(), pt.Logistic()), "loss .Logistic instead of Exponential"),
        (pt.Setting(DATA, pt.Direct(), pt.Exponential(), "sum"), "reduction .sum instead of mean"),
        (pt.Setting(DATA, pt.SignedSquares(0.1), pt.Exponential()), "different parametrisation"),
    ],
    ids=["data", "shape", "loss", "reduction", "parametrisation"],
)
def test_a_run_of_another_setting_is_refused(setting, words):
    run = short(setting, pt.gradient_descent(0.01))
    with pytest.raises(ArgumentError, match=f"'run' argument of judge.*{words}"):
        pt.judge(PREDICTION, run)


def test_the_gram_form_is_the_setting_of_plain_weights():
    run = short(pt.Setting(DATA, pt.settings.Gram(DATA), pt.Exponential()))
    assert "the prediction is for" not in pt.judge(PREDICTION, run).detail


def test_another_optimiser_is_judged_and_named():
    verdict = pt.judge(PREDICTION, short(SETTING, pt.sign_descent(0.1)))
    assert "the prediction is for Descent(Normalised(length=0.1), L2), the run is by Descent(" in verdict.detail
    longer = pt.judge(PREDICTION, short(SETTING, pt.normalised_descent(0.2)))
    assert "length=0.1" in longer.detail
    assert "length=0.2" in longer.detail


def test_a_member_of_a_batch_is_by_the_rule_of_the_batch():
    rules = pt.normalised_descent([0.1, 0.2])
    first, second = short(SETTING, rules)
    assert "the prediction is for" not in pt.judge(pt.predict(SETTING, rules), second).detail
    assert "the prediction is for" not in pt.judge(PREDICTION, first).detail
    assert "the prediction is for" in pt.judge(PREDICTION, second).detail


def test_flows_of_other_tolerances_are_one_optimiser():
    prediction = pt.predict(SETTING, pt.GradientFlow())
    run = pt.train(SETTING, pt.GradientFlow(tolerance=1e-5), until=pt.MarginAbove(10.0))
    assert "the prediction is for" not in pt.judge(prediction, run).detail


@pytest.mark.parametrize("make", [pt.Squares, pt.SignedSquares], ids=lambda make: make.__name__)
def test_an_interpolant_is_judged_from_the_start_that_was_predicted(make):
    """The reference from 1 is not that from 1e-3: the run may not be compared with one that the user has not seen."""
    large, small = (pt.Setting(SPARSE, make(alpha), pt.Squared()) for alpha in (1.0, 1e-3))
    run = pt.train(small, pt.GradientFlow())
    with pytest.raises(ArgumentError, match=r"a run from the start that was predicted.*\n.*run.at\(0\)"):
        pt.judge(pt.predict(large, pt.GradientFlow()), run)
    for prediction in (pt.predict(small, pt.GradientFlow()), pt.predict(large, pt.GradientFlow(), run.at(0))):
        assert pt.judge(prediction, run).outcome is pt.verdict.Outcome.confirmed


def test_plain_weights_from_another_start_are_refused():
    setting = pt.Setting(SPARSE, pt.Direct(), pt.Squared())
    run = pt.train(setting, pt.GradientFlow(), np.ones(3))
    with pytest.raises(ArgumentError, match="relative distance"):
        pt.judge(pt.predict(setting, pt.GradientFlow()), run)
    form = pt.Setting(SPARSE, pt.settings.Gram(SPARSE, np.ones(3)), pt.Squared())
    assert pt.judge(pt.predict(form, pt.GradientFlow()), run).outcome is pt.verdict.Outcome.confirmed
