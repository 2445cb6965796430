"""Mirror potentials against mpmath: values, links, conjugates, at every size of the start."""

import mpmath
import numpy as np
import pytest

from penchant.errors import ArgumentError
from penchant.settings.parametrisations import SignedSquares, Squares
from penchant.settings.potentials import Entropy, HyperbolicEntropy, PowerEntropy, Quadratic, q_alpha

WEIGHTS = (1.0, -0.3, 1e-8, -2e-20, 1e5, 0.0)


def exact_q(weight, alpha):
    """alpha^2 q(weight/alpha^2) with q(z) = 2 - sqrt(4 + z^2) + z arcsinh(z/2), in 80 digits."""
    with mpmath.workdps(80):
        z = mpmath.mpf(weight) / mpmath.mpf(alpha) ** 2
        return float(mpmath.mpf(alpha) ** 2 * (2 - mpmath.sqrt(4 + z**2) + z * mpmath.asinh(z / 2)))


@pytest.mark.parametrize("alpha", [1e3, 1.0, 1e-2, 1e-6, 1e-30, 1e-100])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_q_alpha_agrees_with_mpmath(alpha, weight):
    # Sixteen digits of log(weight/alpha^2), which reaches 470: a relative 1e-14.
    assert q_alpha(alpha, 1).value(np.array([weight])) == pytest.approx(exact_q(weight, alpha), rel=2e-14, abs=1e-300)


def test_q_alpha_does_not_cancel_near_zero():
    assert q_alpha(1.0, 1).value(np.array([1e-8])) == pytest.approx(2.5e-17, rel=1e-12)


POTENTIALS = {
    "quadratic": Quadratic(np.array([0.3, -1.0, 2.0])),
    "entropy": Entropy(np.array([-0.4, 1.0, -3.0])),
    "hyperbolic": HyperbolicEntropy(np.array([-0.4, 1.0, -3.0]), np.array([0.7, 0.0, -1.1])),
}


@pytest.mark.parametrize("name", POTENTIALS)
def test_link_inverts_gradient_and_fenchel_is_an_equality_there(name, rng):
    potential = POTENTIALS[name]
    for dual in (rng.standard_normal(3), 5 * rng.standard_normal(3), 1e-3 * rng.standard_normal(3)):
        weight = potential.link(dual)
        assert potential.gradient(weight) == pytest.approx(dual, rel=1e-12, abs=1e-13)
        assert potential.value(weight) + potential.conjugate(dual) == pytest.approx(dual @ weight, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", POTENTIALS)
def test_gradient_and_curvature_are_derivatives(name, rng):
    potential, dual, h = POTENTIALS[name], rng.standard_normal(3), 1e-6
    for j in range(3):
        unit = h * np.eye(3)[j]
        slope = (potential.conjugate(dual + unit) - potential.conjugate(dual - unit)) / (2 * h)
        assert slope == pytest.approx(potential.link(dual)[j], rel=1e-7)  # central differences: h^2 and eps/h
        bend = (potential.link(dual + unit) - potential.link(dual - unit))[j] / (2 * h)
        assert bend == pytest.approx(potential.curvature(dual)[j], rel=1e-7)


@pytest.mark.parametrize("name", POTENTIALS)
def test_the_start_is_the_minimum_and_has_value_zero(name, rng):
    potential = POTENTIALS[name]
    start = potential.link(np.zeros(3))
    assert potential.value(start) == pytest.approx(0.0, abs=1e-14)
    for _ in range(20):
        assert potential.value(np.abs(start + 0.3 * rng.standard_normal(3))) >= 0


@pytest.mark.parametrize("make", [Squares, SignedSquares])
@pytest.mark.parametrize("alpha", [0.0, -1.0, np.nan, np.inf])
def test_a_start_that_is_not_positive_is_refused_by_name(make, alpha):
    with pytest.raises(ArgumentError, match="'alpha'"):
        make(alpha)


def test_a_zero_inside_a_start_is_refused():
    with pytest.raises(ArgumentError, match="'start'"):
        SignedSquares(1.0).potential(np.array([[1.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize("ratio", [1e-6, 4.999e-3, 5.001e-3, 0.1, 3.0])
def test_q_alpha_has_all_digits_where_weights_are_small_against_the_start(ratio):
    """The integral of arcsinh(u/2) by Gauss-Legendre quadrature."""
    points, weights = np.polynomial.legendre.leggauss(60)
    exact = float(weights @ np.arcsinh(ratio * (points + 1) / 4)) * ratio / 2
    assert q_alpha(1.0, 1).value(np.array([ratio])) == pytest.approx(exact, rel=1e-14)


def test_the_largest_starts_do_not_underflow_and_larger_ones_are_refused():
    assert q_alpha(1e100, 1).value(np.array([2.0])) == pytest.approx(1e-200, rel=1e-12)
    for build in (lambda: q_alpha(1e101, 2), lambda: Entropy(np.array([0.0, 500.0]))):
        with pytest.raises(ArgumentError, match="'alpha'"):
            build()


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_speed_at_the_start_is_that_of_the_parameters(depth):
    """w+^D - w-^D from alpha moves by 2 D^2 alpha^(2D - 2) per unit of the pull."""
    potential = q_alpha(0.7, 2) if depth == 2 else PowerEntropy(np.full(2, depth * np.log(0.7)), depth)
    assert potential.speed(np.zeros(2)) == pytest.approx(2 * depth**2 * 0.7 ** (2 * depth - 2), rel=1e-13)
