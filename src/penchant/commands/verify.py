"""`verify`: every sentence of the papers and its repairs, each with a twin that must be refuted; `study`: one figure of a paper with its page.

`coverage`: every numbered item of a paper with the claims and studies that cite it, their verdicts, and what is missing.

The items of a paper are its file `items.txt`, a line each: the item as printed | a few words | why it needs no check, if it needs none.
Citations of claims and titles of studies name items in the same words; nothing else ties them together.
"""

import json
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import count, groupby
from pathlib import Path

from ..cache import fingerprint
from ..errors import ArgumentError
from ..exhibits import plain
from ..files import check_writable, mark, write_bytes
from ..lab import KINDS, Claim, Paper
from ..papers import PAPERS, find_papers, new_lab
from ..report.page import render
from ..sweeps.executors import cores
from ..verdict import Outcome
from . import Said
from .claims import check_all, drawn, find_study, kept, run_one
from .progress import progress
from .proofs import print_proofs
from .runs import aligned, keep

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
    known = lambda one: verdicts.get(one.name) or (kept(paper, one) or {}).get("verdict", "not checked yet")
    found = {name: known(one) for name, one in names.items()}
    studies = [study.name for study in paper.studies if wanted & set(references(study.title))]
    status = "checked" if found or studies else "explained" if row["note"] else "missing"
    places = {name: one.place for name, one in names.items()}
    return {**row, "claims": found, "places": places, "studies": studies, "status": status}


def list_coverage(options: Namespace) -> Said:
    """`coverage` on the command line; 1 where an item has no check."""
    papers = find_papers(tuple(options.papers))
    rows = coverage(papers)
    bare = [f"{one.name}: no items.txt, which would list what needs a check" for one in papers if not items(one)]
    return Said(rows, [*_coverage_lines(rows), *bare], int(any(row["status"] == "missing" for row in rows)))


def _coverage_lines(rows: list[dict]) -> Iterator[str]:
    """Every item with what checks it, and what is missing."""
    for paper, group in groupby(rows, lambda row: row["paper"]):
        found = list(group)
        for row in found:
            yield f"{row['item']}: {row['words']}"
            checks = [f"{verdict}: {name}, {row['places'][name]}" for name, verdict in row["claims"].items()]
            checks += [f"study {name}" for name in row["studies"]]
            yield from (f"    {text}" for text in checks or [row["note"] or "MISSING"])
        counts = Counter(row["status"] for row in found)
        told = ", ".join(f"{counts[status]} {status}" for status in ("checked", "explained", "missing"))
        missing = ", ".join(row["item"] for row in found if row["status"] == "missing")
        yield f"{paper}: {len(found)} items, {told}" + (f": {missing}" if missing else "") + "\n"
    waiting = {name for row in rows for name, verdict in row["claims"].items() if verdict == "not checked yet"}
    if waiting:
        yield f"no verdict of this code yet for {len(waiting)} of these claims: penchant verify checks them"


_FEW = 12  # claims of which every one is told, with the line that checks it
_SENTENCES = ("proved", "sharpened", "repaired")  # what the papers say; `--all` adds the rest


def became() -> dict[str, tuple[str, ...]]:
    """What ids of earlier releases became: old ids by the claim that says it now; of "" what is a test, or a row of a table, and no claim."""
    rows = Path(__file__).with_name("became.txt").read_text(encoding="utf-8").splitlines()[1:]
    return {now.strip(): tuple(olds.split()) for now, _, olds in (row.partition("|") for row in rows)}


def find_claims(names: Sequence[str], papers: Sequence[Paper]) -> list[tuple[Paper, Claim]]:
    """The claims of these ids; old ones, also with a dash for the slash, are answered with what they became."""
    dashed = lambda name: name.replace("/", "-")
    old_ids = {dashed(old): now for now, olds in became().items() for old in olds}
    known = {dashed(claim.name): (paper, claim) for paper in papers for claim in paper.claims}
    found = []
    for name in names:
        now = dashed(old_ids.get(dashed(name), name))
        if now not in known:
            near = get_close_matches(name, [claim.name for _, claim in known.values()], 1) if now else []
            guess = "".join(f"did you mean {one}? " for one in near)
            fix = (
                f"{guess}`penchant coverage` lists them by paper and number"
                if now
                else "it is a test now, or a row of a table, or was left out"
            )
            wanted = "the id of a claim" if now else "one that is still a claim"
            raise ArgumentError("--claim", "penchant verify", wanted, repr(name), fix)
        found.append(known[now])
        if found[-1][1].name != name:
            print(f"{name} is now {found[-1][1].name}", file=sys.stderr)
    return found


def verify(options: Namespace) -> Said:
    """Check claims and their twins; with `--out`, also run studies and write the page. 1 if a check cannot be trusted.

    With `--exact` every reference that a claim rests on is proved once more in rational arithmetic.
    """
    papers, out = find_papers(tuple(options.papers)), options.out
    claims = [(paper, claim) for paper in papers for claim in paper.claims if options.all or claim.kind in _SENTENCES]
    claims = find_claims(options.claim, papers) if options.claim else claims
    for name in ("ledger.json", "index.html") if out else ():
        check_writable(f"{out}/{name}")  # before the work, not after it
    studies = _studies(papers, options) if out else []
    rows = _rows(claims, options.jobs or cores(), options.fresh, options.exact, studies)
    sentences = {claim.name: claim.statement for paper in papers for claim in paper.claims}
    rows = [{**row, "repaired": sentences.get(row["repair"], "")} for row in rows]
    proofs = [row.pop("proofs", {}) for row in rows]
    if options.exact:
        print_proofs(proofs)
    for paper in papers if options.store else ():
        own = [row for row in rows if row["paper"] == paper.name]
        told = [{name: row[name] for name in ("paper", "expected", "twin", "seconds", "inequality")} for row in own]
        named = [{"name": row["claim"], "asked": paper.name, "status": row["verdict"]} for row in own]
        keep(options.store, "claim", [a | b for a, b in zip(named, told, strict=True)], fingerprint(paper.name))
    if out:
        covered = coverage(papers, {row["claim"]: row["verdict"] for row in rows})
        ledger = {"format": mark("ledger"), "claims": plain(rows), "coverage": covered}
        write_bytes(Path(out) / "ledger.json", json.dumps(ledger).encode())
        print(f"page: {render(out)}", file=sys.stderr)
    return Said(rows, _lines(rows), int(not all(map(_as_expected, rows))))


def _as_expected(row: dict) -> bool:
    return row["twin"] == "refuted" and row["verdict"] == row["expected"]


def _rows(claims: list[tuple[Paper, Claim]], jobs: int, fresh: bool, exact: bool, studies: list[tuple]) -> list[dict]:
    """The ledger in the order of the papers: kept rows where there are any, the others computed, studies drawn with their evidence."""
    rows = {} if fresh else {claim.name: kept(paper, claim) for paper, claim in claims}
    found = {name: row for name, row in rows.items() if row and (not exact or "proofs" in row)}
    missing = [(paper, claim) for paper, claim in claims if claim.name not in found]
    if found:
        print(f"{len(found)} claims kept from before, {len(missing)} to check (--fresh checks all)", file=sys.stderr)
    total, number = len(missing) + len(studies), count(1)
    with progress() as show:

        def tell(row: dict, left: float) -> None:
            wait = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
            show(f"[{next(number)}/{total}] {row['claim']}: {row['verdict']}, about {wait} left")

        for row in check_all(missing, jobs, tell, exact, studies) if total else ():
            found[row["claim"]] = row
    return [found[claim.name] for _, claim in claims]


def _studies(papers: Sequence[Paper], options: Namespace) -> list:
    """The first study of each paper, which shows its main figure, or all where the page is to be full; without those drawn before."""
    how = options.seed, options.full, options.out, tuple(KINDS) if options.all else _SENTENCES
    wanted = [(paper, study) for paper in papers for study in (paper.studies if options.full else paper.studies[:1])]
    return [(paper, study.name, *how) for paper, study in wanted if options.fresh or not drawn(paper, study, *how)]


def _lines(rows: list[dict]) -> Iterator[str]:
    """What a reader wants: counts by paper and kind, the findings, what was not as expected, the slowest."""
    yield "Claims by paper and kind: confirmed + refuted as expected / all"
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    papers = dict.fromkeys(row["paper"] for row in rows)
    of = lambda *asked: [row for row in rows if (row["paper"], row["kind"]) == asked]
    yield from aligned([(paper, *(_cell(of(paper, kind)) for kind in kinds)) for paper in papers], ("paper", *kinds))
    refuted = [row for row in rows if row["verdict"] == row["expected"] == "refuted"]
    if refuted:
        yield f"\nFindings: {len(refuted)} sentences that do not hold"
    for row in refuted:
        yield f"refuted {row['claim']}: {row['statement']}\n        {row['inequality']}"
        if row["repair"]:
            yield f"        what holds: {row['repair']}: {row['repaired']}"
    for row in rows:
        if not _as_expected(row):
            yield f"not as expected {row['claim']}: {row['verdict']}, twin {row['twin']}\n        {row['inequality']}"
    if len(rows) <= _FEW:
        yield from (f"{row['claim']}: {row['verdict']}, by {row['place']}" for row in rows)
    slowest = sorted(rows, key=lambda row: -row["seconds"])[:5]
    yield "\nslowest: " + ", ".join(f"{row['claim']} {row['seconds']:.0f} s" for row in slowest)
    counts = Counter(row["verdict"] for row in rows)
    yield f"{len(rows)} claims: " + ", ".join(f"{counts[one.value]} {one.value}" for one in Outcome)
    yield f"twins refuted: {sum(row['twin'] == 'refuted' for row in rows)} of {len(rows)}"


def _cell(rows: list[dict]) -> str:
    counts = Counter(row["verdict"] for row in rows if row["verdict"] == row["expected"])
    refuted = f" + {counts['refuted']}" if counts["refuted"] else ""
    return f"{counts['confirmed']}{refuted} / {len(rows)}" if rows else ""


def list_studies(options: Namespace) -> Said:
    """Every study with its title and paper."""
    pairs = [(paper, study) for paper in PAPERS for study in paper.studies]
    rows = [{"name": study.name, "title": study.title, "paper": paper.name} for paper, study in pairs]
    return Said(rows, ("{name:28}{title}  [{paper}]".format(**row) for row in rows))


def run_study(options: Namespace) -> Said:
    """Run one study, save it and make the page; what was saved, and where."""
    paper, study = find_study(options.name)
    check_writable(f"{options.out}/{study.name}/study.json")
    with progress() as show:
        lab = new_lab(options.seed, options.full, lambda text: show(f"{study.name}: {text}"))
        folder = run_one(paper, study, lab, options.out)
    content = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    given = {"name": study.name, "seed": options.seed, "full": options.full}
    found = [(f"{one['statement']} {options.seed} {options.full}", one["verdict"]) for one in content["findings"]]
    told = [{"asked": asked, "status": one["headline"], "inequality": one["inequality"]} for asked, one in found]
    keep(options.store, "study", [given | row for row in told], fingerprint(paper.name))
    whole = {"study": study.name, **content, "folder": str(folder), "page": str(render(options.out))}
    return Said(whole, _study_lines(whole))


def _study_lines(content: dict) -> Iterator[str]:
    """The findings with the inequalities that decided them, and the page."""
    for finding in content["findings"]:
        verdict = finding["verdict"]
        detail = f" ({verdict['detail']})" if verdict["detail"] else ""
        yield f"{verdict['headline']:10} {finding['statement']}\n           {verdict['inequality']}{detail}"
    yield f"page: {content['page']}"
