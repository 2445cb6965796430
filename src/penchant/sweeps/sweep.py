"""`sweep`: the runs of a spec, in groups, by whoever works, into a store; what is there already is never run again."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import cache
from ..errors import ArgumentError, PenchantError
from .executors import ENGINES, Run, cores
from .spec import COMMON, RUN, SEEDS, SPEC, Spec, read_spec, trainer
from .store import Store, digest
from .work import failed, work

GROUP = 256  # runs of a file: what a killed sweep loses of each worker is less than that
_SLOW = 16  # the same for runs that go one after the other
Progress = Callable[[str], None]


class Runs(NamedTuple):
    """What a sweep found: a row for every run, in the order of the spec; `kept` of them were there before, `arrays` by key and name."""

    rows: list[dict[str, Any]]
    kept: int = 0
    arrays: Mapping[tuple[str, str], np.ndarray] = {}
    refined: Any = None

    def column(self, name: str) -> np.ndarray:
        return np.array([row.get(name) for row in self.rows])

    @property
    def failures(self) -> dict[str, int]:
        """Reasons of failed runs, each by its first line, and how often."""
        reasons = [row["reason"].partition("\n")[0] for row in self.rows if row["status"] == "failed"]
        return {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}


def sweep(
    spec: Mapping | str | os.PathLike | Spec,
    *,
    store: str | os.PathLike | None = None,
    engine: str = "pool",
    jobs: int | None = None,
    scheduler: str = "",
    retry: bool = False,
    progress: Progress = lambda text: None,
) -> Runs:
    """Run every combination of a grid and seeds, of any generator, setting, optimiser and start; see `docs/sweeps.md` for the keys of a spec.

    With a `store` runs that it holds are not run again (those that failed: only with `retry`), and a sweep that was stopped goes on where it was.
    `engine` is "pool" (processes, one thread each), "dask" (with the address of its `scheduler`) or "here"; the numbers are the same.

    >>> import penchant as pt
    >>> spec = {"generator": "local_pair", "grid": {"second": [0.1, 1.0]}, "optimiser": "ngd", "steps": 500}
    >>> [row["smallest_margin"] > 0 for row in pt.sweep(spec, engine="here").rows]
    [False, True]
    """
    asked = spec if type(spec) is Spec else read_spec(spec)  # pyright: ignore[reportArgumentType]
    if jobs is not None and jobs < 1:
        raise ArgumentError("jobs", "sweep", "at least 1", jobs)
    if engine not in ENGINES:
        raise ArgumentError("engine", "sweep", f"one of {', '.join(ENGINES)}", repr(engine))
    if scheduler and engine != "dask":
        raise ArgumentError("scheduler", "sweep", "used with the engine dask", f"one with {engine}", "--engine dask")
    with ENGINES[engine](jobs or cores(), scheduler) as run:
        job = _Job(asked, run, None if store is None else Store(store, writes=True), retry, progress)
        if not asked.boundary:
            return job.complete(asked.rows())
        from .boundary import refine

        return refine(asked, job.complete)


class _Job:
    """A spec at work."""

    def __init__(self, spec: Spec, run: Run, store: Store | None, retry: bool, progress: Progress):
        self.spec, self.run, self.store, self.retry, self.progress = spec, run, store, retry, progress
        self.code = cache.fingerprint(spec.paper)
        self.how = {"measures": spec.measures, "arrays": spec.arrays, "paper": spec.paper, "code": self.code}
        self.done: dict[str, dict] = {}
        self.arrays: dict[tuple[str, str], np.ndarray] = {}
        self.kept, self.ran, self.since = 0, 0, 0.0

    def complete(self, rows: Sequence[dict]) -> Runs:
        """All these rows, run now or before."""
        keys = [digest({"row": {**row, "data": ""}, **self.how}) for row in rows]
        there = {} if self.store is None else {row["key"]: row for row in self.store.rows()}
        there = {key: row for key, row in there.items() if not (self.retry and row["status"] == "failed")}
        found = {key: there[key] for key in keys if key in there and key not in self.done}
        self.kept += len(found)
        self.done |= found
        self._execute({key: row for key, row in zip(keys, rows, strict=True) if key not in self.done})
        return Runs([self.done[key] for key in keys], self.kept, self.arrays)

    def _execute(self, missing: dict[str, dict]) -> None:
        groups = list(_groups(missing, bool(self.spec.paper)))
        later = self.spec.boundary.get("runs", 0) - len(self.done)  # batches of a boundary
        total = self.ran + max(len(missing), later)
        if not (self.kept or self.since):
            self._check(missing.values())
        if groups and not self.since:
            self.since = time.monotonic()
            self.progress(f"[0/{total}] begun, in groups of up to {max(map(len, groups))} runs")
        tasks = [{**self.how, "rows": [missing[key] for key in group]} for group in groups]
        for number, found in self.run(work, tasks):
            self._keep(groups[number], tasks[number]["rows"], found)
            self.ran += len(groups[number])
            self.progress(_pace(self.ran, total, time.monotonic() - self.since))

    def _check(self, rows: Iterable[dict]) -> None:
        """What cannot be made is said before anything runs; where some runs of a shape can be made, the others are recorded as failed. A key that no run takes is refused as well."""
        errors: dict[str, PenchantError | None] = {}
        takes: dict[str, None] = {}
        for row in rows:
            shape = _shape(row)
            if shape not in errors or errors[shape]:
                errors[shape] = self._error(row, takes)
        for error in filter(None, errors.values()):
            raise error
        for key in ({*RUN} - {*COMMON, *takes}) & {*self.spec.fixed, *self.spec.grid, *self.spec.axes}:
            raise ArgumentError(key, SPEC, f"left out: these runs take {', '.join(takes)}", "a value that changes none")

    def _error(self, row: dict, takes: dict[str, None]) -> PenchantError | None:
        means = trainer(self.spec.paper)
        try:
            made = means.member(row)
        except PenchantError as error:
            return error
        takes |= dict.fromkeys(made.takes)
        for name in means.PLANTED if made.truth is None else ():
            if name in self.spec.measures:
                wanted = f"used with what is known to be true: {means.PLANTED[name]}"
                return ArgumentError("measures", SPEC, wanted, name)

    def _keep(self, keys: list[str], rows: Sequence[dict], result: Any) -> None:
        if isinstance(result, PenchantError):  # not of a run, but of the worker
            raise result
        if isinstance(result, BaseException):
            result = {"found": [failed(result)] * len(keys), "arrays": {}, "made": {}}
        whole = [{"key": key, **row, **found} for key, row, found in zip(keys, rows, result["found"], strict=True)]
        arrays = {(keys[k], str(name)): array for (k, name), array in result["arrays"].items()}
        if self.store is not None:
            made = {"kind": "sweep", "name": self.spec.name, "code": self.code, **result["made"]}
            whole = [{**row, "kind": "sweep", "name": self.spec.name, "code": self.code} for row in whole]
            self.store.write(whole, made, {f"{key}/{name}": array for (key, name), array in arrays.items()})
        self.done |= {row["key"]: row for row in whole}
        if self.store is None:
            self.arrays |= arrays


def _shape(row: Mapping[str, Any]) -> str:
    """What runs of a group have in common: all but numbers with a point, and seeds."""
    return str([(key, value) for key, value in row.items() if type(value) is not float and key not in SEEDS])


def _groups(rows: Mapping[str, dict], slow: bool) -> Iterator[list[str]]:
    """Keys of runs that share a file, and lanes where they train by steps."""
    alike: dict[str, list[str]] = {}
    for key, row in rows.items():
        alike.setdefault(_shape(row), []).append(key)
    for keys in alike.values():
        size = _SLOW if slow or rows[keys[0]].get("optimiser", "flow") == "flow" else GROUP
        yield from (keys[first : first + size] for first in range(0, len(keys), size))


def _pace(count: int, total: int, seconds: float) -> str:
    rate = count / seconds
    left = (total - count) / rate
    wait = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
    return f"[{count}/{total}] {rate:.3g} runs a second, about {wait} left"
