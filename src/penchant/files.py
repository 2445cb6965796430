"""Files that are either whole or not there, and that are never unpickled."""

import io
import os
import secrets
from pathlib import Path

import numpy as np

from .errors import DataFileError


def write_bytes(path: str | os.PathLike, content: bytes) -> Path:
    """Replace `path` by `content` in one atomic rename."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    try:
        if not _write_nameless(temporary, content):
            temporary.write_bytes(content)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target


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
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise _unreadable(path, "it is an archive of other files")
    return arrays


def _unreadable(path: str | os.PathLike, reason: object) -> DataFileError:
    return DataFileError(
        f"'{path}' is not a readable .npz file ({reason}).\n"
        "  Usual causes: (a) the copy was cut short; (b) it is another kind of file; (c) it holds pickled objects, which are never loaded."
    )
