"""Floats as integers times powers of two, and certificates made of them: `certificate.json`, which `penchant check` proves."""

import json
import math
import sys
from fractions import Fraction
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..check import FORMAT, prove, seal
from ..errors import MissingExtra, Unproved


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
