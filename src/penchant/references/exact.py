r"""Exact mode: what a solver found in floats, proved once more in rational arithmetic about the very floats that are stored.

Of an interpolant that is a rational weight which meets every equation exactly, and a dual point. A potential is proved as an entropy. That
of signed squares is one of twice as many nonnegative weights, $\theta = p - q$ with the levels $e^{\pm s}b$, because
$2b\cosh(s + v) = be^{s}e^{v} + be^{-s}e^{-v}$: the least sum of both entropies over p - q = theta is the potential.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import qr

from ..errors import INFEASIBLE, Unproved
from ..settings.potentials import AbstractPotential
from ..settings.regression import Regression
from .base import Call
from .exact_margin import Certificate, Whole, concluded, flint, plus, prove_inseparable, prove_margin, whole

_OF_POINTS = ("minimum_norm", "basis_pursuit", "potential_path")  # programs of interpolants
_ROUNDS = 4  # of refinement, sixteen digits each
_BITS = 160  # of an exponential, besides those that cancel
_ROOM = 28  # bits of an exponential that its bound loses: twice those of the largest logarithm, and rounding


def programs(calls: Iterable[Call]) -> Iterator[tuple[object, Callable[[], Certificate]]]:
    """What watched solvers found, each with the proof that can be asked for."""
    for call in calls:
        if call.solver != "potential_path" or call.refused:
            yield call.found, partial(_interpolant if call.solver in _OF_POINTS else _margin, call)
        elif call.arguments[0].name != "l2":  # that one is a `minimum_norm`, which is watched itself
            potential, factors = call.arguments
            for factor, one in zip(factors, call.found, strict=True):
                yield one, partial(prove_potential, call.data, one.weight, one.dual, potential.scaled(float(factor)))


def _margin(call: Call) -> Certificate:
    if call.refused:
        return prove_inseparable(call.data, call.found.weights)
    return prove_margin(call.data, call.found.measure, call.found.weight, call.found.dual)


def _interpolant(call: Call) -> Certificate:
    found, (given, *_) = call.found, (*call.arguments, None)
    if call.refused:
        raise Unproved("interpolating", "that no weight interpolates has no exact form here")
    if call.solver == "minimum_norm":
        start = call.options.get("start", given)
        start = None if start is None else np.asarray(start)
        return prove_interpolant(call.data, found.weight, found.dual, start, "l2")
    if found.norm == "weighted l1":
        raise Unproved(found.norm, "its norm has no exact form here")
    return prove_interpolant(call.data, found.weight, found.dual, None, "l1", found.norm == "nonnegative l1")


def proof_of(reference: object, calls: Iterable[Call]) -> Certificate:
    """The certificate of the reference that one of the calls found; of a contradiction, that of its weights."""
    for found, prove in programs(calls):
        if isinstance(reference, INFEASIBLE) and isinstance(found, INFEASIBLE):
            if np.array_equal(found.weights, reference.weights):
                return prove()
        elif getattr(found, "bracket", prove) is getattr(reference, "bracket", None):
            return prove()
    raise Unproved(str(getattr(reference, "norm", "wanted")), "no program of a kind that has one led to it")


def prove_interpolant(
    data: Regression,
    weight: np.ndarray,
    dual: np.ndarray,
    start: np.ndarray | None,
    norm: str,
    nonnegative: bool = False,
) -> Certificate:
    """Bounds on the least norm (l2, distance from `start`, or l1, perhaps of nonnegative weights) with X theta = y."""
    inputs, rows = _independent(np.asarray(data.inputs), data.rank)
    targets, theta = whole(np.asarray(data.fitted)[rows]), whole(weight)
    if start is not None:
        theta = plus(theta, whole(-start))
        targets = plus(targets, _image(inputs, whole(-start)))
    primal, over = _exact(inputs, targets, theta, np.ones(len(weight)) if norm == "l2" else np.abs(theta.floats()))
    content = {"norm": norm, "plus": int(nonnegative), "primal": [primal.exponent, primal.digits[:, None].tolist()]}
    return concluded({**content, "over": over, **_equations(inputs, targets, np.asarray(dual)[rows])})


def prove_potential(
    data: Regression, weight: np.ndarray, dual: np.ndarray, potential: AbstractPotential
) -> Certificate:
    """Bounds on the least entropy, plain (squares) or of two signs (signed squares), with X theta = y."""
    if potential.name not in ("KL", "Q_alpha"):
        raise Unproved(potential.name, "its potential has no exact form here")
    inputs, rows = _independent(np.asarray(data.inputs), data.rank)
    targets = whole(np.asarray(data.fitted)[rows])
    theta, over = _exact(inputs, targets, whole(weight), np.abs(weight))
    levels = whole(potential.levels)
    value = max(potential.value(weight), np.finfo(float).tiny)  # with fewer bits than the start it is counted from
    bits = _BITS + int(max(0.0, np.max(potential.levels) / np.log(2) + np.log2(len(weight)) - np.log2(value)))
    if (tilt := getattr(potential, "shift", None)) is not None:  # of signed squares
        shift = whole(tilt)
        theta = _both_signs(theta, over, potential.levels, bits)
        inputs = np.hstack([inputs, -inputs])
        up, down = plus(levels, shift), plus(levels, Whole(shift.exponent, -shift.digits))
        levels = Whole(up.exponent, np.concatenate([up.digits, down.digits]))
    content = {"norm": "entropy", "plus": 1, "bits": bits, "level": levels.listed(), "over": over}
    content |= {"slope": _slopes(theta, over, levels, bits), "primal": [theta.exponent, theta.digits[:, None].tolist()]}
    return concluded({**content, **_equations(inputs, targets, np.asarray(dual)[rows])})


def _equations(inputs: np.ndarray, targets: Whole, dual: np.ndarray) -> dict:
    matrix, lam = whole(inputs), whole(dual)
    return {
        "equal": 1,
        "left": [matrix.exponent, [matrix.digits.tolist()]],
        "right": [0, [[1]]],
        "dual": [lam.exponent, [lam.digits.tolist()]],
        "targets": targets.listed(),
    }


def _independent(inputs: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """As many rows as the rank says: the equations that the others follow from, up to rounding."""
    rows = np.sort(_pivots(inputs.T)[:rank]) if rank < len(inputs) else np.arange(len(inputs))
    return inputs[rows], rows


def _pivots(matrix: np.ndarray) -> np.ndarray:
    """The columns in the order in which they add most to those before."""
    return qr(matrix, mode="r", pivoting=True)[1]  # pyright: ignore


def _image(inputs: np.ndarray, theta: Whole) -> Whole:
    matrix = whole(inputs)
    return Whole(matrix.exponent + theta.exponent, matrix.digits @ theta.digits)


def _exact(inputs: np.ndarray, targets: Whole, theta: Whole, scale: np.ndarray) -> tuple[Whole, int]:
    """Integers over one denominator that solve the equations, close to `theta`; coordinates move in proportion to `scale`."""
    for _ in range(_ROUNDS):
        step = scale * np.linalg.lstsq(inputs * scale, _left(inputs, targets, theta).floats(), rcond=None)[0]
        theta = plus(theta, whole(step))
    left = _left(inputs, targets, theta)
    if not left.digits.any():
        return theta, 1
    basis = _pivots(inputs * scale)[: len(inputs)]
    exact, matrix = flint(), whole(inputs[:, basis])
    try:
        found = exact.fmpz_mat(matrix.digits.tolist()).solve(exact.fmpz_mat(left.digits[:, None].tolist()))
    except ZeroDivisionError:
        raise Unproved("interpolating", "its equations are dependent") from None
    digits, over = found.numer_denom()
    step = Whole(left.exponent - matrix.exponent, np.zeros(len(theta.digits), object))
    step.digits[basis] = [int(row[0]) for row in digits.tolist()]
    return plus(Whole(theta.exponent, theta.digits * int(over)), step), int(over)


def _left(inputs: np.ndarray, targets: Whole, theta: Whole) -> Whole:
    image = _image(inputs, theta)
    return plus(targets, Whole(image.exponent, -image.digits))


def _both_signs(theta: Whole, over: int, levels: np.ndarray, bits: int) -> Whole:
    """(p, q) with p - q = theta: the smaller of the two is b^2 over the larger, where p q = b^2."""
    exact, small = flint(), []
    exact.ctx.prec = 2 * bits
    for digit, level in zip(theta.digits, levels, strict=True):
        half = _ratio(exact, abs(digit), theta.exponent, 2 * over)
        square = (2 * exact.arb(float(level))).exp()
        small.append((square / (half + (half * half + square).sqrt())).mid())
    parts = _gathered(small, over, theta.exponent)
    theta = Whole(parts.exponent, theta.at(parts.exponent))
    larger = parts.digits + np.abs(theta.digits)
    up, positive = (larger, parts.digits), theta.digits > 0
    return Whole(parts.exponent, np.concatenate([np.where(positive, *up), np.where(positive, *up[::-1])]))


def _ratio(exact: ModuleType, digit: int, exponent: int, over: int) -> Any:
    return exact.arb(digit) * exact.arb(2) ** exponent / over


def _gathered(values: list, over: int, exponent: int) -> Whole:
    """Balls times a denominator, as integers in units of a power of two no larger than 2^exponent."""
    pairs = [(value * over).mid().man_exp() for value in values]
    least = min([exponent, *(int(power) for digits, power in pairs if digits)])
    return Whole(least, np.array([int(digits) << (int(power) - least) for digits, power in pairs], object))


def _slopes(theta: Whole, over: int, levels: Whole, bits: int) -> list:
    """Numbers above log(weight) - level; any will do for a weight of 0."""
    exact, found = flint(), []
    exact.ctx.prec = 2 * bits
    for digit, level in zip(theta.digits, levels.digits, strict=True):
        ratio = _ratio(exact, digit, theta.exponent, over)
        start = exact.arb(level) * exact.arb(2) ** levels.exponent
        above = ratio.log() - start + exact.arb(2) ** (_ROOM - bits) if digit else exact.arb(0)
        found.append(int((above * exact.arb(2) ** bits).ceil().upper().unique_fmpz()))
    return [-bits, found]
