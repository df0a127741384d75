"""What is wrong with a `.tw` file, where, and what to do about it."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ..errors import FrontendError

TextSpan = tuple[int, int]
"""Start and end of a piece of source, as offsets into it."""

MOST_SHOWN = 20
"""Further errors are counted, not printed: they are most often consequences."""

MOST_COLUMNS = 400
"""Of a longer line only the part around the error is shown."""

_TAB = "    "


class SourceFile:
    """The text of one file, and which line an offset is on."""

    def __init__(self, path: str, text: str):
        self.path = path
        self.text = text
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line, without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


@dataclass(frozen=True)
class Diagnostic:
    """One error. label: what stands beside the carets; notes: what else is known; help: what to do; other: a second
    place that matters, with its label."""

    message: str
    file: SourceFile
    span: TextSpan
    label: str = ""
    notes: Sequence[str] = ()
    help: str = ""
    other: tuple[SourceFile, TextSpan, str] | None = None

    def __str__(self) -> str:
        """The error as it is printed: the message, the source line with carets, notes and help."""
        places = [(self.file, self.span, self.label, "^")]
        if self.other is not None:
            places.append((*self.other, "-"))
        width = max(len(str(file.place(span[0])[0])) for file, span, _, _ in places)
        margin = " " * width
        lines = [f"error: {self.message}"]
        for i, (file, span, label, mark) in enumerate(places):
            number, column = file.place(span[0])
            lines.append(f"{margin}{':::' if i else '-->'} {file.path}:{number}:{column}")
            before, marked, after = _cut(file.line(number), column - 1, span[1] - span[0])
            carets = mark * max(1, _width(marked))
            lines.append(f"{margin} |")
            lines.append(f"{number:>{width}} | {_shown(before + marked + after)}")
            lines.append(f"{margin} | {' ' * _width(before)}{carets} {label}".rstrip())
        lines += [f"{margin} = note: {note}" for note in self.notes]
        if self.help:
            lines.append(f"{margin} = help: {self.help}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON. line, column: from 1; length: in characters."""
        line, column = self.file.place(self.span[0])
        return {
            "file": self.file.path,
            "line": line,
            "column": column,
            "length": max(1, self.span[1] - self.span[0]),
            "message": self.message,
            "label": self.label,
            "notes": list(self.notes),
            "help": self.help,
        }


def _cut(line: str, at: int, length: int) -> tuple[str, str, str]:
    """A line before, in and after a marked piece; of a very long line, what is around it."""
    before, marked, after = line[:at], line[at : at + max(1, length)], line[at + max(1, length) :]
    if len(line) <= MOST_COLUMNS:
        return before, marked, after
    if len(marked) > MOST_COLUMNS // 2:
        marked, after = marked[: MOST_COLUMNS // 2], "..."
    if len(before) > MOST_COLUMNS // 4:
        before = "..." + before[-MOST_COLUMNS // 4 :]
    if len(after) > MOST_COLUMNS // 4:
        after = after[: MOST_COLUMNS // 4] + "..."
    return before, marked, after


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text.replace("\t", _TAB))


def _width(text: str) -> int:
    """Columns that text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text.replace("\t", _TAB))


class TwError(FrontendError):
    """A .tw program with errors: all of them, in the order of the source; its text is what is printed."""

    def __init__(self, diagnostics: Iterable[Diagnostic]):
        unique: dict[object, Diagnostic] = {}
        for d in diagnostics:
            unique.setdefault((d.file.path, d.span, d.message), d)
        self.diagnostics = sorted(unique.values(), key=lambda d: (d.file.path, d.span))
        shown = [str(d) for d in self.diagnostics[:MOST_SHOWN]]
        n = len(self.diagnostics)
        if n > MOST_SHOWN:
            shown.append(f"{n} errors, of which {MOST_SHOWN} are shown")
        elif n > 1:
            shown.append(f"{n} errors")
        super().__init__("\n\n".join(shown))


@dataclass
class Problem(Exception):
    """An error that does not know its place yet. argument: which argument of the call it is about, a position or a
    keyword."""

    message: str
    label: str = ""
    notes: Sequence[str] = ()
    help: str = ""
    argument: int | str | None = None

    def __str__(self) -> str:
        return self.message


@dataclass
class DiagnosticLog:
    """Collects diagnostics while the work goes on."""

    found: list[Diagnostic] = field(default_factory=list)

    def add(
        self,
        file: SourceFile,
        span: TextSpan,
        message: str,
        label: str = "",
        notes: Sequence[str] = (),
        help: str = "",
        other: tuple[SourceFile, TextSpan, str] | None = None,
    ) -> None:
        """Remember an error."""
        self.found.append(Diagnostic(message, file, span, label, notes, help, other))

    def add_problem(self, file: SourceFile, span: TextSpan, problem: Problem) -> None:
        """Remember a problem, now that its place is known."""
        self.add(file, span, problem.message, problem.label, problem.notes, problem.help)

    def check(self) -> None:
        """Raises TwError if there was an error."""
        if self.found:
            raise TwError(self.found)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean `softmax`?` where something known is spelled like `name`; else the empty string."""
    cases = {k.lower(): k for k in sorted(set(known))}
    close = [cases[k] for k in get_close_matches(name.lower(), cases, n=2, cutoff=0.6)]
    return f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else ""


def in_words(words: Sequence[str], last: str = "or") -> str:
    """`a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


ELSEWHERE = {
    "matmul": "write `x @ y`",
    "dot": "write `x @ y`",
    "where": "write `select(mask, x, y)`",
    "maximum": "write `max(x, y)`",
    "minimum": "write `min(x, y)`",
    "concatenate": "write `concat(x, y, axis=0)`",
    "arange": "write `iota(shape=[N])`",
    "astype": "write `x as f16`",
    "squeeze": "write `x[:, 0]`",
    "expand_dims": "write `x[:, new]`",
    "flip": "write `x[::-1]`",
    "square": "write `x * x`",
    "len": "name the dimension in the parameter's type: `x: f32[N]`",
    "range": "write `for i in 0..N { ... }`",
    "print": "a program has no output but its results",
    "full_like": "write `full(0.0, shape=[N], type=f32)`",
    "zeros_like": "write `zeros(shape=[N], type=f32)`",
    "flatten": "write `reshape(x, shape=[-1])`",
    "float": "write `x as f32`",
    "int": "write `x as i32`",
    "conv2d": "write `conv(x, w)`",
    "var": "write `variance(x, axis=-1)`",
}
"""What the functions of other libraries are called in the language."""
