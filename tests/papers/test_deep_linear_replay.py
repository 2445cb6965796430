"""Step hypotheses replayed: the proved rule passes, each other rule fails where it should."""

import equinox as eqx
import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, quietly
from penchant.optimisers.layerwise import BallStep, ConstantStep, LayerDescent, LineSearch, SharpStep, risk_bounds
from penchant.papers import new_lab
from penchant.papers.deep_linear.evidence import problem
from penchant.papers.deep_linear.theorems import replay

LAB = new_lab()


def run_of(rule, steps=40):
    setting, start = problem(LAB, 2, logistic=True)
    rule = rule(setting) if callable(rule) and not isinstance(rule, eqx.Module) else rule
    return pt.train(setting, LayerDescent(rule), start, steps=steps, recorder=pt.training.Every())


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
    violation = run.account["violation"]
    violated = np.flatnonzero(violation[1:] > violation[:-1])
    assert descent.slack < 0 < violation[-1]
    assert int(descent.offender.split()[1]) in violated


def test_the_account_knows_of_its_last_step():
    setting, start = problem(LAB, 2)
    with quietly():
        run = pt.train(setting, LayerDescent(ConstantStep(60.0)), start, steps=1, recorder=pt.training.Every())
    assert np.isneginf(run.account["violation"][0])
    assert run.account["violation"][1] > 0
    assert replay(run)[1].holds is False


def test_steps_are_held_against_the_constants_of_the_risk_and_not_against_those_of_the_mean_logistic_one():
    exponential, start = problem(LAB, 2)
    summed = pt.Setting(exponential.data, exponential.parametrisation, pt.Logistic(), "sum")
    tail = pt.Setting(exponential.data, exponential.parametrisation, pt.settings.PolynomialTail(2.0))
    for setting in (exponential, summed):
        beta, slope = risk_bounds(setting, start)
        replayed = []
        for rule in (BallStep(), BallStep(beta=beta, slope=slope)):
            with quietly():
                run = pt.train(setting, LayerDescent(rule), start, steps=5, recorder=pt.training.Every())
            replayed.append(replay(run)[0])
        assert [one.holds for one in replayed] == [False, True]
        assert replayed[0].offender == "step 0: a step longer than 1/beta(R)"
        assert f"G = {slope:.6g}" in replayed[0].detail
    with quietly():
        run = pt.train(tail, LayerDescent(BallStep()), start, steps=5, recorder=pt.training.Every())
    assert replay(run)[0].holds is None


def test_tampered_radii_are_found():
    run = run_of(BallStep(), 10)
    radii, log_steps = run.account["radius"].copy(), run.account["log_step"].copy()
    radii[6:] += 0.5  # larger than step 5 had to make it, so that later growth is needless
    log_steps[6:] -= 1.0  # short enough for the larger ball
    tampered = eqx.tree_at(lambda one: (one.account["radius"], one.account["log_step"]), run, (radii, log_steps))
    assert replay(tampered)[0].offender == "step 6: a ball that grew without need"


def test_runs_without_every_step_are_refused():
    setting, start = problem(LAB, 2, logistic=True)
    with pytest.raises(ArgumentError, match="Every"):
        replay(pt.train(setting, LayerDescent(BallStep()), start, steps=50, recorder=pt.training.At((10,))))
    with pytest.raises(ArgumentError, match="Every"):
        replay(pt.train(setting, pt.gradient_descent(0.1), start, steps=5, recorder=pt.training.Every()))
