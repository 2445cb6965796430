"""Claims and studies: `study` and `verify`."""

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from ..errors import ArgumentError, MissingExtra
from ..files import mark, write_bytes
from ..references.watched import watching
from ..report.page import read_saved, render
from ..studies.base import Study, plain, save
from ..studies.catalogue import STUDIES
from ..theorems import catalogue
from ..theorems.base import Claim
from ..verdict import Outcome, Verdict
from .exact import print_proofs, prove_all
from .options import check_writable
from .progress import progress

_COMPILED = (
    40  # claims between which compiled code is let go: the system allows a process only so many pieces of memory
)


def _find_study(name: str) -> Study:
    for study in STUDIES:
        if study.name == name:
            return study
    raise ArgumentError("NAME", "penchant study", f"one of {', '.join(study.name for study in STUDIES)}", repr(name))


def _run_one(study: Study, seed: int, full: bool, out: str, show: Any) -> Path:
    started = time.perf_counter()
    result = study.run(seed, full, lambda text: show(f"{study.name}: {text}"))
    return save(study, result, out, seed=seed, full=full, seconds=time.perf_counter() - started)


def run_study(name: str, seed: int, full: bool, out: str) -> dict:
    """Run one study, save it and make the page; returns what was saved, and where."""
    study = _find_study(name)
    check_writable(f"{out}/{name}/study.json")
    with progress(1) as show:
        folder = _run_one(study, seed, full, out, show)
    content = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    return {"study": name, **content, "folder": str(folder), "page": str(render(out))}


def print_study(content: dict) -> None:
    """The findings with the inequalities that decided them, and the page."""
    for finding in content["findings"]:
        verdict = finding["verdict"]
        detail = f" ({verdict['detail']})" if verdict["detail"] else ""
        print(f"{verdict['outcome']:10} {finding['statement']}\n           {verdict['inequality']}{detail}")
    print(f"page: {content['page']}")


def verify(
    papers: Sequence[str], out: str | None, seed: int, full: bool, exact: bool = False
) -> tuple[list[dict], bool]:
    """Check all claims and their twins; with `out`, also run the studies and write the page. False if a check cannot be trusted.

    With `exact` every reference that a claim rests on is proved once more in rational arithmetic.
    """
    unknown = [paper for paper in papers if paper not in catalogue.PAPERS]
    if unknown:
        raise ArgumentError("PAPER", "penchant verify", f"one of {', '.join(catalogue.PAPERS)}", repr(unknown[0]))
    wanted = papers or catalogue.PAPERS
    claims = [claim for claim in catalogue.CLAIMS if claim.paper in wanted]
    studies = [study for study in STUDIES if study.paper in wanted] if out else []
    if not full:  # the first study of each paper shows its main figure; all of them take a quarter of an hour
        studies = list({study.paper: study for study in reversed(studies)}.values())[::-1]
    for name in ("ledger.json", "index.html", *(f"{study.name}/study.json" for study in studies)) if out else ():
        check_writable(f"{out}/{name}")
    done = _unfinished(out, [claim.name for claim in claims])
    if out:
        _save_ledger(out, claims, done)
    with progress(len(claims) + len(studies)) as show, watching() if exact else nullcontext([]) as calls:
        for number, claim in enumerate(claims, 1):
            show(f"[{number}/{len(claims)}] {claim.name}", 0)
            if claim.name not in done:
                done[claim.name] = check(claim)
                if out:
                    _save_ledger(out, claims, done)
            show(f"[{number}/{len(claims)}] {claim.name}: {done[claim.name]['verdict']}", 1)
            if number % _COMPILED == 0:
                jax.clear_caches()
        if exact:
            print_proofs(prove_all(calls))
            calls.clear()
        for study in studies:
            jax.clear_caches()
            try:
                _run_one(study, seed, full, str(out), show)
                show(f"{study.name}: done", 1)
            except MissingExtra as error:  # leaves out one study, not the page
                show(f"{study.name}: left out. {error}", 1)
    if out:
        print(f"page: {render(out)}", file=sys.stderr)
    rows = [done[claim.name] for claim in claims]
    return rows, all(_trusted(row) for row in rows)


def _trusted(row: dict) -> bool:
    return row["twin"] == "refuted" and row["verdict"] == row["expected"]


@cache
def _code() -> str:
    """A digest of what decides the rows of a ledger: the source, and the packages it computes with."""
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "jax")).encode())
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _save_ledger(out: str, claims: Sequence[Claim], done: dict[str, dict]) -> None:
    """After every claim, so that an interrupted call can be continued."""
    rows = [done[claim.name] for claim in claims if claim.name in done]
    ledger = {"format": mark("ledger"), "code": _code(), "unfinished": len(claims) - len(rows), "claims": plain(rows)}
    write_bytes(Path(out) / "ledger.json", json.dumps(ledger).encode())


def _unfinished(out: str | None, names: Sequence[str]) -> dict[str, dict]:
    """By name, the rows that an interrupted call with this very code left in `out`; a finished ledger is made anew."""
    path = Path(out or "") / "ledger.json"
    ledger = read_saved(path, "ledger") if out and path.exists() else {}
    if not ledger.get("unfinished") or ledger.get("code") != _code():
        return {}
    return {row["claim"]: row for row in ledger["claims"] if row["claim"] in names and _trusted(row)}


def check(claim: Claim) -> dict:
    """One row of the ledger."""
    started = time.perf_counter()
    verdict, twin = _evidence(claim, False), _evidence(claim, True)
    return {
        "claim": claim.name,
        "paper": claim.paper,
        "statement": claim.statement,
        "citation": claim.citation,
        "verdict": verdict.outcome.value,
        "expected": claim.expected.value,
        "predicted": verdict.predicted,
        "measured": verdict.measured,
        "inequality": verdict.inequality,
        "detail": verdict.detail,
        "seconds": round(time.perf_counter() - started, 2),
        "twin": twin.outcome.value,
    }


def _evidence(claim: Claim, planted: bool) -> Verdict:
    """A check that breaks decides nothing, and the ledger says why."""
    try:
        return claim.check(planted)
    except Exception as error:
        return Verdict(Outcome.undecided, f"the check broke: {type(error).__name__}: {error}")


def print_ledger(rows: list[dict]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Ledger of claims", show_lines=False)
    for column in ("claim", "verdict", "deciding inequality", "s", "twin"):
        table.add_column(column, overflow="fold")
    colours = {"confirmed": "green", "refuted": "red", "undecided": "yellow"}
    for row in rows:
        verdict = f"[{colours[row['verdict']]}]{row['verdict']}[/]" + (
            " (known)" if row["expected"] == row["verdict"] == "refuted" else ""
        )
        table.add_row(row["claim"], verdict, row["inequality"].replace("[", "\\["), str(row["seconds"]), row["twin"])
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    counts = {outcome: sum(row["verdict"] == outcome for row in rows) for outcome in colours}
    console.print(f"{len(rows)} claims: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    console.print(f"twins refuted: {sum(row['twin'] == 'refuted' for row in rows)} of {len(rows)}")
