"""Files that are either whole or not there, and that are never unpickled."""

import io
import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .errors import DataFileError

# The version of each kind of file that is written, which is also the one that is read.
RUNS = ("trajectory", "joint trajectory", "attention run", "network run", "runs")
VERSIONS: dict[str, int] = dict.fromkeys(("study", "ledger", *RUNS), 1)
_ABANDONED = 60.0  # seconds after which a temporary file has no writer any more: it is named only once it is whole


def mark(kind: str) -> str:
    """The format mark of a kind of file."""
    return f"penchant {kind} {VERSIONS[kind]}"


def check_mark(found: object, kinds: tuple[str, ...], path: str | os.PathLike) -> None:
    """Refuse a file of another kind, or of a version that is not read."""
    known = [mark(kind) for kind in kinds]
    if found in known:
        return
    if not re.fullmatch(rf"penchant ({'|'.join(kinds)}) \d+", str(found)):
        raise DataFileError(f"'{path}' was not written by penchant: its format mark is {found!r}, not '{known[0]}'.")
    raise DataFileError(
        f"'{path}' has the format '{found}', and this penchant reads {' or '.join(known)}.\n"
        "  Usual cause: it was written by another version of penchant.\n"
        "  Fix: read it with that version, or make it again with this one."
    )


def write_bytes(path: str | os.PathLike, content: bytes) -> Path:
    """Replace `path` by `content` in one atomic rename, and clear what a killed process left of an earlier attempt."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear(target)
    temporary = _temporary(target)
    try:
        if not _write_nameless(temporary, content):
            temporary.write_bytes(content)
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk, or too large a file
            error.filename = str(target)
        raise
    return target


def _temporary(target: Path) -> Path:
    return target.parent / f".{target.name}.{secrets.token_hex(4)}"


def _clear(target: Path) -> None:
    """Remove the temporary files of `target` that nobody is about to rename."""
    left = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}")
    for file in target.parent.iterdir():
        if left.fullmatch(file.name) and time.time() - file.stat().st_mtime > _ABANDONED:
            file.unlink(missing_ok=True)


def _write_nameless(path: Path, content: bytes) -> bool:
    """Write a file that gets its name once it is whole, so that not even a killed process leaves half of one; False where that cannot be done."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        handle = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o644)
    except OSError:  # a file system without nameless files
        return False
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        try:
            # With a directory given the link is to what the entry points to; without one it would be to the entry.
            os.link(f"/proc/self/fd/{file.fileno()}", path, src_dir_fd=file.fileno(), follow_symlinks=True)
        except OSError:
            return False
    return True


def load_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """All arrays of an .npz file, or a `DataFileError` that says what is wrong with it."""
    try:
        content = io.BytesIO(Path(path).read_bytes())
        with np.load(content, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataFileError(f"There is no file '{path}'.") from None
    except Exception as error:  # a damaged archive can fail in a dozen ways, all of which mean the same
        raise _unreadable(path, error) from None
    if {type(array) for array in arrays.values()} - {np.ndarray}:
        raise _unreadable(path, "it is an archive of other files")
    _check_header(arrays.get("header"), path)
    return arrays


def _check_header(header: np.ndarray | None, path: str | os.PathLike) -> None:
    """The format of a saved run, if this is one; an array 'header' of the user's own is none."""
    try:
        found = json.loads(np.asarray(header).tobytes())["format"]
    except (ValueError, TypeError, LookupError):
        return
    if str(found).startswith("penchant"):
        check_mark(found, RUNS, path)


def _unreadable(path: str | os.PathLike, reason: object) -> DataFileError:
    return DataFileError(
        f"'{path}' is not a readable .npz file ({reason}).\n"
        "  Usual causes: (a) the copy was cut short; (b) it is another kind of file; (c) it holds pickled objects, which are never loaded."
    )


def write_npz(
    path: str | os.PathLike, header: dict, arrays: Mapping[str, ArrayLike], *, compressed: bool = True
) -> Path:
    """Write arrays and a JSON header, by way of a temporary file: a killed run leaves no half-written file."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(header, default=lambda array: np.asarray(array).tolist()).encode(), np.uint8)
    contents: dict[str, Any] = {"header": text, **{name: np.asarray(array) for name, array in arrays.items()}}
    (np.savez_compressed if compressed else np.savez)(buffer, **contents)
    return write_bytes(path, buffer.getvalue())


def read_npz(path: str | os.PathLike) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a file written by `write_npz`; never unpickles."""
    arrays = load_npz(path)
    try:
        header = json.loads(arrays.pop("header").tobytes())
    except (KeyError, ValueError):
        fix = "a file that `penchant train DATA --save FILE` or `Probe.save` wrote"
        text = f"'{path}' has no penchant header: it was not written by penchant."
        raise DataFileError(f"{text}\n  Fix: {fix}.") from None
    return header, arrays


def check_writable(path: str) -> None:
    """Fail before the work, not after it: a file of nearly that name, as `write_bytes` makes one, is made and removed."""
    target = Path(path).absolute()
    try:
        if target.exists() and not target.is_file():
            raise DataFileError(
                f"Cannot write '{path}': it is {'a directory' if target.is_dir() else 'no plain file'}."
            )
        parent = next(folder for folder in target.parents if folder.exists())
        trial = _temporary(parent / target.name)
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        where = Path(error.filename).parent
        raise DataFileError(
            f"Cannot write '{path}': no such file can be made in '{where}' ({error.strerror})."
        ) from None
