"""Files that are never half written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file in one step: a reader sees the old contents or the new ones, never a part. A link stays a link,
    an old file keeps its mode; what is no plain file (a device, a pipe) is written to. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            stream.write(data)
        return
    target = target.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None  # nobody knows the draft
    finally:
        draft.unlink(missing_ok=True)
