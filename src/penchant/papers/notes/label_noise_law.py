"""Claims on the law behind label noise: leading order against second moments, trace against log-determinant of the Hessian, its time scale."""

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.label_noise import determinant_regulariser, moving_time, tangent_part, trace_regulariser
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim, recipe
from ...references.interpolation import minimum_potential
from ...settings.generators import sparse_regression
from ...settings.potentials import q_alpha
from ...settings.regression import Regression
from ...settings.square_models import SignedSquares
from ...training.noise import label_noise
from ...training.noise_law import moment_descent, regularised_descent
from ...verdict import Verdict, all_of, at_most, close
from .evidence import DERIVED
from .label_noise import BLANC
from .label_noise_evidence import ALPHA, leading_levels, mean_and_error, signals
from .theorems import NOTES

_DEVIATION = 0.005  # small, so that only the size of the step tells the laws apart
_BURN, _STEPS, _CHAINS = 200, 1_000, 400
_LOAD = {None: 1.2, 1: 0.6}  # step * largest curvature, of the loss on all samples or on one


@recipe
def _orders(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Steps 0.005 to 0.0025 and, at equal step^2 * count, how far descent on L + (step/4) tr Hess is from the second moments."""
    data, start = signals(15, True), np.full((2, 30), ALPHA)
    steps = np.array([0.005, 0.0035, 0.0025])
    gaps = []
    for step in steps:
        ends = [
            run(data, start, step=float(step), deviation=1.0, steps=[round(0.25 / step**2)]).log_product
            for run in (moment_descent, regularised_descent)
        ]
        gaps.append(float((ends[1] - ends[0])[-1].mean()))
    return steps, np.array(gaps)


@claim("label-noise/leading-order", f"{NOTES}, section 9.5; constant and order {DERIVED}", "sharpened")
def leading_order(lab: Lab, planted: bool) -> Verdict:
    """Descent on L + (step sigma^2 / 4B) tr Hess L is label-noise SGD up to a relative error of order step.
    The two laws differ by O(step) when w+ w- has fallen by a factor e; planted: by O(step^2)."""
    steps, gaps = _orders(lab)
    slope = log_log_slope(steps, gaps, (0.0025, 0.005))
    detail = f"gaps {np.round(gaps, 4).tolist()}"
    return close(slope, 2.0 if planted else 1.0, 0.1, "exponent of the gap in the step", detail)


@claim("label-noise/effective-loss", f"{BLANC}; rate {DERIVED}", "ours")
def effective_loss(lab: Lab, planted: bool) -> Verdict:
    """Descent on L + (step sigma^2 / 4B) tr Hess L shrinks w+ w- by 4 step^2 sigma^2 c_j / B per step.
    Descent on L + lambda tr Hess against exp(-4 step^2 sigma^2 c_j k), once it interpolates; planted: lambda twice as large."""
    data = signals(12, False)
    start, step, counts = np.full((2, 30), ALPHA), 0.005, (5_000, 20_000)
    deviation = float(np.sqrt(2.0)) if planted else 1.0
    found = regularised_descent(data, start, step=step, deviation=deviation, steps=counts).log_product
    predicted = leading_levels(data, float(counts[1])) - leading_levels(data, float(counts[0]))
    worst = float(np.abs((found[2] - found[1]) / predicted - 1).max())
    text = "largest relative error of the fall of log w+ w- over 15 000 steps, columns of unequal size"
    return at_most(worst, 1e-3, text)


@recipe
def _pair_rate(lab: Lab) -> tuple[float, float]:
    """Measured fall of log|a^2 - b^2| per step from (4, 1/4) at step * curvature 1.2, and its standard error."""
    rng, step, chains = np.random.default_rng(1 + lab.seed), 0.075, 2_000
    a, b = np.full(chains, 4.0), np.full(chains, 0.25)
    begin = a
    for k in range(600):
        if k == 100:
            begin = np.log(a**2 - b**2)
        r = a * b - 1 + _DEVIATION * rng.standard_normal(chains)
        a, b = a - step * r * b, b - step * r * a
    mean, error = mean_and_error((begin - np.log(a**2 - b**2)) / 500)
    return float(mean), float(error)


def _pair(lab: Lab, planted: bool) -> Verdict:
    """f = ab on one datum: the Hessian of (ab - 1)^2 / 2 on its zero-loss set is the square of (b, a)."""
    regulariser = trace_regulariser if planted else determinant_regulariser
    point, step = jnp.array([4.0, 0.25]), 0.075
    value = lambda params: regulariser(jnp.outer(params[::-1], params[::-1]), step, _DEVIATION)
    slope = jax.jit(jax.grad(value))(point)
    predicted = float(step * 2 * (point[0] * slope[0] - point[1] * slope[1]) / (point[0] ** 2 - point[1] ** 2))
    measured, error = _pair_rate(lab)
    text = f"f = ab, step * curvature 1.2: |{measured:.4g} - {predicted:.4g}| in standard errors"
    return at_most(abs(measured - predicted) / error, 4.0, text)


def _interpolating() -> tuple[Regression, np.ndarray]:
    """Five samples in eight dimensions, and the interpolating w+, w- with w+ w- = 0.49."""
    data, _ = sparse_regression(5, 8, 2, 0, unit_columns=True)
    pull = minimum_potential(data, q_alpha(0.7, 8)).dual @ np.asarray(data.inputs)
    return data, 0.7 * np.exp(np.stack([pull, -pull]) / 2)


def _step(batch: int | None) -> float:
    """The step at which step * curvature is what `_LOAD` says."""
    data, start = _interpolating()
    inputs = np.asarray(data.inputs)
    kernel = 4 * (inputs * (start**2).sum(axis=0)) @ inputs.T
    return _LOAD[batch] / float(kernel.diagonal().max() if batch else np.linalg.eigvalsh(kernel)[-1] / 5)


@recipe
def _measured(lab: Lab, batch: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Fall of log w+ w- per step in every coordinate, and its standard error."""
    data, start = _interpolating()
    noise = {"step": _step(batch), "deviation": _DEVIATION, "steps": [_BURN, _STEPS], "batch": batch}
    run = label_noise(data, start, chains=_CHAINS, seed=1 + lab.seed, **noise)
    return mean_and_error((run.log_product[1] - run.log_product[2]).T / (_STEPS - _BURN))


def _by_gradient(batch: int | None, planted: bool) -> np.ndarray:
    """Fall of log w+ w- per step by descent on the regulariser of the Hessian."""
    data, start = _interpolating()
    step, size = _step(batch), batch or 5
    regulariser = trace_regulariser if planted else determinant_regulariser

    def value(params: jnp.ndarray) -> jnp.ndarray:
        features = 2 * jnp.concatenate([data.inputs * params[:1], -data.inputs * params[1:]], axis=1)
        return regulariser(features.T @ features / 5, step, _DEVIATION, size)

    slope = jax.jit(jax.grad(value))(jnp.asarray(start))  # in one piece: operation by operation it compiles for seconds
    return step * (np.asarray(slope) / start).sum(axis=0)


def _rates(lab: Lab, batch: int | None, predicted: np.ndarray, what: str) -> Verdict:
    mean, error = _measured(lab, batch)
    text, detail = "largest deviation of a rate of log w+ w- in standard errors", np.round(mean / predicted, 3).tolist()
    worst = float((np.abs(mean - predicted) / error).max())
    return at_most(worst, 4.0, f"{what}: {text}", f"measured over predicted {detail}")


@claim("label-noise/log-determinant", DERIVED, "ours", slow=True)
def determinant(lab: Lab, planted: bool) -> Verdict:
    """At large steps label noise acts like -(sigma^2 / 2B) log det(1 - step Hess / 2), where all samples take part in every step.
    Rates by the log-determinant, all samples in every step; planted: by the trace."""
    rates = _rates(lab, None, _by_gradient(None, planted), "signed squares, all samples")
    return all_of(_pair(lab, planted), rates)


@claim("label-noise/single-sample-moments", DERIVED, "ours")
def moments_single(lab: Lab, planted: bool) -> Verdict:
    """With samples drawn at random the second moments of the residuals give the rates, not the log-determinant: sampling adds noise that depends on the iterate.
    One sample per step, by the second moments of the residuals; planted: by the log-determinant."""
    data, start = _interpolating()
    law = moment_descent(data, start, step=_step(1), deviation=_DEVIATION, steps=[_BURN, _STEPS]).log_product
    predicted = _by_gradient(1, False) if planted else (law[1] - law[2]) / (_STEPS - _BURN)
    return _rates(lab, 1, predicted, "signed squares, one sample per step")


@recipe
def _long_steps(lab: Lab) -> tuple[np.ndarray, float, float]:
    """Fall of log w+ w- (mean over coordinates, one per chain) after 1250 steps of 0.02; the law's and the leading order's."""
    data, start, noise = signals(15, True), np.full((2, 30), ALPHA), {"step": 0.02, "deviation": 1.0, "steps": [1_250]}
    fall = -label_noise(data, start, chains=_CHAINS, seed=1, **noise).log_product[-1].mean(axis=1)
    law = moment_descent(data, start, **noise).log_product
    return fall, float((law[0] - law[-1]).mean()), 4 * 0.02**2 * 1_250


@claim("label-noise/law-accuracy", "measured, no theorem", "observed")
def accuracy(lab: Lab, planted: bool) -> Verdict:
    """At steps of 0.02 the law of second moments is within 3 % of the mean fall of log w+ w-.
    The upper end of the 95 % interval of the relative error at step 0.02; planted: of the leading order."""
    fall, second, leading = _long_steps(lab)
    mean, error = mean_and_error(fall)
    predicted = leading if planted else second
    worst = (abs(float(mean) - predicted) + 1.96 * float(error)) / predicted
    return at_most(worst, 0.03, "relative error of the predicted fall of log w+ w-, upper end of its 95 % interval")


_SIZES = (0.002, 0.001)  # step sizes
_MANY, _MOVED = 192, 0.05  # of a norm of 4: far beyond the spread of the mean, and straight to a percent


@recipe
def _displacement(lab: Lab, step: float, batch: int) -> tuple[float, float]:
    """Mean displacement along the drift after the steps that should take it to 0.05, over that, and its standard error."""
    data, start = signals(15, True), np.full((2, 30), ALPHA)
    inputs, potential = np.asarray(data.inputs), q_alpha(ALPHA, 30)
    dual = potential.gradient(minimum_potential(data, potential).weight)
    point = SignedSquares(ALPHA).moved(start, dual)  # on the zero-loss set
    jacobian = 2 * np.hstack([inputs * point[0], -inputs * point[1]])
    gradient = (8 * (inputs**2).mean(axis=0) * point).ravel()  # tr Hess L = 4 sum of c_j (w+^2 + w-^2)
    count = round(_MOVED * moving_time(gradient, jacobian, step, 1.0, batch))
    run = label_noise(data, point, step=step, deviation=1.0, steps=[count], chains=_MANY, batch=batch, seed=1)
    along = tangent_part(gradient, jacobian)
    moved = (point - np.exp(run.log_params[-1])).reshape(_MANY, -1) @ along / (np.linalg.norm(along) * _MOVED)
    return float(moved.mean()), float(moved.std(ddof=1) / np.sqrt(_MANY))


@claim("label-noise/moving-time", f"{BLANC}; constant {DERIVED}", "ours", slow=True)
def moving(lab: Lab, planted: bool) -> Verdict:
    """Label noise moves the parameters by 1 along the zero-loss set in 4B / (step^2 sigma^2 |P_T grad tr Hess L|) steps, as the step size goes to 0.
    Displacement at two step sizes, extrapolated to step size 0, for batches of 1 and 3; planted: twice the drift, lambda = step sigma^2 / 2B."""
    checks = []
    for batch in (1, 3):
        (long, wide), (short, narrow) = (_displacement(lab, step, batch) for step in _SIZES)
        limit, error = 2 * short - long, float(np.hypot(2 * narrow, wide))
        text = f"batch {batch}: displacement at the predicted time over the predicted one, step size to 0"
        detail = f"{long:.4f} at {_SIZES[0]:g}, {short:.4f} at {_SIZES[1]:g}, standard error {error:.2g}"
        checks += [
            at_most(error, 0.01, f"batch {batch}: standard error of that ratio"),
            close(limit, 2.0 if planted else 1.0, 0.03, text, detail),
        ]
    return all_of(*checks)
