"""Studies and verdicts as files: what the page is made of."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx

from ..cache import fingerprint
from ..exhibits import DEFINITIONS, Finding, Result, Shown, Table, plain
from ..files import mark, write_bytes
from ..lab import Study
from ..verdict import Verdict
from .page import render

FORMAT = mark("study")


def _table(table: Table) -> dict:
    """`rows` as the page shows them, and `values` with the same cells unrounded."""
    text = lambda cell: str(cell) if isinstance(cell, Shown | eqx.Module) else plain(cell)
    value = lambda cell: plain(cell.value if isinstance(cell, Shown) else cell)
    return {
        **plain(table),
        "rows": [[text(cell) for cell in row] for row in table.rows],
        "values": [[value(cell) for cell in row] for row in table.rows],
    }


def _finding(finding: Finding) -> dict:
    """A finding with the headline of its verdict, and both facts in words."""
    verdict = finding.verdict
    facts = f"conclusion {verdict.conclusion}, hypotheses {verdict.hypotheses}"
    return {**plain(finding), "verdict": {**plain(verdict), "headline": verdict.headline, "facts": facts}}


def _words(value: Any) -> str:
    """All text of a result, without its numbers."""
    if isinstance(value, str):
        return value
    if isinstance(value, eqx.Module):
        return _words(list(vars(value).values()))
    if isinstance(value, dict):
        return _words(list(value.values()))
    return " ".join(_words(item) for item in value if item is not None) if isinstance(value, list | tuple) else ""


def _used(result: Result) -> dict[str, str]:
    """The study's own definitions, and of the common ones those it mentions."""
    own = {name: meaning for name, meaning in result.definitions.items() if DEFINITIONS.get(name) != meaning}
    text = _words([result.findings, result.figures, result.tables, own])
    return {name: meaning for name, meaning in result.definitions.items() if name in own or name in text}


def save(
    study: Study, result: Result, directory: str | Path, *, paper: str, seed: int, full: bool, seconds: float
) -> Path:
    """Write `study.json` and one trajectory file per run under `directory`/study-name; returns that folder."""
    folder = Path(directory) / study.name
    header = {"format": FORMAT, "name": study.name, "title": study.title, "paper": paper}
    header |= {"seed": seed if study.seeded else None, "full": full, "seconds": round(seconds, 3)}
    header |= {"code": fingerprint(paper)} if paper else {}
    for name, run in result.runs.items():
        run.save(folder / f"{name}.npz")
    content = {
        **header,
        "findings": [_finding(finding) for finding in result.findings],
        "figures": plain(result.figures),
        "tables": [_table(table) for table in result.tables],
        "definitions": _used(result),
    }
    content["runs"] = {name: f"{name}.npz" for name in result.runs}
    write_bytes(folder / "study.json", json.dumps(content).encode())
    return folder


def report(findings: Sequence[Verdict | Finding], directory: str | Path) -> Path:
    """Write verdicts (or findings with statement and citation) to `directory` and make its page; returns the page."""
    items = tuple(item if isinstance(item, Finding) else Finding("", item) for item in findings)
    study = Study("verdicts", "Verdicts", lambda lab: Result(items, ()))
    save(study, Result(items, ()), directory, paper="", seed=0, full=False, seconds=0.0)
    return render(directory)
