"""`coverage`: every numbered item of a paper with the claims and studies that cite it, their verdicts, and what is missing.

The items of a paper are its file `items.txt`, a line each: the item as printed | a few words | why it needs no check, if it needs none.
Citations of claims and titles of studies name items in the same words; nothing else ties them together.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ..lab import Paper
from .claims import kept

_NUMBER = r"(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)*\b)"
_NAMED = re.compile(
    r"(?i:\b(Theorem|Lemma|Corollary|Remark|Definition|Assumption|Condition|Example|Algorithm|Figure|Section|Appendix))"
    rf"s? ((?:after Theorem )?{_NUMBER}(?:(?:, | and |, and |-){_NUMBER})*)"
)
_TAGGED = re.compile(r"\((\d+(?:\.\d+)?|[A-Z]+-[A-Z]+|[A-Z]{2,})\)(?:-\((\d+(?:\.\d+)?)\))?")


def references(text: str) -> tuple[str, ...]:
    """The items that a citation names, each by itself.

    >>> references("Lemmas 9, 10 and 12-14, by (9.8) and (2)-(3)")
    ('Lemma 9', 'Lemma 10', 'Lemma 12', 'Lemma 13', 'Lemma 14', '(9.8)', '(2)', '(3)')
    """
    named = []
    for kind, listed in _NAMED.findall(text):
        for part in re.split(r", and |, | and ", listed):
            named += [f"{kind.capitalize()} {number}" for number in _spelled(*part.split("-"))]
    tagged = [f"({number})" for first, last in _TAGGED.findall(text) for number in _spelled(first, last)]
    return tuple(dict.fromkeys((*named, *tagged)))


def _spelled(first: str, last: str = "") -> list[str]:
    """Every number from the first to the last, or the first alone."""
    if not last:
        return [first]
    head, dot, low = first.rpartition(".")
    return [f"{head}{dot}{number}" for number in range(int(low), int(last.rpartition(".")[2]) + 1)]


def items(paper: Paper) -> list[dict]:
    """The numbered items of a paper, in their order; none where it has no list."""
    file = Path(sys.modules[paper.package].__file__ or "").parent / "items.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = [dict(zip(("item", "words", "note"), map(str.strip, line.split("|")), strict=True)) for line in lines]
    return [{"paper": paper.name, "kind": _kind(row["item"]), **row} for row in rows]


def _kind(item: str) -> str:
    return "equation" if item.startswith("(") else item.split()[0].lower()


def cited(paper: Paper, citation: str) -> tuple[str, ...]:
    """The items of a paper that a citation names; other works stand behind a semicolon."""
    own = [part.replace(paper.source, "") for part in citation.split(";") if paper.source in part]
    return references(" ".join(own))


def coverage(papers: Sequence[Paper], verdicts: Mapping[str, str] | None = None) -> list[dict]:
    """Item by item: its claims with the verdict of the last `verify` and the line that checks each, its studies, and "checked", "explained" or "missing"."""
    return [_covered(paper, row, verdicts or {}) for paper in papers for row in items(paper)]


def _covered(paper: Paper, row: dict, verdicts: Mapping[str, str]) -> dict:
    wanted = set(references(row["item"]))
    names = {claim.name: claim for claim in paper.claims if wanted & set(cited(paper, claim.citation))}
    found = {
        name: verdicts.get(name) or (kept(paper, one) or {}).get("verdict", "not checked yet")
        for name, one in names.items()
    }
    studies = [study.name for study in paper.studies if wanted & set(references(study.title))]
    status = "checked" if found or studies else "explained" if row["note"] else "missing"
    places = {name: one.place for name, one in names.items()}
    return {**row, "claims": found, "places": places, "studies": studies, "status": status}


def print_coverage(rows: list[dict]) -> None:
    """A table per paper, and what is missing."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    for paper, group in groupby(rows, lambda row: row["paper"]):
        table = Table("item", "what", "checks", title=paper, title_justify="left")
        found = list(group)
        for row in found:
            checks = [f"{verdict}: {name}, {row['places'][name]}" for name, verdict in row["claims"].items()]
            checks += [f"study {name}" for name in row["studies"]]
            table.add_row(row["item"], escape(row["words"]), escape("\n".join(checks) or row["note"] or "MISSING"))
        console.print(table)
        count = lambda status, found=found: sum(row["status"] == status for row in found)
        told = ", ".join(f"{count(status)} {status}" for status in ("checked", "explained", "missing"))
        missing = ", ".join(row["item"] for row in found if row["status"] == "missing")
        console.print(f"{paper}: {len(found)} items, {told}" + (f": {missing}" if missing else "") + "\n")
