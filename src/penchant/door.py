"""The front door: what is public checks the kinds of its arguments before it starts, so that a wrong one is named.

The kind of an argument is its annotation, and what its name promises (`PROMISES`): a seed is not negative, a weight is made of
real numbers. Ranges, shapes and what two arguments owe each other stay with the function, which knows why.
"""

import inspect
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import AbstractArray, Array, PyTree

from .errors import ArgumentError, kind

_LARGEST = 2**62  # so that the sum of two integers still fits
_ANYTHING = (Any, object, inspect.Parameter.empty, PyTree)


class Promise(NamedTuple):
    """What is required, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _letter(value: Any) -> str:
    """The kind of numbers in an array, a tracer or nested lists, by NumPy's letter; '-' where there are none."""
    found = getattr(getattr(value, "dtype", None), "kind", None)
    try:
        return found or np.asarray(value).dtype.kind
    except Exception:  # ragged rows, or an object that refuses to be an array
        return "-"


def _real(value: Any) -> bool:
    return not isinstance(value, type | np.ma.MaskedArray) and _letter(value) in "biuf"


def _number(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, numbers.Real) or (_real(value) and np.ndim(value) == 0))


def _integer(value: Any, low: int = -_LARGEST, high: int = _LARGEST) -> bool:
    whole = isinstance(value, numbers.Integral) or (_letter(value) in "iu" and np.ndim(value) == 0)
    return whole and not isinstance(value, bool) and low <= int(value) < high


def _shaped(value: Any, rank: int) -> bool:
    return _real(value) and np.ndim(value) == rank


def _has(words: str, *parts: str) -> Promise:
    return Promise(words, lambda value: not isinstance(value, type) and all(hasattr(value, part) for part in parts))


def _is(name: str) -> Promise:
    """By the name of a class, which the door need not import."""
    return Promise(f"of kind {name}", lambda value: any(one.__name__ == name for one in type(value).__mro__))


def _matrices(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) > 0 and all(_shaped(one, 2) for one in value)


def _either(*promises: Promise) -> Promise:
    words = " or ".join(one.words for one in promises)
    return Promise(words, lambda value: any(one.holds(value) for one in promises))


REAL = Promise("made of real numbers", _real)
VECTOR = Promise("a vector of real numbers", lambda value: _shaped(value, 1))
MATRIX = Promise("a matrix of real numbers", lambda value: _shaped(value, 2))
MATRICES = Promise("a sequence of matrices of real numbers", _matrices)
PAIR = Promise("a pair of real numbers", lambda value: _shaped(value, 1) and len(value) == 2)
NUMBER = Promise("a real number", _number)
FINITE = Promise("a finite number", lambda value: _number(value) and math.isfinite(value))
INTEGER = Promise("an integer below 2^62", _integer)
COUNT = Promise("an integer between 1 and 2^31", lambda value: _integer(value, 1, 2**31))
SEED = Promise("an integer in [0, 2^62)", lambda value: _integer(value, 0))
TEXT = Promise("a text", lambda value: isinstance(value, str))
DATA = _has("data, such as a Classification", "gram", "weight_shape")
_PLAIN = {
    bool: Promise("True or False", lambda value: isinstance(value, bool | np.bool_)),
    int: INTEGER,
    float: NUMBER,
    np.ndarray: Promise("an array of real numbers", lambda value: hasattr(value, "dtype") and _real(value)),
    Array: REAL,
}

# What the name of an argument promises, or that of its owner and its own.
PROMISES = {
    "seed": SEED,
    "run": _has("a run, as training returns it", "status", "header"),
    "prediction": _is("Prediction"),
    "advise.trial_steps": Promise("an integer in [0, 2^31)", lambda value: _integer(value, 0, 2**31)),
    "Oracle.count": NUMBER,
    "recorder": _either(_has("a recorder, such as Every(1)", "schedule"), _is("Levels")),
    "potential": _is("AbstractPotential"),
    **dict.fromkeys(("n", "d", "m", "count", "batches", "chains"), COUNT),
    **dict.fromkeys(
        ("primal", "dual", "weight", "weights", "offsets", "penalties", "hessian", "noise", "jacobian"), REAL
    ),
    **dict.fromkeys(("gradient", "inputs", "targets", "whitened", "scales", "origin", "shares"), REAL),
    **dict.fromkeys(("log_factors", "lengths", "query_lengths", "traces"), VECTOR),
    **dict.fromkeys((f"{one}.start" for one in ("label_noise", "moment_descent", "regularised_descent")), REAL),
    **dict.fromkeys(("sample_noise.start", "minimum_norm.start", "RiccatiFlow.start", "misalignment.reference"), REAL),
    **dict.fromkeys(("label_noise_hypotheses.params", "polyak.gap", "Adam.step", "Adam.eps"), REAL),
    **dict.fromkeys((f"{one}.step" for one in ("LayerAdam", "LayerShampoo", "PlainDescent")), NUMBER),
    **dict.fromkeys(("trace_regulariser.step", "determinant_regulariser.step", "deviation"), NUMBER),
    **dict.fromkeys(("trace_regulariser.hessian", "determinant_regulariser.hessian"), MATRIX),
    **dict.fromkeys((f"context_sums.{one}" for one in ("inputs", "targets", "value", "key_query")), MATRIX),
    **dict.fromkeys(("contrary_pair.gaps", "contrary_pair.others", "context_sums.blocks"), PAIR),
    **dict.fromkeys(("alignment_floor.layers", "alignment_floor.start", "alignment_limits.start"), MATRICES),
    **dict.fromkeys(("alignment_limits.end", "imbalance_constant.layers", "ensure_assumption2.params"), MATRICES),
    "network_constants.start": MATRICES,
    "decompose.params": Promise("real, with a leading axis", lambda value: _real(value) and np.ndim(value) > 1),
    "radius": Promise(
        "a number or an array", lambda value: _number(value) or (hasattr(value, "dtype") and _real(value))
    ),
    "sample_covariance.step": FINITE,
    "PreconditionedDescent.step": _either(NUMBER, TEXT, _is("AbstractAttentionStep")),
    "Levels.values": REAL,
    "bracket.norm": _has("a norm, such as L1()", "name", "value"),
    "misalignments.reference": _has("a reference, as max_margin returns it", "weight"),
    "support_geometry.data": _is("Classification"),
    **dict.fromkeys((f"{one}.data" for one in ("Gram", "finite_margin", "offset_margin")), DATA),
    **dict.fromkeys((f"{one}.data" for one in ("critical_length", "stability_number")), DATA),
    **dict.fromkeys((f"{one}.data" for one in ("l1_uniqueness", "strict_dual", "decompose")), _is("Regression")),
    "interpolation_bracket.data": _is("Regression"),
}


def _sequence(each: Promise | None) -> Promise:
    words = "a sequence" if each is None else f"a sequence, each of it {each.words}"
    listed = lambda value: isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    return Promise(words, lambda value: listed(value) and (each is None or all(each.holds(one) for one in value)))


@cache
def _promise(hint: Any) -> Promise | None:
    """What an annotation requires; None where it requires nothing that can be checked here."""
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        found = [_promise(part) for part in parts]
        return None if None in found else _either(*filter(None, found))
    if hint in _PLAIN or origin in _ANYTHING or not isinstance(origin, type):
        return _PLAIN.get(hint)
    if issubclass(origin, AbstractArray):
        return REAL
    if origin is Callable:
        return Promise("a function", lambda value: callable(value) and not isinstance(value, type))
    if issubclass(origin, Sequence) and origin is not str:
        return _sequence(_promise(parts[0]) if parts and parts[1:] in ((), (...,)) else None)
    name = {types.NoneType: "None", str: "a text", Path: "a path"}.get(origin, f"of kind {origin.__name__}")
    return Promise(name, lambda value: isinstance(value, origin))


def _admit(name: str, value: Any, owner: str, declared: inspect.Parameter) -> Any:
    """The value, if it keeps the promises of its argument, as what is declared: a list for a tuple and an integer for a float will do."""
    if value is declared.default or declared.kind is inspect.Parameter.VAR_KEYWORD:
        return value
    for promise in (_promise(declared.annotation), PROMISES.get(f"{owner}.{name}", PROMISES.get(name))):
        if promise is not None and not promise.holds(value):
            raise ArgumentError(name, owner, promise.words, kind(value))
    parts = typing.get_args(declared.annotation) or (declared.annotation,)
    if typing.get_origin(declared.annotation) is tuple:
        return tuple(value)
    wide = float in parts and int not in parts
    return float(value) if type(value) is int and (wide or abs(value) >= _LARGEST) else value


def _bind(signature: inspect.Signature, owner: str, values: tuple, named: dict) -> inspect.BoundArguments:
    try:
        return signature.bind(*values, **named)
    except TypeError as error:
        named_one, missing = re.search(r"'(\w+)'", str(error)), "missing" in str(error)
        call = f"{owner}({', '.join(_written(one) for one in signature.parameters.values())})"
        wanted, found = (
            ("given", "nothing")
            if missing
            else ("left out: there is none of that name", str(error).removeprefix("got "))
        )
        raise ArgumentError(named_one[1] if named_one else "last", owner, wanted, found, call) from None


def _written(declared: inspect.Parameter) -> str:
    return str(declared.replace(annotation=inspect.Parameter.empty))


def guard(thing: Any) -> Any:
    """A public function behind the door; a class keeps its identity, and its instances are made behind the door."""
    if inspect.isfunction(thing):
        return _guarded(thing, thing.__name__, inspect.signature(thing), 0)
    if isinstance(thing, type) and hasattr(thing, "__dataclass_fields__"):
        thing.__init__ = _guarded(thing.__init__, thing.__name__, inspect.signature(thing), 1)
    return thing


def _guarded(function: Callable, owner: str, signature: inspect.Signature, skipped: int) -> Callable:
    @wraps(function)
    def enter(*values: Any, **named: Any) -> Any:
        bound = _bind(signature, owner, values[skipped:], named)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _admit(name, value, owner, signature.parameters[name])
        return function(*values[:skipped], *bound.args, **bound.kwargs)

    return enter
