"""Files that are never half written, of several all or none, and plain files alone; parts of pages; files of arrays."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from itertools import count
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

FilePath = str | os.PathLike[str]

# -- reading -------------------------------------------------------------------------------------------------


def kind_of_file(mode: int) -> str | None:
    """What a file is that is neither plain nor a folder; None for these. mode: as `os.stat` gives it."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def mode_of(path: FilePath) -> int | None:
    """The mode of a file, as `os.stat` gives it; None where there is none. Raises OSError, as for links in a circle."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def real_path(path: FilePath) -> Path:
    """A path without links, from the root on; links in a circle stay as they are, for whoever opens them to refuse."""
    return Path(os.path.realpath(path))


def open_plain(path: FilePath) -> BufferedReader:
    """A file that is open to be read. Raises OSError, also for a pipe, a socket or a device, of which nobody knows the
    end; it is not waited for."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    mode = os.fstat(number).st_mode
    kind = kind_of_file(mode)
    if kind is not None or stat.S_ISDIR(mode):
        os.close(number)
        said = os.strerror(errno.EISDIR) if kind is None else f"{kind}, not a file"
        raise OSError(errno.EISDIR if kind is None else errno.EINVAL, said, os.fspath(path))
    return open(number, "rb")


def read_plain(path: FilePath) -> bytes:
    """What is in a file. Raises OSError as `open_plain` does."""
    with open_plain(path) as stream:
        return stream.read()


def toml_of(text: str) -> dict[str, Any]:
    """The tables of a text in TOML. Raises ValueError, also for one that is nested too deeply to be read, and for
    numbers of too many digits."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# -- writing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Draft:
    """What is to become the file `target`, which the caller calls `name`."""

    draft: Path
    target: Path
    name: str


_DRAFTS: ContextVar[list[_Draft] | None] = ContextVar("drafts", default=None)
_GUARD: ContextVar[Callable[[FilePath], None] | None] = ContextVar("guard", default=None)
_NUMBERS = count()


@contextmanager
def guarded(guard: Callable[[FilePath], None]) -> Iterator[None]:
    """Inside, `guard` is called with each file before it is written, and may raise."""
    token = _GUARD.set(guard)
    try:
        yield
    finally:
        _GUARD.reset(token)


@contextmanager
def together() -> Iterator[None]:
    """What `write_whole` writes inside appears at the end, all of it; where one file cannot be written, or anything is
    raised, none does, and those that were there stay as they are. Raises OSError."""
    if _DRAFTS.get() is not None:
        yield
        return
    drafts: list[_Draft] = []
    token = _DRAFTS.set(drafts)
    try:
        yield
        _replace(drafts)
    finally:
        _DRAFTS.reset(token)
        for each in drafts:
            each.draft.unlink(missing_ok=True)


def write_whole(path: FilePath, content: str | bytes) -> None:
    """Writes a file in one step: a reader sees the old contents or the new ones, never a part. A link stays a link,
    an old file keeps its mode; what is no plain file (a device, a pipe) is written to. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    with drafted(path) as stream:
        stream.write(data)


@contextmanager
def drafted(path: FilePath) -> Iterator[IO[bytes]]:
    """A stream of what is to be the content of a file, which gets it in one step, as `write_whole` has it. Raises
    OSError."""
    guard = _GUARD.get()
    if guard is not None:
        guard(path)
    mode = mode_of(path)
    if mode is not None and not stat.S_ISREG(mode):
        with _named_errors(path, path), Path(path).open("wb") as stream:
            yield stream
        return
    with together():
        target = real_path(path)
        draft = _beside(target)
        drafts = _DRAFTS.get()
        assert drafts is not None
        drafts.append(_Draft(draft, target, os.fspath(path)))
        with _named_errors(draft, path), draft.open("wb") as stream:
            yield stream


@contextmanager
def _named_errors(written: FilePath, path: FilePath) -> Iterator[None]:
    """What cannot be written says the file that it should have become: nobody knows a draft."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, os.fspath(written)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _beside(target: Path) -> Path:
    """A name in the folder of a file, which no other file has."""
    return target.with_name(f".tilewright-{os.getpid()}-{next(_NUMBERS)}.tmp")


def _replace(drafts: list[_Draft]) -> None:
    """Puts drafts in the places of their files; where one cannot be, those that were replaced come back."""
    undo: list[tuple[Path, Path | None]] = []
    try:
        for each in drafts:
            try:
                old = None
                if each.target.exists():
                    shutil.copymode(each.target, each.draft)
                    old = _kept(each.target) if len(drafts) > 1 else None
                undo.append((each.target, old))
                os.replace(each.draft, each.target)
            except OSError as error:
                raise OSError(error.errno, error.strerror, each.name) from None
    except OSError:
        if len(drafts) > 1:
            for target, old in reversed(undo):
                with suppress(OSError):
                    target.unlink() if old is None else os.replace(old, target)
        raise
    finally:
        for _, old in undo:
            if old is not None:
                old.unlink(missing_ok=True)


def _kept(target: Path) -> Path:
    """A file under another name in its folder, as it is now."""
    old = _beside(target)
    try:
        os.link(target, old)
    except OSError:  # a file system without links
        shutil.copy2(target, old)
    return old


PLOTS = (".svg", ".png", ".pdf")
"""Endings of the files that plots are drawn in."""


def write_plot(path: FilePath, figure: Any, dpi: int) -> None:
    """Writes a figure of matplotlib in one step, in the format that the name ends with: the same figure makes the same
    bytes. Raises OSError, and ValueError for a format that there is not."""
    write_whole(path, drawn_bytes(figure, Path(path).suffix.removeprefix("."), dpi))


def drawn_bytes(figure: Any, format: str, dpi: int) -> bytes:
    """A figure of matplotlib in a format. Raises ValueError for one that there is not."""
    import matplotlib

    drawn, dates = BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "tilewright"}):
        figure.savefig(drawn, format=format, dpi=dpi, metadata=dates.get(format))
    return drawn.getvalue()


def write_part(page: FilePath, begin: str, end: str, part: str) -> None:
    """Puts text between two marks of a page, in the place of what is there. Raises ValueError where it lacks a mark,
    and OSError."""
    before, first, rest = read_plain(page).decode().partition(begin)
    _, last, behind = rest.partition(end)
    if not first or not last:
        raise ValueError(f"{page}: lacks the marks {begin} and {end}")
    text = part.rstrip("\n")
    write_whole(page, f"{before}{begin}\n\n{text}\n\n{end}{behind}")


NOT_ARRAYS = (
    AttributeError,
    BadZipFile,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What numpy and zipfile raise for a file that is no .npz file, is damaged, encrypted or of a later version."""


def read_arrays(path: FilePath) -> dict[str, Any]:
    """The numpy arrays of an .npz file by name; that of an .npy file is called `x`. Raises OSError for a file that
    cannot be read, and ValueError for one that holds something else or is damaged."""
    import numpy as np

    try:
        with open_plain(path) as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {"x": found}
            return {name: np.asarray(found[name]) for name in found.files}
    except NOT_ARRAYS as error:
        damaged = isinstance(error, BadZipFile) and "CRC" in str(error)
        raise ValueError("is damaged" if damaged else "is no .npz file of arrays of numbers") from None
