"""Is the solution of a reference program the only one? Decided from its dual: all solutions share one face."""

from typing import cast, overload

import equinox as eqx
import numpy as np

from ..errors import ArgumentError
from ..norms import Nuclear
from ..references.base import Interpolant, Solution
from ..references.bracket import adjoint, margins
from ..references.l1_uniqueness import L1Uniqueness, l1_uniqueness
from ..settings.base import Data
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection

_LOST = 1e-5  # a singular value this far below the largest one is lost to the solver's tolerance
_TOUCHING = 1e-7  # an l1 multiplier this near its bound leaves the coordinate free
_MASS = 1e-3


class Uniqueness(eqx.Module):
    """`unique` is None where the face does not decide. `smallest` is the smallest singular value of the margins that carry
    weight, as functions on the face: 0 on a line of solutions, and small where the solution is unique but flat (the value
    is then known long before the direction). `slack` is the distance of the nearest excluded direction from the face.
    """

    unique: bool | None
    smallest: float
    slack: float

    def __str__(self) -> str:
        word = {True: "unique", False: "not unique", None: "unique or not, undecided"}[self.unique]
        return f"{word}: smallest singular value on the face {self.smallest:.3g}, slack off it {self.slack:.3g}"


def certified_rank(data: Data, solution: Solution, mass: float = _MASS) -> int:
    """The smallest r such that every optimal W has at most the fraction `mass` of its nuclear norm outside r directions.

    Proved from the dual: an optimal W loses (1 - s) per unit of nuclear norm along a singular pair of size s of the scaled
    dual matrix, and cannot lose more than the certified gap.
    """
    pull = np.asarray(adjoint(data, np.maximum(solution.dual, 0.0)))
    sizes = np.linalg.svd(pull, compute_uv=False)
    loss = 1 - sizes / sizes[0]
    return int((loss * mass < max(solution.bracket.gap, 1e-15)).sum())


@overload
def uniqueness(data: Data, solution: Solution) -> Uniqueness: ...
@overload
def uniqueness(data: Regression, solution: Interpolant) -> Uniqueness | L1Uniqueness: ...
def uniqueness(data: Data, solution: Solution | Interpolant) -> Uniqueness | L1Uniqueness:
    """Whether the minimum of the norm of `solution` is attained once. Frobenius norms and potentials are strictly convex: always."""
    if isinstance(solution, Interpolant) and solution.norm in ("l1", "nonnegative l1"):
        return l1_uniqueness(cast(Regression, data), solution.weight, nonnegative=solution.norm != "l1")
    if solution.norm == "weighted l1":
        raise ArgumentError(
            "solution",
            "uniqueness",
            "one whose weights are known",
            "a weighted l1 norm",
            "use `l1_uniqueness` with them",
        )
    if isinstance(solution, Interpolant):
        return Uniqueness(True, float("inf"), float("inf"))
    decide = {"nuclear": _nuclear, "l1": _l1}.get(solution.norm)
    return Uniqueness(True, float("inf"), float("inf")) if decide is None else decide(data, solution)


def _nuclear(data: Data, solution: Solution) -> Uniqueness:
    """Solutions are U S V' with S >= 0 on the unit singular pairs (U, V) of the dual matrix, and their margins with weight are 1."""
    pull = np.asarray(adjoint(data, np.maximum(solution.dual, 0.0)))
    left, sizes, right = np.linalg.svd(pull)
    face = certified_rank(data, solution)
    symmetric = [(j, k) for j in range(face) for k in range(j, face)]
    columns = []
    for j, k in symmetric:  # an orthonormal basis of the symmetric matrices
        part = np.outer(left[:, j], right[k]) + np.outer(left[:, k], right[j])
        columns.append(np.asarray(margins(data, part / (2.0 if j == k else np.sqrt(2.0))))[solution.support])
    slack = 1 - sizes[face] / sizes[0] if face < len(sizes) else 1.0
    full = (
        np.linalg.matrix_rank(left[:, :face].T @ solution.weight @ right[:face].T, tol=_MASS * solution.value) == face
    )
    return _decide(np.stack(columns, axis=1), float(slack), bool(full))


def _l1(data: Data, solution: Solution) -> Uniqueness:
    """Solutions vanish where the dual is off its bound, and their margins with weight are 1."""
    pull = np.abs(np.asarray(adjoint(data, np.maximum(solution.dual, 0.0)))).ravel()
    pull = pull / pull.max()
    face = np.flatnonzero(pull >= 1 - _TOUCHING)
    flat = np.eye(pull.size)[face].reshape(-1, *data.weight_shape)
    columns = [np.asarray(margins(data, part))[solution.support] for part in flat]
    off = np.delete(pull, face)
    used = np.abs(solution.weight).ravel()[face] > 1e-9 * np.abs(solution.weight).max()
    return _decide(np.stack(columns, axis=1), float(1 - off.max()) if len(off) else 1.0, bool(used.all()))


def _decide(columns: np.ndarray, slack: float, interior: bool) -> Uniqueness:
    """One solution if the margins determine the point of the face; several if they do not and the point is inside the face."""
    sizes = np.linalg.svd(columns, compute_uv=False)
    smallest = float(sizes[-1]) if len(sizes) == columns.shape[1] else 0.0
    determined = smallest > _LOST * sizes[0]
    return Uniqueness(True if determined else False if interior else None, smallest, slack)


def dual_spectrum(data: TokenSelection, weight: np.ndarray, multipliers: np.ndarray) -> np.ndarray | None:
    """Singular values of Lambda = (|W|_* / margin) sum_k w_k Z_k / sum_k w_k, or None before the margin is positive.

    At a limit of (K, Q) of any width one of them is 1; the limit minimises the nuclear norm if and only if none is larger.
    """
    active = data.constrained()
    margin, shares = (
        np.asarray(margins(data, weight))[active].min(),
        np.where(active, np.maximum(multipliers, 0.0), 0.0),
    )
    if margin <= 0 or not shares.any():
        return None
    pull = np.asarray(adjoint(data, shares / shares.sum()))
    return Nuclear().value(weight) / margin * np.linalg.svd(pull, compute_uv=False)
