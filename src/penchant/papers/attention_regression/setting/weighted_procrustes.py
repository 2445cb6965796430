r"""Weighted orthogonal Procrustes: minimise $\tfrac12\|(Y - ZR)G^{1/2}\|_F^2$ over orthogonal $R$, where $Z^\top Z$ is diagonal.

There is no closed form, and there are local minima. `descend` finds one by Newton steps on the rotations, `search` the best of many
starts, and `proof` is a Lagrangian bound that says, from the answer alone, whether any orthogonal matrix can be better.
"""

from collections.abc import Iterator

import equinox as eqx
import numpy as np
import scipy.linalg as sl

_NEWTON = 200
_DENSE = 30  # widest R for which the Newton system, of d(d-1)/2 unknowns, is formed
_TURN = 1.0  # longest Newton step, in radians
_FLAT = 1e-9  # relative curvature below which a direction is treated as flat
_RANDOM = 6  # random starts on each component


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
        turn = (_dense_turn if len(rotation) <= _DENSE else _iterative_turn)(problem, rotation, upper)
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


def _parts(problem: Procrustes, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradient along R exp(Omega), and N and K of its second derivative <Omega, N Omega G - K Omega>."""
    inner = rotation.T @ (problem.weight[:, None] * rotation)
    plain = -rotation.T @ problem.force(rotation)
    return plain - plain.T, inner, (plain + plain.T) / 2


def _dense_turn(problem: Procrustes, rotation: np.ndarray, upper: tuple[np.ndarray, ...]) -> np.ndarray:
    """The Newton step with the absolute values of the curvatures, in the entries of Omega above its diagonal."""
    slope, inner, bent = _parts(problem, rotation)
    curvature = _sandwich(inner, problem.metric, upper) - _sandwich(bent, np.eye(len(bent)), upper)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    values = np.maximum(np.abs(values), _FLAT * np.abs(values).max(initial=1e-300))
    return vectors @ (-(slope[upper] @ vectors) / values)


def _iterative_turn(problem: Procrustes, rotation: np.ndarray, upper: tuple[np.ndarray, ...]) -> np.ndarray:
    """The same by conjugate gradients, ended early far from a minimum and where the curvature is not positive."""
    slope, inner, bent = _parts(problem, rotation)
    metric, turn, left = problem.metric, np.zeros_like(slope), -slope
    way, square = left, float(np.sum(left**2))
    enough = square * min(0.25, problem.slope(rotation)) ** 2
    for _ in range(10 * len(rotation)):
        plain = inner @ way @ metric - bent @ way
        curved = plain - plain.T
        curvature = float(np.sum(way * curved))
        if curvature <= 0 or square <= enough:
            return (turn if turn.any() else -slope)[upper]
        turn = turn + square / curvature * way
        left = left - square / curvature * curved
        before, square = square, float(np.sum(left**2))
        way = left + square / before * way
    return turn[upper]


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


def starts(problem: Procrustes, sign: float) -> Iterator[np.ndarray]:
    """Further starts with a determinant: the pull alone, the quadratic form alone, and random ones (the same for every problem)."""
    rng, d = np.random.default_rng(0), len(problem.pull)
    _, vectors = np.linalg.eigh(problem.metric)  # ascending: the heaviest row on the lightest direction
    candidates = [polar(problem.pull), vectors.T * np.where(np.sum(vectors.T * problem.pull, 1) < 0, -1, 1)[:, None]]
    candidates += [polar(rng.standard_normal((d, d))) for _ in range(_RANDOM)]
    for one in candidates:
        yield one if np.linalg.det(one) * sign > 0 else np.concatenate([one[:-1], -one[-1:]])


def search(problem: Procrustes, rotation: np.ndarray) -> np.ndarray:
    """The best local minimum from `rotation` and, unless that one is proved, from `starts` of its component."""
    best = descend(problem, rotation)
    if problem.proof(best) >= -1e-12:
        return best
    sign = float(np.sign(np.linalg.det(rotation)))
    return min([best, *(descend(problem, one) for one in starts(problem, sign))], key=problem.value)
