"""`sweep`: the runs of a spec into a store; `runs`: what a store holds."""

import csv
import io
import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..exhibits import Figure, Line, Result, Table, plain, table
from ..files import write_bytes
from ..lab import Study
from ..report.page import render, save
from ..sweeps.boundary import Boundary, summary
from ..sweeps.spec import EVENT, read_spec
from ..sweeps.store import Store, digest
from ..sweeps.sweep import sweep
from ..sweeps.work import provenance
from .options import check_writable
from .progress import progress

_SHOWN = 20  # rows of a table on the terminal


def _pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Keys and values from 'key=value'."""
    for text in texts:
        if "=" not in text:
            raise ArgumentError(flag, "penchant sweep", "of the form key=value", repr(text))
    return {text.partition("=")[0].strip(): text.partition("=")[2].strip() for text in texts}


def run_sweep(options: Namespace) -> dict:
    """Run what is missing of a spec, and say what there is; with `--out` a page of its map or boundary."""
    more: dict[str, Any] = {**_pairs(options.set, "--set"), "grid": _pairs(options.grid, "--grid")}
    given = read_spec(options.spec or {}, **more, **({"seeds": options.seeds} if options.seeds else {}))
    if options.out:
        check_writable(f"{options.out}/index.html")
        if not given.boundary and not (options.measure and given.grid):
            raise ArgumentError("--measure", "penchant sweep", "given with --out, for a sweep over a grid", "nothing")
    with progress(len(given.rows())) as show:
        how = {name: getattr(options, name) for name in ("engine", "jobs", "retry", "store")}
        found = sweep(given, scheduler=options.scheduler or "", progress=show, **how)
    cells = summary(found.rows, tuple(given.grid), options.measure) if options.measure and given.grid else []
    told = {"runs": len(found.rows), "kept": found.kept, "failures": found.failures, "store": options.store}
    if options.out:
        refined = isinstance(found.refined, Boundary)
        shown = found.refined.figure("boundary") if refined else _picture(cells, given.grid, options.measure)
        tables = () if refined else (_cells(cells, options.measure),)
        study, where = Study(given.name, f"Sweep: {given.name}", seeded=False), options.out
        save(study, Result((), (shown,), tables), where, paper="", seed=0, full=False, seconds=0.0)
        told["page"] = str(render(where))
    return told | {"cells": cells}


def print_sweep(content: Mapping[str, Any]) -> None:
    print(f"runs       {content['runs']}, of which {content['kept']} were there before; store: {content['store']}")
    for reason, count in content["failures"].items():
        print(f"failed     {count}: {reason.splitlines()[0]}")
    if content["cells"]:
        _print_rows([list(cell.values()) for cell in content["cells"]], list(content["cells"][0]))
    if "page" in content:
        print(f"page       {content['page']}")


def _cells(cells: list[dict], measure: str) -> Table:
    forms = {name: ".4g" if isinstance(value, float) else "" for name, value in cells[0].items()}
    return table("cells", measure, forms, [tuple(cell.values()) for cell in cells], "With 95 % intervals.")


def _picture(cells: list[dict], grid: Mapping[str, tuple], measure: str) -> Figure:
    """A map over two numbers; otherwise a line with intervals over the first number for each value of the other keys."""
    value = "share" if "share" in cells[0] else "mean"
    axes = [name for name, values in grid.items() if len(values) > 1 and not isinstance(values[0], str | bool)]
    axes = axes or list(grid)[:1]
    column = lambda name, some: np.array([cell[name] for cell in some], float)
    spread = lambda name: "log" if min(grid[name]) > 0 and max(grid[name]) > 20 * min(grid[name]) else "linear"
    if len(axes) == len(grid) == 2:
        places = [column(name, cells) for name in axes]
        lines = (Line(measure, places[0], places[1], "map", values=column(value, cells)),)
        about = "One cell for every pair of the grid."
        return Figure("map", measure, axes[0], axes[1], lines, about, spread(axes[0]), spread(axes[1]))
    others: dict[str, list] = {}
    for cell in cells:
        others.setdefault(", ".join(f"{name} = {cell[name]}" for name in grid if name != axes[0]), []).append(cell)
    half = lambda some: (column("high", some) - column("low", some)) / 2
    drawn = [
        Line(name or measure, column(axes[0], some), column(value, some), "points", half(some))
        for name, some in others.items()
    ]
    return Figure("line", measure, axes[0], measure, tuple(drawn), "Half of 95 % intervals as bars.", spread(axes[0]))


def runs(options: Namespace) -> tuple[dict, int]:
    """List, group, export, prune or check the runs of a store; files that are not whole are named."""
    store, where = Store(options.store), options.where or "true"
    if options.check:
        groups, bad = store.scan(whole=True)
        return {"groups": len(groups), "runs": len(store.rows()), "bad": bad}, 1 if bad else 0
    if options.prune:
        if not options.where:
            raise ArgumentError("--where", "penchant runs", "given with --prune: it says what goes", "nothing")
        return {"pruned": store.prune(where), "bad": store.skipped}, 0
    if options.export and Path(options.export).suffix not in (".csv", ".json"):
        raise ArgumentError("--export", "penchant runs", "a file name ending in .csv or .json", repr(options.export))
    columns, rows = store.query(options.sql or _question(options, where))
    if options.export:
        write_bytes(options.export, _written(columns, rows, Path(options.export).suffix))
        return {"exported": options.export, "runs": len(rows), "bad": store.skipped}, 0
    return {"columns": columns, "rows": rows, "bad": store.skipped}, 0


def _question(options: Namespace, where: str) -> str:
    """SQL for what is asked: counts of every status, or groups with the mean of a column or the share of an event, or rows."""
    if options.export or options.rows:
        return f"select {options.show or '*'} from runs where {where} order by key"
    by = options.by or "kind, name, status"
    shown = [part.strip() for part in (options.show or "").split(",") if part.strip()]
    event = lambda part: f"avg(({part.replace('==', '=')})::int)" if EVENT.fullmatch(part) else f"avg({part})"
    asked = "".join(f', {event(part)} as "{part}"' for part in shown)
    return f"select {by}, count(*) as runs{asked} from runs where {where} group by {by} order by {by}"


def _written(columns: Sequence[str], rows: Sequence[tuple], ending: str) -> bytes:
    if ending == ".json":
        return json.dumps(plain([dict(zip(columns, row, strict=True)) for row in rows])).encode()
    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    return text.getvalue().encode()


def print_runs(content: Mapping[str, Any]) -> None:
    for file, why in content["bad"].items():
        print(f"left out   {file}: {why}", file=sys.stderr)
    if "rows" in content:
        _print_rows(content["rows"], content["columns"])
    else:
        print(", ".join(f"{name} {value}" for name, value in content.items() if name != "bad"))


def _print_rows(rows: Sequence[Sequence], columns: Sequence[str]) -> None:
    text = [[f"{value:.5g}" if isinstance(value, float) else str(value) for value in row] for row in rows[:_SHOWN]]
    widths = [max(len(row[k]) for row in (columns, *text)) for k in range(len(columns))]
    for row in (columns, *text):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if len(rows) > _SHOWN:
        print(f"... {len(rows) - _SHOWN} more (--json or --export has all)")


def keep(path: str | None, kind: str, rows: Sequence[Mapping[str, Any]], code: str) -> None:
    """Rows of another command in a store: a run of `train`, a study, or claims. The key is what they were asked, and by which code."""
    if path and rows:
        named = [{**row, "kind": kind, "code": code} for row in rows]
        key = lambda row: digest([row[name] for name in ("kind", "code", "name", "asked")])
        Store(path).write([{"key": key(row), **row} for row in named], {"kind": kind, "code": code, **provenance()})
