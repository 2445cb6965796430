r"""A sample of an attention regression: what it says of the covariance, the planted map and the noise, and the start it suggests."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ArgumentError
from .attention_curvature import balanced_point
from .attention_regression import AttentionLayer, AttentionRegression
from .check import real_array

GAUGES = ("identity", "plus", "minus")
KEYS = ("batch", "full")


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

    def __init__(self, inputs: Any, targets: Any, ridge: float = 0.0):
        owner = "AttentionSample"
        inputs = real_array(inputs, "inputs", owner, "(n, d)", 2)
        targets = real_array(targets, "targets", owner, "(n, m)", 2)
        (n, d), m = inputs.shape, targets.shape[1]
        if len(targets) != n:
            raise ArgumentError("targets", owner, f"one row per row of inputs ({n})", f"{len(targets)} rows")
        if not 0 <= ridge < np.inf:
            raise ArgumentError("ridge", owner, "nonnegative and finite", ridge)
        if n < d and ridge == 0:
            fix = "more samples, fewer columns, or `ridge=` some positive number"
            raise ArgumentError(
                "inputs", owner, f"at least d = {d} rows: the covariance is singular otherwise", f"{n} rows", fix
            )
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
    """Fresh data: covariates first, then noise (none is drawn where the problem has none)."""
    inputs = rng.standard_normal((count, problem.inputs)) @ np.asarray(problem.root)
    targets = inputs @ np.asarray(problem.planted).T
    if float(problem.noise) > 0:
        targets = targets + np.sqrt(float(problem.noise)) * rng.standard_normal(targets.shape)
    return AttentionSample(inputs, targets)
