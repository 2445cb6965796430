"""Steps of equal size in every entry are offered a norm of their own; gradient steps keep the nuclear and the l1 norm."""

import numpy as np
import pytest

import penchant as pt
from penchant.errors import UnknownLimit
from penchant.papers import new_lab
from penchant.papers.key_query.flow import best_bound, factor_excess, signs, stepped
from penchant.verdict import Outcome

LAB = new_lab()

DATA = pt.settings.equal_score_tokens(3, 4, 5, 0)
MATRIX = pt.Setting(DATA, pt.KeyQuery(), pt.Exponential())
DIAGONAL = pt.Setting(
    pt.settings.DiagonalTokens(pt.settings.equal_score_tokens(4, 4, 12, 5)), pt.Hadamard(), pt.Exponential()
)


@pytest.mark.parametrize(
    ("setting", "optimiser", "norm"),
    [
        (MATRIX, pt.sign_descent(0.01), "sign product"),
        (MATRIX, pt.Adam(0.01, 0.0), "sign product"),
        (MATRIX, pt.normalised_descent(0.01), "nuclear"),
        (MATRIX, pt.GradientFlow(), "nuclear"),
        (DIAGONAL, pt.sign_descent(0.01), "linf"),
        (DIAGONAL, pt.gradient_descent(0.01), "l1"),
    ],
)
def test_the_norm_that_is_offered(setting, optimiser, norm):
    found = pt.predict(setting, optimiser)
    assert found.reference.norm == norm
    assert found.reference.certified
    conjectured = any(one.name == "optimiser_covered" for one in found.hypotheses)
    assert conjectured is not isinstance(optimiser, pt.GradientFlow)


def test_signs_that_are_too_many_to_try_leave_no_candidate():
    setting = pt.Setting(pt.settings.equal_score_tokens(2, 3, 9, 0), pt.KeyQuery(), pt.Exponential())
    with pytest.raises(UnknownLimit):
        pt.predict(setting, pt.sign_descent(0.01))


def test_a_run_of_sign_descent_is_judged_in_the_norm_of_sign_products():
    run = stepped(LAB, "sign descent", 0)
    prediction = pt.predict(run.setting, pt.sign_descent(0.002))
    verdict = pt.judge(prediction, run)
    assert "sign product norm" in verdict.inequality
    assert verdict.outcome is not Outcome.refuted
    assert 0 <= verdict.measured <= factor_excess(run, signs(LAB, 0)) <= 0.05


def test_the_bound_of_the_multipliers_is_a_bound():
    run, reference = stepped(LAB, "sign descent", 0), signs(LAB, 0)
    assert 0.9 * reference.value <= best_bound(run, pt.norms.SignProduct()) <= reference.value * (1 + 1e-12)


def test_no_matrix_of_bounded_factors_has_a_larger_norm_than_width_times_the_bound(rng):
    key, query = rng.uniform(-1, 1, (2, 5, 3))
    assert pt.norms.SignProduct().value(key @ query.T) <= 3 * (1 + 1e-9)
    signed = np.sign(key[:, :1]) @ np.sign(query[:, :1]).T
    assert pt.norms.SignProduct().value(signed) == pytest.approx(1.0, rel=1e-9)
