"""What `tilewright-opt` says of a program: message, place, the line of the source and a caret under it."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xdsl.utils.exceptions import DiagnosticException, ParseError

from ...dialects.text import PlacedError, one_line
from ...frontends.errors import FrontendError
from ...machine import MachineError
from ...passes.errors import PassError, SeveralErrors
from ...support.plugins import PluginError
from ..common import complain, say

DIAGNOSTICS = (DiagnosticException, PassError, FrontendError, MachineError, PluginError)
"""What the IR or a pass has to say about a program, one sentence each."""

WIDEST = 160
"""Characters shown of a longer line of the source, around the caret."""

_NAME = re.compile(r'"?[\w.$-]+"?')
_RESULTS = re.compile(r"\s*(?:%[\w$.:-]+(?:\s*,\s*%[\w$.:-]+)*\s*=\s*)?")


@dataclass(frozen=True)
class Chunk:
    """A part of the input file `name`: its text, which begins on line `first_line` of the file."""

    name: str
    content: bytes
    first_line: int = 1

    def line(self, file: str, number: int) -> str | None:
        """A line of the chunk, or of another file that is there; None where it cannot be read."""
        if file != self.name:
            return linecache.getline(file, number).rstrip("\r\n") or None if Path(file).is_file() else None
        lines = self.content.split(b"\n")
        at = number - self.first_line
        return lines[at].decode(errors="replace").rstrip("\r") if 0 <= at < len(lines) else None


@dataclass(frozen=True)
class PrintedError:
    """An error. line, column: where in `file`, from 1, or 0 where that is not known; source: that line; width: of what
    is marked in it, in characters."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    source: str | None = None
    width: int = 1

    @property
    def place(self) -> str:
        """`file:line:column`, as far as it is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)

    def excerpt(self) -> str:
        """The line of the source and a caret under it, each on a line of its own."""
        if not self.source or not self.column:
            return ""
        start, width = self.column - 1, self.width
        first = max(0, min(start - WIDEST // 2, len(self.source) - WIDEST))
        shown = self.source[first : first + WIDEST]
        before = "".join(c if c == "\t" else " " for c in shown[: start - first])
        return f"\n{shown}\n{before}{'^' * max(1, min(width, len(shown) - len(before)))}"

    def show(self, program: str) -> None:
        """Prints the diagnostic to stderr."""
        if self.line:
            say(f"{self.place}: error: {self.message}{self.excerpt()}")
        else:
            complain(program, self.message)

    def stated(self) -> str:
        """The diagnostic as a part of the output, for `--parsing-diagnostics`."""
        return f"{self.place}: {self.message}{self.excerpt()}"


def diagnostics_of(error: Exception, chunk: Chunk) -> Iterator[PrintedError]:
    """What an error of a chunk says, fault by fault."""
    if isinstance(error, SeveralErrors):
        for one in error.errors:
            yield from diagnostics_of(one, chunk)
    elif isinstance(error, ParseError):
        place = error.span.get_location()
        source = chunk.line(place.file, place.line)
        yield PrintedError(one_line(error.msg), *place, source, max(1, len(error.span)))
    elif isinstance(error, PlacedError) and error.place is not None:
        file, line, column = (error.place.filename.data, error.place.line.data, error.place.column.data)
        yield _named(error.message, file, line, column, chunk)
    else:
        yield _said(str(error), chunk)


def _said(message: str, chunk: Chunk) -> PrintedError:
    """A message that only as text knows its place: the first line of the chunk's file that it names."""
    message = one_line(message)
    found = re.search(rf"{re.escape(chunk.name)}:(\d+)(?::(\d+))?", message)
    if found is None:
        return PrintedError(message)
    line, column = int(found[1]), int(found[2] or 0)
    source = chunk.line(chunk.name, line)
    if source is not None and not column:
        results = _RESULTS.match(source)
        column = 1 + (results.end() if results is not None else 0)
    return _named(message.removeprefix(f"{found[0]}: "), chunk.name, line, column, chunk)


def _named(message: str, file: str, line: int, column: int, chunk: Chunk) -> PrintedError:
    """A diagnostic of the op or the value whose name is at a place."""
    source = chunk.line(file, line)
    name = _NAME.match(source, column - 1) if source is not None and column else None
    return PrintedError(message, file, line, column, source, 1 if name is None else len(name[0]))
