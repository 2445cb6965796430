"""Who works: this process, a pool of processes, or a dask cluster.

An engine is a context that gives `run(work, tasks)`, which yields the number of each task as it ends, with what it found or why it did not. Nothing
here knows what a task is; tasks are idempotent, so that one that is lost is simply given out again.
"""

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from types import ModuleType
from typing import Any

from ..errors import ArgumentError, MissingExtra
from .work import one_thread

Done = Iterator[tuple[int, Any]]  # the number of a task, and what it found or the exception that ended it
Run = Callable[..., Done]  # of what is done with a task, and the tasks
Choose = Callable[[int, list[int]], int]  # of a worker and the tasks that wait, the place of the one it does
_TRIES = 3  # of a task whose process dies, before it is given up: it may be the task that kills it
_PATIENCE = 600.0  # seconds that a scheduler may be away
_ADDRESS = re.compile(r"((tcp|tls|ucx|wss?)://)?[^/\s]+:\d+|inproc://\S+")


def cores() -> int:
    """How many processors this process may use: in a job of a cluster not all that the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def here(jobs: int = 1, scheduler: str = "") -> Iterator[Run]:
    """One after the other, in this process."""

    def run(work: Callable, tasks: Sequence) -> Done:
        for number, task in enumerate(tasks):
            try:
                yield number, work(task)
            except Exception as error:
                yield number, error

    yield run


def _begin_worker() -> None:
    """In a worker: leave an interrupt to who started it, and end where that one is killed, which could not tell it to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


@contextmanager
def _without_script() -> Iterator[None]:
    """A process that starts inside does not run the script that sweeps: it needs nothing of it, and would sweep in its turn."""
    script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin_worker)


@contextmanager
def pool(jobs: int, scheduler: str = "") -> Iterator[Run]:
    """In `jobs` spawned processes of one thread, which stay for the next tasks."""
    workers: list[ProcessPoolExecutor] = []
    with one_thread():
        try:
            yield partial(_pooled, workers, jobs)
        finally:
            for worker in workers:
                for process in (worker._processes or {}).values():
                    process.kill()
                worker.shutdown(wait=False, cancel_futures=True)


def _pooled(
    workers: list[ProcessPoolExecutor], jobs: int, work: Callable, tasks: Sequence, choose: Choose = lambda *_: 0
) -> Done:
    """A task whose process dies is given out again, up to three times; `choose` says which of those that wait is for a worker."""
    waiting, tries = list(range(len(tasks))), [0] * len(tasks)
    running: dict[Future, tuple[int, int]] = {}
    workers += [_process() for _ in range(min(jobs, len(tasks)) - len(workers))]

    def give(worker: int) -> None:
        if waiting:
            number = waiting.pop(choose(worker, waiting))
            tries[number] += 1
            with _without_script():
                running[workers[worker].submit(work, tasks[number])] = worker, number

    for worker in range(len(workers)):
        give(worker)
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED)[0]:
            worker, number = running.pop(future)
            error = future.exception()
            if type(error) is BrokenProcessPool:
                workers[worker].shutdown(wait=False, cancel_futures=True)
                workers[worker] = _process()
                if tries[number] < _TRIES:
                    waiting.insert(0, number)
                    give(worker)
                    continue
                error = BrokenProcessPool(f"the process that ran it died {_TRIES} times")
            give(worker)
            yield number, error or future.result()


@contextmanager
def dask(jobs: int, scheduler: str) -> Iterator[Run]:
    """On the workers of a dask cluster."""
    if not _ADDRESS.fullmatch(scheduler):
        wanted = "an address with a port where dask works, such as tcp://127.0.0.1:8786"
        raise ArgumentError("scheduler", "a sweep", wanted, repr(scheduler))
    yield partial(_clustered, scheduler)


def _clustered(scheduler: str, work: Callable, tasks: Sequence) -> Done:
    """Tasks that a lost worker or scheduler held are given out again once it is back."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise MissingExtra("cluster", "--engine dask") from None
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost scheduler is told below, in a line
    left, since, last = dict(enumerate(tasks)), time.monotonic(), ""
    while left:
        try:
            with Client(scheduler, timeout=10) as client:
                if not client.nthreads():
                    print(f"{scheduler} has no worker yet: dask worker {scheduler} --nthreads 1", file=sys.stderr)
                futures = {client.submit(work, task, pure=False): number for number, task in left.items()}
                for future in as_completed(futures, loop=client.loop):
                    if future.status in ("cancelled", "lost"):  # with the scheduler
                        raise ConnectionError(future.status)
                    number, error = futures[future], future.exception()
                    left.pop(number)
                    yield number, error or future.result()
                    since = time.monotonic()
        except (OSError, TimeoutError) as error:
            if time.monotonic() - since > _PATIENCE:
                found = f"none at {scheduler} for {_PATIENCE:.0f} s: {error}"
                raise ArgumentError("scheduler", "a sweep", "one that answers", found, "dask scheduler") from None
            told = f"no scheduler answers at {scheduler}, which is waited for up to {_PATIENCE:.0f} s; groups left: {len(left)}"
            if told != last:  # once for each time that it is away
                print(f"{told}. One starts with: dask scheduler", file=sys.stderr)
            last = told
            time.sleep(1.0)


ENGINES: dict[str, Callable[[int, str], AbstractContextManager[Run]]] = {"pool": pool, "dask": dask, "here": here}
