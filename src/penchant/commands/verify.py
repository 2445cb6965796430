"""`verify`: every sentence of the papers and its repairs, each with a twin that must be refuted."""

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from ..exhibits import plain
from ..files import mark, write_bytes
from ..lab import KINDS, Claim, Paper
from ..papers import find_papers
from ..report.page import render
from .claims import check_all, kept
from .exact import print_proofs
from .options import check_writable
from .progress import progress
from .study import drawn

_SENTENCES = ("proved", "sharpened", "repaired")  # what the papers say; `--all` adds the rest


def verify(
    papers: Sequence[str],
    out: str | None,
    seed: int,
    full: bool,
    everything: bool,
    jobs: int | None,
    fresh: bool,
    exact: bool,
) -> tuple[list[dict], bool]:
    """Check claims and their twins; with `out`, also run studies and write the page. False if a check cannot be trusted.

    With `exact` every reference that a claim rests on is proved once more in rational arithmetic.
    """
    chosen = find_papers(tuple(papers))
    claims = [(p, claim) for p in chosen for claim in p.claims if everything or claim.kind in _SENTENCES]
    for name in ("ledger.json", "index.html") if out else ():
        check_writable(f"{out}/{name}")  # before the work, not after it
    studies = _studies(chosen, seed, full, out, fresh) if out else []
    rows = _rows(claims, jobs or os.cpu_count() or 1, fresh, exact, studies)
    if exact:
        print_proofs([row.pop("proofs") for row in rows])
    if out:
        ledger = {"format": mark("ledger"), "claims": plain(rows)}
        write_bytes(Path(out) / "ledger.json", json.dumps(ledger).encode())
        print(f"page: {render(out)}", file=sys.stderr)
    return rows, all(row["twin"] == "refuted" and row["verdict"] == row["expected"] for row in rows)


def _rows(
    claims: list[tuple[Paper, Claim]],
    jobs: int,
    fresh: bool,
    exact: bool,
    studies: list[tuple[Paper, str, int, bool, str]],
) -> list[dict]:
    """The ledger in the order of the papers: kept rows where there are any, the others computed, studies drawn with their evidence."""
    found = {} if fresh or exact else {claim.name: row for paper, claim in claims if (row := kept(paper, claim))}
    missing = [(paper, claim) for paper, claim in claims if claim.name not in found]
    if found:
        print(f"{len(found)} claims kept from before, {len(missing)} to check (--fresh checks all)", file=sys.stderr)
    total = len(missing) + len(studies)
    number = count(1)
    with progress(total) as show:

        def tell(row: dict, left: float) -> None:
            show(f"[{next(number)}/{total}] {row['claim']}: {row['verdict']}, about {_duration(left)} left", 1)

        for row in check_all(missing, jobs, tell, exact, studies) if total else ():
            found[row["claim"]] = row
    return [found[claim.name] for _, claim in claims]


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _studies(papers: tuple[Paper, ...], seed: int, full: bool, out: str, fresh: bool) -> list:
    """The first study of each paper, which shows its main figure, or all where the page is to be full; without those drawn before."""
    wanted = [(paper, study) for paper in papers for study in (paper.studies if full else paper.studies[:1])]
    again = [(paper, study) for paper, study in wanted if fresh or not drawn(paper, study, seed, full, out)]
    return [(paper, study.name, seed, full, out) for paper, study in again]


def print_ledger(rows: list[dict]) -> None:
    """What a reader wants: counts by paper and kind, the findings, what was not as expected, the slowest."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(_counts(rows))
    refuted = [row for row in rows if row["verdict"] == row["expected"] == "refuted"]
    if refuted:
        console.print(f"\n[bold]Findings: {len(refuted)} sentences that do not hold[/]")
    for row in refuted:
        console.print(f"[red]refuted[/] {row['claim']}: {escape(row['statement'])}")
        console.print(f"        {escape(row['inequality'])}")
    for row in rows:
        if row["verdict"] != row["expected"] or row["twin"] != "refuted":
            console.print(f"[yellow]not as expected[/] {row['claim']}: {row['verdict']}, twin {row['twin']}")
            console.print(f"        {escape(row['inequality'])}")
    slowest = sorted(rows, key=lambda row: -row["seconds"])[:5]
    console.print("\nslowest: " + ", ".join(f"{row['claim']} {row['seconds']:.0f} s" for row in slowest))
    counts = Counter(row["verdict"] for row in rows)
    console.print(
        f"{len(rows)} claims: " + ", ".join(f"{counts[name]} {name}" for name in ("confirmed", "refuted", "undecided"))
    )
    console.print(f"twins refuted: {sum(row['twin'] == 'refuted' for row in rows)} of {len(rows)}")


def _counts(rows: list[dict]) -> Any:
    from rich.table import Table

    table = Table(title="Claims by paper and kind: confirmed + refuted as expected / all")
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    for column in ("paper", *kinds):
        table.add_column(column)
    for paper in dict.fromkeys(row["paper"] for row in rows):
        table.add_row(paper, *(_cell([r for r in rows if r["paper"] == paper and r["kind"] == kind]) for kind in kinds))
    return table


def _cell(rows: list[dict]) -> str:
    confirmed, refuted = (
        sum(row["verdict"] == row["expected"] == outcome for row in rows) for outcome in ("confirmed", "refuted")
    )
    return f"{confirmed}{f' + {refuted}' if refuted else ''} / {len(rows)}" if rows else ""
