"""The logistic minimiser of data that no direction separates: against its own slope, and where Newton's method does not get there."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from penchant.errors import PenchantError
from penchant.references.logistic import logistic_minimiser


def test_forces_cancel_to_rounding(rng):
    signed = rng.standard_normal((30, 4)) * np.array([1.0, 1e-3, 1e3, 1.0])
    weight = logistic_minimiser(signed)
    forces = expit(-signed @ weight)[:, None] * signed
    assert np.abs(forces.sum(axis=0) / np.abs(forces).sum(axis=0)).max() < 1e-12


@pytest.mark.parametrize("small", [1e-3, 1e-9, 1e-15])
def test_a_far_minimiser_is_found(small):
    """Two opposite samples: sigmoid(-w) = small * sigmoid(small w)."""
    exact = brentq(lambda w: np.log(expit(-w)) - np.log(small * expit(small * w)), 0.0, 100.0, xtol=1e-14)
    assert logistic_minimiser(np.array([[1.0], [-small]])) == pytest.approx([exact], rel=1e-9)


def test_a_minimiser_out_of_reach_is_an_error():
    """At w = 345.4, more Newton steps of length 1 away than there are."""
    with pytest.raises(PenchantError, match="relative slope"):
        logistic_minimiser(np.array([[1.0], [-1e-150]]))


def test_no_samples_have_the_minimiser_0():
    assert logistic_minimiser(np.zeros((0, 3))).tolist() == [0.0, 0.0, 0.0]
