r"""The unit balls of an interior point: what a point u inside and its multiplier v on the outside tell each other.

A ball linearises $\Delta v = \mathrm{drive} + H \Delta u$, where the drive and H depend on where both are and on mu; H or its inverse is
$D \mapsto S(\alpha\circ G + \beta\circ G^\top)T^\top$ with $G = S^\top D T$, so that products with pairs of rank one stay cheap (`Scaling`).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, eigvalsh, solve_triangular

_ROOM = 4_000_000  # numbers of a product at a time
_FLOOR = 1e-7  # of the largest entry: smaller ones count as that in what is inverted


class Scaling(NamedTuple):
    """A symmetric positive operator on matrices; `cross` is of the size of its square part."""

    left: np.ndarray
    right: np.ndarray
    direct: np.ndarray
    cross: np.ndarray

    def apply(self, matrix: np.ndarray) -> np.ndarray:
        turned = self.left.T @ matrix @ self.right
        found, r = self.direct * turned, len(self.cross)
        found[:r, :r] += self.cross * turned[:r, :r].T
        return self.left @ found @ self.right.T

    def gram(self, left: np.ndarray, inputs: np.ndarray, sample: np.ndarray) -> np.ndarray:
        """<Z_k, K Z_l> of the pairs Z_k = left_k inputs_{sample k}', which are in the order of their samples. What two inputs have in common row by
        row is a product for some samples at a time, which is where the time goes."""
        left, inputs, r = left @ self.left, inputs @ self.right, len(self.cross)
        square, found, crossed = left[:, :r], np.empty((len(left), len(left))), self.cross.any()
        ends, many = np.searchsorted(sample, np.arange(len(inputs) + 1)), max(1, _ROOM // inputs.size)
        for first in range(0, len(inputs), many):
            common = np.matmul(self.direct[:, None] * inputs[first : first + many], inputs[first:].T)
            for i, shared in enumerate(common.transpose(1, 2, 0).copy(), first):
                start, end = ends[i], ends[i + 1]
                later = sample[start:]
                spread = left[start:] * shared[later - first]
                if crossed:
                    spread[:, :r] += inputs[later, :r] * ((square[start:] * inputs[i, :r]) @ self.cross.T)
                found[start:end, start:] = left[start:end] @ spread.T
                found[start:, start:end] = found[start:end, start:].T
        return found


class Move(NamedTuple):
    """A step of u and of the multiplier, and the second-order term that it asks for."""

    inner: np.ndarray
    outer: Any
    bend: Any
    reach: tuple[float, float]  # of u and of the multiplier until the boundary


class Operator:
    """|u| <= 1 in operator norm: Z = [[1, u], [u', 1]] and a multiplier X of it, v = -2 X_12, in the scaling of Nesterov and Todd."""

    bounded = True

    def __init__(self, inner: np.ndarray, outer: np.ndarray):
        self.inner, self.outer = inner, outer

    @classmethod
    def around(cls, inner: np.ndarray, pull: np.ndarray, room: float) -> "Operator":
        """With the multiplier of least trace for v = `pull`, and `room` more."""
        left, sizes, right = np.linalg.svd(pull, full_matrices=False)
        corner = lambda basis: (basis * sizes / 2) @ basis.T + room * np.eye(len(basis))
        return cls(inner, np.block([[corner(left), -pull / 2], [-pull.T / 2, corner(right.T)]]))

    @property
    def degree(self) -> int:
        return len(self.outer)

    def spread(self, inner: np.ndarray) -> np.ndarray:
        rows, columns = inner.shape
        return np.block([[np.zeros((rows, rows)), inner], [inner.T, np.zeros((columns, columns))]])

    def pull(self) -> np.ndarray:
        return self.part(self.outer)

    def part(self, block: np.ndarray) -> np.ndarray:
        rows = self.inner.shape[0]
        return -2 * block[:rows, rows:]

    def centre(self) -> float:
        """<X, Z>."""
        return float(np.trace(self.outer) - np.vdot(self.inner, self.pull()))

    def prepare(self) -> None:
        """The frame G with G'ZG = G^-1 X G^-T = diag(sizes)."""
        low = cholesky(self.outer, lower=True), cholesky(self.spread(self.inner) + np.eye(self.degree), lower=True)
        _, self.sizes, right = np.linalg.svd(low[1].T @ low[0])
        self.frame = low[0] @ right.T / np.sqrt(self.sizes)
        self.means = 2 / np.add.outer(self.sizes, self.sizes)

    def scaling(self, inverse: bool) -> Scaling:
        rows, r = self.inner.shape[0], min(self.inner.shape)
        point = self.frame @ self.frame.T
        left, right = cholesky(point[:rows, :rows], lower=True), cholesky(point[rows:, rows:], lower=True)
        half = solve_triangular(left, point[:rows, rows:], lower=True)
        one, cosines, two = np.linalg.svd(solve_triangular(right, half.T, lower=True).T)
        product = np.multiply.outer(cosines, cosines)
        direct = np.full(self.inner.shape, 2.0)
        if not inverse:
            return Scaling(left @ one, right @ two.T, direct, 2 * product)
        direct[:r, :r] *= 1 - product**2
        left, right = (solve_triangular(low, turn, trans=1, lower=True) for low, turn in ((left, one), (right, two.T)))
        return Scaling(left, right, 1 / direct, -product / direct[:r, :r])

    def drive(self, mu: float, bend: np.ndarray) -> np.ndarray:
        """The change of v where u stays and X Z = mu is the aim, less the second-order term."""
        self.aim = self.means * (mu * np.eye(self.degree) - bend) - np.diag(self.sizes)
        return self.part(self.frame @ self.aim @ self.frame.T)

    def move(self, change: np.ndarray) -> Move:
        """The step that changes u, with the aim of the last drive."""
        inner = self.frame.T @ self.spread(change) @ self.frame
        outer = self.aim - inner
        bend = inner @ outer
        root = 1 / np.sqrt(self.sizes)
        lowest = [float(eigvalsh(root[:, None] * one * root, subset_by_index=[0, 0])[0]) for one in (inner, outer)]
        near, far = (np.inf if low >= 0 else -1 / low for low in lowest)
        return Move(change, self.frame @ outer @ self.frame.T, (bend + bend.T) / 2, (near, far))

    def after(self, move: Move, near: float, far: float) -> "Operator":
        return Operator(self.inner + near * move.inner, self.outer + far * move.outer)

    def still(self) -> np.ndarray:
        return np.zeros((self.degree, self.degree))


class Box:
    """|u| <= 1 in every entry: slacks 1 - u and 1 + u with multipliers x, v = x_0 - x_1."""

    bounded = True

    def __init__(self, inner: np.ndarray, outer: np.ndarray):
        self.inner, self.outer = inner, outer
        self.slack = np.stack([1 - inner, 1 + inner])

    @classmethod
    def around(cls, inner: np.ndarray, pull: np.ndarray, room: float) -> "Box":
        return cls(inner, np.stack([np.maximum(pull, 0.0), np.maximum(-pull, 0.0)]) + room)

    @property
    def degree(self) -> int:
        return self.outer.size

    def pull(self) -> np.ndarray:
        return self.outer[0] - self.outer[1]

    def centre(self) -> float:
        return float(np.vdot(self.slack, self.outer))

    def prepare(self) -> None:
        self.stiff = (self.outer / self.slack).sum(axis=0)

    def scaling(self, inverse: bool) -> Scaling:
        rows, columns = self.inner.shape
        return Scaling(np.eye(rows), np.eye(columns), 1 / self.stiff if inverse else self.stiff, np.zeros((0, 0)))

    def drive(self, mu: float, bend: np.ndarray) -> np.ndarray:
        self.aim = (mu - bend) / self.slack - self.outer
        return self.aim[0] - self.aim[1]

    def move(self, change: np.ndarray) -> Move:
        inner = np.stack([-change, change])
        outer = self.aim - self.outer / self.slack * inner
        return Move(change, outer, inner * outer, (distance(self.slack, inner), distance(self.outer, outer)))

    def after(self, move: Move, near: float, far: float) -> "Box":
        return Box(self.inner + near * move.inner, self.outer + far * move.outer)

    def still(self) -> np.ndarray:
        return np.zeros_like(self.outer)


class Columns:
    """Balls of blocks of columns, each with its own u and v."""

    bounded = True

    def __init__(self, balls: list["Operator | Box"]):
        self.balls = balls
        self.ends = np.cumsum([ball.inner.shape[1] for ball in balls])[:-1]

    @property
    def inner(self) -> np.ndarray:
        return np.hstack([ball.inner for ball in self.balls])

    @property
    def degree(self) -> int:
        return sum(ball.degree for ball in self.balls)

    def pull(self) -> np.ndarray:
        return np.hstack([ball.pull() for ball in self.balls])

    def centre(self) -> float:
        return sum(ball.centre() for ball in self.balls)

    def prepare(self) -> None:
        for ball in self.balls:
            ball.prepare()

    def scaling(self, inverse: bool) -> "Scalings":
        return Scalings([ball.scaling(inverse) for ball in self.balls], self.ends)

    def drive(self, mu: float, bend: list) -> np.ndarray:
        return np.hstack([ball.drive(mu, one) for ball, one in zip(self.balls, bend, strict=True)])

    def move(self, change: np.ndarray) -> Move:
        moves = [ball.move(part) for ball, part in zip(self.balls, np.split(change, self.ends, axis=1), strict=True)]
        return Move(change, moves, [one.bend for one in moves], tuple(np.min([one.reach for one in moves], axis=0)))

    def after(self, move: Move, near: float, far: float) -> "Columns":
        return Columns([ball.after(one, near, far) for ball, one in zip(self.balls, move.outer, strict=True)])

    def still(self) -> list:
        return [ball.still() for ball in self.balls]


class Scalings(NamedTuple):
    """Operators on blocks of columns."""

    parts: list[Scaling]
    ends: np.ndarray

    def apply(self, matrix: np.ndarray) -> np.ndarray:
        blocks = np.split(matrix, self.ends, axis=1)
        return np.hstack([part.apply(block) for part, block in zip(self.parts, blocks, strict=True)])

    def gram(self, left: np.ndarray, inputs: np.ndarray, sample: np.ndarray) -> np.ndarray:
        blocks = np.split(inputs, self.ends, axis=1)
        return sum(part.gram(left, block, sample) for part, block in zip(self.parts, blocks, strict=True))  # pyright: ignore[reportReturnType]


class Smooth:
    """v = the gradient of sum |x|^power / power over the entries x of u, or over its singular values: power >= 2, and no boundary."""

    bounded = False
    degree = 0

    def __init__(self, inner: np.ndarray, power: float, matrix: bool):
        self.inner, self.power, self.matrix = inner, power, matrix
        self.frames, self.sizes = (np.eye(inner.shape[0]), np.eye(inner.shape[1])), inner
        if matrix:
            left, self.sizes, right = np.linalg.svd(inner)
            self.frames = left, right.T

    def prepare(self) -> None:
        """Nothing depends on the multiplier."""

    def scaling(self, inverse: bool) -> Scaling:
        sizes = np.abs(self.sizes)
        sizes = np.maximum(sizes, (_FLOOR if inverse else 1e-100) * sizes.max())
        sign = -1 if inverse else 1
        if not self.matrix:
            stiff = (self.power - 1) * sizes ** (self.power - 2)
            return Scaling(*self.frames, stiff**sign, np.zeros((0, 0)))
        slopes, rest = sizes ** (self.power - 1), np.full(self.inner.shape, sizes.min() ** (self.power - 2))
        apart, together = np.subtract.outer(sizes, sizes), np.add.outer(sizes, sizes)
        near = np.abs(apart) < 1e-6 * together
        curve = (self.power - 1) * (together / 2) ** (self.power - 2)
        even = np.where(near, curve, np.subtract.outer(slopes, slopes) / np.where(near, 1.0, apart))
        odd, r = np.add.outer(slopes, slopes) / together, len(sizes)
        rest[:r, r:], rest[r:, :r] = (sizes ** (self.power - 2))[:, None], sizes ** (self.power - 2)
        direct, even, odd = rest**sign, even**sign, odd**sign  # symmetric and antisymmetric parts of the square block
        direct[:r, :r] = (even + odd) / 2
        return Scaling(*self.frames, direct, (even - odd) / 2)

    def drive(self, mu: float, bend: float) -> np.ndarray:
        return np.zeros_like(self.inner)  # v is where it belongs

    def pull(self) -> np.ndarray:
        sizes = np.sign(self.sizes) * np.abs(self.sizes) ** (self.power - 1)
        if not self.matrix:
            return sizes
        r = len(sizes)
        return (self.frames[0][:, :r] * sizes) @ self.frames[1][:, :r].T

    def move(self, change: np.ndarray) -> Move:
        reach = float(
            np.abs(self.inner).max() / max(np.abs(change).max(), np.finfo(float).tiny)
        )  # powers are no parabolas
        return Move(change, change, 0.0, (reach, np.inf))

    def after(self, move: Move, near: float, far: float) -> "Smooth":
        return Smooth(self.inner + near * move.inner, self.power, self.matrix)

    def centre(self) -> float:
        return 0.0

    def still(self) -> float:
        return 0.0


Ball = Operator | Box | Columns | Smooth


def distance(values: np.ndarray, change: np.ndarray) -> float:
    """The largest step along which positive values stay so."""
    falling = change < 0
    return float((-values[falling] / change[falling]).min(initial=np.inf))
