"""Claims in worker processes: shared evidence computed once, the slowest first, every finished claim kept.

A worker stays with one paper as long as that has work, so that its lab computes each recipe once; a free one without a paper of its own
helps the paper that has most left, from the other end of its list.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .. import cache
from ..files import write_bytes
from ..lab import Claim, Lab, Paper
from ..papers import find_papers, new_lab
from ..references.watched import watching
from ..verdict import Outcome, Verdict
from .exact import prove_all

_COMPILED = (
    40  # claims between which a worker lets compiled code go: the system allows a process only so many pieces of memory
)
_GUESS = {True: 6.0, False: 0.7}  # seconds of a slow claim and of another, before it was ever timed
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def check(claim: Claim, paper: Paper, lab: Lab) -> dict:
    """One row of the ledger."""
    started = time.perf_counter()
    verdict, twin = _evidence(claim, lab, False), _evidence(claim, lab, True)
    return {
        "claim": claim.name,
        "paper": paper.name,
        "kind": claim.kind,
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


class _Worker:
    """A process of its own with one thread, and the paper whose evidence it holds."""

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self.paper = ""

    def restart(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))


_STATE: dict[str, Any] = {"paper": "", "lab": None, "count": 0}  # of a worker process


def _work(paper: str, name: str, exact: bool) -> dict:
    """In a worker: check one claim and keep its row, so that not even a killed `verify` loses it."""
    cache.keep_compiled()
    import jax

    if _STATE["paper"] != paper:
        _STATE.update(paper=paper, lab=new_lab())
    _STATE["count"] += 1
    if _STATE["count"] % _COMPILED == 0:
        jax.clear_caches()
    (found,) = find_papers((paper,))
    claim = next(claim for claim in found.claims if claim.name == name)
    with watching() as calls:
        row = check(claim, found, _STATE["lab"])
    place = _place(found, name)
    if exact:
        row["proofs"] = prove_all(calls)
    elif place is not None and not row["inequality"].startswith("the check broke"):
        write_bytes(place, json.dumps(row).encode())
    return row


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that start inside have one thread each: the cores are shared by claims, not by one of them."""
    before = {name: os.environ.get(name) for name in (*_THREADS, "XLA_FLAGS")}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    os.environ["XLA_FLAGS"] = f"{before['XLA_FLAGS'] or ''} {_ONE_THREAD}".strip()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


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
    claims: list[tuple[Paper, Claim]], jobs: int, tell: Callable[[dict, float], None], exact: bool = False
) -> Iterator[dict]:
    """Rows of all claims as they are found; `tell` hears each with the seconds that are left, about."""
    cost = expected_seconds(claims)
    waiting: dict[str, list[Claim]] = {}
    for paper, claim in claims:
        waiting.setdefault(paper.name, []).append(claim)
    left = lambda paper: sum(cost[claim.name] for claim in waiting[paper])
    workers = [_Worker() for _ in range(min(jobs, len(claims)))]
    running: dict[Future, tuple[_Worker, str]] = {}

    def give(worker: _Worker) -> None:
        todo = [paper for paper in waiting if waiting[paper]]
        if not todo:
            return
        taken = {other.paper for other in workers if other is not worker}
        if worker.paper not in todo:
            worker.paper = max([paper for paper in todo if paper not in taken] or todo, key=left)
        claim = waiting[worker.paper].pop(0 if worker.paper not in taken else -1)
        running[worker.pool.submit(_work, worker.paper, claim.name, exact)] = (worker, claim.name)

    with _one_thread():
        try:
            for worker in workers:
                give(worker)
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    worker, name = running.pop(future)
                    row = _result(future, worker, name, claims)
                    remaining = sum(map(left, waiting)) + sum(cost[other] for _, other in running.values())
                    give(worker)
                    tell(row, remaining / len(workers))
                    yield row
        finally:
            for worker in workers:
                for process in (worker.pool._processes or {}).values():
                    process.kill()
                worker.pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future, worker: _Worker, name: str, claims: list[tuple[Paper, Claim]]) -> dict:
    try:
        return future.result()
    except BrokenProcessPool:
        worker.restart()
        paper, claim = next((paper, claim) for paper, claim in claims if claim.name == name)
        broken = lambda *_: Verdict(Outcome.undecided, "the process that checked it was killed")
        row = check(Claim(name, claim.statement, claim.citation, broken, claim.kind, claim.expected), paper, Lab())
        return {**row, "proofs": {"proved": 0, "seconds": 0.0, "unproved": {}}}
