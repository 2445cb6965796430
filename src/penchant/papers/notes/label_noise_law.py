"""Claims on the law behind label noise: leading order against second moments, trace against log-determinant of the Hessian."""

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics.label_noise import determinant_regulariser, trace_regulariser
from ...diagnostics.rates import log_log_slope
from ...lab import Lab, claim, recipe
from ...references.interpolation import minimum_potential
from ...settings.generators import sparse_regression
from ...settings.potentials import q_alpha
from ...settings.regression import Regression
from ...training.noise import label_noise
from ...training.noise_law import moment_descent, regularised_descent
from ...verdict import Outcome, Verdict, all_of, at_most, close
from .evidence import DERIVED
from .label_noise import BLANC
from .label_noise_evidence import ALPHA, agree, leading_levels, mean_and_error, signals

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


@claim(
    "label-noise/leading-order",
    "Descent on L + (step sigma^2 / 4B) tr Hess L is label-noise SGD up to a relative error of order step.",
    DERIVED,
    kind="ours",
)
def leading_order(lab: Lab, planted: bool) -> Verdict:
    """The two laws differ by O(step) when w+ w- has fallen by a factor e; planted: by O(step^2)."""
    steps, gaps = _orders(lab)
    slope = log_log_slope(steps, gaps, (0.0025, 0.005))
    return close(
        slope, 2.0 if planted else 1.0, 0.1, "exponent of the gap in the step", f"gaps {np.round(gaps, 4).tolist()}"
    )


@claim(
    "label-noise/effective-loss",
    "Descent on L + (step sigma^2 / 4B) tr Hess L shrinks w+ w- by 4 step^2 sigma^2 c_j / B per step.",
    f"{BLANC}; rate {DERIVED}",
    kind="ours",
)
def effective_loss(lab: Lab, planted: bool) -> Verdict:
    """Descent on L + lambda tr Hess against exp(-4 step^2 sigma^2 c_j k), once it interpolates; planted: lambda twice as large."""
    data = signals(12, False)
    start, step, counts = np.full((2, 30), ALPHA), 0.005, (5_000, 20_000)
    deviation = float(np.sqrt(2.0)) if planted else 1.0
    found = regularised_descent(data, start, step=step, deviation=deviation, steps=counts).log_product
    predicted = leading_levels(data, float(counts[1])) - leading_levels(data, float(counts[0]))
    return at_most(
        float(np.abs((found[2] - found[1]) / predicted - 1).max()),
        1e-3,
        "largest relative error of the fall of log w+ w- over 15 000 steps, columns of unequal size",
    )


def _pair_loss_hessian(point: jnp.ndarray) -> jnp.ndarray:
    """Hessian of (ab - 1)^2 / 2 on its zero-loss set."""
    slope = point[::-1]
    return jnp.outer(slope, slope)


@recipe
def _pair_rate(lab: Lab, seed: int) -> tuple[float, float]:
    """Measured fall of log|a^2 - b^2| per step from (4, 1/4) at step * curvature 1.2, and its standard error."""
    rng, step, chains = np.random.default_rng(1 + seed), 0.075, 2_000
    a, b = np.full(chains, 4.0), np.full(chains, 0.25)
    begin = a
    for k in range(600):
        if k == 100:
            begin = np.log(a**2 - b**2)
        r = a * b - 1 + _DEVIATION * rng.standard_normal(chains)
        a, b = a - step * r * b, b - step * r * a
    mean, error = mean_and_error((begin - np.log(a**2 - b**2)) / 500)
    return float(mean), float(error)


def _pair(lab: Lab, planted: bool, seed: int) -> Verdict:
    regulariser = trace_regulariser if planted else determinant_regulariser
    point, step = jnp.array([4.0, 0.25]), 0.075
    slope = jax.jit(jax.grad(lambda params: regulariser(_pair_loss_hessian(params), step, _DEVIATION)))(point)
    predicted = float(step * 2 * (point[0] * slope[0] - point[1] * slope[1]) / (point[0] ** 2 - point[1] ** 2))
    measured, error = _pair_rate(lab, seed)
    return at_most(
        abs(measured - predicted) / error,
        4.0,
        f"f = ab, step * curvature 1.2: |{measured:.4g} - {predicted:.4g}| in standard errors",
    )


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
def _measured(lab: Lab, batch: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fall of log w+ w- per step in every coordinate, and its standard error."""
    data, start = _interpolating()
    counts = [_BURN, _STEPS]
    run = label_noise(
        data, start, step=_step(batch), deviation=_DEVIATION, steps=counts, chains=_CHAINS, batch=batch, seed=1 + seed
    )
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


def _rates(lab: Lab, batch: int | None, predicted: np.ndarray, what: str, seed: int = 0) -> Verdict:
    mean, error = _measured(lab, batch, seed)
    return at_most(
        float((np.abs(mean - predicted) / error).max()),
        4.0,
        f"{what}: largest deviation of a rate of log w+ w- in standard errors",
        f"measured over predicted {np.round(mean / predicted, 3).tolist()}",
    )


@claim(
    "label-noise/log-determinant",
    "At large steps label noise acts like -(sigma^2 / 2B) log det(1 - step Hess / 2), where all samples take part in every step.",
    DERIVED,
    kind="ours",
    slow=True,
)
def determinant(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    """Rates by the log-determinant, all samples in every step; planted: by the trace."""
    rates = _rates(lab, None, _by_gradient(None, planted), "signed squares, all samples", seed)
    return all_of(_pair(lab, planted, seed), rates)


@claim(
    "label-noise/log-determinant-single-sample",
    "The log-determinant also describes steps on samples drawn at random.",
    "a tempting reading of the log-determinant",
    kind="ours",
    expected=Outcome.refuted,
)
def determinant_single(lab: Lab, planted: bool, seed: int = 0) -> Verdict:
    """The same with one sample drawn per step; planted: by the trace."""
    return _rates(lab, 1, _by_gradient(1, planted), "signed squares, one sample per step", seed)


@claim(
    "label-noise/single-sample-moments",
    "With samples drawn at random the second moments of the residuals give the rates: sampling adds noise that depends on the iterate.",
    DERIVED,
    kind="ours",
)
def moments_single(lab: Lab, planted: bool) -> Verdict:
    """One sample per step, by the second moments of the residuals; planted: by the log-determinant."""
    if planted:
        return determinant_single(lab, False)
    data, start = _interpolating()
    law = moment_descent(data, start, step=_step(1), deviation=_DEVIATION, steps=[_BURN, _STEPS]).log_product
    return _rates(lab, 1, (law[1] - law[2]) / (_STEPS - _BURN), "signed squares, one sample per step")


@recipe
def _long_steps(lab: Lab) -> tuple[np.ndarray, float, float]:
    """Fall of log w+ w- (mean over coordinates, one per chain) after 1250 steps of 0.02; the law's and the leading order's."""
    data, start, noise = signals(15, True), np.full((2, 30), ALPHA), {"step": 0.02, "deviation": 1.0, "steps": [1_250]}
    fall = -label_noise(data, start, chains=_CHAINS, seed=1, **noise).log_product[-1].mean(axis=1)
    law = moment_descent(data, start, **noise).log_product
    return fall, float((law[0] - law[-1]).mean()), 4 * 0.02**2 * 1_250


@claim(
    "label-noise/law-is-the-mean",
    "The law of second moments is the exact mean of log w+ w- over noisy runs.",
    "a tempting reading of the law",
    kind="ours",
    expected=Outcome.refuted,
)
def exact_mean(lab: Lab, planted: bool) -> Verdict:
    """At four times the step of the other claims; planted: the leading order is the mean."""
    fall, second, leading = _long_steps(lab)
    return agree(
        fall[None],
        np.array([leading if planted else second]),
        "mean fall of log w+ w- at step 0.02",
        f"measured {fall.mean():.4f}, law {second:.4f}, leading order {leading:.4f}",
    )


@claim(
    "label-noise/law-accuracy",
    "At steps of 0.02 the law of second moments is within 3 % of the mean fall of log w+ w-.",
    DERIVED,
    kind="ours",
)
def accuracy(lab: Lab, planted: bool) -> Verdict:
    """The upper end of the 95 % interval of the relative error at step 0.02; planted: of the leading order."""
    fall, second, leading = _long_steps(lab)
    mean, error = mean_and_error(fall)
    predicted = leading if planted else second
    worst = (abs(float(mean) - predicted) + 1.96 * float(error)) / predicted
    return at_most(worst, 0.03, "relative error of the predicted fall of log w+ w-, upper end of its 95 % interval")
