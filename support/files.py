"""Files that are never half written, parts of pages, and files of arrays."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile


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


def write_part(page: str | os.PathLike[str], begin: str, end: str, part: str) -> None:
    """Puts text between two marks of a page, in the place of what is there. Raises ValueError where it lacks a mark,
    and OSError."""
    before, first, rest = Path(page).read_text(encoding="utf-8").partition(begin)
    _, last, behind = rest.partition(end)
    if not first or not last:
        raise ValueError(f"{page}: lacks the marks {begin} and {end}")
    text = part.rstrip("\n")
    write_whole(page, f"{before}{begin}\n\n{text}\n\n{end}{behind}")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The numpy arrays of an .npz file by name; that of an .npy file is called `x`. Raises OSError for a file that
    cannot be read, and ValueError for one that holds something else or is damaged."""
    import numpy as np

    try:
        with Path(path).open("rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {"x": found}
            return {name: np.asarray(found[name]) for name in found.files}
    except (BadZipFile, EOFError, KeyError, ValueError, zlib.error) as error:
        damaged = isinstance(error, BadZipFile) and "CRC" in str(error)
        raise ValueError("is damaged" if damaged else "is no .npz file of arrays of numbers") from None
