"""A directory in which what takes long to compute is kept across calls and processes, up to a number of bytes.

An entry is a file: a line with a hash of all that follows, a line of JSON that says what it is, and text. Files appear
whole, whatever other processes do; the time of a file is that of its last use, and those that were not used for longest
go first. Nothing that is read is executed, and a file that is not what was written there is no entry. A directory that
others than its owner may look into or write to is not used: what they put there would be run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from .files import read_plain
from .plugins import modules

MAGIC = "tilewright-cache 1"
SUFFIX = ".entry"

_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")

LIMIT_BYTES = 1 << 30
"""Bytes of all entries of a directory, unless it is told otherwise."""

_STALE_SECONDS = 3600
"""A draft that is older belongs to a process that has ended."""


class CacheWarning(UserWarning):
    """A directory does not serve as a cache, or a file in it is no entry; the message is one sentence."""


@dataclass(frozen=True)
class Kept:
    """An entry, as a list shows it. about: what it is; bytes: of its file; used: the time of its last use, in seconds
    since 1970."""

    path: Path
    about: Mapping[str, str]
    bytes: int
    used: float


_REFUSED: set[str] = set()
"""Directories that are not used, of which the user knows."""


def private_directory(directory: Path) -> Path | None:
    """A directory, which is made where it is not there; None, with a CacheWarning the first time, where it belongs to
    another user, or others may look into it or write to it."""
    try:
        if not directory.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError:
        return directory  # whoever writes there says so
    own, mode = getattr(os, "geteuid", lambda: found.st_uid)(), stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or (found.st_uid == own and not mode & (stat.S_IRWXG | stat.S_IRWXO)):
        return directory
    if str(directory) not in _REFUSED:
        _REFUSED.add(str(directory))
        own_advice = "others may use it: chmod 700 it, or give another"
        advice = "it belongs to another user" if found.st_uid != own else own_advice
        warnings.warn(f"cache: {directory} is not used: {advice}", CacheWarning, stacklevel=3)
    return None


class CacheDirectory:
    """The entries of a directory, by keys: hexadecimal digits that `digest` gives. What cannot be read or written is a
    CacheWarning, and otherwise as if it were not there."""

    def __init__(self, directory: str | Path, limit: int = LIMIT_BYTES) -> None:
        self.directory, self.limit = Path(directory), limit

    def get(self, key: str) -> str | None:
        """The text that is kept under a key; None where there is none."""
        path = self._path(key)
        try:
            content = read_plain(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot be read ({error.strerror or error})", path)
            return None
        read = _read(content)
        if read is None or read[0].key != key:
            self._warn("is damaged, or was not written here: what it should hold is made again", path)
            return None
        with suppress(OSError):
            os.utime(path)
        return read[1]

    def refuse(self, key: str, reason: str) -> None:
        """Says that the text under a key is none: for who cannot read it."""
        self._warn(f"is damaged, or was not written here: {reason}", self._path(key))

    def put(self, key: str, about: Mapping[str, str], text: str) -> None:
        """Keeps a text under a key, in place of what was there. about: what it is, for lists."""
        rest = f"{json.dumps({'key': key, 'about': dict(about)})}\n{text}".encode()
        content = f"{MAGIC} {hashlib.sha256(rest).hexdigest()}\n".encode() + rest
        if len(content) > self.limit:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, content)
        except OSError as error:
            self._warn(f"cannot be written ({error.strerror or error}): nothing is kept", path.parent)
            return
        self._shrink()

    def entries(self) -> list[Kept]:
        """What is kept, what was used last first. Files that are no entries are left out."""
        found: list[Kept] = []
        for path, size, used in self._files():
            with suppress(OSError):
                read = _read(read_plain(path))
                if read is not None:
                    found.append(Kept(path, read[0].about, size, used))
        return sorted(found, key=lambda kept: (-kept.used, kept.path))

    def clear(self) -> int:
        """Removes all entries, also damaged ones; gives how many files. Others stay."""
        return trim(self._files(), -1)

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{SUFFIX}"

    def _files(self) -> Iterator[File]:
        return files_in(self.directory, _NAME)

    def _shrink(self) -> None:
        """Removes what was not used for longest, until the rest is within the limit, and drafts that were left."""
        trim(self._files(), self.limit)
        with suppress(OSError):
            now = self.directory.stat().st_mtime
            for draft in self.directory.glob(f".{SUFFIX}*"):
                if now - draft.stat().st_mtime > _STALE_SECONDS:
                    _remove(draft)

    def _warn(self, said: str, path: Path) -> None:
        warnings.warn(f"cache: {path} {said}", CacheWarning, stacklevel=3)


File = tuple[Path, int, float]
"""A file, its bytes, and when it was used, in seconds since 1970."""


def files_in(directory: Path, name: re.Pattern[str]) -> Iterator[File]:
    """The files of a directory with such names; none where there is no directory."""
    with suppress(OSError), os.scandir(directory) as listed:
        for file in listed:
            if name.fullmatch(file.name):
                with suppress(OSError):  # another process has removed it
                    found = file.stat()
                    if not stat.S_ISREG(found.st_mode):
                        continue
                    yield Path(file.path), found.st_size, found.st_mtime


def trim(files: Iterable[File], limit: int) -> int:
    """Removes what was not used for longest, until the rest has at most `limit` bytes; gives how many it removed."""
    total = removed = 0
    for path, size, _ in sorted(files, key=lambda file: file[2], reverse=True):
        total += size
        removed += total > limit and _remove(path)
    return removed


@dataclass(frozen=True)
class _Heading:
    """What an entry says of itself."""

    key: str
    about: Mapping[str, str]


def _read(content: bytes) -> tuple[_Heading, str] | None:
    """What the file of an entry says of itself, and its text; None for another file."""
    head, _, rest = content.partition(b"\n")
    if head != f"{MAGIC} {hashlib.sha256(rest).hexdigest()}".encode():
        return None
    said, _, text = rest.partition(b"\n")
    try:
        heading, content_ = json.loads(said), text.decode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(heading, dict) or not isinstance(heading.get("key"), str):
        return None
    about = heading.get("about")
    if not isinstance(about, dict) or not all(isinstance(v, str) for v in about.values()):
        return None
    return _Heading(heading["key"], about), content_


def _write(path: Path, content: bytes) -> None:
    """Writes a file in one step, whoever else writes it."""
    number, draft = tempfile.mkstemp(prefix=f".{SUFFIX}", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
        os.replace(draft, path)
    except OSError:
        _remove(Path(draft))
        raise


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # another process has
        return False
    return True


# -- keys --------------------------------------------------------------------------------------------------


def digest(*parts: str | bytes) -> str:
    """64 hexadecimal digits that stand for parts in their order, and for the compiler that is at work: the sources of
    this package, its plugins, and the versions of Python and of what it is built on."""
    made = hashlib.sha256(_compiler().encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(f"{len(data)}:".encode())
        made.update(data)
    return made.hexdigest()


_BUILT_ON = ("jax", "jaxlib", "ml_dtypes", "numpy", "xdsl")


@cache
def _compiler() -> str:
    """What decides what the compiler makes of a program, besides the program."""
    root = Path(__file__).resolve().parents[1]
    folders = [root, *(p.parent for p in root.glob("*/__init__.py"))]
    said = [sys.version, *(f"{name} {_version(name)}" for name in _BUILT_ON)]
    said += [_sources(folder, folder != root) for folder in folders]
    for module in modules():
        spec = find_spec(module.partition(".")[0])
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            said.append(_sources(origin.parent, True) if origin.name == "__init__.py" else _hash([origin]))
    return "\n".join(said)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _sources(folder: Path, deep: bool) -> str:
    """A hash of the sources in a folder, and in those below it where `deep`."""
    pattern = "**/*" if deep else "*"
    return _hash(sorted(p for p in folder.glob(pattern) if p.suffix in _SOURCES))


_SOURCES = (".lark", ".py", ".toml")


def _hash(files: list[Path]) -> str:
    made = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        made.update(f"{file.name} {len(content)}\n".encode())
        made.update(content)
    return made.hexdigest()
