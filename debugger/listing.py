"""The printed text of a kernel or a function, and what is where in it: lines of ops and names of values."""

from __future__ import annotations

import io
from bisect import bisect_right

from xdsl.ir import Operation, SSAValue
from xdsl.printer import Printer

from ..backends.stepper.places import SectionBuffer


class _NamingPrinter(Printer):
    """A printer that takes note of where ops begin and what values are called."""

    def __init__(self, stream: io.StringIO) -> None:
        super().__init__(stream=stream)
        self.text = stream
        self.starts: dict[Operation, int] = {}
        self.names: dict[SSAValue, str] = {}

    def print_op(self, op: Operation) -> None:
        self.starts[op] = self.text.tell()
        super().print_op(op)

    def print_ssa_value(self, value: SSAValue) -> str:
        name = super().print_ssa_value(value)
        self.names[value] = f"%{name}"
        return name


class Listing:
    """The text of a kernel or a function as the printed module has it.

    lines: of the text; line_of: the number of an op's first line, from 0; names: of values, with their `%`; values: by
    name.
    """

    def __init__(self, op: Operation) -> None:
        stream = io.StringIO()
        printer = _NamingPrinter(stream)
        printer.print_op(op)
        text = stream.getvalue()
        self.lines = text.splitlines()
        ends = [i for i, c in enumerate(text) if c == "\n"]
        self.line_of = {each: bisect_right(ends, start - 1) for each, start in printer.starts.items()}
        self.names = printer.names
        self.values = {name: value for value, name in printer.names.items()}
        self.ops = {line: each for each, line in reversed(self.line_of.items())}

    def buffer(self, buffer: SectionBuffer) -> str:
        """The name of a buffer, or what bytes that an instruction works in are called."""
        return buffer.name if buffer.value is None else self.name(buffer.value)

    def name(self, value: SSAValue) -> str:
        """What a value is called."""
        return self.names.get(value, "a value without a name")

    def said(self, op: Operation) -> str:
        """An op on one line, without its types and regions."""
        return without_types(self.lines[self.line_of[op]].strip()) if op in self.line_of else op.name


def without_types(line: str) -> str:
    """A printed op without what stands behind its colon."""
    depth = 0
    for i, c in enumerate(line):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == ":" and depth == 0 and line[i - 1 : i] == " ":
            return line[:i].rstrip()
    return line.removesuffix(" {")
