"""Steps that are steepest in a norm are predicted to the maximum margin in it, by a theorem on linear data and as a conjecture elsewhere."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import NotSeparableError, UnknownLimit
from penchant.norms import L1, Entrywise
from penchant.optimisers.base import Descent, muon, steepest
from penchant.optimisers.step_rules import Constant
from penchant.theory.judge import excess
from penchant.verdict import Outcome

LINEAR = pt.Setting(pt.Classification([[2.0, 1.0], [1.0, 4.0], [3.0, 0.5]], [1, 1, 1]), pt.Direct(), pt.Exponential())
TOKENS = pt.Setting(pt.settings.equal_score_tokens(3, 4, 5, 0), pt.Direct(), pt.Exponential())
ADAM, SIGN = pt.Adam(1e-4, eps=0.0), pt.sign_descent(0.01)
ONE, MUON, AVERAGED = steepest(0.01, L1()), muon(0.01), steepest(0.01, Entrywise(3), beta=0.5)
LAYERS = pt.Setting(
    pt.Classification(np.asarray(LINEAR.data.signed) / 5, [1, 1, 1]), pt.DeepLinear((3,)), pt.Exponential()
)
REGRESSION = pt.Setting(pt.Regression([[1.0, 2.0, 0.5]], [1.0]), pt.Direct(), pt.Squared())


def by_name(prediction):
    return {one.name: one for one in prediction.hypotheses}


@pytest.mark.parametrize(
    ("setting", "optimiser", "theorem", "norm"),
    [
        (LINEAR, SIGN, "linear-steepest-margin", "linf"),
        (LINEAR, ADAM, "linear-adam-margin", "linf"),
        (LINEAR, ONE, "linear-steepest-margin", "l1"),
        (LINEAR, AVERAGED, "linear-momentum-margin", "l3"),
        (LINEAR, MUON, "linear-momentum-margin", "l2"),  # the singular value of a vector is its length
        (LINEAR, Descent(Constant(0.01), L1()), "steepest-linear-conjecture", "l1"),
        (LINEAR, pt.Adam(1e-4, eps=1e-8), "linear-adam-epsilon", "l2"),  # gradient descent in the end
        (LINEAR, pt.gradient_descent(0.01), "max-margin", "l2"),
        (LAYERS, ONE, "steepest-layers-conjecture", "l1"),
        (LAYERS, MUON, "steepest-layers-conjecture", "l2"),
        (TOKENS, SIGN, "steepest-tokens-conjecture", "linf"),
        (TOKENS, ADAM, "steepest-tokens-conjecture", "linf"),
        (TOKENS, MUON, "steepest-tokens-conjecture", "spectral"),
        (TOKENS, pt.momentum(0.01), "token-selection-conjecture", "frobenius"),
    ],
)
def test_the_norm_that_is_predicted_and_whether_a_theorem_says_so(setting, optimiser, theorem, norm):
    found = pt.predict(setting, optimiser)
    assert (found.theorem.name, found.reference.norm) == (theorem, norm)
    assert ("optimiser_covered" in by_name(found)) is theorem.endswith("conjecture")


@pytest.mark.parametrize(
    ("setting", "optimiser"),
    [
        (REGRESSION, SIGN),
        (REGRESSION, pt.Adam(1e-3, eps=1e-8)),
        (pt.Setting(TOKENS.data, pt.KeyQuery(), pt.Exponential()), MUON),
    ],
)
def test_no_candidate_is_named_where_none_is_known(setting, optimiser):
    with pytest.raises(UnknownLimit, match="no candidate for its limit"):
        pt.predict(setting, optimiser)


def _drawn(seed):
    rng = np.random.default_rng(seed)
    inputs, direction = rng.normal(size=(6, 4)), rng.normal(size=4)
    return pt.Classification(inputs, np.sign(inputs @ direction))


@pytest.mark.parametrize(
    ("data", "optimiser"),
    [(_drawn(6), steepest(0.01, L1())), (pt.settings.equal_score_tokens(5, 3, 4, 3), muon(0.05, 0.5, 0.5))],
)
def test_runs_end_at_the_margin_of_their_own_norm(data, optimiser):
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    reference = pt.predict(setting, optimiser).reference
    reached = excess(data, pt.train(setting, optimiser, steps=4000).weight(), reference)
    assert 0 <= 3 * reached <= excess(data, pt.references.max_margin(data).weight, reference)


def test_sign_descent_is_confirmed_by_its_linf_margin_and_gradient_descent_refuted():
    prediction = pt.predict(LINEAR, SIGN)
    assert pt.judge(prediction, pt.train(LINEAR, SIGN, steps=3000)).outcome is Outcome.confirmed
    flow = pt.train(LINEAR, pt.GradientFlow(), until=pt.MarginAbove(1e4))
    assert pt.judge(prediction, flow).outcome is Outcome.refuted


def test_the_loss_of_constant_signs_is_bounded_by_their_length():
    signed, run = np.asarray(LINEAR.data.signed), pt.train(LINEAR, SIGN, steps=20_000)
    prediction = pt.predict(LINEAR, SIGN)
    share = run.smallest_margin()[-1] / np.abs(run.weight()).max() / prediction.reference.margin
    bound = 0.01 * np.abs(signed).sum(axis=1).max() ** 2 / 2 / prediction.reference.margin
    assert f"{bound:.3g}" in by_name(prediction)["falling_steps"].detail
    assert share >= 1 - bound - 1e-2


def test_adam_whose_memory_is_longer_than_its_steps_allow_is_named():
    held = by_name(pt.predict(LINEAR, ADAM))
    assert held["fresh_squares"].holds
    assert held["bounded_ratio"].holds
    assert held["falling_steps"].holds is False
    assert by_name(pt.predict(LINEAR, pt.Adam(0.1, eps=0.0)))["fresh_squares"].holds is False


def test_one_answer_on_feasibility_for_every_optimiser_and_parametrisation():
    opposed = pt.Setting(pt.Classification([[1.0, 0.0], [-1.0, 0.0]], [1, 1]), pt.Direct(), pt.Exponential())
    with pytest.raises(NotSeparableError):
        pt.predict(opposed, ADAM)
    rng = np.random.default_rng(5)
    tokens = rng.standard_normal((6, 3, 5))
    tokens[1] = tokens[0]  # twice the same sample, with two best tokens
    scores = rng.standard_normal((6, 3))
    scores[:2] = [[1.0, 0.0, 0.5], [0.2, 1.0, 0.5]]
    data, proofs = pt.TokenSelection(tokens, scores=scores), []
    for parametrisation in (pt.Direct(), pt.KeyQuery()):
        for optimiser in (pt.GradientFlow(), ADAM):
            with pytest.raises(NotSeparableError) as error:
                pt.predict(pt.Setting(data, parametrisation, pt.Exponential()), optimiser)
            proofs.append(error.value.weights)
    for proof in proofs:
        np.testing.assert_array_equal(proof, proofs[0])
