r"""The geometry of the support vectors of linear data: what fixes the offset, the size law and the constants of the proofs."""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.optimize import minimize
from scipy.spatial import ConvexHull
from scipy.special import lambertw

from .base import Solution

_TIGHT = 1e-7  # a point is a support vector if its margin is within this fraction of the smallest


class SupportGeometry(eqx.Module):
    r"""Support vectors S of the maximum margin and what follows from them.

    `direction` is the unit vector, `margin` its margin, `shares` the dual weights $p$ on S (sum 1), `entropy` $H(p)$; `offset` the vector
    of span(S) orthogonal to the direction to which the part of the weight outside the direction tends; `radius` ($\alpha$) the distance from
    the origin to the boundary of the projected convex hull of S; `rank` of S and of all the data.
    """

    direction: np.ndarray
    margin: float
    support: np.ndarray
    shares: np.ndarray
    entropy: float
    offset: np.ndarray
    radius: float
    rank: int
    data_rank: int
    smallest_singular: float
    points: np.ndarray

    @property
    def spans(self) -> bool:
        """Assumption 3: the support vectors span all directions."""
        return self.rank == len(self.direction)

    def outside(self) -> np.ndarray:
        """Orthonormal rows spanning the directions no support vector sees."""
        return np.linalg.svd(self.points)[2][self.rank :]

    def thresholds(self, samples: int) -> dict[str, float]:
        """Beyond these sizes of the orthogonal part the gradient points back (Lemma 4), by loss; `sharp` is for the exponential."""
        reach = {
            "exponential": 1 + np.log(samples),
            "sharp": lambertw(samples / np.e).real,
            "logistic": 2 * samples / np.e,
        }
        return {name: float(value / self.radius) if self.radius > 0 else np.inf for name, value in reach.items()}


def support_geometry(data: Any, solution: Solution) -> SupportGeometry:
    """The support geometry of `Classification` data at their l2 maximum margin.

    >>> import penchant as pt
    >>> data = pt.Classification([[2.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [1, 1, 1])
    >>> found = support_geometry(data, pt.max_margin(data))
    >>> found.support.tolist(), found.shares.round(12).tolist(), round(found.radius, 12)     # shares 1/4 : 1
    ([0, 1], [0.2, 0.8], 0.4472135955)
    """
    signed = np.asarray(data.signed)
    unit = solution.weight / np.linalg.norm(solution.weight)
    reached = signed @ unit
    support = np.flatnonzero(reached <= reached.min() * (1 + _TIGHT))
    points = signed[support]
    shares = solution.dual[support] / solution.dual[support].sum()
    singular = np.linalg.svd(points, compute_uv=False)
    rank = int(np.linalg.matrix_rank(points))
    offset, entropy = _offset(points, unit, shares)
    return SupportGeometry(
        unit,
        solution.margin,
        support,
        shares,
        entropy,
        offset,
        hull_radius(points, unit),
        rank,
        int(np.linalg.matrix_rank(signed)),
        float(singular[len(unit) - 1]) if len(singular) >= len(unit) else 0.0,
        points,
    )


def _offset(points: np.ndarray, unit: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, float]:
    """argmin over v orthogonal to u, in span(S), of log sum exp(-<v, z_i>), and that minimum.

    With linearly independent support vectors this is <v, z_i> = -log p_i - H(p), one linear system.
    """
    positive = shares > 0
    entropy = float(-np.sum(shares[positive] * np.log(shares[positive])))
    if len(points) <= np.linalg.matrix_rank(points) and positive.all():
        system, wanted = np.vstack([points, unit]), np.append(-np.log(shares) - entropy, 0.0)
        return np.linalg.lstsq(system, wanted, rcond=None)[0], entropy
    across = points - np.outer(points @ unit, unit)
    _, values, rows = np.linalg.svd(across, full_matrices=False)
    basis = rows[values > 1e-10 * max(values[0], np.finfo(float).tiny)]
    reduced = across @ basis.T

    def objective(c: np.ndarray) -> tuple[float, np.ndarray]:
        top = (-reduced @ c).max()
        terms = np.exp(-reduced @ c - top)
        return float(top + np.log(terms.sum())), -(terms / terms.sum()) @ reduced

    found = minimize(objective, np.zeros(len(basis)), jac=True, method="BFGS", options={"gtol": 1e-12})
    return found.x @ basis, float(found.fun)


def hull_radius(points: np.ndarray, unit: np.ndarray) -> float:
    """min over unit xi orthogonal to `unit` of max_i <xi, z_i>, exactly: the smallest distance to a facet of the projected hull."""
    basis = np.linalg.svd(unit[None])[2][1:]  # rows orthonormal, orthogonal to the direction
    flat = points @ basis.T
    count, d = len(points), len(unit)
    if d == 1:
        return float("inf")
    if count < d or np.linalg.matrix_rank(flat) < d - 1:
        return 0.0
    if d == 2:
        return float(min(flat.max(), -flat.min()))
    if count == d:
        normals = [np.linalg.solve(np.delete(flat, j, axis=0), np.ones(d - 1)) for j in range(d)]
        return float(min(1 / np.linalg.norm(normal) for normal in normals))
    return float(-ConvexHull(flat).equations[:, -1].max())
