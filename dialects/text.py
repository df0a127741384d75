"""Reading and checking IR text: every op gets its place, every complaint is one sentence that names both."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from .base import source_of
from .graph.donation import verify_donation
from .npu.legality import MachineViolation
from .symbols import verify_symbols


class _PlacingParser(Parser):
    """Locates ops that carry no `loc(...)` at the line where they stand."""

    def __init__(self, context: Context, text: str, filename: str, first_line: int):
        super().__init__(context, text, filename)
        self._first_line = first_line
        self._starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self._file = StringAttr(filename)

    def parse_operation(self) -> Operation:
        at = self._current_token.span.start
        op = super().parse_operation()
        if isinstance(op.location, UnknownLoc):
            line = bisect_right(self._starts, at)
            column = at - self._starts[line - 1] + 1
            op.location = FileLineColLoc(self._file, IntAttr(line - 1 + self._first_line), IntAttr(column))
        return op


def parse_module(
    context: Context, text: str, filename: str, first_line: int = 1, implicit_module: bool = True
) -> ModuleOp:
    """The module in `text`, not verified; `first_line` is its first line's number. Raises ParseError."""
    try:
        return _PlacingParser(context, text, filename, first_line).parse_module(implicit_module)
    except ParseError as error:
        raise ParseError(error.span, _what_is_wrong(error)) from None


def _what_is_wrong(error: ParseError) -> str:
    """xDSL's message, but for the two that files get which are no MLIR at all: these say nothing of what stands
    there."""
    found = error.span.text
    if error.msg.startswith("Expected suffix identifier after"):
        return f"expected a name after '{found[-1:]}'"
    if error.msg == "Could not parse entire input!":
        return f"expected an operation, found '{one_line(found)}'" if found else "expected an operation, found none"
    return error.msg


def verify(module: ModuleOp) -> None:
    """Verifies a module. Raises VerifyException with one sentence: the place, the op and what is wrong."""
    try:
        module.verify()
        for op in module.ops:
            if isinstance(op, FuncOp):
                verify_donation(op)
    except VerifyException as error:
        raise VerifyException(_sentence(module, error)) from error
    verify_symbols(module)


def _sentence(module: ModuleOp, error: VerifyException) -> str:
    for op in _inner_first(module):
        try:
            op.verify(verify_nested_ops=False)
            if isinstance(op, FuncOp):
                verify_donation(op)
        except VerifyException as own:
            if isinstance(cause := _first_cause(own), MachineViolation):
                return str(cause)
            message = one_line(str(own))
            named = message if message.startswith(f"'{op.name}'") else f"'{op.name}' {message}"
            place = source_of(op)
            return f"{place}: {named}" if place else named
    return one_line(str(error))


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _inner_first(op: Operation) -> Iterator[Operation]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                yield from _inner_first(inner)
    yield op


def one_line(message: str) -> str:
    """A diagnostic of several lines as one sentence."""
    return " ".join(line.strip() for line in message.splitlines() if line.strip())
