"""Rates that still drift: where the limit lies inside the interval, and where the interval must refuse to say so."""

import numpy as np
import pytest

from penchant.diagnostics.rates import (
    linear_slope,
    log_log_slope,
    pooled_rate,
    rate,
    settling,
)
from penchant.errors import ArgumentError
from penchant.verdict import Outcome, covers

X = np.geomspace(1, 1e5, 400)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_limit_of_a_power_law_with_a_power_correction_is_inside(power, rng):
    series = [(X, (1 + c * X**-power) * X**-1.5) for c in rng.uniform(1, 3, 6)]
    found = settling(series, (1e2, 1e4))
    assert covers(found, -1.5, "exponent", rival=-1.0).outcome is Outcome.confirmed
    assert covers(found, -1.0, "exponent", rival=-1.5).outcome is Outcome.refuted
    assert abs(found.late.slope + 1.5) < abs(found.early.slope + 1.5)


def test_a_logarithmic_correction_is_not_taken_for_its_limit():
    found = settling([(X, X**-1.5 * np.log(X + 1) ** c) for c in (1.9, 2.0, 2.1)], (1e2, 1e4))
    assert covers(found, -1.5, "exponent", rival=-1.0).outcome is Outcome.refuted


def test_slopes_of_exponentials_and_of_logarithms():
    assert linear_slope(X, 3 * X - 1, (10.0, 1e3)) == pytest.approx(3.0, rel=1e-12)
    assert log_log_slope(X, 2 * X**0.25, (10.0, 1e3)) == pytest.approx(0.25, rel=1e-12)
    with pytest.raises(ArgumentError, match="linear_slope"):
        linear_slope(X, X, (1e6, 1e7))


def test_one_run_has_a_drift_but_no_interval_and_decides_nothing():
    found = settling([(X, (1 + 1 / X) / X)], (1e2, 1e4))
    assert np.isnan(rate([1.0]).half_width)
    assert abs(found.late.slope - found.early.slope) < 0.01
    assert np.isnan(found.reach)
    assert "±" not in str(found)
    for predicted in (-1.0, -2.0):
        assert covers(found, predicted, "exponent", rival=0.0).outcome is Outcome.undecided


@pytest.mark.parametrize("predicted", [-2.0, 5.0])
def test_an_interval_that_holds_a_rival_confirms_neither(predicted):
    found = settling([(X, X**-1.0), (X, X**-3.0)], (1e2, 1e4))
    assert found.low < -14
    assert found.high > 10
    assert covers(found, predicted, "exponent", rival=predicted + 1).outcome is Outcome.undecided
    assert covers(found, predicted, "exponent", rival=predicted + 30).outcome is Outcome.confirmed
    assert covers(found, 20.0, "exponent", rival=19.0).outcome is Outcome.refuted


def test_runs_that_nearly_lack_the_leading_term_do_not_spoil_the_root_mean_square():
    """x^-1/2 with the next term x^-1: the mean of the slopes is too wide to decide, the slope of the root mean square is not."""
    constants = (1.0, 1.4, -0.8, 1.1, 0.9, 2e-3)
    series = [(X, np.abs(c * X**-0.5 + X**-1.0)) for c in constants]
    assert covers(settling(series, (1e2, 1e4)), -0.5, "exponent", rival=-0.75).outcome is not Outcome.confirmed
    found = settling(series, (1e2, 1e4), pool=True)
    assert covers(found, -0.5, "exponent", rival=-0.75).outcome is Outcome.confirmed
    assert covers(found, -0.75, "exponent", rival=-0.5).outcome is Outcome.refuted
    assert np.isnan(pooled_rate(series[:1], (1e2, 1e4)).half_width)


def test_the_interval_of_a_root_mean_square_grows_with_the_spread_of_its_runs():
    alike = pooled_rate([(X, c / X) for c in (1.0, 2.0, 3.0)], (1e2, 1e4))
    unlike = pooled_rate([(X, X**-power) for power in (0.9, 1.0, 1.1)], (1e2, 1e4))
    assert alike.half_width < 1e-12 < 0.1 < unlike.half_width
