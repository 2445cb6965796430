"""The direction of polynomial tails against a search of the circle and against its stationarity in space."""

import jax.numpy as jnp
import numpy as np
import pytest

import penchant as pt
from penchant.references.logistic import polynomial_direction, tail_power
from penchant.settings.generators import strips, teacher


def test_the_plane_has_the_published_angle_of_a_search():
    data = strips(2, n=8)
    found = polynomial_direction(np.asarray(data.signed), 2.0, pt.references.max_margin(data).weight)
    angles = np.linspace(0, 2 * np.pi, 200_001)
    margins = np.stack([np.cos(angles), np.sin(angles)], 1) @ np.asarray(data.signed).T
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = np.where(margins.min(axis=1) > 0, np.sum(margins**-2.0, axis=1), np.inf)
    assert np.arctan2(found[1], found[0]) == pytest.approx(angles[costs.argmin()], abs=4e-5)


@pytest.mark.parametrize("power", [0.5, 2.0, 200.0])
def test_in_space_it_is_stationary_and_large_powers_tend_to_the_maximum_margin(power):
    data = teacher(20, 4, 0, push=0.2)
    signed, widest = np.asarray(data.signed), pt.references.max_margin(data)
    found = polynomial_direction(signed, power, widest.weight)
    margins = signed @ found
    pull = (margins / margins.min()) ** (-power - 1) @ signed
    np.testing.assert_allclose(pull / np.linalg.norm(pull), found, atol=1e-9)
    assert pt.diagnostics.misalignment(found, widest.weight) < (1e-3 if power > 100 else 1.0)


def test_only_powers_of_the_margin_have_a_power():
    assert tail_power(pt.settings.PolynomialTail(3.5)) == pytest.approx(3.5, rel=1e-9)
    root = pt.UserLoss(lambda z: -jnp.sqrt(z + 60), lambda z: -jnp.sqrt(z + 60) - jnp.log(z + 60) / 2 - jnp.log(2.0))
    for loss in (pt.Exponential(), pt.Logistic(), root):
        assert tail_power(loss) is None
