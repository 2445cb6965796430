"""Diagnostics: pure functions with answers known by hand."""

import mpmath
import numpy as np
import pytest
from scipy.stats import t as student

import penchant as pt
from penchant.diagnostics.direction import (
    log_attention_loss,
    misalignment,
    misalignments,
    normalised_margins,
    optimal_attention,
    smooth_margins,
)
from penchant.diagnostics.rates import log_log_slope, rate
from penchant.errors import ArgumentError
from penchant.settings.generators import random_tokens

DATA = random_tokens(3, 3, 4, 0)


@pytest.fixture(scope="module")
def run():
    return pt.train(pt.Setting(DATA, pt.Direct(), pt.Exponential()), pt.normalised_descent(0.1), steps=30)


@pytest.mark.parametrize("angle", [1e-13, 1e-9, 1e-3, 1.0, 3.0])
def test_misalignment_keeps_its_digits_where_one_minus_dot_has_none(angle):
    found = misalignment([5.0, 0.0], [np.cos(angle), np.sin(angle)])
    with mpmath.workdps(40):
        wanted = float(1 - mpmath.cos(mpmath.mpf(angle)))
    assert found == pytest.approx(
        wanted, rel=1e-3 if angle < 1e-12 else 1e-6
    )  # entries are rounded to 1e-16 of the unit


def test_misalignment_of_other_shapes_is_refused():
    with pytest.raises(ArgumentError, match=r"of shape \(2,\). Got shape \(\)"):
        misalignment([1.0, 2.0], -1.0)


def test_misalignment_ignores_the_lengths_and_sees_the_sign():
    weight = np.array([[1.0, 2.0], [3.0, -1.0]])
    assert misalignment(weight, 7 * weight) <= 1e-31
    assert misalignment(weight, -weight) == pytest.approx(2.0, abs=1e-15)


def test_a_zero_weight_has_no_direction():
    assert np.isnan(misalignment(np.zeros(2), np.ones(2)))  # warnings are errors here: none is given
    assert np.isnan(misalignment(np.ones(2), np.zeros(2)))


def test_misalignments_agree_between_direct_and_gram(run):
    best = pt.references.max_margin(DATA)
    gram = pt.train(pt.Setting(DATA, pt.settings.Gram(DATA), pt.Exponential()), pt.normalised_descent(0.1), steps=30)
    one, other = misalignments(run, best), misalignments(gram, best)
    assert np.isnan(one[0])
    assert np.isnan(other[0])
    assert np.allclose(one[1:], other[1:], rtol=1e-10, atol=1e-15)
    assert one[-1] == misalignment(run.weight(), best.weight)


def test_attention_agrees_with_a_plain_softmax(run):
    found = optimal_attention(run)
    for record in (0, 10, -1):
        logits = np.einsum("ntd,de,ne->nt", DATA.tokens, run.weight(record), DATA.queries)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        wanted = np.take_along_axis(shares, np.asarray(DATA.optimal)[:, None], axis=1)[:, 0]
        assert np.allclose(found[record], wanted, rtol=1e-13)
        assert np.allclose(log_attention_loss(run)[record], np.log1p(-wanted), rtol=1e-10)


def test_margins_per_norm(run):
    assert np.isnan(normalised_margins(run)[0])
    assert normalised_margins(run)[-1] == run.margins[-1].min() / run.norm[-1]
    assert smooth_margins(run)[-1] == -run.log_excess[-1] / run.norm[-1]


@pytest.mark.slow
def test_margins_of_products_are_normalised_by_the_weight_not_by_its_factors():
    setting = pt.Setting(pt.settings.equal_score_tokens(3, 4, 5, 1), pt.KeyQuery(), pt.Exponential())
    run = pt.train(setting, pt.GradientFlow(), setting.start(0, 0.1), steps=3)
    smallest, weight = run.smallest_margin()[-1], run.weight()
    assert normalised_margins(run)[-1] == pytest.approx(smallest / np.linalg.norm(weight), rel=1e-12)
    nuclear = lambda matrix: float(np.linalg.norm(matrix, "nuc"))
    assert normalised_margins(run, nuclear)[-1] == pytest.approx(smallest / nuclear(weight), rel=1e-12)


def test_log_log_slope_uses_its_window_only():
    x = np.geomspace(1, 1e4, 41)
    y = np.where(x < 100, 1.0, (x / 100) ** -1.5)
    assert log_log_slope(x, y, (100.0, 1e4)) == pytest.approx(-1.5, abs=1e-12)
    assert log_log_slope(x, y, (1.0, 90.0)) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ArgumentError, match="'window' argument"):
        log_log_slope(x, y, (2e4, 3e4))


def test_rate_is_the_student_interval():
    slopes = [-2.0, -1.9, -2.1, -2.05]
    found = rate(slopes)
    half = student.ppf(0.975, 3) * np.std(slopes, ddof=1) / 2
    assert (found.slope, found.half_width) == pytest.approx((-2.0125, half), rel=1e-14)
    assert (found.low, found.high) == pytest.approx((-2.0125 - half, -2.0125 + half), rel=1e-14)
    assert np.isnan(rate([1.0]).half_width)
