"""`sweep`: the runs of a spec into a store, and their picture."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..exhibits import Figure, Line, Result, Table, table
from ..files import check_writable
from ..lab import Study
from ..report.page import render, save
from ..sweeps.boundary import of_cells, summary
from ..sweeps.spec import read_spec
from ..sweeps.sweep import sweep
from . import Said
from .progress import progress
from .runs import aligned


def _pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Keys and values from 'key=value'."""
    for text in texts:
        if "=" not in text:
            raise ArgumentError(flag, "penchant sweep", "of the form key=value", repr(text))
    return {text.partition("=")[0].strip(): text.partition("=")[2].strip() for text in texts}


def run_sweep(options: Namespace) -> Said:
    """Run what is missing of a spec, and say what there is; with `--out` a page of its map or boundary."""
    more: dict[str, Any] = {"grid": _pairs(options.grid, "--grid"), **_pairs(options.set, "--set")}
    given = read_spec(options.spec or {}, **more, **({"seeds": options.seeds} if options.seeds else {}))
    if options.out:
        check_writable(f"{options.out}/index.html")
        if not given.boundary and not (options.measure and given.grid):
            raise ArgumentError("--measure", "penchant sweep", "given with --out, for a sweep over a grid", "nothing")
    with progress() as show:
        how = {name: getattr(options, name) for name in ("engine", "jobs", "retry", "store")}
        found = sweep(given, scheduler=options.scheduler or "", progress=show, **how)
    cells = summary(found.rows, tuple(given.grid), options.measure) if options.measure else []
    told = {"runs": len(found.rows), "kept": found.kept, "failures": found.failures, "store": options.store}
    if options.out:
        refined = found.refined is not None
        shown = found.refined.figure("boundary") if refined else _picture(cells, given.grid, options.measure)
        tables = () if refined else (_cells(cells, options.measure),)
        study, where = Study(given.name, f"Sweep: {given.name}", seeded=False), options.out
        save(study, Result((), (shown,), tables), where)
        told["page"] = str(render(where))
    every = bool(found.rows) and sum(found.failures.values()) == len(found.rows)
    return Said(told | {"cells": cells}, _lines(told, cells), int(every))


def _lines(told: Mapping[str, Any], cells: Sequence[dict]) -> Iterator[str]:
    yield f"runs       {told['runs']}, of which {told['kept']} were there before; store: {told['store']}"
    yield from (f"failed     {count}: {reason}" for reason, count in told["failures"].items())
    if cells:
        yield from aligned([list(cell.values()) for cell in cells], list(cells[0]))
    if "page" in told:
        yield f"page       {told['page']}"


def _cells(cells: list[dict], measure: str) -> Table:
    forms = {name: ".4g" if type(value) is float else "" for name, value in cells[0].items()}
    return table("cells", measure, forms, [tuple(cell.values()) for cell in cells], "With 95 % intervals.")


def _picture(cells: list[dict], grid: Mapping[str, tuple], measure: str) -> Figure:
    """A map over two numbers; otherwise a line with intervals over the first number for each value of the other keys."""
    value = "share" if "share" in cells[0] else "mean"
    axes = [name for name, values in grid.items() if len(values) > 1 and type(values[0]) in (int, float)]
    axes = axes or list(grid)[:1]
    column = lambda name, some: np.array([cell[name] for cell in some], float)
    spread = lambda name: "log" if min(grid[name]) > 0 and max(grid[name]) > 20 * min(grid[name]) else "linear"
    if len(axes) == len(grid) == 2:
        places = [column(name, cells) for name in axes]
        lines = (Line(measure, places[0], places[1], "map", values=column(value, cells)),)
        if value == "share":
            ends = [{"key": key, "low": min(grid[key]), "high": max(grid[key]), "spacing": spread(key)} for key in axes]
            lines += of_cells(cells, (ends[0], ends[1]), measure).lines()
        about = f"One cell for every pair of the grid.{' The share crosses 1/2 inside the band.' if value == 'share' else ''}"
        return Figure("map", measure, axes[0], axes[1], lines, about, spread(axes[0]), spread(axes[1]))
    others: dict[str, list] = {}
    for cell in cells:
        others.setdefault(", ".join(f"{name} = {cell[name]}" for name in grid if name != axes[0]), []).append(cell)
    ends = lambda some: np.abs(np.stack([column("low", some), column("high", some)]) - column(value, some))
    points = lambda some: (column(axes[0], some), column(value, some), "points", ends(some))
    drawn = [Line(name or measure, *points(some)) for name, some in others.items()]
    return Figure("line", measure, axes[0], measure, tuple(drawn), "Bars are 95 % intervals.", spread(axes[0]))
