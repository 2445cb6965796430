"""Is the solution of a reference program the only one? Decided from its dual: all solutions share one face."""

from typing import NamedTuple, cast, overload

import equinox as eqx
import numpy as np

from ..errors import ArgumentError
from ..norms import Hybrid, Nuclear, Schatten
from ..references.base import Interpolant, Solution, feature_rows
from ..references.bracket import adjoint, margins
from ..references.l1_uniqueness import L1Uniqueness, l1_uniqueness
from ..settings.base import Data
from ..settings.regression import Regression
from ..settings.tokens import TokenSelection

_LOST = 1e-5  # a singular value this far below the largest one is lost to the solver's tolerance
_TOUCHING = 1e-7  # an entry, a singular value or an l1 multiplier this near its bound is at it
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
    sizes = np.linalg.svd(_pull(data, solution), compute_uv=False)
    loss = 1 - sizes / sizes[0]
    return int((loss * mass < max(solution.bracket.gap, 1e-15)).sum())


@overload
def uniqueness(data: Data, solution: Solution) -> Uniqueness: ...
@overload
def uniqueness(data: Regression, solution: Interpolant) -> Uniqueness | L1Uniqueness: ...
def uniqueness(data: Data, solution: Solution | Interpolant) -> Uniqueness | L1Uniqueness:
    """Whether the minimum of the norm of `solution` is attained once. Frobenius norms and potentials are strictly convex: always."""
    strict = Uniqueness(True, float("inf"), float("inf"))
    match solution:
        case Interpolant(norm="l1" | "nonnegative l1"):
            return l1_uniqueness(cast(Regression, data), solution.weight, nonnegative=solution.norm != "l1")
        case Interpolant(norm="weighted l1"):
            fix = "use `l1_uniqueness` with them"
            raise ArgumentError("solution", "uniqueness", "one whose weights are known", "a weighted l1 norm", fix)
        case Interpolant():
            return strict
        case Solution(measure=Hybrid()):
            return Uniqueness(None, float("nan"), float("nan"))
    if (power := getattr(solution.measure, "p", 2.0)) not in (1, np.inf):
        return strict
    found = (_of_matrices if isinstance(solution.measure, Schatten) else _of_entries)(data, solution, power)
    moves = found.moves.reshape(len(found.moves), solution.weight.size)
    return _decide(feature_rows(data, _carrying(data, solution)) @ moves.T, found)


def _carrying(data: Data, solution: Solution) -> np.ndarray:
    """The margins that carry weight: an interior point leaves a little on idle ones too, less than these are in excess."""
    reached, share = np.asarray(margins(data, solution.weight)), solution.dual / solution.dual.sum()
    return solution.support & (share >= reached / reached[solution.support].min() - 1)


class _Face(NamedTuple):
    """Movements of a solution that keep its norm, how far the nearest other one is from doing so, and whether the solution is inside."""

    moves: np.ndarray
    slack: float
    inside: bool


def _pull(data: Data, solution: Solution) -> np.ndarray:
    return np.asarray(adjoint(data, np.maximum(solution.dual, 0.0)))


def _of_entries(data: Data, solution: Solution, power: float) -> _Face:
    """Entries below the largest are free (p = inf), or those whose pull is at its bound (p = 1): all others vanish in every solution."""
    sizes = np.abs(solution.weight if power == np.inf else _pull(data, solution)).ravel()
    bound = sizes >= (1 - _TOUCHING) * sizes.max()
    free = ~bound if power == np.inf else bound
    off, used = sizes[~bound] / sizes.max(), np.abs(solution.weight).ravel()[free]
    inside = power == np.inf or bool((used > 1e-9 * np.abs(solution.weight).max()).all())
    return _Face(np.eye(sizes.size)[free], float(1 - off.max(initial=0.0)), inside)


def _of_matrices(data: Data, solution: Solution, power: float) -> _Face:
    """Blocks between singular directions below the largest (p = inf), or U S V' with symmetric S on the unit singular pairs (U, V) of the pull (p = 1)."""
    left, sizes, right = np.linalg.svd(solution.weight if power == np.inf else _pull(data, solution))
    r = int((sizes >= (1 - _TOUCHING) * sizes[0]).sum()) if power == np.inf else certified_rank(data, solution)
    slack = float(1 - sizes[r] / sizes[0]) if r < len(sizes) else 1.0
    if power == np.inf:
        return _Face(np.einsum("ai,jb->ijab", left[:, r:], right[r:]).reshape(-1, *solution.weight.shape), slack, True)
    blocks = np.einsum("ai,jb->ijab", left[:, :r], right[:r])
    lengths = np.where(np.eye(r, dtype=bool), 2.0, np.sqrt(2.0))[..., None, None]
    part = ((blocks + blocks.swapaxes(0, 1)) / lengths)[np.triu_indices(r)]
    core = left[:, :r].T @ solution.weight @ right[:r].T
    return _Face(part, slack, bool(np.linalg.matrix_rank(core, tol=_MASS * solution.value) == r))


def _decide(columns: np.ndarray, face: _Face) -> Uniqueness:
    """One solution if the margins that carry weight determine the point of the face; several if they do not and the point is inside the face."""
    if not columns.shape[1]:
        return Uniqueness(True, float("inf"), face.slack)
    sizes = np.linalg.svd(columns, compute_uv=False)
    smallest = float(sizes[-1]) if len(sizes) == columns.shape[1] else 0.0
    determined = smallest > _LOST * sizes[0]
    return Uniqueness(True if determined else False if face.inside else None, smallest, face.slack)


def dual_spectrum(data: TokenSelection, weight: np.ndarray, multipliers: np.ndarray) -> np.ndarray | None:
    """Singular values of Lambda = (|W|_* / margin) sum_k w_k Z_k / sum_k w_k, or None before the margin is positive.

    At a limit of (K, Q) of any width one of them is 1; the limit minimises the nuclear norm if and only if none is larger.
    """
    active = data.constrained()
    margin = np.asarray(margins(data, weight))[active].min()
    shares = np.where(active, np.maximum(multipliers, 0.0), 0.0)
    if margin <= 0 or not shares.any():
        return None
    pull = np.asarray(adjoint(data, shares / shares.sum()))
    return Nuclear().value(weight) / margin * np.linalg.svd(pull, compute_uv=False)
