"""The worst case of one-point convexity, found by optimisation over directions normal to the minima."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from .setting.curvature import balanced_point
from .setting.geometry import AbstractGeometry, Left
from .setting.problem import AttentionRegression


def metric_root(problem: AttentionRegression, geometry: AbstractGeometry) -> np.ndarray:
    """T with |W T^-1|_F the norm of the geometry: the identity for `two_sided`, the root of the covariance for `left`."""
    return np.asarray(problem.root) if isinstance(geometry, Left) else np.eye(problem.inputs)


def normal_directions(problem: AttentionRegression, geometry: AbstractGeometry) -> np.ndarray:
    """An orthonormal basis (k x rows x d) of the directions normal to the minima at gauge R = I, in the coordinates W T^-1."""
    point, d = balanced_point(problem), problem.inputs
    inverse = np.linalg.inv(metric_root(problem, geometry))
    tangents = []
    for i, j in zip(*np.triu_indices(d, 1), strict=True):
        skew = np.zeros((d, d))
        skew[i, j], skew[j, i] = 1.0, -1.0
        tangents.append((point @ skew @ inverse).ravel())
    whole = np.linalg.svd(np.array(tangents).reshape(-1, point.size))[2]
    return whole[len(tangents) :].reshape(-1, *point.shape)


def _pulled(problem: AttentionRegression, root: Any, point: Any, basis: Any, radius: Any, weights: Any) -> tuple:
    """Direction of length 1 and the gradient at distance `radius` along it, both in the coordinates W T^-1."""
    direction = jnp.tensordot(weights / jnp.linalg.norm(weights), basis, 1)
    return direction, problem.whitened_gradient(point + radius * direction @ root) @ root


def _convexity(problem: Any, root: Any, point: Any, basis: Any, radius: Any, weights: Any) -> Any:
    direction, slope = _pulled(problem, root, point, basis, radius, weights)
    return jnp.sum(slope * direction) / radius


def _steepness(problem: Any, root: Any, point: Any, basis: Any, radius: Any, weights: Any) -> Any:
    _, slope = _pulled(problem, root, point, basis, radius, weights)
    return -jnp.linalg.norm(slope) / radius


@partial(jax.jit, static_argnums=0)
def _values(function: Any, tries: Any, *rest: Any) -> Any:
    return jax.vmap(lambda weights: function(*rest, weights))(tries)


@partial(jax.jit, static_argnums=0)
def _value_and_slope(function: Any, weights: Any, *rest: Any) -> Any:
    return jax.value_and_grad(lambda w: function(*rest, w))(weights)


def worst_constants(
    problem: AttentionRegression, geometry: AbstractGeometry, radius: float, *, tries: int = 400, seed: int = 0
) -> tuple[float, float]:
    """Least <gradient, Delta>/r^2 and largest |gradient|/r over normal directions: random ones, the best six polished."""
    root = jnp.asarray(metric_root(problem, geometry))
    basis = jnp.asarray(normal_directions(problem, geometry))
    point = jnp.asarray(balanced_point(problem))
    rest = (problem, root, point, basis, jnp.asarray(float(radius)))
    draws = jnp.asarray(np.random.default_rng(seed).standard_normal((tries, len(basis))))
    found = []
    for function in (_convexity, _steepness):
        values = np.asarray(_values(function, draws, *rest))
        best = np.inf
        for k in np.argsort(values)[:6]:
            objective = lambda w, function=function: tuple(
                np.asarray(part) for part in _value_and_slope(function, jnp.asarray(w), *rest)
            )
            polished = minimize(objective, np.asarray(draws[k]), jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
            best = min(best, float(polished.fun))
        found.append(best)
    return found[0], -found[1]
