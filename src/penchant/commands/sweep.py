"""`sweep`: the runs of a spec into a store; `runs`: what a store holds."""

import csv
import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..exhibits import Figure, Line, Result, Shown, Table, plain
from ..files import write_bytes
from ..lab import Study
from ..report.page import render, save
from ..sweeps.boundary import Boundary, summary
from ..sweeps.spec import EVENT, read_spec
from ..sweeps.store import Store, digest
from ..sweeps.sweep import Runs, sweep
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
    more |= {"seeds": options.seeds} if options.seeds else {}
    given = read_spec(options.spec or {}, **more)
    if options.out:
        check_writable(f"{options.out}/index.html")
    measure = options.measure or given.boundary.get("event", "")
    with progress(len(given.rows())) as show:
        how = {
            "engine": options.engine,
            "jobs": options.jobs,
            "scheduler": options.scheduler or "",
            "retry": options.retry,
        }
        found = sweep(given, store=options.store, progress=show, **how)
    told = {"runs": len(found.rows), "kept": found.kept, "failures": found.failures, "store": options.store}
    told["cells"] = summary(found.rows, tuple(given.grid), measure) if measure and given.grid else []
    if options.out:
        told["page"] = str(_page(options, given.name, _exhibits(found, given.grid, measure)))
    return told


def print_sweep(content: Mapping[str, Any]) -> None:
    print(f"runs       {content['runs']}, of which {content['kept']} were there before; store: {content['store']}")
    for reason, count in content["failures"].items():
        print(f"failed     {count}: {reason.splitlines()[0]}")
    _print_rows([list(cell.values()) for cell in content["cells"]], list(content["cells"][0])) if content[
        "cells"
    ] else None
    if "page" in content:
        print(f"page       {content['page']}")


def _exhibits(found: Runs, grid: Mapping[str, tuple], measure: str) -> tuple[Figure | Table, ...]:
    """The boundary, or the cells of a grid as a table and, over one or two numbers, as a picture."""
    if isinstance(found.refined, Boundary):
        return (found.refined.figure("boundary"), _band_table(found.refined))
    if not (measure and grid):
        raise ArgumentError("--measure", "penchant sweep", "given with --out, for a sweep over a grid", "nothing")
    cells = summary(found.rows, tuple(grid), measure)
    table = Table(
        "cells",
        measure,
        tuple(cells[0]),
        tuple(tuple(map(_cell, cell.values())) for cell in cells),
        "With 95 % intervals.",
    )
    axes = [name for name, values in grid.items() if len(values) > 1 and not isinstance(values[0], str | bool)]
    return (table, *([_picture(cells, axes, measure)] if 0 < len(axes) < 3 and len(grid) == len(axes) else []))


def _picture(cells: list[dict], axes: list[str], measure: str) -> Figure:
    import numpy as np

    columns = {name: np.array([cell[name] for cell in cells], float) for name in cells[0]}
    value, x, y = columns.get("share", columns.get("mean")), columns[axes[0]], columns[axes[-1]]
    assert value is not None
    log = ["log" if (one > 0).all() and one.max() > 20 * one.min() else "linear" for one in (x, y)]
    if len(axes) == 2:
        lines = (Line(measure, x, y, "map", values=value),)
        return Figure("map", measure, axes[0], axes[1], lines, "One cell for every pair of the grid.", log[0], log[1])
    line = Line(measure, x, value, "points", error=(columns["high"] - columns["low"]) / 2)
    return Figure("line", measure, axes[0], measure, (line,), "With half the width of the 95 % interval.", log[0])


def _band_table(boundary: Boundary) -> Table:
    """The boundary and its band by columns of the picture."""
    import numpy as np

    columns = (np.arange(20) + 0.5) / 20
    ends = boundary.band(columns)
    place = lambda share: boundary.place(np.array([0.0, share]))[1]
    rows = tuple(
        (Shown(boundary.place(np.array([column, 0.0]))[0], ".4g"), *(Shown(place(end), ".4g") for end in row))
        for column, row in zip(columns, ends, strict=True)
        if np.isfinite(row).all()
    )
    x, y = (axis["key"] for axis in boundary.axes)
    return Table("band", "The boundary and its band", (x, f"{y} at the boundary", "from", "to"), rows, "")


def _cell(value: Any) -> Any:
    return Shown(value, ".4g") if isinstance(value, float) else value


def _page(options: Namespace, name: str, exhibits: Sequence[Figure | Table]) -> Path:
    figures = tuple(one for one in exhibits if isinstance(one, Figure))
    result = Result((), figures, tuple(one for one in exhibits if isinstance(one, Table)))
    save(Study(name, f"Sweep: {name}", seeded=False), result, options.out, paper="", seed=0, full=False, seconds=0.0)
    return render(options.out)


def runs(options: Namespace) -> tuple[dict, int]:
    """List, group, export, prune or check the runs of a store; files that are not whole are named."""
    store, where = Store(options.store), options.where or "true"
    if options.check:
        groups, bad = store.scan(whole=True)
        return {"groups": len(groups), "runs": len(store.rows()), "bad": bad}, 1 if bad else 0
    if options.prune:
        if not options.where:
            raise ArgumentError(
                "--where", "penchant runs", "given with --prune, so that it is said what goes", "nothing"
            )
        return {"pruned": store.prune(where), "bad": store.skipped}, 0
    columns, rows = store.query(options.sql or _question(options, where))
    if options.export:
        write_bytes(_table_name(options.export), _written(columns, rows, Path(options.export).suffix))
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


def _table_name(path: str) -> str:
    if Path(path).suffix not in (".csv", ".json"):
        raise ArgumentError("--export", "penchant runs", "a file name ending in .csv or .json", repr(path))
    check_writable(path)
    return path


def _written(columns: Sequence[str], rows: Sequence[tuple], ending: str) -> bytes:
    import io

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
    if path:
        named = [{"kind": kind, "code": code, **row} for row in rows]
        keyed = [
            {"key": digest({name: row[name] for name in ("kind", "code", "name", "asked")}), **row} for row in named
        ]
        Store(path).write(keyed, {"kind": kind, "code": code, **provenance()})
