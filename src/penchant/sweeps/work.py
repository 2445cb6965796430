"""What a worker does with a group of runs. Nothing heavy is imported before the worker has one thread."""

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_LIBRARIES = ("penchant", "jax", "jaxlib", "numpy", "scipy", "equinox")


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes that start inside have one thread each: the cores are shared by tasks, not by one of them."""
    before = {name: os.environ.get(name) for name in (*_THREADS, "XLA_FLAGS")}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    flags = before["XLA_FLAGS"] or ""
    os.environ["XLA_FLAGS"] = flags if _ONE_THREAD in flags else f"{flags} {_ONE_THREAD}".strip()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def work(group: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a group with what was found, the arrays that are kept, and where all that comes from."""
    if "jax" in sys.modules:
        return _found(group)
    with one_thread():  # of a worker that another program has started
        return _found(group)


def _found(group: Mapping[str, Any]) -> dict[str, Any]:
    from ..cache import fingerprint, keep_compiled
    from ..errors import PenchantError
    from .members import run_rows

    keep_compiled()
    if group["code"] != fingerprint():
        raise PenchantError(
            f"this worker runs other code or libraries ({fingerprint()}) than who asks ({group['code']})"
        )
    if group["task"]:
        return {
            "found": [_one(task_of(group["task"]), row) for row in group["rows"]],
            "arrays": {},
            "made": provenance(),
        }
    found, arrays = run_rows(group["rows"], group["measures"], group["arrays"])
    return {"found": found, "arrays": arrays, "made": provenance()}


def task_of(named: str | Callable) -> Callable[[Mapping], Mapping]:
    """A function of a row: itself, or by 'module:name'."""
    from ..errors import ArgumentError

    if callable(named):
        return named
    module, _, name = named.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            "task", "a sweep", "module:function of a module that can be imported", f"{named!r} ({error})"
        ) from None


def _one(task: Callable, row: Mapping[str, Any]) -> dict[str, Any]:
    from .members import failed

    try:
        return {"status": "done", "reason": "", **task(dict(row))}
    except Exception as error:
        return failed(error)


def provenance() -> dict[str, str]:
    """Software and processor; the same for every run of a machine, so that a run made twice is the same file."""
    software = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    return {**software, "system": f"{platform.system()} {platform.machine()}"}
