"""Tables of buffers: CSV as MiniMalloc reads and writes it (https://github.com/google/minimalloc, src/converter.cc).

    id,lower,upper,size            buffer,start,end,size,alignment
    b1,0,3,4                       b1,0,2,4,1

`upper` is the first time at which a buffer is no longer in use; `end` is the last at which it is.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .problem import Buffer, PackingError, PackingProblem

COLUMNS: Mapping[str, str] = {
    "id": "id",
    "buffer": "id",
    "buffer_id": "id",
    "lower": "lower",
    "begin": "lower",
    "start": "lower",
    "upper": "upper",
    "end": "upper",
    "size": "size",
    "alignment": "alignment",
    "hint": "hint",
    "gaps": "gaps",
    "offset": "offset",
}
"""The names of columns, and what they hold. A hint is for MiniMalloc's search; ours has no use for it."""

NEEDED = ("id", "lower", "upper", "size")

NUMBER = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")


@dataclass(frozen=True)
class BufferTable:
    """A table as it was read, a row for each buffer of `problem`, in order."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    problem: PackingProblem

    def with_alignment(self, bytes_: int) -> BufferTable:
        """The same table where each offset is a multiple of `bytes_`, too."""
        buffers = tuple(replace(b, alignment=math.lcm(b.alignment, bytes_)) for b in self.problem.buffers)
        return replace(self, problem=PackingProblem(buffers))

    def text(self, offsets: np.ndarray) -> str:
        """CSV: the rows with offsets in bytes, i64 [n], as one more column."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*self.header, "offset"])
        writer.writerows([*row, str(at)] for row, at in zip(self.rows, offsets.tolist(), strict=True))
        return out.getvalue()


def parse_table(text: str) -> BufferTable:
    """Reads CSV. Raises PackingError with the line where it is no table of buffers."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    header: list[str] = []
    places: dict[str, int] = {}
    rows, buffers = [], []
    lines: dict[str, int] = {}
    try:
        for row in reader:
            if not row:
                continue
            if not header:
                header = [name.strip() for name in row]
                places = _places(header)
                continue
            buffer = _buffer(row, header, places, reader.line_num)
            if buffer.name in lines:
                raise PackingError(
                    f"line {reader.line_num}: the id {buffer.name} is that of line {lines[buffer.name]}, too"
                )
            lines[buffer.name] = reader.line_num
            rows.append(row)
            buffers.append(buffer)
    except csv.Error as error:
        raise PackingError(f"line {reader.line_num}: no CSV: {error}") from None
    if not header:
        raise PackingError("the file is empty; its first line names the columns id, lower, upper and size")
    return BufferTable(header, rows, PackingProblem(tuple(buffers)))


def _places(header: Sequence[str]) -> dict[str, int]:
    """Which column holds what."""
    places: dict[str, int] = {}
    for i, name in enumerate(header):
        if name not in COLUMNS:
            raise PackingError(f"unknown column {name!r}; known are {', '.join(COLUMNS)}")
        if COLUMNS[name] in places:
            raise PackingError(f"the columns {header[places[COLUMNS[name]]]} and {name} mean the same")
        places[COLUMNS[name]] = i
    for meaning in NEEDED:
        if meaning not in places:
            names = [name for name, held in COLUMNS.items() if held == meaning]
            raise PackingError(f"there is no column {' or '.join(names)}")
    return places


def _buffer(row: Sequence[str], header: Sequence[str], places: Mapping[str, int], line: int) -> Buffer:
    """The buffer of a row."""
    if len(row) != len(header):
        raise PackingError(f"line {line} has {len(row)} fields, the header {len(header)}")

    def number(meaning: str) -> int:
        at = places[meaning]
        if not NUMBER.fullmatch(row[at]):
            raise PackingError(f"line {line}: {header[at]} is {row[at]!r}, no whole number of 64 bits")
        return int(row[at].strip())  # which knows more spaces than int does

    if "gaps" in places and row[places["gaps"]].strip():
        raise PackingError(
            f"line {line}: a buffer with gaps; leave the gaps out, and it is in use all the time"
        )
    if "offset" in places and row[places["offset"]].strip():
        raise PackingError(
            f"line {line}: a buffer with a fixed offset; leave the column out to have it placed"
        )
    inclusive = header[places["upper"]] == "end"
    buffer = Buffer(
        row[places["id"]].strip(),
        number("lower"),
        number("upper") + inclusive,
        number("size"),
        number("alignment") if "alignment" in places else 1,
    )
    if not buffer.name:
        raise PackingError(f"line {line}: a buffer without an id")
    try:
        PackingProblem((buffer,))
    except PackingError as error:
        raise PackingError(f"line {line}: {error}") from None
    return buffer
