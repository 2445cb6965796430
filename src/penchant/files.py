"""Files that are either whole or not there, and that are never unpickled."""

import io
import os
import tempfile
from pathlib import Path

import numpy as np

from .errors import DataFileError


def write_bytes(path: str | os.PathLike, content: bytes) -> Path:
    """Replace `path` by `content` in one atomic rename."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


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
