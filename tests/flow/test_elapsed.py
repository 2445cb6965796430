"""Physical time along the flow, which is as stiff as the margins are large."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from penchant.flow.clocks import Curve, Pace, advance


def _stiff(k: float, s: float) -> Pace:
    """p' = -k(1 + s/2) p + (1 + s), where the loss falls k(1 + s/2) - s times as fast as the clock runs: rates that change along a step."""
    rate, speed = -k * (1 + s / 2), 1 + s
    fall = k * (1 + s / 2) * (1 + s)  # of log excess
    numbers = -k * (s + s**2 / 4), speed
    by_clock = Curve(*map(jnp.asarray, (float(s), np.log(speed), 1 / speed - rate)))
    excess = k * (s + 0.75 * s**2 + s**3 / 6)
    by_excess = Curve(*map(jnp.asarray, (excess, -np.log(fall / speed), (0.0 - rate - 0.5 / (1 + s / 2)) / fall)))
    return Pace(*map(jnp.asarray, numbers), by_clock, by_excess)


@pytest.mark.parametrize("stiffness", [0.1, 3.0, 300.0, 3e6])
@pytest.mark.parametrize("gap", [0.0, 0.005])
def test_p_follows_the_exact_solution_at_any_stiffness(stiffness, gap):
    """From the quasi-steady state: a first step, and one after another."""
    h, k = 0.01, stiffness
    a = lambda s: -k * (s + s**2 / 4)
    begin = 1 / k - 0.5 / k**2 if k > 1 else 2.0
    tail = quad(lambda s: (1 + s) * np.exp(a(h) - a(s)), max(0.0, h - 60 / k), h, epsabs=0, epsrel=1e-13)[0]
    exact = begin * np.exp(a(h)) + tail
    found, miss = advance(jnp.asarray(begin), _stiff(k, 0.0), _stiff(k, h), _stiff(k, -gap))
    assert float(found) == pytest.approx(exact, rel=1e-10)
    assert abs(float(found) - exact) <= float(miss) + 1e-14 * exact
    assert float(miss) < 1e-7 * exact


def test_two_estimates_of_the_time_that_disagree_are_no_small_error():
    begin, end = _stiff(3.0, 0.0), _stiff(3.0, 0.01)
    wrong = Curve(end.by_excess.x, end.by_excess.own + 1e-3, end.by_excess.slope)
    _, miss = advance(jnp.asarray(0.3), begin, Pace(end.log_gradient, end.speed, end.by_clock, wrong), begin)
    _, usual = advance(jnp.asarray(0.3), begin, end, begin)
    assert float(usual) < 1e-9 < float(miss)
