"""Step hypotheses replayed: the proved rule passes, each other rule fails where it should."""

import equinox as eqx
import pytest

import penchant as pt
from penchant.errors import ArgumentError
from penchant.optimisers.layerwise import BallStep, ConstantStep, LayerDescent, LineSearch, SharpStep
from penchant.theorems.deep_linear_problems import problem
from penchant.theorems.deep_linear_replay import replay


def run_of(rule, steps=40):
    setting, start = problem(2, logistic=True)
    rule = rule(setting) if callable(rule) and not isinstance(rule, eqx.Module) else rule
    return pt.train(setting, LayerDescent(rule), start, steps=steps, recorder=pt.Every())


def test_the_rule_of_the_proof_satisfies_its_hypotheses():
    steps, descent, total = replay(run_of(BallStep(), 2000))  # long enough for the ball to grow
    assert steps.holds
    assert descent.holds
    assert descent.slack > 0
    assert total.holds is None


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (SharpStep(), "step 0: a layer too near"),
        (BallStep(tight=True), "step 0: a layer too near"),
        (lambda setting: LineSearch(setting, capped=True), "step 0"),
    ],
)
def test_other_rules_leave_the_hypotheses_and_still_descend(rule, words):
    steps, descent, _ = replay(run_of(rule))
    assert steps.holds is False
    assert words in steps.offender
    assert descent.holds


def test_a_step_that_is_too_long_breaks_the_descent_inequality_where_the_account_says():
    run = run_of(ConstantStep(20.0), 12)
    _, descent, _ = replay(run)
    assert descent.holds is False
    assert -descent.slack == pytest.approx(run.account["violation"][-1], abs=1e-9)


def test_tampered_radii_are_found():
    run = run_of(BallStep(), 10)
    radii = run.account["radius"].copy()
    radii[6:] += 0.5
    tampered = eqx.tree_at(lambda one: one.account["radius"], run, radii)
    assert replay(tampered)[0].offender == "step 5: a ball that grew without need"


def test_runs_without_every_step_are_refused():
    setting, start = problem(2, logistic=True)
    with pytest.raises(ArgumentError, match="Every"):
        replay(pt.train(setting, LayerDescent(BallStep()), start, steps=50, recorder=pt.At((10,))))
    with pytest.raises(ArgumentError, match="Every"):
        replay(pt.train(setting, pt.gradient_descent(0.1), start, steps=5, recorder=pt.Every()))
