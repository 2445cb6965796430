"""The front door: what is public checks the kinds of its arguments before it starts, so that a wrong one is named.

The kind of an argument is its annotation, and what its name promises (`_PROMISED`): a seed is not negative, a weight is made of
real numbers. Ranges, shapes and what two arguments owe each other stay with the function, which knows why.
"""

import inspect
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import AbstractArray, Array, PyTree
from numpy.typing import ArrayLike

from .errors import ArgumentError, kind

_LARGEST = 2**62  # so that the sum of two integers still fits
_ANYTHING = (Any, object, inspect.Parameter.empty, PyTree)


class Promise(NamedTuple):
    """What is required, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _of(kind: type | types.UnionType, but: type | types.UnionType | tuple = ()) -> Callable[[object], bool]:
    """Whether a value is of a kind, and not of one that counts as that too."""
    return lambda value: isinstance(value, kind) and not isinstance(value, but)


def _letter(value: object) -> str:
    """The kind of numbers in an array, a tracer or nested lists, by NumPy's letter; '-' where there are none."""
    found = getattr(getattr(value, "dtype", None), "kind", None)
    try:
        return found or np.asarray(value).dtype.kind
    except Exception:  # ragged rows, or an object that refuses to be an array
        return "-"


def _found(value: object) -> str:
    """What was given instead: of an array or a list also the type of its numbers and its shape, where it has them."""
    with suppress(Exception):  # as above
        if hasattr(value, "dtype") or _listed(value):
            array = np.asarray(value)
            return f"{kind(value)} of dtype {array.dtype} and shape {array.shape}"
    return kind(value)


def _real(value: object) -> bool:
    return _array(value) and _letter(value) in "biuf"


def _number(value: Any) -> bool:
    return _plain_real(value) or (_real(value) and np.ndim(value) == 0 and type(value) is not bool)


def _integer(value: Any, low: int = -_LARGEST, high: int = _LARGEST) -> bool:
    whole = _plain_integer(value) or (_letter(value) in "iu" and np.ndim(value) == 0)
    return whole and low <= np.asarray(value).item() < high


def _shaped(value: Any, rank: int) -> bool:
    return _real(value) and np.ndim(value) == rank


def _has(words: str, *parts: str) -> Promise:
    return Promise(words, lambda value: _object(value) and all(hasattr(value, part) for part in parts))


def _is(name: str) -> Promise:
    """By the name of a class, which the door need not import."""
    return Promise(f"of kind {name}", lambda value: any(one.__name__ == name for one in type(value).__mro__))


def _either(*promises: Promise) -> Promise:
    words = " or ".join(one.words for one in promises)
    return Promise(words, lambda value: any(one.holds(value) for one in promises))


def _each(words: str, each: Promise, least: int = 0) -> Promise:
    """A sequence of things that keep a promise."""
    return Promise(words, lambda value: _listed(value) and len(value) >= least and all(map(each.holds, value)))


_class, _object, _array = _of(type), _of(object, type), _of(object, type | np.ma.MaskedArray)
_plain_real, _plain_integer = _of(numbers.Real, bool), _of(numbers.Integral, bool)
_listed = _of(Sequence | np.ndarray, str | bytes)
REAL = Promise("made of real numbers", _real)
LISTED = Promise("numbers", lambda value: _array(value) and _letter(value) in "iuf")
VECTOR = Promise("a vector of real numbers", lambda value: _shaped(value, 1))
MATRIX = Promise("a matrix of real numbers", lambda value: _shaped(value, 2))
MATRICES = _each("a sequence of matrices of real numbers", MATRIX, 1)
PAIR = Promise("a pair of real numbers", lambda value: np.shape(value) == (2,) and _real(value))
NUMBER = Promise("a real number", _number)
FINITE = Promise("a finite number", lambda value: _number(value) and math.isfinite(value))
INTEGER = Promise("an integer below 2^62", _integer)
COUNT = Promise("an integer between 1 and 2^31", lambda value: _integer(value, 1, 2**31))
SHARE = Promise("a number between 0 and 1", lambda value: _number(value) and 0 < value < 1)
SEED = Promise("an integer in [0, 2^62)", lambda value: _integer(value, 0))
TEXT = Promise("a text", _of(str))
DATA = _has("data, such as a Classification", "gram", "weight_shape")
_BLOCK = Promise(
    "", lambda pair: _listed(pair) and len(pair) == 2 and hasattr(pair[0], "dual") and COUNT.holds(pair[1])
)
BLOCKS = _each("pairs of a norm and a number of columns", _BLOCK, 1)
_ARRAY = Promise("an array of real numbers", lambda value: hasattr(value, "dtype") and _real(value))
_PLAIN = {int: INTEGER, float: NUMBER, np.ndarray: _ARRAY, Array: REAL, ArrayLike: REAL}
_PLAIN[bool] = Promise("True or False", _of(bool | np.bool_))

_PROMISED = (  # what the names of arguments promise, or of their owners and their own
    (SEED, "seed"),
    (COUNT, "n d m count batches chains"),
    (REAL, "primal dual weight weights offsets hessian noise inputs targets whitened scales"),
    (REAL, "origin shares sample_noise.start minimum_norm.start misalignment.reference Levels.values"),
    (REAL, "label_noise.start moment_descent.start regularised_descent.start"),
    (REAL, "polyak.gap Adam.step Adam.eps"),
    (NUMBER, "deviation"),
    (FINITE, "sample_covariance.step"),
    (SHARE, "nuclear_margin.gap norm_margin.gap"),
    (VECTOR, "log_factors lengths query_lengths traces"),
    (PAIR, "contrary_pair.gaps contrary_pair.others"),
    (MATRIX, "context_sums.inputs context_sums.targets context_sums.value context_sums.key_query"),
    (MATRICES, "alignment_floor.layers alignment_floor.start alignment_limits.start alignment_limits.end"),
    (MATRICES, "imbalance_constant.layers ensure_assumption2.params network_constants.start"),
    (Promise("real, with a leading axis", lambda value: _real(value) and np.ndim(value) > 1), "decompose.params"),
    (Promise("a number or an array", lambda value: _number(value) or _ARRAY.holds(value)), "radius"),
    (_either(NUMBER, TEXT, _is("AttentionStep")), "PreconditionedDescent.step"),
    (_has("a run, as training returns it", "status", "header"), "run"),
    (_either(_has("a recorder, such as Every(1)", "schedule"), _is("Levels")), "recorder"),
    (_has("a norm, such as L1()", "name", "value"), "bracket.norm"),
    (_has("a reference, as max_margin returns it", "weight"), "misalignments.reference"),
    (_is("Prediction"), "prediction"),
    (_either(_is("Prediction"), Promise("None", _of(types.NoneType))), "Case.prediction"),
    (_is("AbstractPotential"), "potential"),
    (_is("Classification"), "support_geometry.data"),
    (_is("Regression"), "l1_uniqueness.data strict_dual.data decompose.data interpolation_bracket.data"),
    (_has("data such as Classification(inputs, labels)", "check_loss"), "Setting.data"),
    (_has("one such as Direct()", "zeros"), "Setting.parametrisation"),
    (DATA, "Gram.data finite_margin.data offset_margin.data critical_length.data stability_number.data"),
)
PROMISES = {name: promise for promise, names in _PROMISED for name in names.split()}


@cache
def _promise(hint: Any) -> Promise | None:
    """What an annotation requires; None where it requires nothing that can be checked here."""
    if type(hint) is typing.TypeVar:
        hint = hint.__bound__ or typing.Union[hint.__constraints__]  # noqa: UP007
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        found = [_promise(part) for part in parts]
        return None if None in found else _either(*filter(None, found))
    if not _class(origin) or origin in _ANYTHING:
        return None
    if issubclass(origin, AbstractArray):
        return REAL
    if origin is Callable:
        return Promise("a function", lambda value: callable(value) and _object(value))
    if issubclass(origin, Sequence) and origin is not str:
        each = _promise(parts[0]) if parts and parts[1:] in ((), (...,)) else None
        return _each(f"a sequence, each of it {each.words}", each) if each else Promise("a sequence", _listed)
    name = {types.NoneType: "None", str: "a text", Path: "a path"}.get(origin, f"of kind {origin.__name__}")
    return Promise(name, _of(origin, () if origin is type else type))


def _admit(name: str, value: Any, owner: str, declared: inspect.Parameter) -> object:
    """The value, if it keeps the promises of its argument, as what is declared: a list for a tuple and an integer for a float will do."""
    if value is declared.default or declared.kind is inspect.Parameter.VAR_KEYWORD:
        return value
    for promise in (PROMISES.get(f"{owner}.{name}", PROMISES.get(name)), _promise(declared.annotation)):
        if promise is not None and not promise.holds(value):
            raise ArgumentError(name, owner, promise.words, _found(value))
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
        wanted, found = "left out: there is none of that name", str(error).removeprefix("got ")
        wanted, found = ("given", "nothing") if missing else (wanted, found)
        raise ArgumentError(named_one[1] if named_one else "last", owner, wanted, found, call) from None


def _written(declared: inspect.Parameter) -> str:
    return str(declared.replace(annotation=inspect.Parameter.empty))


def _signature(thing: Callable) -> inspect.Signature:
    """With annotations that are written as text read, where all their names are there at run time."""
    try:
        return inspect.signature(thing, eval_str=True)
    except NameError:
        return inspect.signature(thing)


def guard(thing: Any) -> Any:
    """A public function behind the door; a class keeps its identity, and its instances are made behind the door."""
    if inspect.isfunction(thing):
        return _guarded(thing, thing.__name__, _signature(thing), 0)
    if _class(thing) and hasattr(thing, "__dataclass_fields__"):
        thing.__init__ = _guarded(thing.__init__, thing.__name__, _signature(thing), 1)
    return thing


def _guarded(function: Callable, owner: str, signature: inspect.Signature, skipped: int) -> Callable:
    @wraps(function)
    def enter(*values: object, **named: object) -> object:
        bound = _bind(signature, owner, values[skipped:], named)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _admit(name, value, owner, signature.parameters[name])
        return function(*values[:skipped], *bound.args, **bound.kwargs)

    return enter
