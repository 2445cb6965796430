r"""Contraction with gradients that are not exact: what the steps of a run did, beside what the population would have done.

A step along $\Lambda^{-1}\nabla + \xi$ with $|\xi| \le \epsilon$ in the norm of the geometry, from a point within $r_0$ of the minima, has
$\mathrm{dist}^2 \to (1 - \eta\alpha + 2\eta^2\beta^2)\,\mathrm{dist}^2 + (\eta/\alpha + 2\eta^2)\,\epsilon^2$ at most.
On a sample $\xi$ holds the error of the gradient, of the regulariser and of the preconditioner alike: it is read off the steps themselves.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ArgumentError
from .setting.balanced_minima import nearest_minimum
from .setting.curvature import Contraction, contraction
from .setting.geometry import AbstractGeometry
from .setting.problem import AttentionLayer, AttentionRegression
from .training.algorithm1 import AttentionRun
from .training.preconditioned import PreconditionedDescent


class Perturbation(eqx.Module):
    """T steps of a run: `error` is epsilon at each, `distance` that to the minima at the T + 1 layers, `gain` and `added` the two factors above.

    `relative` is |Sigma^(1/2) S^-1 Sigma^(1/2) - 1| for the covariance S that preconditioned (the second event of Lemma 3).
    """

    error: np.ndarray
    distance: np.ndarray
    relative: float
    sure: Contraction
    step: float

    @property
    def gain(self) -> float:
        return 1 - self.step * self.sure.alpha + 2 * self.step**2 * self.sure.beta**2

    @property
    def added(self) -> float:
        return self.step / self.sure.alpha + 2 * self.step**2

    @property
    def allowed(self) -> np.ndarray:
        """The right-hand side at every step, from the squared distance before it."""
        return self.gain * self.distance[:-1] ** 2 + self.added * self.error**2

    @property
    def bound(self) -> np.ndarray:
        """The same accumulated from the first distance on: at every layer an upper bound of the squared distance."""
        found = [float(self.distance[0] ** 2)]
        for error in self.error:
            found.append(self.gain * found[-1] + self.added * float(error) ** 2)
        return np.array(found)

    @property
    def limit(self) -> float:
        """What the bound tends to if the largest error lasts; infinite where the step is above alpha / (2 beta^2)."""
        return float(self.added * self.error.max() ** 2 / (1 - self.gain)) if self.gain < 1 else np.inf

    @property
    def inside(self) -> bool:
        """Whether every layer but the last is within the radius of the constants."""
        return bool(self.distance[:-1].max() <= self.sure.radius)


def covariance_error(truth: AttentionRegression, covariance: Float[Array, "d d"] | np.ndarray) -> float:
    """|Sigma^(1/2) S^-1 Sigma^(1/2) - 1| in operator norm, for an estimate S of the covariance.

    >>> truth = AttentionRegression([[1.0, 0.0], [0.0, 0.5]], [[0.1, 0.0], [0.0, 0.1]])
    >>> covariance_error(truth, np.diag([1.0, 0.4]))
    0.25
    """
    root = np.asarray(truth.root)
    turned = root @ np.linalg.solve(np.asarray(covariance), root)
    return float(np.abs(np.linalg.eigvalsh((turned + turned.T) / 2) - 1).max().round(15))


@eqx.filter_jit
def _errors(truth: AttentionRegression, geometry: AbstractGeometry, layers: AttentionLayer, step: Array) -> Array:
    """By how much each step, over its size, differs from the direction of the population, in the norm of the geometry."""

    def one(layer: AttentionLayer, after: AttentionLayer) -> Array:
        exact = geometry.precondition(truth.gradient(layer), truth.covariance)
        gap = jax.tree.map(lambda a, b, direction: (a - b) / step - direction, layer, after, exact)
        return jnp.sqrt(geometry.square(gap, truth.covariance))

    before, after = (jax.tree.map(lambda leaf, part=part: leaf[part], layers) for part in (slice(-1), slice(1, None)))
    return jax.vmap(one)(before, after)


def perturbation(run: AttentionRun, rule: PreconditionedDescent, truth: AttentionRegression) -> Perturbation:
    """What the steps of a run on data deviated by, against the population `truth`; the run must have recorded every step."""
    owner = "perturbation"
    if len(run) < 2 or not np.array_equal(run.steps, np.arange(len(run))):
        fix = "train with `recorder=Every(1)`"
        raise ArgumentError("run", owner, "one with every step recorded", f"{len(run)} records", fix)
    step = rule.step.constant(run.problem, rule.geometry)
    if not np.isfinite(step) or (run.step_factor != 1).any():
        fix = "give PreconditionedDescent a number as its step"
        raise ArgumentError("run", owner, "one with a constant step", "steps of several sizes", fix)
    layers = jax.vmap(AttentionLayer)(jnp.asarray(run.value), jnp.asarray(run.key_query))
    whitened = np.asarray(jax.vmap(truth.whiten)(layers))
    distance = np.array([nearest_minimum(truth, one, rule.geometry).distance for one in whitened])
    error = np.asarray(_errors(truth, rule.geometry, layers, jnp.asarray(step)))
    relative = covariance_error(truth, run.problem.covariance)
    return Perturbation(error, distance, relative, contraction(truth, rule.geometry), float(step))
