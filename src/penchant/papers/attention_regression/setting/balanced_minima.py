r"""The manifold of minima of the regularised attention loss, and the nearest minimum to a layer.

The minima are the balanced factorisations $W = [P; Q]\,S^{1/2}R$ with orthogonal $R$: two components, $\det R = \pm1$. The nearest one in the
`two_sided` norm is an orthogonal Procrustes problem with a closed form; in the `left` norm it is a weighted one: minimise
$\tfrac12\|(Y - ZR)G^{1/2}\|_F^2$ over orthogonal $R$, where $Z^\top Z$ is diagonal. That has no closed form, and local minima. `descend` finds one by Newton
steps on the rotations, from the two-sided answer of each component, and `proof` is a Lagrangian bound that says, from the answer alone, whether any orthogonal
matrix can be better.
"""

import equinox as eqx
import numpy as np
import scipy.linalg as sl
from jaxtyping import Array

from ....errors import ArgumentError, warn
from .geometry import AbstractGeometry, balanced_point
from .problem import AttentionRegression

_NEWTON = 200
_TURN = 1.0  # longest Newton step, in radians
_FLAT = 1e-9  # relative curvature below which a direction is treated as flat


class Procrustes(eqx.Module):
    """Y = `target`, Z = `frame`, G^(1/2) = `root`; columns 0 of the frame complete an R with fewer rows."""

    target: np.ndarray
    frame: np.ndarray
    root: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        """The diagonal of Z'Z."""
        return np.sum(self.frame**2, axis=0)

    @property
    def metric(self) -> np.ndarray:
        return self.root @ self.root

    @property
    def pull(self) -> np.ndarray:
        """Z'YG: minus the gradient by R at R = 0."""
        return self.frame.T @ self.target @ self.metric

    def value(self, rotation: np.ndarray) -> float:
        return float(np.sum(((self.target - self.frame @ rotation) @ self.root) ** 2) / 2)

    def force(self, rotation: np.ndarray) -> np.ndarray:
        """Minus the gradient by R; from the gap, which keeps its digits where the gap is small."""
        return self.frame.T @ (self.target - self.frame @ rotation) @ self.metric

    @property
    def scale(self) -> float:
        """The size of the terms of the gradient."""
        return float(self.weight.max() * np.linalg.norm(self.metric, 2) + np.linalg.norm(self.pull))

    def rounding(self, value: float) -> float:
        """What a value may be wrong by."""
        terms = np.linalg.norm(self.target @ self.root) + np.linalg.norm(self.frame) * np.linalg.norm(self.root, 2)
        return float(4 * np.finfo(float).eps * terms * np.sqrt(2 * value))

    def slope(self, rotation: np.ndarray) -> float:
        """The norm of the gradient along the rotations, relative to its terms: 0 at a stationary point."""
        plain = rotation.T @ self.force(rotation)
        return float(np.linalg.norm(plain - plain.T) / self.scale)

    def proof(self, rotation: np.ndarray) -> float:
        """Not negative (beyond rounding): no orthogonal matrix is better, for the Lagrangian is convex with the multipliers of R'R = 1 or of RR' = 1.

        Relative to the terms of the value; with the multipliers of a stationary point they are fixed, nothing is searched.
        """
        right, left = rotation.T @ self.force(rotation), self.force(rotation) @ rotation.T
        inner = self.weight.min() * self.metric + (right + right.T) / 2
        outer = np.linalg.eigvalsh(self.metric)[0] * np.diag(self.weight) + (left + left.T) / 2
        return float(max(np.linalg.eigvalsh(inner)[0], np.linalg.eigvalsh(outer)[0]) / self.scale)


def polar(matrix: np.ndarray, flip: bool = False) -> np.ndarray:
    """The nearest matrix with orthonormal rows; `flip`: the nearest one with the other determinant."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    if flip:
        left = np.concatenate([left[:, :-1], -left[:, -1:]], axis=1)
    return left @ right


def descend(problem: Procrustes, rotation: np.ndarray) -> np.ndarray:
    """A local minimum on the component of `rotation`: Newton steps with the absolute values of the curvatures, halved until they descend."""
    upper, least = np.triu_indices(len(rotation), 1), np.inf
    for _ in range(_NEWTON):
        size, here = problem.slope(rotation), problem.value(rotation)
        allowed = problem.rounding(here)
        turn = _turn(problem, rotation, upper)
        turn *= min(1.0, _TURN / max(float(np.linalg.norm(turn)), 1e-300))
        moved = rotation @ _rotation(turn, upper)
        while problem.value(moved) > here + allowed and np.linalg.norm(turn) > 1e-16:
            turn = turn / 2
            moved = rotation @ _rotation(turn, upper)
        rotation = polar(moved)
        # Below the rounding of the value only the slope tells progress: stop once it no longer falls.
        if here - problem.value(rotation) <= allowed and size >= least / 2:
            break
        least = min(least, size)
    return rotation


def _turn(problem: Procrustes, rotation: np.ndarray, upper: tuple[np.ndarray, ...]) -> np.ndarray:
    """The Newton step with the absolute values of the curvatures, in the entries of Omega above its diagonal."""
    inner = rotation.T @ (problem.weight[:, None] * rotation)
    plain = -rotation.T @ problem.force(rotation)  # the second derivative is <Omega, inner Omega G - bent Omega>
    slope, bent = plain - plain.T, (plain + plain.T) / 2
    curvature = _sandwich(inner, problem.metric, upper) - _sandwich(bent, np.eye(len(bent)), upper)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    values = np.maximum(np.abs(values), _FLAT * np.abs(values).max(initial=1e-300))
    return vectors @ (-(slope[upper] @ vectors) / values)


def _sandwich(first: np.ndarray, second: np.ndarray, upper: tuple[np.ndarray, ...]) -> np.ndarray:
    """<Omega, first Omega second> as a quadratic form in the entries above the diagonal."""
    i, j = upper
    part = lambda matrix, rows, columns: matrix[np.ix_(rows, columns)]
    same = part(first, i, i) * part(second, j, j) + part(first, j, j) * part(second, i, i)
    return same - part(first, i, j) * part(second, j, i) - part(first, j, i) * part(second, i, j)


def _rotation(turn: np.ndarray, upper: tuple[np.ndarray, ...]) -> np.ndarray:
    width = int(upper[1].max(initial=0)) + 1
    skew = np.zeros((width, width))
    skew[upper] = turn
    return sl.expm(skew - skew.T)


_STATIONARY = 1e-9  # largest relative slope of an answer of the iteration
_PROVED = -1e-10  # what rounding may leave of a certificate that is exactly 0, as at a point of the manifold


class NearestMinimum(eqx.Module):
    """The projection of a point on the minima, in whitened coordinates, with what certifies it.

    `asymmetry` is the relative asymmetry of the d x d matrix that the first-order condition says is symmetric; `other` is the distance to the best point found on the other component, infinite where there is none.
    `proof` is the smallest eigenvalue of a dual matrix, relative to the terms of the distance: not negative, no minimum is nearer.
    """

    geometry: str = eqx.field(static=True)
    whitened: np.ndarray
    rotation: np.ndarray
    distance: float
    asymmetry: float
    other: float
    proof: float

    @property
    def proved(self) -> bool:
        """Whether no minimum is nearer; if not, this one is locally nearest."""
        return self.proof >= _PROVED

    @property
    def component(self) -> int:
        """The sign of det R; 0 where R is not square and the manifold is connected."""
        rows, columns = self.rotation.shape
        return int(np.sign(np.linalg.det(self.rotation))) if rows == columns else 0


class BalancedMinima(eqx.Module):
    """The minima themselves, as the reference of a prediction: every W = [P; Q] S^(1/2) R."""

    problem: AttentionRegression

    @property
    def norm(self) -> str:
        return "balanced factorisation"

    @property
    def components(self) -> int:
        """2, told apart by det R; 1 where A has a kernel, in which R turns freely."""
        return 2 if self.problem.rank == self.problem.inputs else 1


def nearest_minimum(
    problem: AttentionRegression, whitened: Array | np.ndarray, geometry: AbstractGeometry
) -> NearestMinimum:
    """The nearest minimum to W in the norm of a geometry (`two_sided` or `left`)."""
    whitened = np.asarray(whitened, float)
    rows, d = problem.outputs + problem.inputs, problem.inputs
    if whitened.shape != (rows, d):
        raise ArgumentError("whitened", "nearest_minimum", f"of shape {(rows, d)}", f"shape {whitened.shape}")
    if not np.isfinite(whitened).all():
        raise ArgumentError("whitened", "nearest_minimum", "finite", "a value that is not")
    if geometry.rows:
        raise ArgumentError("geometry", "nearest_minimum", "two_sided or left", geometry.name)
    stacked = balanced_point(problem, np.eye(len(problem.sizes), d))[:, : len(problem.sizes)]
    overlap = stacked.T @ whitened
    square = len(problem.sizes) == d
    starts = [polar(overlap), polar(overlap, flip=True)] if square else [polar(overlap)]
    dual = _procrustes(problem, geometry, stacked, whitened)
    if geometry.columns:
        starts = _weighted(dual, starts)
    found = [_described(problem, geometry, stacked, whitened, rotation) for rotation in starts]
    found.sort(key=lambda one: one[2])
    others = [one[2] for one in found[1:] if np.linalg.det(one[1]) * np.linalg.det(found[0][1]) < 0]
    proof = dual.proof(completed(found[0][1]))
    return NearestMinimum(geometry.name, *found[0], min(others, default=np.inf), proof)


def _described(
    problem: AttentionRegression,
    geometry: AbstractGeometry,
    stacked: np.ndarray,
    whitened: np.ndarray,
    rotation: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Point, rotation, distance, and the asymmetry of the first-order condition."""
    nearest = stacked @ rotation
    gap = whitened - nearest
    if geometry.columns:
        inverse = np.asarray(problem.inverse_root)
        condition = inverse @ gap.T @ nearest @ np.asarray(problem.root)  # Delta' Lambda Theta* Sigma
        distance = float(np.linalg.norm(gap @ inverse))
    else:
        condition, distance = gap.T @ nearest, float(np.linalg.norm(gap))
    size = np.linalg.norm(condition)
    # A gap that is rounding has a condition that is rounding: compare with the largest it could be.
    floor = np.finfo(float).eps * np.linalg.norm(nearest) ** 2
    return nearest, rotation, distance, float(np.linalg.norm(condition - condition.T) / max(size, floor))


def _procrustes(
    problem: AttentionRegression, geometry: AbstractGeometry, stacked: np.ndarray, whitened: np.ndarray
) -> Procrustes:
    """Half the squared distance to stacked R; a wide map is completed by columns 0."""
    d = problem.inputs
    frame = np.pad(stacked, ((0, 0), (0, d - stacked.shape[1])))
    root = np.asarray(problem.inverse_root) if geometry.columns else np.eye(d)
    return Procrustes(whitened, frame, root)


def completed(rotation: np.ndarray) -> np.ndarray:
    """Orthonormal rows and, below them, a basis of what is orthogonal to them."""
    rows, columns = rotation.shape
    return rotation if rows == columns else np.concatenate([rotation, np.linalg.svd(rotation)[2][rows:]])


def _weighted(dual: Procrustes, starts: list[np.ndarray]) -> list[np.ndarray]:
    """The nearest rotation on the component of each start, or one that is locally nearest: the proof says which."""
    rows = starts[0].shape[0]
    full = [completed(start) for start in starts]
    found = [descend(dual, start) for start in full]
    slope = dual.slope(min(found, key=dual.value))
    if slope > _STATIONARY:
        warn(
            f"nearest_minimum: the iteration in the left norm has not settled (relative slope {slope:.1e}); "
            "the distance is an upper bound. The two_sided norm has a closed form."
        )
    return [polar(one[:rows]) for one in found]


def component_distance(problem: AttentionRegression) -> float:
    """The least two-sided distance between the two components of the minima: sqrt(8 s_d), the reflection of the weakest mode."""
    if problem.outputs < problem.inputs:
        raise ArgumentError("problem", "component_distance", "one with m >= d", "m < d, where the minima are connected")
    return float(np.sqrt(8 * np.asarray(problem.sizes)[-1]))
