"""Paired intervals: against SciPy's paired test, and what they refuse."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from penchant.diagnostics.rates import paired
from penchant.errors import ArgumentError


def test_the_interval_is_that_of_the_paired_test(rng):
    before = rng.standard_normal(12)
    after = before + 0.1 * rng.standard_normal(12) - 0.2
    expected = ttest_rel(after, before).confidence_interval(0.95)
    found = paired(before, after)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert found.high - found.low < 0.5 * np.std(before)  # the scatter that pairs share is gone


@pytest.mark.parametrize(("before", "after"), [([1.0], [2.0]), ([1.0, 2.0], [1.0]), ([[1.0, 2.0]], [[1.0, 2.0]])])
def test_lists_that_are_not_pairs_are_refused(before, after):
    with pytest.raises(ArgumentError, match="after"):
        paired(before, after)
