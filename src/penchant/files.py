"""Files that are either whole or not there."""

import os
import tempfile
from pathlib import Path


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
