"""The user's cache folder: compiled code and finished claims, both of which only save time.

`PENCHANT_CACHE` names another folder, or is "off". Nothing here is ever read as code, and nothing is lost by deleting it.
"""

import hashlib
import os
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

_SIZE = 512 * 2**20  # bytes of compiled code; the oldest goes first
_ENGINE = ("commands", "report", "bridge", "papers", "cli.py", "__init__.py", "case.py")  # what decides no verdict
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
def fingerprint(paper: str) -> str:
    """What determines the verdicts of a paper: its files, the engine's, and the releases of the libraries it computes with."""
    root = Path(__file__).parent
    parts = [part for part in sorted(root.iterdir()) if part.name not in _ENGINE] + [root / "papers" / paper]
    files = [file for part in parts for file in (sorted(part.rglob("*.py")) if part.is_dir() else [part])]
    digest = hashlib.sha256(" ".join((sys.version, *(version(name) for name in _LIBRARIES))).encode())
    for file in files:
        if file.suffix == ".py":
            digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return digest.hexdigest()[:20]
