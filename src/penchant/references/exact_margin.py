"""Maximum margins, and that there is none, proved about the stored floats: every feature, margin and sum is an exact number.

That there is none is proved by nonnegative multipliers, not all 0, of features whose sum is exactly 0.

Floats as integers times powers of two, and certificates made of them: `certificate.json`, which `penchant check` proves.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..check import FORMAT, prove, seal
from ..errors import MissingExtra, Unproved
from ..norms import Norm
from ..rounding import gamma
from ..settings.base import Data
from ..settings.factored import selection
from .base import feature_rows
from .interpolation_bracket import solvable_near


class Whole(NamedTuple):
    """Python integers (an array of objects) times one power of two."""

    exponent: int
    digits: np.ndarray

    def at(self, exponent: int) -> np.ndarray:
        """The integers in units of another, smaller power of two."""
        return self.digits * 2 ** (self.exponent - exponent)

    def floats(self) -> np.ndarray:
        """The nearest floats."""
        scale = Fraction(2) ** self.exponent
        return np.array([float(int(digit) * scale) for digit in self.digits.ravel()]).reshape(self.digits.shape)

    def listed(self) -> list:
        """As it stands in a certificate."""
        return [self.exponent, self.digits.tolist()]


def whole(values: ArrayLike) -> Whole:
    """The floats themselves, every bit of them."""
    if not np.isfinite(values).all():
        raise Unproved("wanted", "it holds numbers that are not finite")
    mantissas, exponents = np.frexp(np.asarray(values, float))
    digits = np.ldexp(mantissas, 53).astype(np.int64)
    zeros = np.where(digits == 0, 0, np.frexp((digits & -digits).astype(float))[1] - 1)
    digits, exponents = digits >> zeros, exponents.astype(np.int64) - 53 + zeros
    least = int(exponents[digits != 0].min(initial=0 if not digits.any() else 10_000))
    shifts = np.where(digits == 0, 0, exponents - least).astype(object)
    return Whole(least, digits.astype(object) * 2**shifts)


def flint() -> ModuleType:
    """The package for exact matrices."""
    try:
        import flint
    except ImportError:
        raise MissingExtra("exact", "An exact proof of this reference") from None
    return flint


def plus(a: Whole, b: Whole) -> Whole:
    """The exact sum."""
    least = min(a.exponent, b.exponent)
    return Whole(least, a.at(least) + b.at(least))


class Certificate(NamedTuple):
    """What was proved: lower <= optimum <= upper (0 and 0 where there is nothing to bound), and the text of `certificate.json`."""

    lower: float
    upper: float
    text: str


def concluded(content: dict) -> Certificate:
    """The certificate with the best bounds that are floats, proved by the very lines that `penchant check` runs."""
    content = {"format": FORMAT, "equal": 0, "plus": 0, "over": 1, "factor": [], **content}
    content |= {"lower": [0, 1], "upper": [0, 1], "seal": 0}
    try:
        need, power, low, high = prove(content)
        lower, upper = (_outward(Fraction(end), power, side) for end, side in ((low, -math.inf), (high, math.inf)))
        content |= {"lower": lower.as_integer_ratio(), "upper": upper.as_integer_ratio()}
        content["seal"] = seal(content)
        text = json.dumps(content)
    except (ZeroDivisionError, OverflowError):
        raise Unproved(content["norm"], "one of its bounds is not finite") from None
    except ValueError:  # of the conversion of integers to text
        raise Unproved(
            content["norm"], f"its exact numbers have more than {sys.get_int_max_str_digits()} digits"
        ) from None
    failed = [name for name, holds in need.items() if not holds and name != "bounds"]
    if failed:
        raise Unproved(content["norm"], f"its {failed[0]} cannot be verified in exact arithmetic")
    return Certificate(lower, upper, text)


def about(certificate: Certificate, data: str) -> str:
    """The text of a certificate with the data that it is said to be about, under its seal."""
    content = {**json.loads(certificate.text), "about": data}
    return json.dumps({**content, "seal": seal(content)})


def _outward(power: Fraction, p: int, end: float) -> float:
    """The float next to the p-th root (p = 1 or 2) on the side of `end`."""
    found = _root(power) if p == 2 else float(power)
    inside = lambda x: (Fraction(x) ** p > power) if end < 0 else (Fraction(x) ** p < power)
    while inside(found):
        found = math.nextafter(found, end)
    return found


def _root(square: Fraction) -> float:
    """The square root to a rounding, also where the square is outside the range of floats."""
    shift = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(square / Fraction(4) ** shift), shift)


_ROOMS = 2.0 ** np.arange(2, 40)  # roundings by which the square of an operator norm is enlarged until that is proved
_NOISE = 1e-12  # shares below this fraction of the largest are rounding
_EFFORT = 200_000  # squared size of an integer matrix times its bits, up to which it is reduced without a package
Reduction = Callable[[np.ndarray], tuple[np.ndarray, int]]


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


def blocks(data: Data) -> Blocks:
    """The features of the constrained margins, without any rounding where the data are tokens."""
    if (pairs := selection(data)) is None:
        return Blocks((whole(feature_rows(data, data.constrained())),), whole([[1.0]]))
    tokens, queries = whole(pairs.tokens), whole(pairs.queries)
    best, others = np.asarray(pairs.optimal), np.asarray(pairs.others)
    kept = pairs.constrained().reshape(others.shape)
    rows = [
        (sample[one] - sample[rest])[keep]
        for sample, one, rest, keep in zip(tokens.digits, best, others, kept, strict=True)
    ]
    if pairs is not data:
        products = np.concatenate([part * query for part, query in zip(rows, queries.digits, strict=True)])
        return Blocks((Whole(tokens.exponent + queries.exponent, products),), whole([[1.0]]))
    return Blocks(tuple(Whole(tokens.exponent, part) for part in rows), queries)


def prove_margin(data: Data, norm: Norm, weight: np.ndarray, dual: np.ndarray) -> Certificate:
    """Bounds on min ||W|| subject to margins >= 1 from any weight and any multipliers."""
    if norm.name not in ("l2", "l1", "linf", "nuclear"):
        raise Unproved(norm.name, "its norm has no exact form here")
    found = blocks(data)
    rows = np.asarray(weight, float).reshape(-1, found.right.digits.shape[1])
    content = {"norm": norm.name, **found.listed()}
    primal = digits = whole(rows).digits
    multipliers = np.maximum(np.asarray(dual, float), 0.0)[data.constrained()]
    if norm.name == "nuclear":
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


def balanced(data: Data, weights: np.ndarray) -> bool:
    """Whether nonnegative multipliers near these combine the features to exactly 0: by an enclosure of them, or by integers.

    An enclosure needs features that no small change of them separates; where they balance because some are copies of others, or because
    coordinates depend on each other, only their integers tell.
    """
    support = np.flatnonzero(weights > _NOISE * weights.max())
    rows = feature_rows(data, np.isin(np.arange(len(weights)), support))
    equations = np.vstack([rows[:, rows.any(axis=0)].T, np.ones(len(support))])
    if solvable_near(equations, np.append(np.zeros(len(equations) - 1), 1.0), weights[support], gamma(4)):
        return True
    gram = _gram(blocks(data), (np.cumsum(data.constrained()) - 1)[support])
    if len(gram) ** 2 * int(max(gram.diagonal())).bit_length() > _EFFORT:
        return False
    try:
        _null(gram, weights[support], _reduced)
    except Unproved:
        return False
    return True


def prove_inseparable(data: Data, weights: np.ndarray) -> Certificate:
    """From multipliers that combine the features to 0 up to rounding, some that do so exactly: no weight has positive margins."""
    found, shares = blocks(data), np.asarray(weights, float)[data.constrained()]
    support = np.flatnonzero(shares > _NOISE * shares.max())
    support = support[np.argsort(-shares[support], kind="stable")]
    multipliers = np.zeros(len(shares), object)
    multipliers[support] = _null(_gram(found, support), shares[support], _reduced_by_flint)
    content = {"norm": "none", **found.listed(), "primal": [0, []], "targets": [0, [1] * len(shares)]}
    return concluded({**content, "dual": [0, [part.tolist() for part in found.split(multipliers)]]})


def _gram(found: Blocks, support: np.ndarray) -> np.ndarray:
    """Integer inner products of the features of a support: their null vectors are those of the features."""
    owner = np.repeat(np.arange(len(found.left)), [len(rows.digits) for rows in found.left])[support]
    left = np.concatenate([rows.digits for rows in found.left])[support]
    right = found.right.digits[owner]
    return (left @ left.T) * (right @ right.T)


def _reduced_by_flint(gram: np.ndarray) -> tuple[np.ndarray, int]:
    """The reduced rows of an integer matrix, and the pivot that they share."""
    reduced, scale, rank = flint().fmpz_mat(gram.tolist()).rref()
    return np.array([[int(x) for x in row] for row in reduced.tolist()], object)[:rank], int(scale)


def _reduced(gram: np.ndarray) -> tuple[np.ndarray, int]:
    """The same by elimination without fractions (Bareiss): every division is exact."""
    rows, rank, last = gram.copy(), 0, 1
    for column in range(rows.shape[1]):
        below = np.flatnonzero(rows[rank:, column])
        if not len(below):
            continue
        rows[[rank, rank + below[0]]] = rows[[rank + below[0], rank]]
        pivot, chosen = rows[rank, column], rows[rank].copy()
        rows = (pivot * rows - rows[:, column : column + 1] * chosen) // last
        rows[rank], last, rank = chosen, pivot, rank + 1
    return rows[:rank], last


def _null(gram: np.ndarray, shares: np.ndarray, reduce: Reduction) -> np.ndarray:
    """A nonnegative integer null vector near the shares: the small shares as they are, the large ones solved for."""
    rows, scale = reduce(gram)
    rank = len(rows)
    pivots = np.array([int(np.flatnonzero(row != 0)[0]) for row in rows], int)
    free = np.setdiff1d(np.arange(len(shares)), pivots)
    kept: Whole = whole(shares[free]) if len(free) else Whole(0, np.zeros(0, object))
    found = np.zeros(len(shares), object)
    found[free] = kept.digits * scale
    found[pivots] = -(rows[:, free] @ kept.digits) if rank else 0
    found = found if scale > 0 else -found
    if not (len(free) and found.max() > 0 and found.min() >= 0):
        raise Unproved("inseparability", "no nonnegative combination of these features is exactly 0")
    return found // np.gcd.reduce(found)
