r"""The geometry of the support vectors of linear data: what fixes the offset, the size law and the constants of the proofs."""

import equinox as eqx
import numpy as np
from scipy.optimize import linprog, nnls
from scipy.spatial import ConvexHull
from scipy.special import lambertw

from ..settings.classification import Classification
from .base import Solution
from .logistic import descend

_TIGHT = 1e-7  # a point is a support vector if its margin is within this fraction of the smallest
_FLAT = 1e-10  # singular values below this fraction of the largest are directions that the points do not have
_IDLE = 1e-9  # a dual weight below this is none: its sample is held off the margin by nothing but rounding


class SupportGeometry(eqx.Module):
    r"""Support vectors S of the maximum margin and what follows from them.

    `direction` is the unit vector, `margin` its margin, `shares` the dual weights $p$ on S (sum 1): where several sets of them solve the dual,
    the one that training tends to. A support vector is `pulling` if some dual solution gives it weight, otherwise idle: it lies on the margin
    by accident. `entropy` is $H(p)$; `offset` the vector of the span of the pulling support vectors, orthogonal to the direction, to which that
    part of the weight tends; `radius` ($\alpha$) the distance from the origin to the boundary of the projected convex hull of S; `rank` that of S,
    `pulling_rank` that of its pulling members, `data_rank` that of all the data; `smallest_singular` belongs to the pulling ones. A weight trained directly moves away from the idle
    ones by `escape` times log(-log R): the shortest vector, outside the span of the pulling ones, with product at least 1 with each of them.
    """

    direction: np.ndarray
    margin: float
    support: np.ndarray
    shares: np.ndarray
    entropy: float
    offset: np.ndarray
    radius: float
    rank: int
    pulling_rank: int
    data_rank: int
    smallest_singular: float
    points: np.ndarray
    pulling: np.ndarray
    escape: np.ndarray

    @property
    def spans(self) -> bool:
        """Assumption 3, for the support vectors that pull: they span all directions. Then every support vector pulls."""
        return self.pulling_rank == len(self.direction)

    @property
    def spans_data(self) -> bool:
        """Assumption 3 relaxed: they span the directions that the data have."""
        return self.pulling_rank == self.data_rank

    def outside(self) -> np.ndarray:
        """Orthonormal rows spanning the directions along which no support vector pulls."""
        return np.linalg.svd(self.points[self.pulling])[2][self.pulling_rank :]

    def thresholds(self, samples: int) -> dict[str, float]:
        """Beyond these sizes of the orthogonal part the gradient points back (Lemma 4), by loss; `sharp` is for the exponential."""
        reach = {
            "exponential": 1 + np.log(samples),
            "sharp": lambertw(samples / np.e).real,
            "logistic": 2 * samples / np.e,
        }
        return {name: float(value / self.radius) if self.radius > 0 else np.inf for name, value in reach.items()}


def support_geometry(data: Classification, solution: Solution) -> SupportGeometry:
    """The support geometry of `Classification` data at their l2 maximum margin.

    >>> import penchant as pt
    >>> data = pt.Classification([[2.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [1, 1, 1])
    >>> found = support_geometry(data, pt.references.max_margin(data))
    >>> found.support.tolist(), found.shares.round(12).tolist(), round(found.radius, 12)     # shares 1/4 : 1
    ([0, 1], [0.2, 0.8], 0.4472135955)
    """
    signed = np.asarray(data.signed)
    unit = solution.weight / np.linalg.norm(solution.weight)
    reached = signed @ unit
    support = np.flatnonzero(reached <= reached.min() * (1 + _TIGHT))
    points = signed[support]
    across = points - np.outer(points @ unit, unit)
    shares = solution.dual[support] / solution.dual[support].sum()
    size = float(np.linalg.norm(points, axis=1).max())
    pulling = _pulling(across, shares, size)
    pulled = points[pulling]
    shares = np.where(pulling, shares, 0.0)
    singular = np.linalg.svd(pulled, compute_uv=False)
    pulling_rank = len(_row_basis(pulled, size))
    if len(pulled) == pulling_rank:  # one dual solution, and <v, z_i> = -log p_i - H(p) is one linear system
        entropy = float(np.sum(shares[pulling] * np.log(1 / shares[pulling])))
        system, wanted = np.vstack([pulled, unit]), np.append(-np.log(shares[pulling]) - entropy, 0.0)
        offset = np.linalg.lstsq(system, wanted, rcond=None)[0]
    else:
        offset, entropy = _least_sum(across[pulling], size)
        shares[pulling] = np.exp(-across[pulling] @ offset - entropy)
    return SupportGeometry(
        unit,
        solution.margin,
        support,
        shares,
        entropy,
        offset,
        hull_radius(points, unit),
        len(_row_basis(points, size)),
        pulling_rank,
        len(_row_basis(signed, float(np.linalg.norm(signed, axis=1).max()))),
        float(singular[len(unit) - 1]) if len(singular) >= len(unit) else 0.0,
        points,
        pulling,
        _escape(across, pulling, size),
    )


def _row_basis(points: np.ndarray, size: float) -> np.ndarray:
    """Orthonormal rows spanning the points, as far as these are longer than rounding relative to `size`, the longest support vector."""
    _, values, rows = np.linalg.svd(points, full_matrices=False)
    return rows[values > _FLAT * size]


def _pulling(across: np.ndarray, shares: np.ndarray, size: float) -> np.ndarray:
    """Which support vectors have weight in some solution of the dual, given one of them.

    Those with weight keep 0 in the relative interior of their projected hull, so anything in their span can be balanced. The others
    can join if they balance each other outside that span: a linear program with one unit of reward for each that does.
    """
    found = shares > _IDLE
    basis = _row_basis(across[found], size)
    rest = across - across @ basis.T @ basis
    lengths = np.linalg.norm(rest, axis=1)
    found = found | (lengths <= _FLAT * size)
    open_ = np.flatnonzero(~found)
    if len(open_) < 2:  # a single vector has nothing to balance it
        return found
    units, count = rest[open_] / lengths[open_, None], len(open_)
    joined = linprog(
        np.repeat([0.0, -1.0], count),
        A_ub=np.hstack([-np.eye(count), np.eye(count)]),
        b_ub=np.zeros(count),
        A_eq=np.hstack([units.T, np.zeros_like(units.T)]),
        b_eq=np.zeros(units.shape[1]),
        bounds=[(0, 1e4)] * count + [(0, 1)] * count,
    )
    found[open_] = joined.x[count:] > 0.5
    return found


def _escape(across: np.ndarray, pulling: np.ndarray, size: float) -> np.ndarray:
    """min |v| with <v, y> >= 1 for every idle y, taken outside the span of the pulling ones; 0 if there is no idle one."""
    basis = _row_basis(across[pulling], size)
    rest = (across - across @ basis.T @ basis)[~pulling]
    if not len(rest):
        return np.zeros(across.shape[1])
    rows = np.vstack([rest.T, np.ones(len(rest))])
    weights, _ = nnls(rows, np.append(np.zeros(rest.shape[1]), 1.0))
    residual = rows @ weights - np.append(np.zeros(rest.shape[1]), 1.0)
    return -residual[:-1] / residual[-1]


def _least_sum(across: np.ndarray, size: float) -> tuple[np.ndarray, float]:
    """argmin over v in the span of the points of log sum exp(-<v, z_i>), and that minimum, by damped Newton steps.

    The points have 0 in the relative interior of their hull, so the minimum is attained and the Hessian positive in their span.
    """
    basis = _row_basis(across, size)
    reduced = across @ basis.T

    def value(v: np.ndarray) -> tuple[float, np.ndarray]:
        top = (-reduced @ v).max()
        terms = np.exp(-reduced @ v - top)
        return float(top + np.log(terms.sum())), terms / terms.sum()

    def newton(_: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
        mean = weights @ reduced
        centred = reduced - mean
        step = np.linalg.lstsq((weights[:, None] * centred).T @ centred, mean, rcond=None)[0]
        return step, float(mean @ step)

    v, least = descend(value, newton, np.zeros(len(basis)), 100)
    return v @ basis, least


def hull_radius(points: np.ndarray, unit: np.ndarray) -> float:
    """min over unit xi orthogonal to `unit` of max_i <xi, z_i>, exactly: the smallest distance to a facet of the projected hull.

    It is 0 where the origin lies on a facet, which makes some support vector idle.
    """
    basis = np.linalg.svd(unit[None])[2][1:]  # rows orthonormal, orthogonal to the direction
    flat = points @ basis.T
    count, d, size = len(points), len(unit), float(np.linalg.norm(points, axis=1).max())
    if d == 1:
        return float("inf")
    if count < d or len(_row_basis(flat, size)) < d - 1:
        return 0.0
    if d == 2:
        distance = min(flat.max(), -flat.min())
    elif count == d:
        facets = (np.delete(flat, j, axis=0) for j in range(d))
        distance = min(abs(np.linalg.svd(one[1:] - one[0])[2][-1] @ one[0]) for one in facets)
    else:
        distance = -ConvexHull(flat).equations[:, -1].max()
    return float(distance) if distance > _FLAT * size else 0.0
