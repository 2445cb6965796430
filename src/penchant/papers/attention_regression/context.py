"""Claims on attention over a finite context: first-order bias of loss, gradient and regulariser, and moments of the weights."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...lab import Lab, claim, recipe
from ...verdict import Verdict, all_of, at_most
from .evidence import neighbourhood, scaling_problem
from .setting.context_bias import (
    Estimate,
    extrapolated_loss_bias,
    gradient_bias_samples,
    loss_bias,
    whitened_balance_bias,
    whitened_loss_bias,
)
from .setting.geometry import balanced_point
from .setting.problem import AttentionLayer
from .setting.sample import spectral_layer
from .theorems import GOEL


@recipe
def off_minimum(lab: Lab) -> AttentionLayer:
    """A layer away from the minima, where the query's own weight matters."""
    problem = scaling_problem(lab)
    move = 0.1 * np.random.default_rng(1).standard_normal((7, 3))
    return problem.unwhiten(jnp.asarray(balanced_point(problem) + move))


def agrees(found: Estimate, predicted: float, what: str) -> Verdict:
    """Confirmed within four standard errors."""
    text = f"{what}: |{found.mean:.6g} - {predicted:.6g}| in standard errors of {found.error:.2g}"
    return at_most(found.away(predicted), 4.0, text)


@recipe
def measured_bias(lab: Lab, away: bool, include_self: bool) -> Estimate:
    """n (E L_n - L) at a minimum or away from the minima, by Monte Carlo, without its term in 1/n."""
    problem = scaling_problem(lab)
    layer = off_minimum(lab) if away else spectral_layer(problem)
    return extrapolated_loss_bias(problem, layer, 25, 60_000, include_self=include_self)


@claim(
    "attention-regression/bias",
    f"{GOEL}, Theorems 3-5, which bound it by a constant over n; the constant by us",
    "ours",
    slow=True,
)
def first_order_bias(lab: Lab, planted: bool) -> Verdict:
    """The expected empirical loss exceeds the population loss by B_1/n, in which a query's attention to itself counts off the minima; leave-one-out removes it.
    By Monte Carlo; planted: linear attention, which has no normaliser, at the minimum, and elsewhere the formula with and without the own weight exchanged."""
    problem, away = scaling_problem(lab), off_minimum(lab)
    minimum = float(np.asarray(problem.sizes).sum()) if planted else loss_bias(problem, spectral_layer(problem))
    off = lambda own: loss_bias(problem, away, include_self=own != planted)
    return all_of(
        agrees(measured_bias(lab, False, True), minimum, "n (E L_n - L) at a minimum"),
        agrees(measured_bias(lab, True, True), off(True), "n (E L_n - L) off the minima"),
        agrees(measured_bias(lab, True, False), off(False), "leave-one-out n (E L_n - L) off the minima"),
    )


_POINTS = 24


@recipe
def _gradient_samples(lab: Lab) -> np.ndarray:
    """n (empirical - population gradient) at points of the neighbourhood of Theorem 3: points x draws x rows x d."""
    problem = scaling_problem(lab)
    layers = [problem.unwhiten(jnp.asarray(one)) for one in neighbourhood(problem, _POINTS, 5)]
    return np.stack([gradient_bias_samples(problem, one, 50, 400, seed=k) for k, one in enumerate(layers)])


@recipe
def _balance_slopes(lab: Lab, count: int = 400, draws: int = 1000) -> np.ndarray:
    """The same for the gradient of the regulariser with the sample's covariance, less its linear part, which has mean 0."""
    problem = scaling_problem(lab)

    def value(whitened: Array, seen: Array) -> Array:
        value, key = whitened[: problem.outputs], whitened[problem.outputs :].T
        product = seen @ (value.T @ value - key @ seen @ key.T)
        return 0.25 * jnp.trace(product @ product)

    def one(whitened: Array, key: Array) -> Array:
        rows, whole = jax.random.normal(key, (count, problem.inputs)), jnp.eye(problem.inputs)
        seen, slope = rows.T @ rows / count, lambda seen: jax.grad(value)(whitened, seen)
        exact, linear = jax.jvp(slope, (whole,), (seen - whole,))
        return count * (slope(seen) - exact - linear)

    keys = jax.random.split(jax.random.key(8), (_POINTS, draws))
    points = jnp.asarray(neighbourhood(problem, _POINTS, 5))
    return np.asarray(jax.jit(jax.vmap(jax.vmap(one, (None, 0))))(points, keys))


def _along(samples: np.ndarray, slopes: np.ndarray, what: str) -> Verdict:
    """Whether the mean of samples is the predicted slope along it, at every point and in the mean over all."""
    shares = np.einsum("pkij,pij->pk", samples, slopes) / np.sum(slopes**2, axis=(1, 2))[:, None]
    errors = shares.std(axis=1, ddof=1) / np.sqrt(shares.shape[1])
    worst = float((np.abs(shares.mean(axis=1) - 1) / errors).max())
    return all_of(
        agrees(Estimate.of(shares.ravel()), 1.0, f"{what}, mean over {len(shares)} points"),
        at_most(worst, 4.5, f"{what}: largest distance from 1 at a point, in standard errors"),
    )


def _slopes(lab: Lab, bias: Callable[[Array], Array]) -> np.ndarray:
    return np.asarray(jax.vmap(jax.grad(bias))(jnp.asarray(neighbourhood(scaling_problem(lab), _POINTS, 5))))


@claim("attention-regression/bias-gradient", f"{GOEL}, Theorems 3 and 4, constants by us", "sharpened", slow=True)
def gradient_bias(lab: Lab, planted: bool) -> Verdict:
    """In the neighbourhood of the minima the expected empirical gradient differs from the population gradient by O(1/n); the constant is grad B_1.
    The bias along its prediction at 24 points; planted: B_1 larger by a quarter."""
    target, factor = scaling_problem(lab).target, 1.25 if planted else 1.0
    slopes = _slopes(lab, lambda whitened: factor * whitened_loss_bias(whitened, target))
    return _along(_gradient_samples(lab), slopes, "n (E grad L_n - grad L) along grad B_1")


@claim("attention-regression/bias-regulariser", f"{GOEL}, Theorems 3 and 5, constants by us", "sharpened", slow=True)
def regulariser_bias(lab: Lab, planted: bool) -> Verdict:
    """With the sample's covariance the expected gradient of the regulariser is off by O(1/n) in the neighbourhood of the minima; the constant is grad R_1.
    The bias along its prediction at 24 points; planted: R_1 larger by a quarter."""
    outputs, factor = scaling_problem(lab).outputs, 1.25 if planted else 1.0
    slopes = _slopes(lab, lambda whitened: factor * whitened_balance_bias(whitened, outputs))
    return _along(_balance_slopes(lab), slopes, "n (E grad R_n - grad R) along grad R_1")
