r"""A sample of an attention regression: what it says of the covariance, the planted map and the noise, and the start it suggests."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError, SingularCovariance
from ....settings.check import real_array
from .curvature import balanced_point
from .moments import moment_threshold
from .problem import AttentionLayer, AttentionRegression

GAUGES = ("identity", "plus", "minus")
KEYS = ("batch", "full")
DEVIATIONS = 5.0  # z-scores beyond this are not chance
UNRELIABLE = 0.3  # of 1/(n s_d): the second order in 1/n is then no longer small
_CONSTANT = 1e-12  # relative standard deviation below which a column is constant up to rounding


class AttentionSample(eqx.Module):
    r"""Covariates and targets, one sample per row, and the problem they suggest.

    **Arguments:** `inputs` (n, d) and `targets` (n, m) with n >= d; `ridge` is added to the diagonal of the covariance.

    `estimated` has $\hat\Sigma = X^\top X/n$ (the model has no intercept, so nothing is centred), the least-squares map $\hat A$ and the
    residual variance $|Y - X\hat A^\top|^2/(m(n-d))$.

    >>> sample = AttentionSample([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[0.1, 0.3], [0.2, 0.4], [0.2, 0.5]])
    >>> np.asarray(sample.estimated.planted).round(12).tolist()
    [[0.1, 0.1], [0.3, 0.2]]
    """

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n m"]
    estimated: AttentionRegression

    def __init__(self, inputs: object, targets: object, ridge: float = 0.0):
        owner = "AttentionSample"
        inputs = real_array(inputs, "inputs", owner, "(n, d)", 2)
        targets = real_array(targets, "targets", owner, "(n, m)", 2)
        (n, d), m = inputs.shape, targets.shape[1]
        if len(targets) != n:
            raise ArgumentError("targets", owner, f"one row per row of inputs ({n})", f"{len(targets)} rows")
        if not targets.any():
            raise ArgumentError("targets", owner, "not all 0, as there is nothing to learn then", "only zeros")
        if not 0 <= ridge < np.inf:
            raise ArgumentError("ridge", owner, "nonnegative and finite", ridge)
        if n < d and ridge == 0:
            fix = "more samples, fewer columns, or a positive ridge (`ridge=`, on the command line `--ridge`)"
            required = f"at least d = {d} rows: the covariance is singular otherwise"
            raise SingularCovariance("inputs", owner, required, f"{n} rows", fix)
        covariance = inputs.T @ inputs / n + ridge * np.eye(d)
        if ridge == 0:
            planted = np.linalg.lstsq(inputs, targets, rcond=None)[0].T
        else:
            planted = np.linalg.solve(covariance, inputs.T @ targets / n).T
        left = targets - inputs @ planted.T
        noise = float(np.sum(left**2) / (m * (n - d))) if n > d else 0.0
        self.inputs, self.targets = jnp.asarray(inputs), jnp.asarray(targets)
        self.estimated = AttentionRegression(covariance, planted, noise)

    @property
    def size(self) -> int:
        """n."""
        return self.inputs.shape[0]


def noise_level(problem: AttentionRegression, samples: int) -> float:
    """How far the estimated sizes of A Sigma^(1/2) are from the true ones: noise of the targets and of the covariance."""
    m, d = problem.planted.shape
    return float(np.sqrt(float(problem.noise) * (m + d) / samples) + float(problem.sizes[0]) * np.sqrt(d / samples))


def map_errors(sample: AttentionSample) -> np.ndarray:
    """Standard errors of the columns of the least-squares map, the same in each of its rows; not a number where n <= d."""
    n, d = sample.inputs.shape
    noise = float(sample.estimated.noise) if n > d else np.nan
    return np.sqrt(noise / n * np.diag(np.linalg.inv(np.asarray(sample.estimated.covariance))))


def covariance_width(sample: AttentionSample) -> float:
    """Confidence half-width of the covariance in operator norm, |Sigma| sqrt(d/n)."""
    n, d = sample.inputs.shape
    return float(sample.estimated.spread[-1] * np.sqrt(d / n))


def mean_scores(inputs: Any) -> np.ndarray:
    """|mean| of each column in standard errors; infinite for a column that is constant and not 0."""
    inputs = np.asarray(inputs, float)
    mean, deviation = np.abs(inputs.mean(axis=0)), inputs.std(axis=0)
    constant = deviation <= _CONSTANT * np.abs(inputs).max(axis=0)
    return np.where(
        constant, np.where(mean > 0, np.inf, 0.0), mean * np.sqrt(len(inputs)) / np.where(constant, 1.0, deviation)
    )


def visible_failures(sample: AttentionSample) -> tuple[str, ...]:
    """Hypotheses of the theorems that a sample shows to fail, beyond its noise: A2 by shape, A3, and inputs of mean 0."""
    problem, found = sample.estimated, []
    if problem.outputs < problem.inputs:
        found.append(f"m = {problem.outputs} < d = {problem.inputs}, so the map cannot have full column rank (A2)")
    top, limit = float(problem.sizes[0]), moment_threshold(2.0)
    if top - noise_level(problem, sample.size) > limit:
        found.append(f"s_1 = {top:.3g} is above {limit:.3g} (A3): moments of the logits are infinite")
    scores = mean_scores(sample.inputs)
    if scores.max() > DEVIATIONS:
        found.append(f"column {int(scores.argmax())} of the inputs is not centred, and the model has no intercept")
    return tuple(found)


def unreliable(sample: AttentionSample, truth: AttentionRegression | None = None) -> tuple[str, ...]:
    """What makes first-order predictions from a sample doubtful: noise that cannot be estimated, a size below its noise, few samples.

    With the `truth` sizes and noise are known, and only the number of samples can be too small.
    """
    problem, found = sample.estimated if truth is None else truth, []
    smallest, level = float(problem.sizes[-1]), noise_level(problem, sample.size)
    n, d = sample.inputs.shape
    if n <= d and truth is None:
        found.append(f"n = {n} <= d = {d}: the noise of the targets cannot be estimated and is taken as 0")
    if truth is None and smallest <= level:
        found.append(f"the smallest size {smallest:.3g} is below its noise level {level:.3g}: it may be 0")
    if smallest > 0 and 1 / (n * smallest) > UNRELIABLE:
        found.append(f"1/(n s_d) = {1 / (n * smallest):.2g}: first-order theory in 1/n is unreliable")
    return tuple(found)


def gauge_rotation(problem: AttentionRegression, gauge: str) -> np.ndarray:
    """The rotation R of a named gauge: the identity, or +-Q', which makes the whitened V symmetric and of one sign.

    The last two do not depend on the signs of singular vectors.
    """
    if gauge not in GAUGES:
        raise ArgumentError("gauge", "gauge_rotation", f"one of {', '.join(GAUGES)}", repr(gauge))
    right = np.asarray(problem.right)
    if gauge == "identity":
        return np.eye(right.shape[1], right.shape[0])
    return right.T if gauge == "plus" else -right.T


def spectral_layer(problem: AttentionRegression, gauge: str = "identity") -> AttentionLayer:
    """The balanced factorisation of the planted map: the spectral start when the problem is an estimate, a minimum when it is the truth."""
    return problem.unwhiten(jnp.asarray(balanced_point(problem, gauge_rotation(problem, gauge))))


def draw_sample(problem: AttentionRegression, count: int, rng: np.random.Generator) -> AttentionSample:
    """Fresh data: covariates first, then noise, which is drawn whatever its variance: the next sample does not depend on that."""
    inputs = rng.standard_normal((count, problem.inputs)) @ np.asarray(problem.root)
    noise = rng.standard_normal((count, problem.outputs))
    return AttentionSample(inputs, inputs @ np.asarray(problem.planted).T + np.sqrt(float(problem.noise)) * noise)
