"""Physical time by an integral over the step, against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from penchant.flow.clocks import Pace, advance, steadied


@pytest.mark.parametrize("stiffness", [0.1, 3.0, 300.0, 3e6])
def test_p_follows_the_exact_solution_at_any_stiffness(stiffness):
    """p' = -k(1 + s/2) p + (1 + s): rates that change along the step, from the quasi-steady state."""
    h, k = 0.01, stiffness
    a = lambda s: -k * (s + s**2 / 4)
    pace = lambda s: Pace(*(jnp.asarray(float(x)) for x in (a(s), -k * (1 + s / 2), 1 + s, 1.0)))
    begin = 1 / k - 0.5 / k**2 if k > 1 else 2.0
    exact = (
        begin * np.exp(a(h))
        + quad(lambda s: (1 + s) * np.exp(a(h) - a(s)), max(0.0, h - 60 / k), h, epsabs=0, epsrel=1e-13)[0]
    )
    found, miss = advance(jnp.asarray(begin), pace(0.0), pace(h), jnp.asarray(h))
    assert float(found) == pytest.approx(exact, rel=1e-9)  # a is a quadratic, which the step knows exactly
    assert abs(float(miss)) < 1e-9 * exact


def test_the_estimate_covers_what_a_cubic_cannot_know():
    """a = -20 sin(s): no polynomial, over a step in which log|grad L| falls by ten."""
    h = 0.5
    pace = lambda s: Pace(*(jnp.asarray(float(x)) for x in (-20 * np.sin(s), -20 * np.cos(s), 1.0, 0.0)))
    exact = np.exp(-20 * np.sin(h)) + quad(lambda s: np.exp(20 * (np.sin(s) - np.sin(h))), 0, h, epsrel=1e-13)[0]
    found, miss = advance(jnp.asarray(1.0), pace(0.0), pace(h), jnp.asarray(h))
    assert abs(float(found) - exact) <= abs(float(miss)) < 1e-3 * exact


def test_a_steady_pace_keeps_the_path_and_changes_the_speed():
    found = steadied(Pace(*(jnp.asarray(x) for x in (-3.0, -8.0, 2.0, 0.7))), jnp.asarray(0.5))
    assert [float(x) for x in (found.log_gradient, found.log_gradient_rate, found.speed, found.speed_rate)] == [
        -3,
        -2,
        0.5,
        0,
    ]
