"""Maximum margins, and that there is none, proved about the stored floats: every feature, margin and sum is an exact number."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import Unproved
from ..norms import L1, L2, Linf, Norm, Nuclear
from ..settings.diagonal import DiagonalTokens
from ..settings.tokens import TokenSelection
from .arguments import feature_rows
from .exact_numbers import Certificate, Whole, concluded, whole

_ROOMS = 2.0 ** np.arange(2, 40)  # roundings by which the square of an operator norm is enlarged until that is proved


class Blocks(NamedTuple):
    """Features Z_k = left_k right_i', sample by sample; plain features are one sample with right = (1)."""

    left: tuple[Whole, ...]
    right: Whole

    def listed(self) -> dict:
        return {
            "left": [self.left[0].exponent, [rows.digits.tolist() for rows in self.left]],
            "right": self.right.listed(),
        }

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, np.cumsum([len(rows.digits) for rows in self.left])[:-1])

    def smallest(self, weight: np.ndarray) -> int:
        """The smallest margin of an integer weight, in units of the features."""
        images = self.right.digits @ weight.T
        return min(int((rows.digits @ image).min()) for rows, image in zip(self.left, images, strict=True))

    def pull(self, multipliers: Sequence[np.ndarray]) -> np.ndarray:
        """The sum of integer multipliers times features."""
        pulls = [shares @ rows.digits for shares, rows in zip(multipliers, self.left, strict=True)]
        return np.stack(pulls).T @ self.right.digits


def blocks(data: Any) -> Blocks:
    """The features of the constrained margins, without any rounding where the data are tokens."""
    if not isinstance(data, TokenSelection | DiagonalTokens):
        return Blocks((whole(feature_rows(data, data.constrained())),), whole([[1.0]]))
    pairs = data.tokens if isinstance(data, DiagonalTokens) else data
    tokens, queries = whole(pairs.tokens), whole(pairs.queries)
    best, others = np.asarray(pairs.optimal), np.asarray(pairs.others)
    kept = pairs.constrained().reshape(others.shape)
    rows = [
        (sample[one] - sample[rest])[keep]
        for sample, one, rest, keep in zip(tokens.digits, best, others, kept, strict=True)
    ]
    if isinstance(data, DiagonalTokens):
        products = np.concatenate([part * query for part, query in zip(rows, queries.digits, strict=True)])
        return Blocks((Whole(tokens.exponent + queries.exponent, products),), whole([[1.0]]))
    return Blocks(tuple(Whole(tokens.exponent, part) for part in rows), queries)


def prove_margin(data: Any, norm: Norm, weight: np.ndarray, dual: np.ndarray) -> Certificate:
    """Bounds on min ||W|| subject to margins >= 1 from any weight and any multipliers."""
    if not isinstance(norm, L2 | L1 | Linf | Nuclear):
        raise Unproved(norm.name, "its norm has no exact form here")
    found = blocks(data)
    rows = np.asarray(weight, float).reshape(-1, found.right.digits.shape[1])
    content = {"norm": norm.name, **found.listed()}
    primal = digits = whole(rows).digits
    multipliers = np.maximum(np.asarray(dual, float), 0.0)[data.constrained()]
    if isinstance(norm, Nuclear):
        primal, right = _factors(rows)
        digits, content["factor"] = primal @ right.T, right.tolist()
        multipliers = _normalised(found, multipliers, content)
    lam = whole(multipliers)
    smallest = found.smallest(digits)
    if smallest <= 0:
        raise Unproved(norm.name, "its smallest margin is not positive in exact arithmetic")
    content["dual"] = [lam.exponent, [part.tolist() for part in found.split(lam.digits)]]
    content["primal"] = [-found.left[0].exponent - found.right.exponent, primal.tolist()]
    return concluded({**content, "over": smallest, "targets": [0, [1] * len(multipliers)]})


def _factors(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integer A and B with W close to a multiple of A B', and the nuclear norm to half of |A|^2 + |B|^2."""
    left, sizes, right = np.linalg.svd(weight, full_matrices=False)
    used = sizes > 1e-18 * sizes[0]
    roots = np.sqrt(sizes[used])
    both = whole(np.vstack([left[:, used] * roots, right[used].T * roots])).digits
    return both[: len(weight)], both[len(weight) :]


def _normalised(found: Blocks, multipliers: np.ndarray, content: dict) -> np.ndarray:
    """The multipliers times a power of two that makes their operator norm about 1, and the proof of that norm."""
    size = np.linalg.norm(_pulled(found, multipliers).floats(), 2)
    multipliers = np.ldexp(multipliers, -int(np.frexp(size)[1]))
    pull = _pulled(found, multipliers)
    square = pull.digits @ pull.digits.T
    near = Whole(2 * pull.exponent, square).floats()
    largest = float(np.linalg.eigvalsh(near)[-1])
    for room in _ROOMS * np.finfo(float).eps * largest:
        top, root = whole([largest + room]), whole(_triangle((largest + room / 2) * np.eye(len(near)) - near))
        if _dominant(top, Whole(2 * pull.exponent, square), Whole(2 * root.exponent, root.digits @ root.digits.T)):
            content |= {"root": root.listed(), "top": [top.exponent, top.digits.tolist()[0]]}
            return multipliers
    raise Unproved("nuclear", "the operator norm of its dual cannot be enclosed")


def _pulled(found: Blocks, multipliers: np.ndarray) -> Whole:
    lam = whole(multipliers)
    exponent = lam.exponent + found.left[0].exponent + found.right.exponent
    return Whole(exponent, found.pull(found.split(lam.digits)))


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """L with L L' close to a matrix that is nearly positive, from its eigenvalues: no pivot can fail."""
    sizes, frame = np.linalg.eigh(matrix)
    return frame * np.sqrt(np.maximum(sizes, 0.0))


def _dominant(top: Whole, *parts: Whole) -> bool:
    """Whether top times 1 minus the parts has a dominant diagonal."""
    least = min(part.exponent for part in (top, *parts))
    rest = np.eye(len(parts[0].digits), dtype=object) * top.at(least)[0] - sum(part.at(least) for part in parts)
    return bool((2 * np.diagonal(rest) >= np.abs(rest).sum(axis=1)).all())
