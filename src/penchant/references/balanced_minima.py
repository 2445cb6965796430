r"""The manifold of minima of the regularised attention loss, and the nearest minimum to a layer.

The minima are the balanced factorisations $W = [P; Q]\,S^{1/2}R$ with orthogonal $R$: two components, $\det R = \pm1$. The nearest one in the
`two_sided` norm is an orthogonal Procrustes problem with a closed form; in the `left` norm it is an unbalanced one, solved by monotone
iteration and Newton steps from both components. Certificates are computed from the answer alone.
"""

from typing import Any

import equinox as eqx
import numpy as np
import scipy.linalg as sl

from ..errors import ArgumentError
from ..settings.attention_curvature import balanced_point
from ..settings.attention_geometry import AbstractGeometry, Left, TwoSided
from ..settings.attention_regression import AttentionLayer, AttentionRegression

_MONOTONE = 60  # majorisation steps before Newton takes over
_NEWTON = 30
_SLOW = 100_000  # majorisation steps where Newton is not available
_NEWTON_WIDTH = 16  # the Newton system has d(d-1)/2 unknowns
_SETTLED = 1e-14


class NearestMinimum(eqx.Module):
    """The projection of a point on the minima, in whitened coordinates, with what certifies it.

    `asymmetry` is the relative asymmetry of the d x d matrix that the first-order condition says is symmetric; `uniqueness`
    is the smallest singular value of W*'W relative to the largest (two-sided: positive means unique, and then the
    answer is global); `other` is the distance to the best point found on the other component, infinite where there is none.
    """

    geometry: str = eqx.field(static=True)
    whitened: np.ndarray
    rotation: np.ndarray
    distance: float
    asymmetry: float
    uniqueness: float
    other: float

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


def polar(matrix: np.ndarray, flip: bool = False) -> np.ndarray:
    """The nearest matrix with orthonormal rows; `flip`: the nearest one with the other determinant."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    if flip:
        left = np.concatenate([left[:, :-1], -left[:, -1:]], axis=1)
    return left @ right


def nearest_minimum(problem: AttentionRegression, whitened: Any, geometry: AbstractGeometry) -> NearestMinimum:
    """The nearest minimum to W in the norm of a geometry (`two_sided` or `left`).

    >>> from penchant.settings.attention_regression_generators import prescribed_spectrum
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
    if isinstance(geometry, Left):
        starts = [_unbalanced(problem, stacked, whitened, start) for start in starts]
    found = [_described(problem, geometry, stacked, whitened, rotation) for rotation in starts]
    found.sort(key=lambda one: one[2])
    strengths = np.linalg.svd(overlap, compute_uv=False)
    uniqueness = float(strengths[-1] / strengths[0]) if strengths[0] > 0 else 0.0
    others = [one[2] for one in found[1:] if np.linalg.det(one[1]) * np.linalg.det(found[0][1]) < 0]
    return NearestMinimum(geometry.name, *found[0], uniqueness, min(others, default=np.inf))


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


def _unbalanced(
    problem: AttentionRegression, stacked: np.ndarray, whitened: np.ndarray, rotation: np.ndarray
) -> np.ndarray:
    """Minimise |(W - stacked R) Sigma^(-1/2)|_F over orthogonal R, near the given one."""
    weight = 2 * np.asarray(problem.sizes)
    metric = np.linalg.inv(np.asarray(problem.covariance))
    metric = (metric + metric.T) / 2
    pull = stacked.T @ whitened @ metric
    shift = weight[0] * np.linalg.norm(metric, 2)
    newton = rotation.shape[0] == rotation.shape[1] <= _NEWTON_WIDTH
    for _ in range(_MONOTONE if newton else _SLOW):
        moved = polar(shift * rotation - weight[:, None] * rotation @ metric + pull)
        change = np.linalg.norm(moved - rotation)
        rotation = moved
        if change < _SETTLED:
            break
    # A linear iteration that has stopped moving is still many times its last change from its end.
    return _polish(weight, metric, pull, shift, rotation) if newton else rotation


def _polish(weight: np.ndarray, metric: np.ndarray, pull: np.ndarray, shift: float, rotation: np.ndarray) -> np.ndarray:
    """Newton steps in the tangent space R Omega, Omega skew; a step that does not descend is replaced by a monotone one."""
    value = lambda r: 0.5 * np.sum((weight[:, None] * r @ metric) * r) - np.sum(pull * r)
    skew = _skew_basis(len(weight))
    for _ in range(_NEWTON):
        inner, force = rotation.T @ (weight[:, None] * rotation), rotation.T @ pull
        slope = np.einsum("aij,ij->a", skew, inner @ metric - force)
        second = np.einsum("aij,bij->ab", skew @ metric, inner @ skew)
        bent = (metric @ inner - force.T) @ skew
        half = np.einsum("aji,bij->ab", bent, skew)
        system = (second + second.T) / 2 + (half + half.T) / 2
        step = np.tensordot(np.linalg.lstsq(system, -slope, rcond=None)[0], skew, 1)
        moved = rotation @ sl.expm(step)
        if value(moved) > value(rotation) + 1e-15 * abs(value(rotation)):
            moved = polar(shift * rotation - weight[:, None] * rotation @ metric + pull)
        change = np.linalg.norm(moved - rotation)
        rotation = polar(moved)
        if change < _SETTLED:
            break
    return rotation


def _skew_basis(d: int) -> np.ndarray:
    upper = np.array(np.triu_indices(d, 1)).T
    basis = np.zeros((len(upper), d, d))
    for k, (i, j) in enumerate(upper):
        basis[k, i, j], basis[k, j, i] = 1.0, -1.0
    return basis


def component_distance(problem: AttentionRegression) -> float:
    """The least two-sided distance between the two components of the minima: sqrt(8 s_d), the reflection of the weakest mode."""
    if problem.outputs < problem.inputs:
        raise ArgumentError("problem", "component_distance", "one with m >= d", "m < d, where the minima are connected")
    return float(np.sqrt(8 * np.asarray(problem.sizes)[-1]))
