r"""The three inner products in which a layer can be trained, and the curvature of the regularised population loss in each.

With $\Lambda = \mathrm{diag}(I_m, \Sigma)$ and the stacked layer $\Theta = [U; V^\top]$: `left` divides by $\Lambda$, what one matrix can do; `two_sided`
divides by $\Lambda$ and $\Sigma$ on both sides, which removes the covariance altogether; `euclidean` does nothing. The loss has $\nabla g = WW^\top W - 2JW$.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from ....errors import ArgumentError
from .problem import AttentionLayer, AttentionRegression


class AbstractGeometry(eqx.Module):
    """A norm of layers. `covariance` may be the population's or an estimate; whitened quantities refer to the same one.

    `rows` and `columns` say on which sides of W the covariance stays.
    """

    name: ClassVar[str]
    rows: ClassVar[bool] = False
    columns: ClassVar[bool] = True

    def precondition(self, gradient: AttentionLayer, covariance: Float[Array, "d d"]) -> AttentionLayer:
        """The direction of steepest ascent for a gradient by U and V."""
        factor, (value, key_query) = jsl.cho_factor(covariance, lower=True), (gradient.value, gradient.key_query)
        if not self.rows:
            key_query = jsl.cho_solve(factor, key_query.T).T
        if not self.columns:
            value, key_query = jsl.cho_solve(factor, value.T).T, jsl.cho_solve(factor, key_query)
        return AttentionLayer(value, key_query)

    def stretch(self, largest: Float[Array, ""]) -> Float[Array, ""]:
        """By how much the geometry can stretch the whitened gradient, from the largest eigenvalue of the covariance."""
        across = jnp.maximum(1.0, largest) if self.rows else jnp.ones_like(largest)
        return across * largest if self.columns else across


class TwoSided(AbstractGeometry):
    """Precondition both blocks from both sides: training does not see the covariance."""

    name = "two_sided"
    columns = False


class Left(AbstractGeometry):
    """Precondition by the extended covariance on one side only: the paper's reading."""

    name = "left"


class Euclidean(AbstractGeometry):
    """Plain gradient descent."""

    name = "euclidean"
    rows = True


GEOMETRIES = {geometry.name: geometry for geometry in (TwoSided(), Left(), Euclidean())}


def geometry_of(name: str) -> AbstractGeometry:
    """A geometry by name."""
    if name not in GEOMETRIES:
        raise ArgumentError("geometry", "geometry_of", f"one of {', '.join(GEOMETRIES)}", repr(name))
    return GEOMETRIES[name]


class Eigenbasis(eqx.Module):
    r"""Orthonormal eigenvectors of $J = [0, M; M^\top, 0]$: $+s_i$ in `plus`, 0 in `kernel`."""

    plus: np.ndarray
    kernel: np.ndarray


def eigenbasis(problem: AttentionRegression) -> Eigenbasis:
    """E and the kernel of J; the singular vectors of zero sizes are counted with E."""
    left, right = np.asarray(problem.left), np.asarray(problem.right)
    m, d = problem.planted.shape
    upper = np.linalg.qr(left, mode="complete")[0][:, left.shape[1] :]
    lower = np.linalg.qr(right, mode="complete")[0][:, right.shape[1] :]
    kernel = np.zeros((m + d, upper.shape[1] + lower.shape[1]))
    kernel[:m, : upper.shape[1]], kernel[m:, upper.shape[1] :] = upper, lower
    return Eigenbasis(np.concatenate([left, right]) / np.sqrt(2), kernel)


def coupling(problem: AttentionRegression) -> np.ndarray:
    """J."""
    target = np.asarray(problem.target)
    m, d = target.shape
    return np.block([[np.zeros((m, m)), target], [target.T, np.zeros((d, d))]])


def balanced_point(problem: AttentionRegression, rotation: np.ndarray | None = None) -> np.ndarray:
    """W = [P; Q] S^(1/2) R: the minimum with gauge R (the identity by default), in whitened coordinates."""
    stacked = np.concatenate([np.asarray(problem.left), np.asarray(problem.right)]) * np.sqrt(np.asarray(problem.sizes))
    width, d = stacked.shape[1], problem.inputs
    rotation = np.eye(width, d) if rotation is None else np.asarray(rotation, float)
    if rotation.shape != (width, d) or np.abs(rotation @ rotation.T - np.eye(width)).max() > 1e-10:
        raise ArgumentError("rotation", "balanced_point", f"{width} orthonormal rows of length {d}", rotation.tolist())
    return stacked @ rotation


def hessian(problem: AttentionRegression, whitened: Array | np.ndarray) -> np.ndarray:
    """The Hessian of g at W as a matrix on row-major directions: D -> D W'W + W D'W + W W'D - 2 J D."""
    return _hessian(coupling(problem), np.asarray(whitened, float))


def _hessian(matrix: np.ndarray, whitened: np.ndarray) -> np.ndarray:
    rows, d = whitened.shape
    plain = np.kron(np.eye(rows), whitened.T @ whitened)
    plain += np.kron(whitened @ whitened.T - 2 * matrix, np.eye(d))
    crossed = np.einsum("ai,jb->abji", whitened, whitened).reshape(rows * d, rows * d)
    return plain + crossed


def minimum_spectrum(problem: AttentionRegression) -> np.ndarray:
    """All Hessian eigenvalues on the manifold of minima, ascending, from the sizes alone (two-sided geometry, m >= d)."""
    _tall(problem, "minimum_spectrum")
    sizes, d = np.asarray(problem.sizes), problem.inputs
    pairs = 2 * (sizes[:, None] + sizes)
    above = np.triu_indices(d, 1)
    found = [np.zeros(len(above[0])), pairs[above], 4 * sizes, pairs.ravel()]
    found.append(np.repeat(2 * sizes, problem.outputs - d))
    return np.sort(np.concatenate(found))


def _tall(problem: AttentionRegression, owner: str) -> None:
    if problem.outputs < problem.inputs:
        raise ArgumentError("problem", owner, "one with m >= d", f"m = {problem.outputs}, d = {problem.inputs}")


def spectrum(
    problem: AttentionRegression, geometry: AbstractGeometry, rotation: np.ndarray | None = None
) -> np.ndarray:
    """Eigenvalues of the linearised training at the minimum with gauge R, ascending; the first d(d-1)/2 are the gauge's zeros.

    `two_sided` has them in closed form. The other geometries multiply the Hessian by positive matrices and depend on the gauge:
    directions orthogonal to the range of A have the eigenvalues of 2 S^(1/2) R Sigma R' S^(1/2), m - d times each; the rest is a
    symmetric problem with 2 d^2 unknowns, whatever m.
    """
    _tall(problem, "spectrum")
    if not geometry.columns:
        return minimum_spectrum(problem)
    d, root, right = problem.inputs, np.asarray(problem.root), np.asarray(problem.right)
    point = balanced_point(problem, rotation)[problem.outputs :]  # Q S^(1/2) R, and without Q:
    strong = right.T @ point
    across = np.linalg.eigvalsh(2 * strong @ np.asarray(problem.covariance) @ strong.T)
    target = np.asarray(problem.sizes)[:, None] * right.T
    matrix = np.block([[np.zeros((d, d)), target], [target.T, np.zeros((d, d))]])
    scale = np.eye(2 * d)
    if geometry.rows:
        scale[d:, d:] = root
    weight = np.kron(scale, root)
    along = np.linalg.eigvalsh(weight @ _hessian(matrix, np.concatenate([strong, point])) @ weight)
    return np.sort(np.concatenate([along, np.repeat(across, problem.outputs - d)]))


def curvature_range(
    problem: AttentionRegression, geometry: AbstractGeometry, rotation: np.ndarray | None = None
) -> tuple[float, float]:
    """The smallest and largest curvature across the manifold of minima: what rates are made of."""
    if problem.rank < problem.inputs:
        found = f"rank {problem.rank} for d = {problem.inputs}"
        raise ArgumentError("problem", "curvature_range", "of full rank (A2): otherwise the minimum is flat", found)
    found = spectrum(problem, geometry, rotation)
    d = problem.inputs
    return float(found[d * (d - 1) // 2]), float(found[-1])


class Contraction(eqx.Module):
    r"""Constants of one-point convexity at radius r: $\langle\nabla, \Delta\rangle \ge \alpha r^2$ and $\|\nabla\| \le \beta r$ in the geometry's norm."""

    radius: float
    alpha: float
    beta: float

    @property
    def step(self) -> float:
        """The step of the best guarantee."""
        return self.alpha / self.beta**2

    @property
    def factor(self) -> float:
        """Guaranteed factor of the squared distance per step at that step."""
        return 1 - self.alpha**2 / self.beta**2


def _spread(problem: AttentionRegression, geometry: AbstractGeometry, owner: str) -> tuple[float, float]:
    """The extreme eigenvalues of what the geometry leaves of the covariance."""
    if geometry.rows:
        raise ArgumentError("geometry", owner, "two_sided or left", geometry.name)
    return (float(problem.spread[0]), float(problem.spread[-1])) if geometry.columns else (1.0, 1.0)


def attraction_radius(problem: AttentionRegression, geometry: AbstractGeometry) -> float:
    """r_0: the distance within which alpha is at least half its value at the minimum; sharp for `two_sided`."""
    narrow, wide = _spread(problem, geometry, "attraction_radius")
    return float(np.sqrt(0.8 * np.asarray(problem.sizes)[-1] * narrow) / wide)


def contraction(problem: AttentionRegression, geometry: AbstractGeometry, radius: float | None = None) -> Contraction:
    """alpha and beta at a radius, r_0 by default."""
    narrow, wide = _spread(problem, geometry, "contraction")
    radius = attraction_radius(problem, geometry) if radius is None else float(radius)
    top, low, length = float(problem.sizes[0]), float(problem.sizes[-1]), np.sqrt(wide) * radius
    alpha = 2 * low * narrow - 1.25 * wide**2 * radius**2
    return Contraction(radius, alpha, wide * float(4 * top + 3 * np.sqrt(2 * top) * length + length**2))
