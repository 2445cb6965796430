"""max over |W| <= 1 of min_k (<Z_k, W> + mu_k): the margin program of attention whose samples start from different offsets.

Joint training whose decoder grows as fast as its attention solves it: a sample that the decoder already classifies with room to
spare (mu above the smallest) needs less attention. With equal offsets it is the maximum-margin program.
"""

import equinox as eqx
import numpy as np
from scipy.optimize import nnls, root_scalar

from ..errors import ArgumentError
from ..norms import L2
from ..rounding import down, dual_above, gamma, up, value_above
from ..settings.base import Data
from .base import require_margins
from .bracket import adjoint, sums
from .euclidean_margin import gram_root

_ROOM = 1e-9  # relative widening of the interval in which the optimum is sought


class OffsetSolution(eqx.Module):
    """The unit weight, the dual shares (sum 1) and certified bounds lower <= optimum <= upper of the smallest offset margin."""

    weight: np.ndarray
    dual: np.ndarray
    lower: float
    upper: float

    @property
    def gap(self) -> float:
        return self.upper - self.lower


def offset_margin(data: object, offsets: object) -> OffsetSolution:
    """Solve the program for `data` with one offset per margin, and certify it.

    For a value v the shortest weight with <Z_k, W> >= v - mu_k is a nonnegative least squares problem; the optimum is the v
    at which its length is 1. Weak duality for any shares q: v <= |sum q_k Z_k| + <q, mu>.
    """
    data = require_margins(data, "offset_margin")
    offsets, gram = np.asarray(offsets, float), np.asarray(data.gram())
    if offsets.shape != (len(gram),) or not np.isfinite(offsets).all():
        raise ArgumentError("offsets", "offset_margin", f"{len(gram)} finite numbers", f"shape {offsets.shape}")
    root = gram_root(gram)
    longest = np.sqrt(gram.diagonal().max())
    # Where one margin alone decides, the optimum is the upper end itself: rounding must not leave it outside.
    low, high = offsets.min(), offsets.max() + longest + _ROOM * (longest + np.abs(offsets).max())
    size = lambda value: _shortest(root, value - offsets)[1]
    reach = lambda v: min(size(v), 1e6) - 1.0
    found = root_scalar(reach, bracket=(low, high), method="brentq", xtol=1e-15 * max(1.0, abs(high)), rtol=1e-14)
    value = float(found.root)
    multipliers = _shortest(root, value - offsets)[0]
    return certify_offset(data, offsets, np.asarray(adjoint(data, multipliers)), multipliers)


def certify_offset(data: Data, offsets: np.ndarray, weight: np.ndarray, dual: np.ndarray) -> OffsetSolution:
    """Bounds on the optimum from any weight and any multipliers, moved outward by what rounding may have done; negative ones are clipped."""
    weight = weight / np.linalg.norm(weight)
    shares = np.maximum(dual, 0.0) / np.maximum(dual, 0.0).sum()
    reached, blur, pull, haze = sums(data, weight, shares)
    lower = down(down(down(reached - up(blur)) / value_above(L2(), weight)) + offsets).min()
    length = up(dual_above(L2(), pull) + dual_above(L2(), haze))
    rounding = gamma(
        len(shares) + 2
    )  # of the shares' sum, and of their mean of the offsets and its sum with the length
    most = length + shares @ offsets
    spare = 2 * rounding * (length + shares @ np.abs(offsets))
    return OffsetSolution(weight, shares, float(lower), float(up(most + up(spare))))


def _shortest(root: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, float]:
    """Multipliers and length of the shortest W with <Z_k, W> >= wanted_k (Lawson and Hanson's least distance program)."""
    if wanted.max() <= 0:
        return np.zeros(len(wanted)), 0.0
    system = np.vstack([root, wanted])
    found, _ = nnls(system, np.append(np.zeros(len(root)), 1.0), maxiter=30 * len(wanted))
    rest = 1.0 - wanted @ found
    if rest <= 1e-14:
        return found, np.inf
    multipliers = found / rest
    return multipliers, float(np.linalg.norm(root @ multipliers))
