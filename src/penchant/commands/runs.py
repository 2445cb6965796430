"""`runs`: what a run store holds, and what other commands put there. Imports nothing heavy, so that a question is answered at once."""

import csv
import io
import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..files import write_bytes
from ..sweeps.store import EVENT, Store, digest
from ..sweeps.work import provenance
from . import Said

_SHOWN = 20  # rows of a table on the terminal


def runs(options: Namespace) -> Said:
    """List, group, export, prune or check the runs of a store; files that are not whole are named."""
    store, where = Store(options.store), options.where or "true"
    for name, others in {"where": "sql check", "show": "sql check prune", "export": "check prune"}.items():
        for other in others.split():
            if getattr(options, name) and getattr(options, other):
                raise ArgumentError(f"--{name}", "penchant runs", f"left out with --{other}", getattr(options, name))
    if options.check:
        groups, bad = store.scan(whole=True)
        return _told({"groups": len(groups), "runs": len(store.rows()), "bad": bad}, int(bool(bad)))
    if options.prune:
        if not options.where:
            raise ArgumentError("--where", "penchant runs", "given with --prune: it says what goes", "nothing")
        return _told({"pruned": store.prune(where), "bad": store.skipped})
    if options.export and Path(options.export).suffix not in (".csv", ".json"):
        raise ArgumentError("--export", "penchant runs", "a file name ending in .csv or .json", repr(options.export))
    columns, rows = store.query(options.sql or _question(options, where))
    if options.export:
        write_bytes(options.export, _written(columns, rows, Path(options.export).suffix))
        return _told({"exported": options.export, "runs": len(rows), "bad": store.skipped})
    return _told({"columns": columns, "rows": rows, "bad": store.skipped})


def _told(content: dict, code: int = 0) -> Said:
    for file, why in content["bad"].items():
        print(f"left out   {file}: {why}", file=sys.stderr)
    if "rows" in content:
        return Said(content, aligned(content["rows"], content["columns"]), code)
    return Said(content, [", ".join(f"{name} {value}" for name, value in content.items() if name != "bad")], code)


def _question(options: Namespace, where: str) -> str:
    """SQL for what is asked: counts of every status, or groups with the mean of a column or the share of an event, or rows."""
    if options.rows or (options.export and not options.by):
        return f"select {options.show or '*'} from runs where {where} order by key"
    by = options.by or "kind, name, status"
    shown = [part.strip() for part in (options.show or "").split(",") if part.strip()]
    event = lambda part: f"avg(({part.replace('==', '=')})::int)" if EVENT.fullmatch(part) else f"avg({part})"
    asked = "".join(f', {event(part)} as "{part}"' for part in shown)
    return f"select {by}, count(*) as runs{asked} from runs where {where} group by {by} order by {by}"


def _written(columns: Sequence[str], rows: Sequence[tuple], ending: str) -> bytes:
    if ending == ".json":
        return json.dumps([dict(zip(columns, row, strict=True)) for row in rows]).encode()
    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    return text.getvalue().encode()


def aligned(rows: Sequence[Sequence], columns: Sequence[str], most: int = _SHOWN) -> Iterator[str]:
    """The first rows of a table, column under column."""
    short = lambda value: f"{value:.5g}" if type(value) is float else str(value).partition("\n")[0]
    text = [columns, *([short(value) for value in row] for row in rows[:most])]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for row in text:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if len(rows) > most:
        yield f"... {len(rows) - most} more (--json or --export has all)"


def keep(path: str | None, kind: str, rows: Sequence[Mapping[str, Any]], code: str) -> None:
    """Rows of another command in a store: a run of `train`, a study, or claims. The key is what they were asked, and by which code."""
    if path and rows:
        named = [{**row, "kind": kind, "code": code} for row in rows]
        key = lambda row: digest([row[name] for name in ("kind", "code", "name", "asked")])
        Store(path).write([{"key": key(row), **row} for row in named], {"kind": kind, "code": code, **provenance()})
