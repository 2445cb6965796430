"""Physical time by collocation, against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from penchant.flow.clocks import _METHODS, Pace, _radau, advance


def test_the_collocation_is_radau_iia():
    nodes, matrix = _METHODS[0]
    root = np.sqrt(6)
    np.testing.assert_allclose(nodes, [(4 - root) / 10, (4 + root) / 10, 1], atol=1e-15)
    np.testing.assert_allclose(matrix[-1], [(16 - root) / 36, (16 + root) / 36, 1 / 9], atol=1e-14)


def test_nodes_are_real_where_numpy_returns_complex_roots(monkeypatch):
    roots = np.polynomial.legendre.legroots
    monkeypatch.setattr(np.polynomial.legendre, "legroots", lambda series: roots(series).astype(complex))
    for stages, kept in ((3, _METHODS[0]), (2, _METHODS[1])):
        for found, known in zip(_radau(stages), kept, strict=True):
            assert found.dtype == float
            np.testing.assert_array_equal(found, known)


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
    assert float(found) == pytest.approx(exact, rel=1e-7)  # what the flow asks of a step by default
    assert abs(float(miss)) < 1e-4 * exact
