"""Claims and studies: `study` and `verify`."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax

from ..errors import ArgumentError, MissingExtra
from ..files import write_bytes
from ..references.watched import watching
from ..report.page import render
from ..studies.base import Study, plain, save
from ..studies.catalogue import STUDIES
from ..theorems import catalogue
from ..theorems.base import Claim
from ..verdict import Outcome, Verdict
from .exact import print_proofs, prove_all
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
    rows = []
    with progress(len(claims) + len(studies)) as show, watching() if exact else nullcontext([]) as calls:
        for number, claim in enumerate(claims, 1):
            show(f"[{number}/{len(claims)}] {claim.name}", 0)
            rows.append(check(claim))
            show(f"[{number}/{len(claims)}] {claim.name}: {rows[-1]['verdict']}", 1)
            if number % _COMPILED == 0:
                jax.clear_caches()
        if exact:
            print_proofs(prove_all(calls))
            calls.clear()
        if out:  # before the studies: whatever becomes of them, the claims are checked
            ledger = {"format": "penchant ledger 1", "claims": plain(rows)}
            write_bytes(Path(out) / "ledger.json", json.dumps(ledger).encode())
        for study in studies:
            jax.clear_caches()
            try:
                _run_one(study, seed, full, str(out), show)
                show(f"{study.name}: done", 1)
            except MissingExtra as error:  # leaves out one study, not the page
                show(f"{study.name}: left out. {error}", 1)
    if out:
        print(f"page: {render(out)}", file=sys.stderr)
    return rows, all(row["twin"] == "refuted" and row["verdict"] == row["expected"] for row in rows)


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
