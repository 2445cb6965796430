"""The closed-form flow against an integrator, against multiple precision."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting.geometry import coupling, eigenbasis
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
from penchant.papers.attention_regression.training.riccati import RiccatiFlow

SIZES = (0.05, 0.04, 0.02)


def integrated(problem, start, times):
    matrix = coupling(problem)

    def field(_, flat):
        whitened = flat.reshape(start.shape)
        return (2 * matrix @ whitened - whitened @ whitened.T @ whitened).ravel()

    found = solve_ivp(
        field, (0, times[-1]), start.ravel(), "DOP853", t_eval=times, rtol=1e-12, atol=1e-15, max_step=5.0
    )
    return found.y.T.reshape(-1, *start.shape)


def log_excess_in_multiple_precision(problem, start, time):
    """log |block of W W' - target|^2 from Y [I + 2 W0' int e^(4J tau) W0]^-1 Y' with 120 digits."""
    with mpmath.workdps(120):
        matrix, first = mpmath.matrix(coupling(problem)), mpmath.matrix(start)
        sizes, basis = mpmath.eigsy(matrix)
        zero = mpmath.mpf(10) ** -60
        grown = [mpmath.exp(2 * s * time) for s in sizes]
        summed = [(mpmath.exp(4 * s * time) - 1) / (4 * s) if abs(s) > zero else mpmath.mpf(time) for s in sizes]
        turned = basis.T * first
        middle = mpmath.eye(first.cols) + 2 * turned.T * mpmath.diag(summed) * turned
        moved = basis * mpmath.diag(grown) * turned
        product = moved * middle**-1 * moved.T
        m = problem.outputs
        error = [product[i, m + j] - matrix[i, m + j] for i in range(m) for j in range(problem.inputs)]
        return float(mpmath.log(sum(e**2 for e in error)))


@pytest.mark.parametrize("outputs", [3, 5])
def test_the_flow_is_the_solution_of_its_equation(outputs, rng):
    problem = prescribed_spectrum(outputs, SIZES, 10.0, 4)
    start = 0.3 * rng.standard_normal((outputs + 3, 3))
    flow, times = RiccatiFlow(problem, start), np.array([0.0, 1.0, 20.0, 100.0])
    for time, whitened in zip(times, integrated(problem, start, times), strict=True):
        product = whitened @ whitened.T
        assert np.abs(flow.product(time) - product).max() < 1e-11 * np.abs(product).max()
        measured = float(np.log(problem.whitened_excess(jnp.asarray(whitened))))
        assert flow.log_excess(time)[0] == pytest.approx(measured, abs=1e-9)


@pytest.mark.parametrize(("outputs", "kernel"), [(5, True), (5, False), (3, True)])
def test_the_logarithm_keeps_its_digits(outputs, kernel, rng):
    """The target matrix has the rounding of float64 in both computations, so the sizes agree to 1e-16 and log e^(-4st) to t * 1e-16."""
    problem = prescribed_spectrum(outputs, SIZES, 3.0, 9)
    start = 0.2 * rng.standard_normal((outputs + 3, 3))
    if not kernel:
        basis = eigenbasis(problem)
        start -= basis.kernel @ (basis.kernel.T @ start)
    flow = RiccatiFlow(problem, start)
    tail = 4 if kernel and outputs > 3 else 8
    assert flow.exponent == pytest.approx(tail * 0.02)
    for time in (3.0, 300.0) if tail == 8 and outputs > 3 else (3.0, 1000.0):
        expected = log_excess_in_multiple_precision(problem, start, time)
        assert flow.log_excess(time)[0] == pytest.approx(expected, abs=1e-10)
    far = flow.log_excess([1e6, 1e7])
    assert (far[1] - far[0]) / 9e6 == pytest.approx(-tail * 0.02, rel=1e-9)


def test_starts_that_end_elsewhere_are_refused(rng):
    problem = prescribed_spectrum(4, SIZES, 5.0, 1)
    basis = eigenbasis(problem)
    start = rng.standard_normal((7, 3))
    start -= basis.plus[:, -1:] @ (basis.plus[:, -1:].T @ start)
    with pytest.raises(ArgumentError, match="saddle"):
        RiccatiFlow(problem, start)
    with pytest.raises(ArgumentError, match="rank 2"):
        RiccatiFlow(prescribed_spectrum(4, (0.05, 0.02, 0.0)), np.ones((7, 3)))
    with pytest.raises(ArgumentError, match="rank 2"):
        RiccatiFlow(prescribed_spectrum(2, SIZES), np.ones((5, 3)))
    with pytest.raises(ArgumentError, match="shape"):
        RiccatiFlow(problem, np.ones((7, 2)))
    with pytest.raises(ArgumentError, match="nonnegative"):
        RiccatiFlow(problem, rng.standard_normal((7, 3))).log_excess(-1.0)
