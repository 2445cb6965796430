"""Conditions of the theorems on token selection, against formulas written out by hand."""

import numpy as np
import pytest

import penchant as pt
from penchant.settings.generators import local_pair, random_tokens, signal_tokens
from penchant.settings.tokens import TokenSelection
from penchant.theory import selections as conditions


def force(gap, share):
    """F(s) of a sample whose optimal score and score gap are both `gap`, exponential loss."""
    return gap * np.exp(-gap * share) * share * (1 - share)


@pytest.mark.parametrize(("square", "ratio"), [(6.0, 2.9186), (5.0, 2.8480)])
def test_the_pairwise_condition_on_the_pair(square, ratio):
    """Features e_1 and e_2 - 2 e_1 with one common query: K = ((1, -2), (-2, 5)); the longest token has B^2 = 6."""
    floor = 1 / (1 + np.exp(2 * square * 0.05))
    s = np.linspace(floor, 1, 100_001)
    low = s[s <= 0.5]
    strongest = [force(gap, s).max() for gap in (1.0, 0.1)]
    weakest = [force(gap, low).min() for gap in (1.0, 0.1)]
    wanted = max(2 * strongest[1] / weakest[0], 2 * strongest[0] / (5 * weakest[1]))
    found = conditions.near_orthogonal_pairs(local_pair(1.0, 0.1), pt.Exponential(), floor)
    assert 1 - found.slack == pytest.approx(wanted, rel=1e-5)
    assert wanted == pytest.approx(ratio, abs=5e-5)
    assert found.offender == "sample 1 token 0"


def test_the_floor_of_attention_uses_the_longest_token():
    data = local_pair(1.0, 0.1)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    assert conditions.token_bound(data) ** 2 == pytest.approx(6.0, rel=1e-14)
    assert conditions.attention_floor(setting, setting.start(), 0.05) == pytest.approx(1 / (1 + np.exp(0.6)), rel=1e-14)


def test_normalised_steps_beyond_the_critical_length_oscillate():
    data = signal_tokens(4, 3, 12, 1.0, 0.3, seed=1)
    best = pt.references.max_margin(data)
    critical = conditions.critical_length(data, best)
    assert critical == pytest.approx(2 * best.value / conditions.stability_number(data, best), rel=1e-14)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    runs = pt.train(
        setting, pt.normalised_descent([0.95 * critical, 1.05 * critical]), steps=4000, recorder=pt.training.At((2000,))
    )
    growth = [float(run.norm[-1] - run.norm[-2]) / 2000 for run in runs]
    assert growth[0] / (0.95 * critical) == pytest.approx(1.0, abs=1e-5)
    assert growth[1] / (1.05 * critical) < 0.99
    held = {one.name: one.holds for one in pt.predict(setting, pt.normalised_descent(1.05 * critical)).hypotheses}
    assert held["stable_steps"] is False


def test_one_support_vector_leaves_nothing_to_cross():
    data = TokenSelection([[[1.0, 2.0], [-0.5, 0.3]]], scores=[[0.7, -0.4]])
    assert conditions.critical_length(data, pt.references.max_margin(data)) == np.inf


def test_polyak_with_a_lower_target_takes_the_longer_steps_of_its_formula():
    data = random_tokens(3, 3, 6, 1)
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.polyak(2.0, gap=0.2), steps=3, recorder=pt.training.Every())
    for k in range(3):
        step = np.linalg.norm(run.weight(k + 1) - run.weight(k))
        excess, slope = np.exp(run.log_excess[k]), np.exp(run.log_slope[k])
        assert step == pytest.approx((excess + 0.2) / (2 * excess * slope), rel=1e-10)
    held = {one.name: one.slack for one in pt.predict(setting, pt.polyak(gap=0.2)).hypotheses}
    assert held["exact_infimum"] == -0.2


def test_targets_above_the_infimum_are_refused():
    with pytest.raises(pt.errors.PenchantError, match="gap"):
        pt.polyak(gap=-0.1)


@pytest.mark.parametrize(
    "make", [lambda x: TokenSelection(x, scores=[[0.0, 1.0]]), lambda x: pt.JointTokens(x, [1], [0])]
)
def test_float32_tokens_are_announced(make):
    with pytest.warns(pt.errors.PenchantWarning, match="tokens in less than float64"):
        data = make(np.array([[[1.0, 0.1], [0.0, 1.0]]], np.float32))
    assert data.tokens.dtype == np.float64


@pytest.mark.parametrize("size", [1e61, 1e99])
def test_joint_tokens_whose_products_overflow_are_refused_by_name(size):
    with pytest.raises(pt.errors.PenchantError, match="JointTokens"):
        pt.JointTokens(size * np.eye(2)[None], [1], [0])


@pytest.mark.parametrize(("rule", "theorem"), [(pt.normalised_descent, "theorem-1"), (pt.polyak, "theorem-7")])
def test_steps_with_a_cap_are_not_sold_with_the_rate_of_those_without(rule, theorem):
    data = signal_tokens(4, 3, 12, 1.0, 0.3, seed=1)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    free, capped = (pt.predict(setting, rule(1.0, cap=cap)) for cap in (np.inf, 100.0))
    assert free.theorem.name == theorem
    assert "/ t)" in free.rate
    assert capped.theorem.name == "capped-steps"
    assert "no rate proved" in capped.rate
    held = {one.name: one for one in capped.hypotheses}
    assert held["uncapped"].holds is False
    assert held["small_step_size"].slack == pytest.approx(
        conditions.small_step_size(100.0, data, setting.loss).slack, rel=1e-14
    )


def test_a_capped_rule_ends_as_gradient_descent_with_that_step():
    """What the conjecture rests on: from the step where the cap binds, the two are one rule."""
    data = signal_tokens(4, 3, 12, 1.0, 0.3, seed=1)
    setting = pt.Setting(data, pt.Direct(), pt.Exponential())
    run = pt.train(setting, pt.normalised_descent(0.5, cap=100.0), steps=400, recorder=pt.training.At((300,)))
    first = run.header["first_capped"]
    assert 0 < first < run.steps[-2] == 300
    late = pt.train(setting, pt.gradient_descent(100.0), run.at(-2), steps=100)
    assert late.weight() == pytest.approx(run.weight(), rel=1e-12)


def test_capped_normalised_descent_on_linear_data_is_a_conjecture():
    setting = pt.Setting(pt.settings.separable(n=8, d=3, seed=1), pt.Direct(), pt.Exponential())
    assert pt.predict(setting, pt.normalised_descent(0.1)).theorem.name == "max-margin-normalised"
    assert pt.predict(setting, pt.normalised_descent(0.1, cap=10.0)).theorem.name == "max-margin-conjecture"


def test_data_that_the_pairs_certify_are_inside_the_theorem():
    """Preset E: the token form of Assumption 1 fails by a factor of 50, and what the proofs use of it holds."""
    data = signal_tokens(seed=0)
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    assert not conditions.near_orthogonal_tokens(data).holds
    prediction = pt.predict(setting, pt.normalised_descent(0.01))
    assert {one.name: one.holds for one in prediction.hypotheses}["near_orthogonal_pairs"]
    assert "near_orthogonal" not in prediction.remarks
    assert any(note.startswith("Assumption 1 token by token fails") for note in prediction.notes)


def test_a_zero_token_fails_assumption_1_by_name():
    tokens = np.eye(6).reshape(2, 3, 6)
    assert conditions.near_orthogonal_tokens(TokenSelection(tokens, scores=np.eye(3)[[0, 0]])).holds
    tokens[1, 2] = 0.0
    found = conditions.near_orthogonal_tokens(TokenSelection(tokens, scores=np.eye(3)[[0, 0]]))
    assert not found.holds
    assert found.offender == "sample 1 token 2"
    assert "is 0" in found.detail


def test_polyak_steps_are_short_enough_for_the_proof_on_few_data():
    """On the experiment's data the longest possible step is some 40 times what the proof allows; a large divisor makes it short."""
    data = signal_tokens()
    setting = pt.Setting(data, pt.settings.Gram(data), pt.Exponential())
    by_name = lambda c: {one.name: one for one in pt.predict(setting, pt.polyak(c)).hypotheses}
    bound = 1 / (2 * conditions.token_bound(data) ** 2)
    floor = min(
        1 / data.tokens.shape[1], 1 / (1 + np.e)
    )  # attention at W = 0, and what one step of the bound leaves of 1/2
    longest = pt.references.max_margin(data).value / floor
    assert longest / bound == pytest.approx(39.6, rel=5e-3)
    assert by_name(1.0)["short_polyak_steps"].slack == pytest.approx(bound - longest, rel=1e-12)
    assert by_name(1.0)["short_polyak_steps"].holds is False
    assert by_name(40.0)["short_polyak_steps"].holds
