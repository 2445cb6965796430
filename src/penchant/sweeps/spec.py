"""What a sweep runs: keys that are fixed, a grid of others, and seeds. Everything is checked before anything starts."""

import hashlib
import inspect
import itertools
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, DataFileError, kind
from ..optimisers.table import JOINT, LAYER_RULES, OPTIMISERS
from ..settings.deep_linear import NAMED
from ..settings.files import KINDS, LOSSES, Arrays, read_arrays
from .store import EVENT

SPEC, _EDGE = "a sweep", "the boundary of a sweep"
_GENERATORS = {
    "settings.generators": "separable strips teacher blobs clusters signal_tokens random_tokens equal_score_tokens "
    "local_pair local_single aligned_tokens sparse_regression",
    "settings.joint": "marked_tokens leaning_tokens",
    "papers.attention_regression.setting.sample": "attention_experiment",
}
GENERATORS = {name: file for file, names in _GENERATORS.items() for name in names.split()}
Kind = type | tuple[str, ...]
_RULES = dict.fromkeys(("flow", *OPTIMISERS, *LAYER_RULES, *JOINT))
COMMON: dict[str, Kind] = {  # what any run may be told
    "generator": tuple(GENERATORS),
    "data": str,
    **dict.fromkeys(("records", "data_seed", "start_seed", "steps"), int),
}
RUN: dict[str, Kind] = (
    COMMON
    | {  # besides the arguments of its generator; numbers with a point may differ inside a group
        "setting": (*KINDS, "joint", "attention-regression"),
        "loss": tuple(LOSSES),
        "reduction": ("mean", "sum"),
        "optimiser": tuple(_RULES),
        "start": ("zeros", "small", *NAMED),
        "widths": str,
        "norm": str,
        "orthogonaliser": ("polar", "ns5"),
        **dict.fromkeys(("depth", "batch"), int),
        **dict.fromkeys(("nesterov", "bias", "normalise"), bool),
        **dict.fromkeys(("step_decay", "weight_decay", "eps", "log_eps"), float),
        **dict.fromkeys(("time", "log_time", "margin", "risk_level"), float),
        **dict.fromkeys(("step_size", "cap", "beta", "tolerance", "scale", "alpha"), float),
    }
)
BUDGETS = ("steps", "time", "log_time", "margin", "risk_level")
SEEDS = ("seed", "data_seed", "start_seed")
_AXIS: dict[str, Kind] = {"key": str, "low": float, "high": float, "spacing": ("linear", "log")}
_BOUNDARY: dict[str, Kind] = {"x": dict, "y": dict, "event": str, "level": float, "runs": int, "batch": int}
_WORDS = {int: "a whole number, not negative", float: "a finite number", bool: "true or false", str: "a text", dict: "a table"}  # fmt: skip
_TOP = ("name", "grid", "seeds", "measures", "arrays", "boundary")
_PAPERS = {"attention-regression": "attention_regression"}  # settings that a paper trains by its own means


class Spec(NamedTuple):
    """A sweep: `fixed` keys, a `grid`, seeds, what is measured and kept of each run, and where a boundary is looked for."""

    name: str
    fixed: dict[str, Any]
    grid: dict[str, tuple]
    seeds: tuple[int, ...]
    measures: tuple[str, ...]
    arrays: tuple[str, ...]
    boundary: dict[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        """One row for every run: all that tells it from the others."""
        cells = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        return [self.row(cell, seed) for cell in cells for seed in self.seeds]

    def row(self, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        return {**self.fixed, **values, "seed": seed}

    @property
    def axes(self) -> list[str]:
        return [self.boundary[axis]["key"] for axis in ("x", "y") if self.boundary]

    @property
    def paper(self) -> str:
        """The paper that trains these runs; none for those of `train`."""
        return _PAPERS.get(self.fixed.get("setting", ""), "")

    @property
    def kinds(self) -> dict[str, Kind]:
        return trainer(self.paper).KEYS | _arguments(self.fixed.get("generator"))


def trainer(paper: str) -> Any:
    """The module that makes runs of rows and trains them: its KEYS, MEASURES and ARRAYS, `member`, `runs`, `outcome` and `arrays`."""
    return import_module(f"..papers.{paper}.asked" if paper else ".members", __package__)


def read_spec(source: Mapping | str | os.PathLike, **more: object) -> Spec:
    """The spec of a mapping or a .toml file; `more` overrides it, its grid one key at a time.

    >>> spec = read_spec({"generator": "local_pair", "grid": {"second": "geom(0.1, 1, 3)"}, "optimiser": "ngd", "seeds": "0:2"})
    >>> len(spec.rows()), spec.rows()[0]
    (6, {'generator': 'local_pair', 'optimiser': 'ngd', 'second': 0.1, 'seed': 0})
    """
    try:
        given = dict(source) if isinstance(source, Mapping) else _toml(Path(source))
    except TypeError:
        raise ArgumentError("spec", "sweep", "a table of keys or the name of a .toml file", kind(source)) from None
    grid = _value("grid", given.get("grid", {}), dict) | _value("grid", more.pop("grid", {}), dict)
    given |= more
    given |= {"setting": "attention-regression"} if given.get("generator") == "attention_experiment" else {}
    module = trainer(_PAPERS.get(str(given.get("setting")), ""))
    kinds = module.KEYS | _arguments(given.get("generator"))
    fixed = _checked({key: value for key, value in given.items() if key not in _TOP}, kinds)
    grid = _checked(grid, kinds, each=_values)
    chosen = lambda key, names: tuple(_value(key, name, names) for name in _listed(given.get(key, ())))
    measures, arrays = chosen("measures", tuple(module.MEASURES)), chosen("arrays", module.ARRAYS)
    boundary = _boundary(given["boundary"], kinds) if "boundary" in given else {}
    name, seeds = _name(given.get("name", "sweep")), _seeds(given.get("seeds", 0))
    return _whole(Spec(name, fixed, grid, seeds, measures, arrays, boundary))


def _toml(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataFileError(f"There is no file '{path}' that can be read ({error.strerror}).") from None
    except ValueError as error:  # not TOML, or not text
        raise DataFileError(f"'{path}' is not a .toml file that can be read: {error}.") from None


def _whole(spec: Spec) -> Spec:
    """A spec that has all it needs and nothing twice; a data file is part of what decides, by its content."""
    given = [*spec.fixed, *spec.grid, *spec.axes]
    made = [key for key in ("generator", "data") if key in spec.fixed]
    budgets = [key for key in BUDGETS if key in given]
    missing = [name for name in _arguments(spec.fixed.get("generator"), needed=True) if name not in given]
    for key in given:
        if given.count(key) > 1:
            raise ArgumentError(key, SPEC, "either fixed or in the grid, or on an axis of the boundary", "both")
    if len(made) != 1:
        wanted = f"given, and fixed: one of {', '.join(GENERATORS)}; or `data`, a file"
        raise ArgumentError("generator", SPEC, wanted, " and ".join(made) or "neither")
    if missing:
        raise ArgumentError(missing[0], SPEC, f"given for the generator {spec.fixed['generator']}", "nothing")
    if len(budgets) > 1:
        wanted = f"left out, or the only one of {', '.join(BUDGETS)}"
        raise ArgumentError(budgets[1], SPEC, wanted, f"also {budgets[0]}")
    if spec.boundary and spec.boundary["runs"] < 4 * len(spec.seeds):
        wanted = f"enough for four points with every seed, {4 * len(spec.seeds)}"
        raise ArgumentError("runs", _EDGE, wanted, spec.boundary["runs"])
    if "data" not in spec.fixed:
        return spec
    file = Path(spec.fixed["data"])
    if not file.is_file():
        raise ArgumentError("data", SPEC, "a file", repr(str(file)))
    content = {"data": str(file.resolve()), "file_sha": _file_digest(file)}
    return spec._replace(fixed=spec.fixed | content)


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def own_arrays(row: Mapping[str, Any]) -> Arrays:
    """The arrays of the file of a row, where a worker finds the one that was asked about."""
    file = Path(row["data"])
    if not file.is_file() or _file_digest(file) != row["file_sha"]:
        raise DataFileError(f"'{file}' is not there as it was when the sweep began.")
    return read_arrays(file)


def _arguments(generator: object, needed: bool = False) -> dict[str, Kind]:
    """The arguments of a generator that a spec can give, by their kinds; its seed is that of the run."""
    taken = parameters(str(generator)).values() if str(generator) in GENERATORS else ()
    given = [one for one in taken if one.annotation in (int, float, bool, str) and one.name != "seed"]
    return {one.name: one.annotation for one in given if one.default is one.empty or not needed}


@cache
def parameters(generator: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(generator_of(generator)).parameters


def generator_of(name: str) -> Callable[..., Any]:
    return getattr(import_module(f"..{GENERATORS[name]}", __package__), name)


def generated(row: Mapping[str, Any]) -> Any:
    """The data that the generator of a row makes."""
    taken = parameters(row["generator"])
    given = {key: value for key, value in row.items() if key in taken and key not in ("seed", *RUN)}
    given |= {"seed": row.get("data_seed", row["seed"])} if "seed" in taken else {}
    return generator_of(row["generator"])(**given)


def _value(key: str, value: Any, kind: Kind) -> Any:
    """A value of a kind, from TOML or from a text of the command line."""
    found = _read(value, kind)
    if found is None:
        wanted = _WORDS[kind] if type(kind) is type else f"one of {', '.join(map(str, kind))}"  # pyright: ignore[reportArgumentType]
        raise ArgumentError(key, SPEC, wanted, repr(value))
    return found


def _read(value: Any, kind: Any) -> Any:
    """The value as one of a kind; None where it is none."""
    if type(kind) is tuple:
        return value if value in kind else None
    if kind is bool:
        return {"true": True, "false": False}.get(str(value).lower())
    if kind in (str, dict):
        return value if isinstance(value, kind) else None
    number = None if isinstance(value, bool | np.bool_) else _number(value)
    if number is None or (kind is int and not number == int(number) >= 0):
        return None
    return kind(number)


def _number(value: Any) -> float | int | None:
    """A finite number, an integer where it is written as one."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    whole = re.fullmatch(r"\s*[-+]?\d+\s*", str(value))
    return (int(number) if whole else number) if np.isfinite(number) else None


def _checked(
    given: Mapping, kinds: Mapping[str, Kind], owner: str = SPEC, each: Callable[..., Any] = _value
) -> dict[str, Any]:
    """Known keys with values of their kinds."""
    for key in given:
        if key not in kinds:
            allowed = (*kinds, *_TOP) if owner == SPEC else kinds
            raise ArgumentError(str(key), owner, f"one of {', '.join(allowed)}", f"the key '{key}'")
    return {key: each(key, value, kinds[key]) for key, value in given.items()}


def _listed(given: Any) -> list:
    """A list of what a list or a text with commas names."""
    if type(given) is str:
        return [part.strip() for part in given.split(",") if part.strip()]
    return list(given) if hasattr(given, "__len__") else [given]


def _values(key: str, given: Any, kind: Kind) -> tuple:
    """A list of values; from a text '1,2,3', 'lin(0, 1, 5)' or 'geom(1e-3, 1, 4)'."""
    spaced = re.fullmatch(r"\s*(lin|geom)\((.*)\)\s*", str(given))
    given = _spaced(key, spaced[1], spaced[2]) if spaced else _listed(given)
    found = tuple(_value(key, value, kind) for value in given)
    if len(set(found)) < len(found) or not found:
        raise ArgumentError(key, SPEC, "a grid of at least one value, without repeats", repr(found))
    return found


def _spaced(key: str, form: str, inside: str) -> np.ndarray:
    numbers = [number for number in map(_number, inside.split(",")) if number is not None]
    if len(numbers) != 3 or numbers[2] < 1 or (form == "geom" and min(numbers[:2]) <= 0):
        wanted = f"{form}(low, high, count), with positive bounds for geom"
        raise ArgumentError(key, SPEC, wanted, f"{form}({inside})")
    return {"lin": np.linspace, "geom": np.geomspace}[form](numbers[0], numbers[1], int(numbers[2]))


def _seeds(given: Any) -> tuple[int, ...]:
    """Seeds from '0:100', one number or a list."""
    ends = re.fullmatch(r"\s*(\d+):(\d+)\s*", str(given))
    found = tuple(range(int(ends[1]), int(ends[2])) if ends else map(_number, _listed(given)))
    if not found or len({*found}) < len(found) or any(type(one) is not int or not 0 <= one < 2**62 for one in found):
        raise ArgumentError("seeds", SPEC, "'first:end', or nonnegative integers without repeats", repr(given))
    return found  # pyright: ignore[reportReturnType]


def _name(given: Any) -> str:
    """A name is part of files inside the store, and leads nowhere else."""
    if type(given) is not str or not re.fullmatch(r"\w[\w.-]{0,60}", given):
        raise ArgumentError("name", SPEC, "letters, digits, '_', '-' and '.', without a path", repr(given))
    return given


def _boundary(given: Any, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Where a boundary is looked for: two axes, the event whose probability crosses the level there, and how many runs decide."""
    found = {"level": 0.5, "runs": 2000, "batch": 250} | _checked(_value("boundary", given, dict), _BOUNDARY, _EDGE)
    for key, most in {"level": 1, "batch": np.inf}.items():
        if not 0 < found[key] < most:
            raise ArgumentError(key, _EDGE, f"in (0, {most:g})", found[key])
    if not EVENT.fullmatch(found.get("event", "")):
        wanted = "a column, a comparison and a number or word, as 'smallest_margin > 0'"
        raise ArgumentError("event", _EDGE, wanted, repr(found.get("event")))
    numbers = [key for key, kind in kinds.items() if kind in (int, float)]
    for name in ("x", "y"):
        axis = {"spacing": "linear"} | _checked(found.get(name, {}), _AXIS, f"the axis {name} of a boundary")
        if axis.get("key") not in numbers:
            raise ArgumentError(f"{name}.key", _EDGE, f"one of {', '.join(numbers)}", repr(axis.get("key")))
        low, high = (float(axis.get(end, np.nan)) for end in ("low", "high"))
        if not low < high or (axis["spacing"] == "log" and not low > 0):
            wanted = "from low to a larger high, both positive where the spacing is log"
            raise ArgumentError(name, _EDGE, wanted, repr(axis))
        found[name] = axis
    return found
