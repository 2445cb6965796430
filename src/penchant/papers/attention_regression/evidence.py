"""Problems, starts and runs that the claims on attention regression share."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from ...lab import Lab, recipe
from ...training.recorders import Every
from .setting.balanced_minima import NearestMinimum, nearest_minimum
from .setting.curvature import balanced_point, coupling
from .setting.generators import prescribed_spectrum
from .setting.geometry import AbstractGeometry
from .setting.problem import AttentionLayer, AttentionRegression
from .training.population import AttentionTrajectory, train_population
from .training.preconditioned import PreconditionedDescent


@recipe
def small_problem(lab: Lab) -> AttentionRegression:
    """d = 3, m = 4, sizes (.05, .03, .01), condition number 5."""
    return prescribed_spectrum(4, (0.05, 0.03, 0.01), 5.0, 11)


def rotations(count: int, d: int, seed: int = 0) -> list[np.ndarray]:
    """Random orthogonal matrices, of both determinants."""
    rng = np.random.default_rng(seed)
    found = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(count)]
    return [np.diag([(-1.0) ** k] + [1.0] * (d - 1)) @ one for k, one in enumerate(found)]


def layer_of(problem: AttentionRegression, whitened: Any) -> AttentionLayer:
    return problem.unwhiten(jnp.asarray(whitened))


def regularised(problem: AttentionRegression, whitened: Any) -> float:
    """g(W): excess plus regulariser."""
    point = jnp.asarray(whitened)
    return float(problem.whitened_excess(point) + problem.whitened_regulariser(point))


def plain_slope(problem: AttentionRegression, balanced: bool = True) -> Callable[[np.ndarray], np.ndarray]:
    """The gradient by W of the excess, with or without the regulariser, in plain arrays: for loops over single points."""
    target, m = np.asarray(problem.target), problem.outputs

    def gradient(whitened: np.ndarray) -> np.ndarray:
        upper, lower = whitened[:m], whitened[m:]
        residual = upper @ lower.T - target
        gap = upper.T @ upper - lower.T @ lower if balanced else np.zeros((lower.shape[1], lower.shape[1]))
        return np.concatenate([2 * residual @ lower + upper @ gap, 2 * residual.T @ upper - lower @ gap])

    return gradient


def around(
    problem: AttentionRegression, geometry: AbstractGeometry, radius: float, count: int, seed: int = 0
) -> list[tuple[np.ndarray, NearestMinimum]]:
    """Points near random minima, at most `radius` away in a geometry, with their projections."""
    rng, found = np.random.default_rng(seed), []
    rows = problem.outputs + problem.inputs
    for rotation in rotations(count, problem.inputs, seed):
        step = rng.standard_normal((rows, problem.inputs))
        whitened = balanced_point(problem, rotation) + rng.uniform(0.1, 1) * radius * step / np.linalg.norm(step)
        nearest = nearest_minimum(problem, whitened, geometry)
        excess = max(nearest.distance / radius, 1.0)  # in a stretched norm the step may be too long: shorten it
        whitened = nearest.whitened + (whitened - nearest.whitened) / excess
        found.append((whitened, nearest_minimum(problem, whitened, geometry)))
    return found


@recipe
def random_runs(lab: Lab, count: int = 60, steps: int = 1000) -> list[AttentionTrajectory]:
    """Adaptive two-sided descent from normal starts of sizes 0.1 to 3."""
    problem, rng = small_problem(lab), np.random.default_rng(5)
    starts = [layer_of(problem, size * rng.standard_normal((7, 3))) for size in np.geomspace(0.1, 3.0, count)]
    return train_population(
        problem, PreconditionedDescent("two_sided", "adaptive"), starts, steps=steps, recorder=Every(20)
    )


def start_near(problem: AttentionRegression, radius: float, seed: int, rotation: Any = None) -> np.ndarray:
    """The minimum with gauge R plus a normal direction of length `radius`."""
    direction = np.random.default_rng(seed).standard_normal((problem.outputs + problem.inputs, problem.inputs))
    return balanced_point(problem, rotation) + radius * direction / np.linalg.norm(direction)


def flow_of(field: Any, start: np.ndarray, time: float) -> np.ndarray:
    """The solution of an equation at a time, by an explicit method of order 8."""
    shape = start.shape
    found = solve_ivp(
        lambda _, flat: field(flat.reshape(shape)).ravel(), (0, time), start.ravel(), "DOP853", rtol=1e-12, atol=1e-15
    )
    return found.y[:, -1].reshape(shape)


def regularised_field(problem: AttentionRegression) -> Any:
    """W' = 2 J W - W W'W."""
    matrix = 2 * coupling(problem)
    return lambda whitened: matrix @ whitened - whitened @ whitened.T @ whitened


@recipe
def quadrature(lab: Lab, nodes: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of a product Gauss-Hermite rule for the standard normal law in the plane."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(points, points), -1).reshape(-1, 2)
    return grid, np.outer(weights, weights).ravel() / (2 * np.pi)


@recipe
def plane_problem(lab: Lab) -> tuple[AttentionRegression, AttentionLayer]:
    """A problem in two dimensions, where expectations are sums, and a layer."""
    problem = AttentionRegression([[0.8, 0.2], [0.2, 0.4]], [[0.4, -0.2], [0.1, 0.3], [-0.3, 0.2]], 0.01)
    return problem, AttentionLayer([[0.9, 0.3], [-0.2, 0.6], [0.1, -0.8]], [[0.25, -0.1], [0.3, 0.2]])


def tilted(
    lab: Lab, problem: AttentionRegression, layer: AttentionLayer, query: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the covariates under the weights of a query, by quadrature."""
    grid, mass = quadrature(lab)
    points = grid @ np.asarray(problem.root)
    weights = mass * np.exp(points @ np.asarray(layer.key_query) @ query)
    weights = weights / weights.sum()
    mean = weights @ points
    return mean, (points - mean).T @ (weights[:, None] * (points - mean))
