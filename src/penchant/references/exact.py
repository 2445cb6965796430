"""Exact mode: what a solver found in floats, proved once more in rational arithmetic about the very floats that are stored."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..errors import InfeasibleError, Unproved
from .exact_inseparable import prove_inseparable
from .exact_interpolation import prove_interpolant, prove_potential
from .exact_margin import prove_margin
from .exact_numbers import Certificate
from .watched import Call

_INTERPOLATION = ("minimum_norm", "basis_pursuit", "potential_path")


def programs(calls: Iterable[Call]) -> Iterator[tuple[Any, Callable[[], Certificate]]]:
    """What watched solvers found, each with the proof that can be asked for.

    >>> import penchant as pt
    >>> from penchant.check import check
    >>> from penchant.references.watched import watching
    >>> with watching() as calls:
    ...     found = pt.references.max_margin(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]))
    >>> print(check(next(prove for _, prove in programs(calls))().text))                          # the optimum is sqrt(5)/2
    1.118033988749894... <= min l2(W), <Z_k, W> >= y_k, <= 1.118033988749895
    """
    for call in calls:
        if call.solver == "potential_path" and isinstance(call.found, list):
            yield from _potentials(call.data, *call.arguments, found=call.found)
        else:
            yield call.found, partial(_interpolant if call.solver in _INTERPOLATION else _margin, call)


def _potentials(
    data: Any, potential: Any, factors: Any, found: list
) -> Iterator[tuple[Any, Callable[[], Certificate]]]:
    if potential.name != "l2":  # that one is a `minimum_norm`, which is watched itself
        for factor, one in zip(factors, found, strict=True):
            yield one, partial(prove_potential, data, one.weight, one.dual, potential.scaled(float(factor)))


def _margin(call: Call) -> Certificate:
    found = call.found
    if isinstance(found, InfeasibleError):
        return prove_inseparable(call.data, found.weights)
    return prove_margin(call.data, found.measure, found.weight, found.dual)


def _interpolant(call: Call) -> Certificate:
    found, (given, *_) = call.found, (*call.arguments, None)
    if isinstance(found, InfeasibleError):
        raise Unproved("interpolating", "that no weight interpolates has no exact form here")
    if call.solver == "minimum_norm":
        start = call.options.get("start", given)
        return prove_interpolant(
            call.data, found.weight, found.dual, None if start is None else np.asarray(start), "l2"
        )
    if found.norm == "weighted l1":
        raise Unproved(found.norm, "its norm has no exact form here")
    return prove_interpolant(call.data, found.weight, found.dual, None, "l1", found.norm == "nonnegative l1")


def proof_of(reference: Any, calls: Iterable[Call]) -> Certificate:
    """The certificate of the reference that one of the calls found; of an `InfeasibleError`, that of its weights."""
    for found, prove in programs(calls):
        if isinstance(reference, InfeasibleError) and isinstance(found, InfeasibleError):
            if np.array_equal(found.weights, reference.weights):
                return prove()
        elif getattr(found, "bracket", prove) is getattr(reference, "bracket", None):
            return prove()
    raise Unproved(str(getattr(reference, "norm", "wanted")), "no program of a kind that has one led to it")
