"""Which theorem speaks about which optimiser on a regression, and how far its steps may go."""

from dataclasses import replace

import numpy as np
import pytest

import penchant as pt
from penchant.optimisers.step_rules import Constant, HeavyBall
from penchant.settings.generators import sparse_regression
from penchant.theory.base import Rival
from penchant.theory.families.interpolation import distance, judge_interpolant

DATA, _ = sparse_regression(6, 12, 2, 1)
DIRECT = pt.Setting(DATA, pt.Direct(), pt.Squared(), "sum")
TOP = float(np.linalg.norm(np.asarray(DATA.inputs), 2) ** 2)


def heavy_ball(step, beta=0.9):
    return pt.optimisers.Descent(Constant(step), after=HeavyBall(beta))


@pytest.mark.parametrize(
    ("optimiser", "theorem"),
    [
        (pt.GradientFlow(), "minimum-norm"),
        (pt.gradient_descent(0.01), "minimum-norm"),
        (heavy_ball(0.01), "minimum-norm"),
        (pt.normalised_descent(1e-3), "interpolation-conjecture"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_theorem_of_an_optimiser(optimiser, theorem):
    assert pt.predict(DIRECT, optimiser).theorem.name == theorem


def test_heavy_ball_on_squares_is_only_a_conjecture():
    setting = pt.Setting(DATA, pt.SignedSquares(0.1), pt.Squared(), "sum")
    assert pt.predict(setting, pt.gradient_descent(1e-3)).theorem.name == "minimum-potential"
    assert pt.predict(setting, heavy_ball(1e-3)).theorem.name == "interpolation-conjecture"


@pytest.mark.parametrize(
    ("beta", "load", "holds"), [(0.5, 2.9, True), (0.5, 3.1, False), (0.0, 1.9, True), (0.0, 2.1, False)]
)
def test_heavy_ball_is_stable_up_to_twice_one_plus_beta(beta, load, holds):
    rule = heavy_ball(load / TOP, beta)
    prediction = pt.predict(DIRECT, rule)
    found = {hypothesis.name: hypothesis for hypothesis in prediction.hypotheses}["step_size"]
    assert found.holds is holds
    assert found.slack == pytest.approx(2 * (1 + beta) - load, abs=1e-9)
    run = pt.train(DIRECT, rule, steps=3_000)
    assert (pt.judge(prediction, run).outcome is pt.verdict.Outcome.confirmed) is holds


def test_a_batch_of_heavy_balls_is_as_stable_as_its_worst_member():
    """Member 0 has beta = 0 and diverges beyond a load of 2, whatever the others allow."""
    batch = pt.optimisers.Descent(Constant(3.0 / TOP), after=HeavyBall(np.array([0.0, 0.9])))
    found = {one.name: one for one in pt.predict(DIRECT, batch).hypotheses}["step_size"]
    assert found.holds is False
    assert found.slack == pytest.approx(-1.0, abs=1e-9)
    pairs = pt.optimisers.Descent(Constant(np.array([1.0, 3.0]) / TOP), after=HeavyBall(np.array([0.0, 0.9])))
    assert {one.name: one for one in pt.predict(DIRECT, pairs).hypotheses}["step_size"].slack == pytest.approx(0.8)


def test_a_rival_is_nearer_only_in_the_same_units():
    """Half-way between reference and a rival a hundred times longer: nearer to the rival in its own units only."""
    prediction = pt.predict(DIRECT, pt.GradientFlow(), 2 * np.ones(12))
    reference = prediction.reference.weight
    far = 100 * reference
    long = replace(prediction, rivals=(Rival("long", far, distance(far, reference)),))
    halfway = judge_interpolant(long, 0.5 * (reference + far))
    assert halfway.outcome is pt.verdict.Outcome.undecided, halfway
    assert judge_interpolant(long, 0.99 * far).outcome is pt.verdict.Outcome.refuted


@pytest.mark.parametrize("tall", [False, True])
def test_the_shape_of_the_inputs_is_a_note_and_no_broken_hypothesis(tall):
    inputs = np.vstack([DATA.inputs, DATA.inputs[:1]])
    data = pt.Regression(inputs, np.append(DATA.targets, DATA.targets[:1]))
    if tall:
        data = pt.Regression(np.asarray(DATA.inputs).T[:, :3], np.asarray(DATA.inputs).T[:, :3].sum(axis=1))
    setting = pt.Setting(data, pt.Direct(), pt.Squared(), "sum")
    with pytest.warns(pt.errors.PenchantWarning):
        prediction = pt.predict(setting, pt.GradientFlow())
    assert prediction.holds
    verdict = pt.judge(prediction, pt.train(setting, pt.GradientFlow()))
    assert verdict.outcome is pt.verdict.Outcome.confirmed
    assert "hypotheses" not in verdict.detail
    words = " ".join(prediction.notes)
    assert ("not over-parametrised" in words) is tall
    assert "dependent samples" in words


def test_the_sparse_rival_of_squares_is_one_that_squares_can_reach():
    """Of least l1 norm is (-1, 2, 0) among all interpolants, and (0, 1, 4) among nonnegative ones."""
    data = pt.Regression([[1.0, 1.0, 0.0], [0.0, 1.0, 0.25]], [1.0, 2.0])
    assert pt.references.basis_pursuit(data).weight == pytest.approx([-1.0, 2.0, 0.0])
    prediction = pt.predict(pt.Setting(data, pt.Squares(0.5), pt.Squared()), pt.GradientFlow())
    sparse = {rival.name: rival for rival in prediction.rivals}["nonnegative l1"]
    assert sparse.weight == pytest.approx([0.0, 1.0, 4.0])
    assert any(note.startswith("the nonnegative l1 solution is") for note in prediction.notes)
    verdict = judge_interpolant(prediction, sparse.weight)
    assert verdict.outcome is pt.verdict.Outcome.refuted, verdict
    signed = pt.predict(pt.Setting(data, pt.SignedSquares(0.5), pt.Squared()), pt.GradientFlow())
    assert [rival.name for rival in signed.rivals] == ["l2", "l1"]
