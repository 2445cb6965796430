"""Claims and studies in worker processes: shared evidence computed once, the slowest paper first, whatever is finished kept.

A worker stays with one paper as long as that has work, so that its lab computes each recipe once; a free one without a paper of its own
helps the paper that has most left, from the other end of its list.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from .. import cache
from ..errors import ArgumentError, MissingExtra
from ..files import write_bytes
from ..lab import KINDS, Claim, Lab, Paper, Study
from ..papers import PAPERS, find_papers, new_lab
from ..references.base import watching
from ..report.page import save
from ..sweeps.executors import pool
from ..verdict import Outcome, Verdict
from .proofs import prove_all

_COMPILED = 40  # claims after which a worker lets compiled code go: a process may have only so many pieces of memory
_GUESS = {True: 6.0, False: 0.7}  # seconds of a slow claim and of another, before it was ever timed
_DRAWING = 20.0  # seconds of a study whose claims are checked
_OUTCOMES = tuple(outcome.value for outcome in Outcome)


def check(claim: Claim, paper: Paper, lab: Lab) -> dict:
    """One row of the ledger."""
    started = time.perf_counter()
    verdict, twin = _evidence(claim, lab, False), _evidence(claim, lab, True)
    return {
        "claim": claim.name,
        "paper": paper.name,
        **{name: getattr(claim, name) for name in ("kind", "statement", "citation", "repair", "place")},
        **{name: getattr(verdict, name) for name in ("predicted", "measured", "inequality", "detail")},
        "verdict": verdict.outcome.value,
        "expected": claim.expected.value,
        "twin": twin.outcome.value,
        "seconds": round(time.perf_counter() - started, 2),
    }


def _evidence(claim: Claim, lab: Lab, planted: bool) -> Verdict:
    """A check that breaks decides nothing, and the ledger says why."""
    try:
        return claim(lab, planted)
    except Exception as error:
        return Verdict(Outcome.undecided, f"the check broke: {type(error).__name__}: {error}")


def kept(paper: Paper, claim: Claim) -> dict | None:
    """The row of a claim that was checked before by the same code and libraries."""
    path = _place(paper, claim.name)
    if path is None:
        return None
    with suppress(OSError, ValueError):
        row = json.loads(path.read_text(encoding="utf-8"))
        if row.get("claim") == claim.name:
            return row
    return None


def _place(paper: Paper, name: str) -> Path | None:
    folder = cache.folder()
    return folder and folder / "claims" / cache.fingerprint(paper.name) / f"{name.replace('/', '.')}.json"


def find_study(name: str) -> tuple[Paper, Study]:
    """The study of this name, an old one included."""
    known = {name: (paper, one) for paper in PAPERS for one in paper.studies for name in (one.name, *one.aliases)}
    if name not in known:
        listed = ", ".join(dict.fromkeys(study.name for _, study in known.values()))
        raise ArgumentError("NAME", "penchant study", f"one of {listed}", repr(name))
    return known[name]


def run_one(paper: Paper, study: Study, lab: Lab, out: str) -> Path:
    """Run a study in a lab and save it."""
    started = time.perf_counter()
    result = study.result(lab)
    seconds = time.perf_counter() - started
    return save(study, result, out, paper=paper.name, seed=lab.seed, full=lab.full, seconds=seconds)


def drawn(paper: Paper, study: Study, seed: int, full: bool, out: str, kinds: Collection[str] = KINDS) -> bool:
    """Whether the page there was drawn before by the same code and libraries, with the findings of these kinds."""
    wanted = {"code": cache.fingerprint(paper.name), "seed": seed if study.seeded else None, "full": full}
    with suppress(OSError, ValueError, AttributeError):
        found = json.loads((Path(out) / study.name / "study.json").read_text(encoding="utf-8"))
        said = {one["statement"] for one in found.get("findings", ())}
        return found.items() >= wanted.items() and said >= {one.statement for one in study.claims if one.kind in kinds}
    return False


_LABS: dict[str, Lab] = {}  # of a worker process, the lab of its paper
_TASKS = count(1)


def _work(paper: str, name: str, exact: bool) -> dict:
    """In a worker: check one claim and keep its row, so that not even a killed `verify` loses it."""
    lab = _lab(paper)
    (found,) = find_papers((paper,))
    claim = next(claim for claim in found.claims if claim.name == name)
    with watching() as calls:
        row = check(claim, found, lab)
    place = _place(found, name)
    if exact:
        row["proofs"] = prove_all(calls)
    if place is not None and not row["inequality"].startswith("the check broke"):
        write_bytes(place, json.dumps(row).encode())
    return row


def _lab(paper: str) -> Lab:
    """The lab of this worker process, which holds the evidence of one paper."""
    cache.keep_compiled()
    import jax

    if paper not in _LABS:
        _LABS.clear()
        _LABS[paper] = new_lab()
    if next(_TASKS) % _COMPILED == 0:
        jax.clear_caches()
    return _LABS[paper]


def _draw(paper: str, name: str, seed: int, full: bool, out: str, kinds: Collection[str] = KINDS) -> dict:
    """In a worker: run a study with the evidence that its paper's claims left, and save it. Its findings are those of the kinds that are checked."""
    lab = _lab(paper)
    try:
        found, study = find_study(name)
        study = replace(study, claims=tuple(one for one in study.claims if one.kind in kinds))
        run_one(found, study, lab if (seed, full) == (lab.seed, lab.full) else new_lab(seed, full), out)
        return {"claim": f"study {name}", "verdict": "drawn"}
    except MissingExtra as error:  # leaves out one study, not the page
        return {"claim": f"study {name}", "verdict": f"left out. {error}"}


def expected_seconds(claims: list[tuple[Paper, Claim]]) -> dict[str, float]:
    """How long each claim took when it was last checked, whatever has changed since; a guess where it never was."""
    folder = cache.folder()
    files = sorted((folder / "claims").glob("*/*.json"), key=lambda file: file.stat().st_mtime) if folder else []
    last = {file.stem: file for file in files}
    found = {}
    for _, claim in claims:
        found[claim.name] = _GUESS[claim.slow]
        with suppress(OSError, ValueError, KeyError):
            found[claim.name] = json.loads(last[claim.name.replace("/", ".")].read_text(encoding="utf-8"))["seconds"]
    return found


def check_all(
    claims: list[tuple[Paper, Claim]],
    jobs: int,
    tell: Callable[[dict, float], None],
    exact: bool = False,
    studies: Sequence[tuple] = (),
) -> Iterator[dict]:
    """Rows of all claims as they are found; `tell` hears each, and each study that was drawn, with the seconds that are left, about."""
    calls: list[tuple] = [(_work, paper.name, claim.name, exact) for paper, claim in claims]
    calls += [(_draw, paper.name, *rest) for paper, *rest in studies]
    known = expected_seconds(claims)
    left = {number: known.get(call[2], _DRAWING) for number, call in enumerate(calls)}
    with pool(min(jobs, len(calls))) as run:
        cache.compile_quickly()  # claims compile much and run little
        for number, found in run(_call, calls, _by_paper([call[1] for call in calls], dict(left))):
            del left[number]
            row = _row(found, calls[number], claims)
            tell(row, sum(left.values()) / jobs)
            if row["verdict"] in _OUTCOMES:
                yield row


def _call(call: tuple) -> dict:
    work, *asked = call
    return work(*asked)


def _by_paper(papers: Sequence[str], cost: Mapping[int, float]) -> Callable[[int, list[int]], int]:
    """A worker goes on with its paper; without one it begins the costliest that nobody has, and where all are taken it helps from the other end."""
    holds: dict[int, str] = {}

    def choose(worker: int, waiting: list[int]) -> int:
        taken = {paper for other, paper in holds.items() if other != worker}
        left = {papers[number]: 0.0 for number in waiting}
        for number in waiting:
            left[papers[number]] += cost[number]
        if holds.get(worker) not in left:
            holds[worker] = max([paper for paper in left if paper not in taken] or left, key=lambda paper: left[paper])
        own = [place for place, number in enumerate(waiting) if papers[number] == holds[worker]]
        return own[-1 if holds[worker] in taken else 0]

    return choose


def _row(found: Any, call: tuple, claims: list[tuple[Paper, Claim]]) -> dict:
    if type(found) is BrokenProcessPool:
        if call[0] is _draw:
            return {"claim": f"study {call[2]}", "verdict": "left out. The process that drew it was killed"}
        paper, claim = next((paper, claim) for paper, claim in claims if claim.name == call[2])
        broken = lambda *_: Verdict(Outcome.undecided, "the process that checked it was killed")
        row = check(replace(claim, check=broken), paper, Lab())
        return {**row, "proofs": {"proved": 0, "seconds": 0.0, "unproved": {}}}
    if isinstance(found, BaseException):
        raise found
    return found
