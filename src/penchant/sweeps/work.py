"""What a worker does with a group of runs. Nothing heavy is imported before the worker has one thread."""

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from ..errors import PenchantError, quietly

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
    from ..logspace import check_float64

    keep_compiled()
    check_float64()
    known = fingerprint(group["paper"])
    if group["code"] != known:
        raise PenchantError(f"this worker runs other code or libraries ({known}) than who asks ({group['code']})")
    found, arrays = run_rows(group["rows"], group["measures"], group["arrays"], group["paper"])
    return {"found": found, "arrays": arrays, "made": provenance()}


@quietly()
def run_rows(
    rows: Sequence[Mapping], measures: Sequence[str], arrays: Sequence[str], paper: str = ""
) -> tuple[list[dict], dict]:
    """What was found of every row, and the arrays that are kept, by row and name; a row that fails says why, and stops no other."""
    from .spec import trainer

    means, made, found, kept = trainer(paper), {}, [{}] * len(rows), {}
    for k, row in enumerate(rows):
        try:
            made[k] = means.member(row)
        except Exception as error:
            found[k] = failed(error)
    for k, run in means.runs(made, int(rows[0].get("records", 0))):
        if isinstance(run, Exception):
            found[k] = found[k] or failed(run)
            continue
        found[k] = means.outcome(run)
        try:
            found[k] |= {name: means.MEASURES[name](run, made[k]) for name in measures}
        except Exception as error:
            found[k] |= failed(error)
        kept |= {(k, name): array for name, array in means.arrays(run, arrays).items()}
    return found, kept


def failed(error: BaseException) -> dict[str, Any]:
    return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def provenance() -> dict[str, str]:
    """Software and processor; the same for every run of a machine, so that a run made twice is the same file."""
    software = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    return {**software, "system": f"{platform.system()} {platform.machine()}"}
