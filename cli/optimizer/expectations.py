"""`// expected-error @+1 {{text}}`: the errors that a file says it has, in the language of mlir-opt.

The place is `@+N` or `@-N` (lines from the comment), `@above` or `@below` (the next line there that is no
expectation), `@unknown` (an error without a place), or nothing for the line of the comment. With `-re` parts of the
text in `{{...}}` are regular expressions. Every error must be expected, and every expectation met; one error meets
one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..common import CliError
from .diagnostics import Chunk, PrintedError

_EXPECTED = re.compile(
    r"expected-(?P<kind>error|note|remark|warning)(?P<pattern>-re)? *"
    r"(?:@(?P<place>[+-]\d+|above|below|unknown))? *\{\{(?P<text>.*)\}\}\s*$"
)
_MARK = re.compile(rb"expected-(?:error|note|remark|warning)(?:-re)? *(?:@[^\s{]*)? *\{\{")


@dataclass(frozen=True)
class Expectation:
    """A diagnostic of a kind, at a line of the file (0 for none), whose message has a match of `pattern`. written,
    column: the place of the comment."""

    kind: str
    line: int
    text: str
    pattern: re.Pattern[str]
    written: int
    column: int

    def met_by(self, diagnostic: PrintedError, file: str) -> bool:
        """Whether a diagnostic is this one; one in another file has no line in this one."""
        line = diagnostic.line if diagnostic.file == file else 0
        return (
            self.kind == "error" and line == self.line and self.pattern.search(diagnostic.message) is not None
        )


def expects(content: bytes) -> bool:
    """Whether there is a comment of this kind in a file."""
    return _MARK.search(content) is not None


def expectations(chunk: Chunk) -> list[Expectation]:
    """The expectations of a chunk. Raises CliError for a regular expression that is none."""
    lines = chunk.content.decode(errors="replace").split("\n")
    marks = [_EXPECTED.search(line) for line in lines]
    out = []
    for i, mark in enumerate(marks):
        if mark is None:
            continue
        at = _target(i, mark["place"], [m is not None for m in marks])
        line = 0 if at is None else at + chunk.first_line
        try:
            pattern = re.compile(_pattern(mark["text"]) if mark["pattern"] else re.escape(mark["text"]))
        except re.error as error:
            place = f"{chunk.name}:{i + chunk.first_line}:{mark.start() + 1}"
            raise CliError(f"{place}: no regular expression in '{mark['text']}': {error}") from None
        out.append(
            Expectation(mark["kind"], line, mark["text"], pattern, i + chunk.first_line, mark.start() + 1)
        )
    return out


def _target(i: int, place: str | None, marked: Sequence[bool]) -> int | None:
    """The index of the line that a comment on line `i` speaks of; None for no line."""
    if place is None:
        return i
    if place == "unknown":
        return None
    if place in ("above", "below"):
        step = -1 if place == "above" else 1
        at = i + step
        while 0 <= at < len(marked) and marked[at]:
            at += step
        return at
    return i + int(place)


def _pattern(text: str) -> str:
    """`a {{b+}} c` as a regular expression: what is outside the braces stands for itself."""
    parts = re.split(r"\{\{(.*?)\}\}", text)
    return "".join(f"(?:{part})" if i % 2 else re.escape(part) for i, part in enumerate(parts))


def mismatches(
    expected: Sequence[Expectation], found: Sequence[PrintedError], chunk: Chunk
) -> Iterator[PrintedError]:
    """What is wrong with the errors of a chunk: those that are unexpected, and expectations that are not met."""
    left = list(expected)
    for diagnostic in found:
        match = next((e for e in left if e.met_by(diagnostic, chunk.name)), None)
        if match is not None:
            left.remove(match)
            continue
        yield PrintedError(
            f"unexpected error: {diagnostic.message}", diagnostic.file, diagnostic.line, diagnostic.column
        )
    for e in left:
        yield PrintedError(f'expected {e.kind} "{e.text}" was not produced', chunk.name, e.written, e.column)
