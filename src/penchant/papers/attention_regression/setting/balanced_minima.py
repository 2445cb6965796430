r"""The manifold of minima of the regularised attention loss, and the nearest minimum to a layer.

The minima are the balanced factorisations $W = [P; Q]\,S^{1/2}R$ with orthogonal $R$: two components, $\det R = \pm1$. The nearest one in the
`two_sided` norm is an orthogonal Procrustes problem with a closed form; in the `left` norm it is a weighted one, with local minima, solved
by Newton steps on both components. Certificates are computed from the answer alone.
"""

from typing import Any

import equinox as eqx
import numpy as np

from ....errors import ArgumentError, warn
from .curvature import balanced_point
from .geometry import AbstractGeometry, Left, TwoSided
from .problem import AttentionLayer, AttentionRegression
from .weighted_procrustes import Procrustes, descend, polar, search

_STATIONARY = 1e-9  # largest relative slope of an answer of the iteration
_PROVED = -1e-10  # what rounding may leave of a certificate that is exactly 0, as at a point of the manifold


class NearestMinimum(eqx.Module):
    """The projection of a point on the minima, in whitened coordinates, with what certifies it.

    `asymmetry` is the relative asymmetry of the d x d matrix that the first-order condition says is symmetric; `uniqueness`
    is the smallest singular value of W*'W relative to the largest (two-sided: positive means unique, and then the
    answer is global); `other` is the distance to the best point found on the other component, infinite where there is none.
    `proof` is the smallest eigenvalue of a dual matrix, relative to the terms of the distance: not negative, no minimum is nearer.
    """

    geometry: str = eqx.field(static=True)
    whitened: np.ndarray
    rotation: np.ndarray
    distance: float
    asymmetry: float
    uniqueness: float
    other: float
    proof: float

    @property
    def proved(self) -> bool:
        """Whether no minimum is nearer; if not, this one is locally nearest and the nearest that several starts have found."""
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

    def nearest(self, layer: AttentionLayer, geometry: AbstractGeometry) -> "NearestMinimum":
        """The nearest minimum to a layer."""
        return nearest_minimum(self.problem, np.asarray(self.problem.whiten(layer)), geometry)


def nearest_minimum(problem: AttentionRegression, whitened: Any, geometry: AbstractGeometry) -> NearestMinimum:
    """The nearest minimum to W in the norm of a geometry (`two_sided` or `left`).

    >>> from penchant.papers.attention_regression.setting.generators import prescribed_spectrum
    >>> problem = prescribed_spectrum(3, (0.05, 0.02), condition=4.0)
    >>> found = nearest_minimum(problem, 1.1 * balanced_point(problem), TwoSided())
    >>> f"{found.distance:.6f}", found.component, found.asymmetry < 1e-12          # 0.1 |W*| = 0.1 sqrt(2 (s_1 + s_2))
    ('0.037417', 1, True)
    """
    whitened = np.asarray(whitened, float)
    rows, d = problem.outputs + problem.inputs, problem.inputs
    if whitened.shape != (rows, d):
        raise ArgumentError("whitened", "nearest_minimum", f"of shape {(rows, d)}", f"shape {whitened.shape}")
    if not np.isfinite(whitened).all():
        raise ArgumentError("whitened", "nearest_minimum", "finite", "a value that is not")
    if not isinstance(geometry, TwoSided | Left):
        raise ArgumentError("geometry", "nearest_minimum", "two_sided or left", geometry.name)
    stacked = balanced_point(problem, np.eye(len(problem.sizes), d))[:, : len(problem.sizes)]
    overlap = stacked.T @ whitened
    square = len(problem.sizes) == d
    starts = [polar(overlap), polar(overlap, flip=True)] if square else [polar(overlap)]
    dual = _procrustes(problem, geometry, stacked, whitened)
    if isinstance(geometry, Left):
        starts = _weighted(dual, starts)
    found = [_described(problem, geometry, stacked, whitened, rotation) for rotation in starts]
    found.sort(key=lambda one: one[2])
    strengths = np.linalg.svd(overlap, compute_uv=False)
    uniqueness = float(strengths[-1] / strengths[0]) if strengths[0] > 0 else 0.0
    others = [one[2] for one in found[1:] if np.linalg.det(one[1]) * np.linalg.det(found[0][1]) < 0]
    proof = dual.proof(_completed(found[0][1]))
    return NearestMinimum(geometry.name, *found[0], uniqueness, min(others, default=np.inf), proof)


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
    if isinstance(geometry, Left):
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
    root = np.asarray(problem.inverse_root) if isinstance(geometry, Left) else np.eye(d)
    return Procrustes(whitened, frame, root)


def _completed(rotation: np.ndarray) -> np.ndarray:
    """Orthonormal rows and, below them, a basis of what is orthogonal to them."""
    rows, columns = rotation.shape
    return rotation if rows == columns else np.concatenate([rotation, np.linalg.svd(rotation)[2][rows:]])


def _weighted(dual: Procrustes, starts: list[np.ndarray]) -> list[np.ndarray]:
    """The nearest rotation on the component of each start; one descent each where the best is proved, else several starts each."""
    rows = starts[0].shape[0]
    full = [_completed(start) for start in starts]
    found = [descend(dual, start) for start in full]
    if dual.proof(min(found, key=dual.value)) < _PROVED:
        found = [search(dual, start) for start in full]
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
