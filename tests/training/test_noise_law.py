"""The drift of label noise: against a plain NumPy Monte Carlo, against descent by automatic differentiation, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penchant.errors import ArgumentError, StepSizeError
from penchant.settings.generators import sparse_regression
from penchant.training.noise import moment_descent, regularised_descent

DATA, _ = sparse_regression(4, 6, 2, 3)
INPUTS, TARGETS = np.asarray(DATA.inputs), np.asarray(DATA.targets)
LEAST = np.linalg.lstsq(INPUTS, TARGETS)[0]
START = np.sqrt((np.hypot(LEAST, 0.7) + np.stack([LEAST, -LEAST])) / 2)  # interpolates, with w+ w- = 0.35


def monte_carlo(rng, step, deviation, steps, batch, chains=3000):
    """log w+ + log w- of plain label-noise SGD: mean over chains and its standard error."""
    plus, minus = (np.repeat(row[None], chains, axis=0) for row in START)
    for _ in range(steps):
        if batch is None:
            noise = deviation * rng.standard_normal((chains, 4))
            slope = ((plus**2 - minus**2) @ INPUTS.T - TARGETS - noise) @ INPUTS / 4
        else:
            slope = np.zeros_like(plus)
            for _ in range(batch):
                rows = INPUTS[index := rng.integers(0, 4, chains)]
                error = ((plus**2 - minus**2) * rows).sum(axis=1) - TARGETS[index]
                slope += (error - deviation * rng.standard_normal(chains))[:, None] * rows / batch
        plus, minus = plus * (1 - 2 * step * slope), minus * (1 + 2 * step * slope)
    product = np.log(plus) + np.log(minus)
    return product.mean(axis=0), product.std(axis=0, ddof=1) / np.sqrt(chains)


@pytest.mark.parametrize("batch", [1, 3, None], ids=str)
def test_second_moments_predict_the_mean_of_a_plain_simulation(rng, batch):
    step, deviation = (0.02, 0.1) if batch is None else (0.01, 0.1)
    drift = moment_descent(DATA, START, step=step, deviation=deviation, steps=[400], batch=batch)
    law = drift.log_product[-1]
    np.testing.assert_allclose(drift.log_params.sum(axis=1), drift.log_product, atol=1e-12)
    mean, error = monte_carlo(rng, step, deviation, 400, batch)
    still = moment_descent(DATA, START, step=step, deviation=0.0, steps=[400], batch=batch).log_product[-1]
    assert np.abs(mean - law).max() <= 4.5 * error.max()  # twelve coordinates and three batches: 4.5 standard errors
    assert np.abs(mean - still).max() > 10 * error.max()  # and the noise is what is being tested


def test_residual_moments_settle_at_the_solution_of_their_lyapunov_equation():
    """The dense system for R on the tangent kernel of the end point, by Kronecker products."""
    step, deviation = 0.01, 1e-3
    law = moment_descent(DATA, START, step=step, deviation=deviation, steps=[3000])
    squares = np.exp(2 * law.log_params[-1]).sum(axis=0)
    kernel, eye = 4 * (INPUTS * squares) @ INPUTS.T, np.eye(4)
    move = np.kron(eye, kernel) + np.kron(kernel, eye)
    sampled = step * np.kron(kernel, kernel) @ np.diag(eye.ravel())
    exact = np.linalg.solve(move - sampled, step * deviation**2 * (kernel @ kernel).ravel()).reshape(4, 4)
    assert law.moments[-1] == pytest.approx(exact, rel=1e-3, abs=1e-3 * np.abs(exact).max())


def test_regularised_descent_is_descent_on_the_loss_plus_the_trace_of_its_hessian():
    step, deviation, batch = 0.02, 0.7, 2
    loss = lambda params: jnp.sum((DATA.inputs @ (params[0] ** 2 - params[1] ** 2) - DATA.targets) ** 2) / 8
    trace = lambda params: jnp.trace(jax.hessian(loss)(params).reshape(12, 12))
    slope = jax.jit(jax.grad(lambda params: loss(params) + step * deviation**2 / (4 * batch) * trace(params)))
    params = jnp.asarray(START)
    for _ in range(30):
        params = params - step * slope(params)
    run = regularised_descent(DATA, START, step=step, deviation=deviation, steps=[30], batch=batch)
    assert np.exp(run.log_params[-1]) == pytest.approx(np.asarray(params), rel=1e-11)


def test_squares_follow_their_laws(rng):
    """Second moments against a plain simulation, and descent on the loss plus its trace against automatic differentiation."""
    data, _ = sparse_regression(4, 6, 2, 3, signed=False)
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    step, deviation, chains = 0.01, 0.2, 3000
    beta = np.full((chains, 6), 0.6)
    first, shrunk = beta[0], np.zeros((chains, 6))
    for _ in range(400):
        rows = inputs[index := rng.integers(0, 4, chains)]
        error = (beta**2 * rows).sum(axis=1) - targets[index] - deviation * rng.standard_normal(chains)
        push = 2 * step * error[:, None] * rows
        beta, shrunk = beta * (1 - push), shrunk + np.log1p(-(push**2))
    law = moment_descent(data, first, step=step, deviation=deviation, steps=[400])
    error = shrunk.std(axis=0, ddof=1) / np.sqrt(chains)
    fall = law.log_product[-1] - law.log_product[0]
    assert np.abs(shrunk.mean(axis=0) - fall).max() <= 0.02 * np.abs(fall).max() + 4.5 * error.max()
    assert np.abs(np.log(beta).mean(axis=0) - law.log_params[-1, 0]).max() <= 0.02

    loss = lambda params: jnp.sum((data.inputs @ params**2 - data.targets) ** 2) / 8
    total = lambda params: loss(params) + step * deviation**2 / 4 * jnp.trace(jax.hessian(loss)(params))
    slope, params = jax.jit(jax.grad(total)), jnp.asarray(first)
    for _ in range(30):
        params = params - step * slope(params)
    run = regularised_descent(data, first, step=step, deviation=deviation, steps=[30])
    assert np.exp(run.log_params[-1, 0]) == pytest.approx(np.asarray(params), rel=1e-11)


def test_a_step_that_grows_without_bound_is_an_error():
    with pytest.raises(StepSizeError, match="moment_descent"):
        moment_descent(DATA, START, step=5.0, deviation=1.0, steps=[2000])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 0.0),
        ("step", np.nan),
        ("deviation", -1.0),
        ("batch", 0),
        ("steps", [-1]),
        ("steps", [0.5]),
        ("start", np.zeros((2, 6))),
        ("start", np.ones((2, 5))),
        ("start", np.ones((3, 2, 6))),
    ],
)
def test_bad_arguments_are_named(name, value):
    arguments = {"data": DATA, "start": START, "step": 0.01, "deviation": 0.1, "steps": [1], name: value}
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        moment_descent(**arguments)
