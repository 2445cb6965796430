"""The closed-form flow against an integrator, against multiple precision, and its scalar modes."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from penchant.errors import ArgumentError
from penchant.papers.attention_regression.setting.geometry import coupling, eigenbasis
from penchant.papers.attention_regression.setting.sample import prescribed_spectrum
from penchant.papers.attention_regression.training.riccati import RiccatiFlow, aligned_modes, half_height_times

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


def test_aligned_modes_solve_their_equation_and_keep_their_digits():
    sizes, u, v = np.array(SIZES), np.array([1e-3, 0.2, 0.5]), np.array([2e-3, 0.1, 0.3])

    def field(_, y):
        u, v = y[:3], y[3:]
        return np.concatenate([2 * sizes * v - u * (u**2 + v**2), 2 * sizes * u - v * (u**2 + v**2)])

    # each mode is the flow of a 1 x 1 problem: W = (u, v), J = [0, s; s, 0]
    found = solve_ivp(field, (0, 60), np.concatenate([u, v]), "DOP853", rtol=1e-12, atol=1e-15).y[:, -1]
    modes = aligned_modes(sizes, u, v, 60.0)
    assert np.abs(np.concatenate([modes.u, modes.v]) - found).max() < 1e-12
    assert np.abs(np.exp(modes.log_residual) - np.abs(found[:3] * found[3:] - sizes)).max() < 1e-12
    with mpmath.workdps(60):
        s, e = mpmath.mpf(0.05), mpmath.exp(-4 * mpmath.mpf(0.05) * 100)
        product = s / (1 + (s / mpmath.mpf(1e-3) ** 2 - 1) * e)  # balanced start
        expected = float(mpmath.log(s - product))
    assert aligned_modes([0.05], [1e-3], [1e-3], 100.0).log_residual[0] == pytest.approx(expected, abs=1e-12)


def test_aligned_modes_are_the_matrix_flow():
    problem = prescribed_spectrum(4, SIZES, 5.0, 1)
    u, v = np.array([0.1, 0.2, 0.3]), np.array([0.15, 0.1, 0.2])
    start = np.concatenate([np.asarray(problem.left) * u, np.asarray(problem.right) * v])
    modes = aligned_modes(SIZES, u, v, 40.0)
    total = np.log(np.sum(np.exp(2 * modes.log_residual)))
    assert RiccatiFlow(problem, start).log_excess(40.0)[0] == pytest.approx(total, abs=1e-10)


def test_half_heights():
    times = half_height_times(SIZES, 1e-6)
    for size, time in zip(SIZES, times, strict=True):
        mode = aligned_modes([size], [1e-6], [1e-6], float(time))
        assert float(mode.u[0] * mode.v[0]) == pytest.approx(size / 2, rel=1e-9)


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
    with pytest.raises(ArgumentError, match="above -v"):
        aligned_modes([0.1], [0.1], [-0.2], 1.0)
