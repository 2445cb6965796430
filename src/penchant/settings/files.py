"""The user's own data: arrays from a file, and the setting they make. Nothing is ever unpickled."""

import csv
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..errors import ArgumentError, DataFileError
from ..files import load_npz
from .base import Data, Setting
from .check import real_array
from .classification import Classification, Multiclass, add_bias, is_single
from .deep_linear import DeepLinear, balanced, named_start, unit_ball
from .factored import DiagonalTokens, Factors, Hadamard, KeyQuery, Pair, check_moving
from .losses import AbstractLoss, Correlation, CrossEntropy, Exponential, Logistic, Squared
from .next_token import InsideOutside, NextToken
from .parametrisations import Direct, Gram, SignedPowers, SignedSquares, Squares
from .regression import Regression
from .tokens import TokenSelection

T = TypeVar("T")
Arrays = dict[str, Any]  # by name; "made" are data that need no arrays
LOSSES = {"exponential": Exponential, "logistic": Logistic, "cross-entropy": CrossEntropy, "correlation": Correlation}

_MISSING = ("", "na", "n/a", "none", "null", "?", "-")  # cells that name no column


def default_loss(kind: str) -> str:
    return "cross-entropy" if kind in ("multiclass", "next-token") else "exponential"


class Request(eqx.Module):
    """What a command asks of a setting besides the data.

    `start` is None for zeros, or the parameters by name; `coordinatewise` says that the optimiser needs the coordinates of
    the weight itself; `options` holds what only some settings understand.
    """

    loss: AbstractLoss = Exponential()
    reduction: str = "mean"
    start: dict | None = None
    coordinatewise: bool = False
    options: dict = eqx.field(default_factory=dict)


def _direct(data: Data, request: Request) -> tuple[Setting, PyTree]:
    """Direct weights, in Gram form where that is smaller and the optimiser allows it."""
    origin = None if request.start is None else np.asarray(_named(request.start, "W", data.weight_shape))
    pairs = len(data.constrained())
    if request.coordinatewise or pairs >= np.prod(data.weight_shape) or pairs > 3000:
        setting = Setting(data, Direct(), request.loss, request.reduction)
        return setting, setting.start() if origin is None else jax.device_put(origin)
    setting = Setting(data, Gram(data, origin), request.loss, request.reduction)
    return setting, setting.start()


def _named(start: dict, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name not in start:
        raise ArgumentError("start", "train", f"a file with the array '{name}'", f"the arrays {sorted(start)}")
    if np.shape(start[name]) != shape:
        raise ArgumentError("start", "train", f"an array '{name}' of shape {shape}", f"shape {np.shape(start[name])}")
    if start[name].dtype.kind not in "biuf":
        raise ArgumentError("start", "train", f"an array '{name}' of real numbers", f"dtype {start[name].dtype}")
    return np.asarray(start[name], float)


def _need(arrays: Arrays, names: tuple[str, ...], kind: str) -> list[np.ndarray]:
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataFileError(
            f"The setting '{kind}' needs the arrays {', '.join(names)}, but {', '.join(missing)} is missing. Found: {', '.join(sorted(arrays)) or 'none'}."
        )
    return [arrays[name] for name in names]


def _made(arrays: Arrays, kind: type[T]) -> T | None:
    """Data of this kind that need no arrays."""
    return found if isinstance(found := arrays.get("made"), kind) else None


def _inputs(arrays: Arrays, labels: str, request: Request, kind: str) -> tuple[np.ndarray, np.ndarray, bool, float]:
    """Inputs with a bias or divided by the largest, where asked for, their labels, whether they came in float32, and the divisor."""
    inputs, found = _need(arrays, ("inputs", labels), kind)
    single, divisor = is_single(inputs), 1.0
    inputs = add_bias(inputs) if request.options.get("bias") else inputs
    if request.options.get("normalise"):
        inputs, divisor = unit_ball(inputs)
    return inputs, found, single, divisor


def _multiclass(arrays: Arrays, request: Request) -> Multiclass:
    if made := _made(arrays, Multiclass):
        return made
    inputs, labels, single, _ = _inputs(arrays, "labels", request, "multiclass")
    return Multiclass(inputs.astype(np.float32) if single else inputs, labels)


def _next_token(arrays: Arrays, request: Request) -> tuple[Setting, PyTree]:
    """Rows of `counts` of what follows an input, or of `targets`, their frequencies; a sample weighs as much as its counts, or as `weights` says."""
    given = "targets" if "targets" in arrays and "counts" not in arrays else "counts"
    inputs, counts, *_ = _inputs(arrays, given, request, "next-token")
    counts = real_array(counts, given, "next-token", "(n, k)", 2)
    totals = counts.sum(axis=1)
    if counts.min() < 0 or not totals.all():
        worst = int(totals.argmin() if counts.min() >= 0 else counts.min(axis=1).argmin())
        raise ArgumentError(given, "next-token", "nonnegative, with a positive sum in every row", f"row {worst}")
    weights = np.asarray(arrays.get("weights", totals / totals.sum()), float)
    targets = counts / totals[:, None] if given == "counts" else counts  # frequencies must sum to 1 as they are
    setting = Setting(NextToken(inputs, weights, targets), InsideOutside(), request.loss)
    if request.start is None:
        return setting, setting.start()
    start = _named(request.start, "W", setting.data.weight_shape)
    return setting, InsideOutside().from_weight(jax.device_put(start), setting.data)


def _classification(arrays: Arrays, request: Request) -> Classification:
    if made := _made(arrays, Classification):
        return made
    inputs, labels, single, divisor = _inputs(arrays, "labels", request, "linear")
    return Classification(inputs, labels, divisor, single)


def _deep_linear(data: Classification, request: Request) -> tuple[Setting, PyTree]:
    """A deep linear network. Zero layers are a critical point, so without a start the layers are those that `init` names, normal by
    default, with a risk of at most that of zero; a start 'W' is split into balanced layers, and 'W1', 'W2', ... are taken as they are."""
    network = DeepLinear(request.options.get("widths") or (8, 8))
    _check_fits(sum(math.prod(shape) for shape in network.shapes(data)))
    setting = Setting(data, network, request.loss, request.reduction)
    seed = int(request.options.get("seed", 0))
    if request.start is None:
        return setting, named_start(
            setting, request.options.get("init") or "normal", seed, request.options.get("scale")
        )
    if "W" in request.start:
        return setting, balanced(setting, seed, _named(request.start, "W", data.weight_shape))
    shapes = setting.parametrisation.shapes(data)
    layers = [_named(request.start, f"W{k}", shape) for k, shape in enumerate(shapes, 1)]
    return setting, setting.parametrisation.check(layers, data)


def _check_fits(numbers: int) -> None:
    """Widths whose parameters, drawn, with a gradient and a step, exceed the memory of the machine would end the process without a word."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf
    if 4 * 8 * numbers > there:
        found = f"{8 * numbers / 1e9:.3g} GB of parameters in four copies, and the machine has {there / 1e9:.3g} GB"
        raise ArgumentError("--widths", "penchant", "small enough for the memory", found)


def _tokens(arrays: Arrays, request: Request) -> TokenSelection:
    if made := _made(arrays, TokenSelection):
        return made
    optional: dict[str, Any] = {name: arrays.get(name) for name in ("queries", "mask")}
    optional["ties"] = request.options.get("ties", "raise")
    if "scores" in arrays:
        (tokens,) = _need(arrays, ("tokens",), "attention")
        return TokenSelection(tokens, scores=arrays["scores"], **optional)
    return TokenSelection(*_need(arrays, ("tokens", "labels", "head"), "attention"), **optional)


def _key_query(arrays: Arrays, request: Request) -> tuple[Setting, PyTree]:
    """Keys and queries; zeros are a stationary point, so the start is small and random unless a file gives K and Q."""
    widths = request.options.get("widths")
    if widths is not None and len(widths) != 1:
        raise ArgumentError("--widths", "penchant with attention-kq", "one number, the columns of K and Q", widths)
    width = widths[0] if widths else None
    if request.start is not None and width is None and np.ndim(request.start.get("K", 0.0)) == 2:
        width = int(np.shape(request.start["K"])[1])
    data = _tokens(arrays, request)
    _check_fits((width or 0) * sum(data.weight_shape))
    setting = Setting(data, KeyQuery(width), request.loss, request.reduction)
    if request.start is None:
        return setting, setting.start(request.options.get("seed", 0), request.options.get("scale", 1e-3))
    shape = lambda leaf: tuple(leaf.shape)
    zero = setting.start()
    key, query = _named(request.start, "K", shape(zero.key)), _named(request.start, "Q", shape(zero.query))
    _check_left(key, query, "K or Q")
    return setting, Factors(*jax.device_put((key, query)))


def _check_left(first: np.ndarray, second: np.ndarray, names: str) -> None:
    """Two factors of zeros are a stationary point: a start that someone wrote to a file was meant to be left."""
    if not (first.any() or second.any()):
        fix = "give one of the two small values, or leave --start out"
        raise ArgumentError("start", "train", f"non-zero in {names}: nothing ever moves from 0", "only zeros", fix)


def _diagonal(arrays: Arrays, request: Request) -> tuple[Setting, PyTree]:
    """Diagonal keys and queries from equation (5) of the paper, unless a file gives the diagonals a and b."""
    data = DiagonalTokens(_tokens(arrays, request))
    setting = Setting(data, Hadamard(), request.loss, request.reduction)
    if request.start is None:
        rng = np.random.default_rng(request.options.get("seed", 0))
        return setting, Hadamard().one_sided(data, request.options.get("scale", 1e-3), rng)
    first, second = (_named(request.start, name, data.weight_shape) for name in ("a", "b"))
    _check_left(first, second, "a or b")
    start = Pair(*jax.device_put((first, second)))
    check_moving(start)
    return setting, start


def _regression(arrays: Arrays, request: Request, kind: str) -> tuple[Setting, PyTree]:
    """Squared loss on targets (or labels), with the parametrisation that `kind` names; `--loss` does not apply."""
    named = {"targets": arrays.get("targets", arrays.get("labels")), **arrays}
    found = {name: array for name, array in named.items() if array is not None}
    data = _made(arrays, Regression) or Regression(*_need(found, ("inputs", "targets"), kind))
    alpha = request.options.get("alpha")
    if kind == "regression":
        setting = Setting(data, Direct(), Squared(), request.reduction)
        return setting, setting.start() if request.start is None else _named(request.start, "W", data.weight_shape)
    depth = request.options.get("depth")
    powers = lambda alpha: SignedPowers(alpha, 3 if depth is None else depth)
    forms = {"signed-squares": SignedSquares, "squares": Squares, "signed-powers": powers}
    parametrisation = forms[kind](0.01 if alpha is None else alpha)
    setting = Setting(data, parametrisation, Squared(), request.reduction)
    if request.start is None:
        return setting, setting.start()
    names = tuple(parametrisation.named(setting.start(), data))
    start = np.stack([_named(request.start, name, data.weight_shape) for name in names])
    return setting, start if len(names) > 1 else start[0]


KINDS: dict[str, Callable[[Arrays, Request], tuple[Setting, PyTree]]] = {
    "linear": lambda arrays, request: _direct(_classification(arrays, request), request),
    "multiclass": lambda arrays, request: _direct(_multiclass(arrays, request), request),
    "next-token": _next_token,
    "attention": lambda arrays, request: _direct(_tokens(arrays, request), request),
    "attention-kq": _key_query,
    "attention-diagonal": _diagonal,
    "deep-linear": lambda arrays, request: _deep_linear(_classification(arrays, request), request),
    **{kind: partial(_regression, kind=kind) for kind in ("regression", "signed-squares", "signed-powers", "squares")},
}


def setting_of(name: str, arrays: Arrays, request: Request) -> tuple[Setting, PyTree]:
    """The named setting on these arrays, and its start."""
    if name not in KINDS:
        known = ", ".join((*KINDS, "attention-regression"))
        raise ArgumentError("setting", "penchant", f"one of {known}", repr(name))
    return KINDS[name](arrays, request)


def guess(arrays: Arrays) -> str:
    """The setting that the names of the arrays suggest."""
    if "tokens" in arrays:
        return "attention"
    if {"inputs", "labels"} <= set(arrays):
        return "multiclass" if _several(arrays["labels"]) else "linear"
    if {"inputs", "counts"} <= set(arrays):
        return "next-token"
    if {"inputs", "targets"} <= set(arrays):
        if np.ndim(arrays["targets"]) == 2:
            raise DataFileError(
                f"The targets form a matrix of shape {np.shape(arrays['targets'])}: several outputs per sample. "
                "Pass --setting attention-regression (in Python: `AttentionSample(inputs, targets)`), --setting next-token if its rows are "
                "frequencies of tokens, or one column of them for a regression."
            )
        return "regression"
    raise DataFileError(
        f"Cannot tell the setting from the arrays {sorted(arrays)}. Name them 'inputs, labels', 'inputs, targets' or 'tokens, labels, head', or pass --setting."
    )


def _several(labels: np.ndarray) -> bool:
    """Whether labels number other classes than two, which may be a single one."""
    whole = labels.dtype.kind in "iu" or (labels.dtype.kind == "f" and bool(np.all(labels == np.floor(labels))))
    return bool(whole and labels.size > 0 and labels.min() >= 0 and labels.max() > 1 and len(np.unique(labels)) != 2)


def load(path: str | os.PathLike) -> Classification | Multiclass | NextToken | Regression | TokenSelection:
    """Data from a file: `TokenSelection` if it has tokens, `Classification` or `Multiclass` with inputs and labels, `NextToken` with inputs and
    counts, `Regression` with inputs and targets."""
    arrays = read_arrays(path)
    kind = guess(arrays)
    if kind == "regression":
        return Regression(arrays["inputs"], arrays["targets"])
    if kind == "next-token":
        return _next_token(arrays, Request(CrossEntropy()))[0].data
    make = {"attention": _tokens, "multiclass": _multiclass, "linear": _classification}[kind]
    return make(arrays, Request())


def read_arrays(path: str | os.PathLike) -> Arrays:
    """Arrays by name from `.npz`, or `inputs` and `labels` (also as `targets`) from `.csv` with the label in the last column."""
    file = Path(path)
    if file.is_dir():
        raise DataFileError(f"'{file}' is a directory. Name a .npz or .csv file in it.")
    if not file.is_file():
        raise DataFileError(f"There is no file '{file}'.")
    if file.suffix == ".npz":
        return load_npz(file)
    if file.suffix == ".csv":
        return _read_csv(file)
    raise DataFileError(f"'{file}' must end in .npz or .csv. Got '{file.suffix or 'no ending'}' instead.")


def _read_csv(file: Path) -> Arrays:
    """A first row without any number is a header; every other cell must be a finite number."""
    rows = _csv_rows(file)
    first = rows[0][1] if rows else []
    named = any(cell.strip().lower() not in _MISSING for cell in first)
    header = first if named and not any(map(_is_number, first)) else None
    rows = rows if header is None else rows[1:]
    if not rows:
        raise DataFileError(f"'{file}' has no rows of numbers.")
    width = len(rows[0][1])
    for line, row in rows:
        _check_row(file, line, row, width, header)
    table = np.array([row for _, row in rows], float)
    if header and not header[0].strip() and np.array_equal(table[:, 0], np.arange(len(table))):
        text = f"The first column of '{file}' has no name and counts the rows from 0: an index, which is no input."
        raise DataFileError(f"{text}\n  Usual cause: pandas wrote the file.\n  Fix: frame.to_csv(name, index=False).")
    return {"inputs": table[:, :-1], "labels": table[:, -1], "targets": table[:, -1]}


def _csv_rows(file: Path) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, each with the number of its last line in the file."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, strict=True)
            return [(reader.line_num, row) for row in reader if len(row) > 1 or any(map(str.strip, row))]
    except UnicodeDecodeError as error:
        raise DataFileError(f"'{file}' is not a text file ({error}).") from None
    except csv.Error as error:
        fix = "close the quote, or leave quotes out: numbers need none"
        raise DataFileError(f"'{file}' is not a table of commas: {error}.\n  Fix: {fix}.") from None


def _check_row(file: Path, line: int, row: list[str], width: int, header: list[str] | None) -> None:
    """One number per column, the last of them the label."""
    place = f"Line {line} of '{file}'"
    if any(mark in "".join(row) for mark in ";\t"):
        raise DataFileError(f"{place} must separate its columns by commas, and seems to use another mark: {row}.")
    if len(row) != width or width < 2:
        text = f"must have {max(width, 2)} numbers, the last one the label. Got {len(row)} columns."
        raise DataFileError(f"{place} {text}")
    for column, cell in enumerate(row, 1):
        if not (_is_number(cell) and np.isfinite(float(cell))):
            name = f" ('{header[column - 1].strip()}')" if header and column <= len(header) else ""
            found = f"'{cell}'" if cell.strip() else "nothing"
            fix = "leave such rows out, or fill them; classes are 0, 1, ...; a header has no number in any column"
            text = f"{place} must have a finite number in column {column}{name}. Got {found}."
            raise DataFileError(f"{text}\n  Fix: {fix}.")


def _is_number(cell: str) -> bool:
    """Whether a cell is a number as programs write it: Python's own 1_0 and digits of other scripts are none."""
    if "_" in cell or not cell.isascii():
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True
