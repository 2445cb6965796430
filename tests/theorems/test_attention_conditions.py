"""Conditions of the theorems on token selection, against formulas written out by hand."""

import numpy as np
import pytest

import penchant as pt
from penchant.settings.generators import local_pair
from penchant.theorems import attention_hypotheses as conditions


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
    setting = pt.Setting(data, pt.Gram(data), pt.Exponential())
    assert conditions.token_bound(data) ** 2 == pytest.approx(6.0, rel=1e-14)
    assert conditions.attention_floor(setting, setting.start(), 0.05) == pytest.approx(1 / (1 + np.exp(0.6)), rel=1e-14)
