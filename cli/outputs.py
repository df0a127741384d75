"""The files that a command writes: known and checked before it begins, and none of them one that it reads."""

from __future__ import annotations

import argparse
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..support import files
from .common import STDIN, CliError, os_message


@dataclass(frozen=True)
class OutputFiles:
    """What a command may write. paths: its files, `-` for stdout; patterns: of names that are known only when a file is
    written, with the folder; read: files that it reads, which it must not write; updated: files that it reads and
    rewrites in place; looked_at: patterns of files that it looks at before it writes them anew."""

    paths: Sequence[str] = ()
    patterns: Sequence[str] = ()
    read: Sequence[str] = ()
    updated: Sequence[str] = ()
    looked_at: Sequence[str] = ()

    def check(self) -> None:
        """Raises CliError for a file that cannot be written, or that the command reads or writes twice, so that nobody
        waits for a result that has no place."""
        for path in (*self.paths, *self.updated):
            _check_place(path)
        found = [str(p) for pattern in self.patterns for p in _matching(pattern)]
        for path in (*self.paths, *found):
            if path != STDIN and any(_is_same(Path(path), r) for r in self.read):
                raise _is_read(path)
        places: set[Path] = set()
        for path in (p for p in (*self.paths, *self.updated) if p != STDIN):
            place = files.real_path(path)
            if place in places:
                raise CliError(f"{path}: the command would write this file twice; name two files")
            places.add(place)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What is written inside is one of these files, and none that was read meanwhile: such as the parts of a model,
        or what a Python file imports."""
        _READ.clear()
        global _recording
        _recording = True
        try:
            with files.guarded(self._guard):
                yield
        finally:
            _recording = False
            _READ.clear()

    def _guard(self, path: str | os.PathLike[str]) -> None:
        name, updated = str(Path(path)), {str(Path(p)) for p in self.updated}
        known = name in {*updated, *(str(Path(p)) for p in self.paths)}
        assert known or any(fnmatchcase(name, p) for p in self.patterns), f"{name} is not known to be written"
        meanwhile = () if any(fnmatchcase(name, p) for p in self.looked_at) else _READ
        if name not in updated and any(_is_same(Path(name), r) for r in (*self.read, *meanwhile)):
            raise _is_read(name)


def _is_read(path: str) -> CliError:
    return CliError(f"{path}: the command reads this file; write the output to another one")


def _matching(pattern: str) -> Iterable[Path]:
    """The files whose names fit a pattern, in its folder."""
    folder = Path(pattern).parent
    return folder.glob(Path(pattern).name) if folder.is_dir() else ()


def _check_place(path: str) -> None:
    """Raises CliError where a file cannot be written."""
    target = Path(path)
    if path == STDIN:
        return
    if not path:
        raise CliError("the name of the output file is empty")
    try:
        mode, folder = files.mode_of(target), files.mode_of(target.parent)
        if mode is not None and stat.S_ISDIR(mode):
            raise CliError(f"{path}: {os.strerror(errno.EISDIR)}")
        if folder is None or not stat.S_ISDIR(folder):
            raise CliError(f"{path}: {os.strerror(errno.ENOENT)}")
        plain = mode is None or stat.S_ISREG(mode)
        # a plain file is replaced, which its folder must allow; anything else is written to
        places = [files.real_path(target).parent if plain else target, *([] if mode is None else [target])]
        if not all(os.access(place, os.W_OK) for place in places):
            raise CliError(f"{path}: {os.strerror(errno.EACCES)}")
    except OSError as error:
        raise CliError(os_message(error)) from None


def _is_same(target: Path, read: str) -> bool:
    """Whether a file is the one that is read: by whatever name, or as stdin where that is `-`."""
    try:
        if not target.is_file():
            return False
        if read == STDIN:
            return os.path.samestat(os.fstat(sys.stdin.fileno()), target.stat())
        return Path(read).is_file() and target.samefile(read)
    except (AttributeError, OSError, ValueError):  # no stdin, or one that is no file of the system
        return False


# -- what is read while a command runs ----------------------------------------------------------------------

_READ: set[str] = set()
"""The files that were opened to be read."""

_recording = False


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _recording and event == "open":
        path, mode, flags = args
        reads = mode.startswith("r") if isinstance(mode, str) else not flags & (os.O_WRONLY | os.O_RDWR)
        if reads and isinstance(path, str | bytes):
            _READ.add(os.fsdecode(path))


sys.addaudithook(_note)


# -- of each command ------------------------------------------------------------------------------------------


_FOLDERS = {"export": ("hivm", ("*.hivm.mlir", "host.c", "README.md")), "tiers": ("output", ("*.twm",))}
"""Commands that write into a folder: the argument that names it, and patterns of the files."""


def outputs_of(args: argparse.Namespace, read: Iterable[str]) -> OutputFiles:
    """The files that a command of `tilewright` writes, which reads those in `read`. Raises CliError for a plot in a
    format that there is not, and where stdout cannot take what is written."""
    command, output, plot = args.command, getattr(args, "output", None), getattr(args, "plot", None)
    page = getattr(args, "page", None)
    if command == "tiers" or (command == "verify" and not args.bisect):
        output = None
    endings = (*files.PLOTS, ".html") if command == "serve-sim" else files.PLOTS
    if plot is not None and Path(plot).suffix not in endings:
        raise CliError(f"--plot {plot}: a plot is a file of {', '.join(endings)}")
    paths, patterns = [p for p in (output, plot) if p is not None], []
    pairs = command in ("verify", "reduce") or (
        command == "quantize" and Path(output or "").suffix == ".toml"
    )
    if output and Path(output).name and pairs:
        paths.append(
            str(Path(output).with_suffix(".npz"))
        )  # arrays go beside the program, or the configuration
        if command == "verify":  # the program right before the pass that is found, whichever it is
            patterns.append(f"{_literal(str(Path(output).with_suffix('')))}.before-*.mlir")
    if command == "compile" and args.emit == "onnx" and output not in (None, STDIN):
        patterns.append(_literal(f"{output}.data"))  # where there are many weights
    if command in _FOLDERS:  # the names of files are known only when they are written
        given = getattr(args, _FOLDERS[command][0])
        folder = Path(given)
        if not (folder if folder.exists() else folder.parent).is_dir():
            raise CliError(f"{given}: {os.strerror(errno.ENOTDIR if folder.exists() else errno.ENOENT)}")
        place = "" if folder == Path() else f"{_literal(str(folder))}/"
        patterns += [f"{place}{name}" for name in _FOLDERS[command][1]]
    looked_at = patterns if command == "tiers" else []
    found = OutputFiles(paths, patterns, [*read], [] if page is None else [page], looked_at)
    if STDIN in paths and len(paths) > 1:
        raise CliError(f"{command} writes more than one file: give the name of one, and not -")
    if STDIN in paths and args.json:
        raise CliError("-o - and --json would both write to stdout; give the name of a file")
    return found


def _literal(text: str) -> str:
    """A pattern that fits a text alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def write_output(path: str | Path, content: str | bytes) -> None:
    """Writes a file in one step; `-` is stdout. Raises CliError."""
    if path == STDIN:
        text = content if isinstance(content, str) else content.decode()
        print(text, end="")
        return
    try:
        files.write_whole(path, content)
    except OSError as error:
        raise CliError(os_message(error)) from error


@contextmanager
def all_or_none() -> Iterator[None]:
    """Several files, of which all appear at the end or none does. Raises CliError."""
    try:
        with files.together():
            yield
    except OSError as error:
        raise CliError(os_message(error)) from error
