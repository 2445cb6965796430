"""What a sweep runs: keys that are fixed, a grid of others, and seeds. Everything is checked before anything starts."""

import hashlib
import inspect
import itertools
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, DataFileError
from ..optimisers.table import JOINT, LAYER_RULES, OPTIMISERS
from ..settings.deep_linear import NAMED
from ..settings.files import KINDS, LOSSES
from .measures import MEASURES

SPEC = "a sweep"
_GENERATORS = {
    "settings.generators": (
        *("separable", "strips", "teacher", "blobs", "signal_tokens", "random_tokens", "equal_score_tokens"),
        *("local_pair", "local_single", "aligned_tokens", "sparse_regression"),
    ),
    "settings.joint": ("marked_tokens", "leaning_tokens"),
}
GENERATORS = {name: file for file, names in _GENERATORS.items() for name in names}
Kind = type | tuple[str, ...]
_RULES = dict.fromkeys(("flow", *OPTIMISERS, *LAYER_RULES, *JOINT))
RUN: dict[
    str, Kind
] = {  # what a run is made of, besides the arguments of its generator; numbers with a point may differ inside a group
    "generator": tuple(GENERATORS),
    "data": str,
    "setting": (*KINDS, "joint"),
    "loss": tuple(LOSSES),
    "reduction": ("mean", "sum"),
    "optimiser": tuple(_RULES),
    "start": ("zeros", "small", *NAMED),
    "widths": str,
    "depth": int,
    "records": int,
    "data_seed": int,
    "start_seed": int,
    "steps": int,
    **dict.fromkeys(("time", "log_time", "margin", "risk_level"), float),
    **dict.fromkeys(("step_size", "cap", "beta", "tolerance", "scale", "alpha"), float),
}
BUDGETS = ("steps", "time", "log_time", "margin", "risk_level")
SEEDS = ("seed", "data_seed", "start_seed")
_AXIS = {"key": str, "low": float, "high": float, "spacing": ("linear", "log")}
_BOUNDARY = {"x": dict, "y": dict, "event": str, "level": float, "runs": int, "batch": int}
_TOP = ("name", "grid", "seeds", "measures", "arrays", "boundary", "task")
EVENT = re.compile(r"\s*([a-z]\w*)\s*(<=|>=|==|<|>)\s*(\S+)\s*")


class Spec(NamedTuple):
    """A sweep: `fixed` keys, a `grid`, seeds, what is measured and kept of each run, and where a boundary is looked for."""

    name: str
    fixed: dict[str, Any]
    grid: dict[str, tuple]
    seeds: tuple[int, ...]
    measures: tuple[str, ...]
    arrays: tuple[str, ...]
    boundary: dict[str, Any] | None
    task: str | Callable[[dict], dict]

    def rows(self) -> list[dict[str, Any]]:
        """One row for every run: all that tells it from the others."""
        return [
            self.row(dict(zip(self.grid, values, strict=True)), seed) for values in self._cells() for seed in self.seeds
        ]

    def _cells(self) -> Iterable[tuple]:
        return itertools.product(*self.grid.values())

    def row(self, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        return {**self.fixed, **values, "seed": seed}

    @property
    def kinds(self) -> dict[str, Kind]:
        return RUN | _arguments(self.fixed.get("generator"))


def read_spec(source: Mapping | str | os.PathLike, **more: Any) -> Spec:
    """The spec of a mapping or a .toml file; `more` overrides it, its grid one key at a time.

    >>> spec = read_spec({"generator": "local_pair", "grid": {"second": "geom(0.1, 1, 3)"}, "optimiser": "ngd", "seeds": "0:2"})
    >>> len(spec.rows()), spec.rows()[0]
    (6, {'generator': 'local_pair', 'optimiser': 'ngd', 'second': 0.1, 'seed': 0})
    """
    given = dict(source) if isinstance(source, Mapping) else _toml(Path(source))
    given |= {key: value for key, value in more.items() if key != "grid"}
    given["grid"] = {**_table(given, "grid"), **more.get("grid", {})}
    task = given.get("task", "")
    fixed = {key: value for key, value in given.items() if key not in _TOP}
    kinds = {} if task else RUN | _arguments(fixed.get("generator"))
    _known({*fixed, *given["grid"]}, kinds, SPEC, bool(task))
    fixed = {key: _value(key, value, kinds.get(key, object)) for key, value in fixed.items()}
    grid = {key: _values(key, value, kinds.get(key, object)) for key, value in given["grid"].items()}
    found = Spec(
        _name(given.get("name", "sweep")),
        fixed,
        grid,
        _seeds(given.get("seeds", (0,))),
        _several("measures", given.get("measures", ()), tuple(MEASURES)),
        _several("arrays", given.get("arrays", ()), ("weight", "params", "margins", "series")),
        _boundary(given.get("boundary"), kinds),
        task,
    )
    return found if task else _whole(found)


def _toml(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataFileError(f"There is no file '{path}'.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataFileError(f"'{path}' is not a .toml file that can be read: {error}.") from None


def _whole(spec: Spec) -> Spec:
    """A spec that has all it needs and nothing twice; a data file is part of what decides, by its content."""
    both = sorted({*spec.fixed} & {*spec.grid})
    if both:
        raise ArgumentError(both[0], SPEC, "either fixed or in the grid", "both")
    given = {
        *spec.fixed,
        *spec.grid,
        *((axis["key"] for axis in (spec.boundary["x"], spec.boundary["y"])) if spec.boundary else ()),
    }
    sources = [key for key in ("generator", "data") if key in spec.fixed]
    if len(sources) != 1 or {"generator", "data"} & {*spec.grid}:
        wanted = f"given, and fixed: one of {', '.join(GENERATORS)}; or `data`, a file"
        raise ArgumentError("generator", SPEC, wanted, " and ".join(sources) or "neither")
    missing = [name for name, kind in _arguments(spec.fixed.get("generator"), needed=True).items() if name not in given]
    if missing:
        raise ArgumentError(missing[0], SPEC, f"given for the generator {spec.fixed['generator']}", "nothing")
    budgets = [name for name in BUDGETS if name in given]
    if len(budgets) > 1:
        raise ArgumentError(
            budgets[1], SPEC, f"left out where there is `{budgets[0]}`: one of {', '.join(BUDGETS)}", "both"
        )
    if "data" not in spec.fixed:
        return spec
    file = Path(spec.fixed["data"])
    if not file.is_file():
        raise ArgumentError("data", SPEC, "a file", repr(str(file)))
    content = {"data": str(file.resolve()), "file_sha": hashlib.sha256(file.read_bytes()).hexdigest()[:16]}
    return spec._replace(fixed=spec.fixed | content)


def _arguments(generator: object, needed: bool = False) -> dict[str, Kind]:
    """The arguments of a generator that a spec can give, by their kinds; its seed is that of the run."""
    if not isinstance(generator, str) or generator not in GENERATORS:
        return {}
    taken = parameters(generator).values()
    kinds = {
        one.name: one.annotation for one in taken if one.annotation in (int, float, bool, str) and one.name != "seed"
    }
    empty = {one.name for one in taken if one.default is inspect.Parameter.empty}
    return {name: kind for name, kind in kinds.items() if name in empty or not needed}


@cache
def parameters(generator: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(generator_of(generator)).parameters


def generator_of(name: str) -> Callable[..., Any]:
    return getattr(import_module(f"..{GENERATORS[name]}", __package__), name)


def _known(names: Iterable[str], kinds: Mapping, owner: str, anything: bool = False) -> None:
    for name in sorted(names):
        if name not in kinds and not anything:
            raise ArgumentError(name, owner, f"one of {', '.join((*kinds, *_TOP))}", f"the key '{name}'")


def _table(given: Mapping, key: str) -> dict:
    found = given.get(key, {})
    if not isinstance(found, Mapping):
        raise ArgumentError(key, SPEC, "a table of keys", repr(found))
    return dict(found)


def _value(key: str, value: Any, kind: Any) -> Any:
    """A value of a kind, from TOML or from a text of the command line."""
    if isinstance(kind, tuple):
        if value not in kind:
            raise ArgumentError(key, SPEC, f"one of {', '.join(kind)}", repr(value))
        return value
    if kind is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    if kind in (int, float) and not isinstance(value, bool):
        number = _number(value)
        if number is not None and (kind is float or number == int(number)):
            return kind(number)
    elif isinstance(value, kind):
        return _number(value) if kind is object and _number(value) is not None else value
    words = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text", dict: "a table"}
    raise ArgumentError(key, SPEC, words.get(kind, str(kind)), repr(value))


def _number(value: Any) -> float | int | None:
    """A finite number, an integer where it is written as one."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if not np.isfinite(number):
        return None
    return int(number) if isinstance(value, int) or re.fullmatch(r"\s*[-+]?\d+\s*", str(value)) else number


def _values(key: str, given: Any, kind: Kind) -> tuple:
    """A list of values; from a text '1,2,3', 'lin(0, 1, 5)' or 'geom(1e-3, 1, 4)'."""
    if isinstance(given, str):
        spaced = re.fullmatch(r"\s*(lin|geom)\((.*)\)\s*", given)
        parts = [part.strip() for part in (spaced[2] if spaced else given).split(",") if part.strip()]
        given = _spaced(key, spaced[1], parts) if spaced else parts
    given = list(given) if isinstance(given, list | tuple | np.ndarray) else [given]
    if not given:
        raise ArgumentError(key, SPEC, "a grid of at least one value", "an empty one")
    found = tuple(_value(key, value.item() if isinstance(value, np.generic) else value, kind) for value in given)
    if len(set(found)) < len(found):
        raise ArgumentError(key, SPEC, "a grid without repeats", f"{len(found) - len(set(found))} of them")
    return found


def _spaced(key: str, form: str, parts: list[str]) -> np.ndarray:
    numbers = [_number(part) for part in parts]
    if len(numbers) != 3 or None in numbers or int(numbers[2] or 0) < 1 or (form == "geom" and min(numbers[:2]) <= 0):  # pyright: ignore[reportArgumentType]
        raise ArgumentError(
            key, SPEC, f"{form}(low, high, count), with positive bounds for geom", f"{form}({', '.join(parts)})"
        )
    low, high, count = numbers
    return (np.linspace if form == "lin" else np.geomspace)(low, high, int(count))  # pyright: ignore[reportArgumentType, reportCallIssue]


def _seeds(given: Any) -> tuple[int, ...]:
    """Seeds from '0:100', one number or a list."""
    ends = str(given).split(":")
    if isinstance(given, str) and len(ends) == 2 and all(end.strip().isdecimal() for end in ends):
        given = range(*map(int, ends))
    given = [given] if isinstance(given, int | str) else list(given)
    found = [_number(seed) for seed in given]
    if (
        not found
        or any(not isinstance(seed, int) or not 0 <= seed < 2**62 for seed in found)
        or len(set(found)) < len(found)
    ):
        raise ArgumentError("seeds", SPEC, "'first:end', or nonnegative integers without repeats", repr(given))
    return tuple(found)  # pyright: ignore[reportReturnType]


def _several(key: str, given: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given
    return tuple(_value(key, str(name).strip(), allowed) for name in names)


def _name(given: Any) -> str:
    """A name is part of files inside the store, and leads nowhere else."""
    if not isinstance(given, str) or not re.fullmatch(r"\w[\w.-]{0,60}", given):
        raise ArgumentError("name", SPEC, "letters, digits, '_', '-' and '.', without a path", repr(given))
    return given


def _boundary(given: Any, kinds: Mapping[str, Kind]) -> dict | None:
    """Where a boundary is looked for: two axes, the event whose probability crosses the level there, and how many runs decide."""
    if given is None:
        return None
    given = _table({"boundary": given}, "boundary")
    _known(given, _BOUNDARY, "the boundary of a sweep")
    for key in ("x", "y", "event"):
        if key not in given:
            raise ArgumentError(key, "the boundary of a sweep", f"given, as one of {', '.join(_BOUNDARY)}", "nothing")
    found = {"level": 0.5, "runs": 2000, "batch": 250} | {
        key: _value(key, value, _BOUNDARY[key]) for key, value in given.items()
    }
    if not EVENT.fullmatch(found["event"]):
        raise ArgumentError(
            "event", SPEC, "a column, a comparison and a number or word, as 'smallest_margin > 0'", repr(found["event"])
        )
    return found | {axis: _axis(axis, found[axis], kinds) for axis in ("x", "y")}


def _axis(name: str, given: Mapping, kinds: Mapping[str, Kind]) -> dict:
    _known(given, _AXIS, f"the axis {name} of a boundary")
    found = {"spacing": "linear"} | {key: _value(key, value, _AXIS[key]) for key, value in given.items()}
    if not {"key", "low", "high"} <= {*found} or not found["low"] < found["high"]:
        raise ArgumentError(name, "the boundary of a sweep", "a key with low < high", repr(dict(given)))
    numbers = [key for key, kind in kinds.items() if kind in (int, float)]
    if found["key"] not in numbers:
        raise ArgumentError(
            f"{name}.key", "the boundary of a sweep", f"one of {', '.join(numbers)}", repr(found["key"])
        )
    if found["spacing"] == "log" and not float(found["low"]) > 0:
        raise ArgumentError(f"{name}.low", "the boundary of a sweep", "positive where the spacing is log", found["low"])
    return found
