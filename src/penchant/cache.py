"""The user's cache folder: compiled code and finished claims, both of which only save time.

`PENCHANT_CACHE` names another folder, or is "off"; nothing is lost by deleting it. Compiled code is as trusted as the programs of the user, who
alone may write there.
"""

import hashlib
import os
import platform
import sys
import warnings
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

_SIZE = 512 * 2**20  # bytes of compiled code; the oldest goes first
_ENGINE = ("commands", "report", "bridge", "papers", "cli.py", "__init__.py", "case.py")  # what decides no verdict
_RELEASE = tuple(map(int, version("jax").split(".")[:2]))  # a later one stops at a flag that it no longer knows
PLAIN_FUSIONS = {"xla_cpu_use_fusion_emitters": False} if _RELEASE < (0, 11) else {}
"""For a program of many small parts, which XLA's newer way to write code takes twice as long to compile."""
_LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "equinox")


def folder() -> Path | None:
    """Where the platform keeps caches, or nothing where the cache is off."""
    asked = os.environ.get("PENCHANT_CACHE", "")
    if asked.lower() == "off":
        return None
    if asked:
        return Path(asked)
    places = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local")}
    place = places.get(sys.platform) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(place).expanduser() / "penchant"


@cache
def keep_compiled() -> None:
    """Let JAX keep compiled code in the cache folder, once per process, unless the user has chosen a place for it or wants none.

    Each machine has a place of its own, as code for one processor may stop another. Two processes may share it: what one has half
    written the other notices, and compiles for itself.
    """
    place = folder()
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "3"
    )  # the loader complains of processor features that are only preferences
    import jax

    if place is None or jax.config.jax_compilation_cache_dir or _crashes():  # pyright: ignore[reportAttributeAccessIssue]
        return
    place = place / "compiled" / platform.node()
    with suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return
    _trim(place.parent)
    jax.config.update("jax_compilation_cache_dir", str(place))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small programs are many
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry", UserWarning)


def compile_quickly() -> None:
    """Ask XLA, before the first array is made, for code that is ready in half the time and as fast on small arrays; a user's choice stands."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" in flags:
        return
    quick = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    quick += "".join(f" --{name}={str(value).lower()}" for name, value in PLAIN_FUSIONS.items())
    os.environ["XLA_FLAGS"] = f"{quick} {flags}".strip()  # in front: XLA reads nothing behind a word without dashes


def _crashes() -> bool:
    """Before 0.10 jaxlib may overflow its stack when it loads a large program on macOS."""
    return sys.platform == "darwin" and tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 10)


def _trim(place: Path, most: int = _SIZE) -> None:
    """Delete the oldest files until the others fit; JAX's own bound needs a package for its locks. Another process may be first."""
    with suppress(OSError):
        files = [(file.stat().st_mtime, file.stat().st_size, file) for file in place.rglob("*") if file.is_file()]
        left = sum(size for _, size, _ in files)
        for _, size, file in sorted(files):
            if left <= most:
                return
            file.unlink(missing_ok=True)
            left -= size


@cache
def fingerprint(paper: str = "") -> str:
    """What determines the verdicts of a paper: its files, the engine's, and the releases of the libraries it computes with; without one, what determines a run."""
    root = Path(__file__).parent
    parts = [part for part in sorted(root.iterdir()) if part.name not in _ENGINE]
    parts += [root / "papers" / paper] if paper else []
    files = [file for part in parts for file in (sorted(part.rglob("*.py")) if part.is_dir() else [part])]
    digest = hashlib.sha256(" ".join((sys.version, *(version(name) for name in _LIBRARIES))).encode())
    for file in files:
        if file.suffix == ".py":
            digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return digest.hexdigest()[:20]
