"""Reading and checking IR text: every op gets its place, every complaint is one sentence that names both."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from math import prod
from typing import TypeVar

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import (
    AnyFloat,
    ComplexType,
    FileLineColLoc,
    IndexType,
    IntAttr,
    IntegerType,
    ModuleOp,
    ShapedType,
    StringAttr,
    TensorType,
    UnknownLoc,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.irdl.constraints import VerificationContext
from xdsl.parser import AttrParser, Parser, ParserState, UnresolvedOperand
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRLexer

from .base import place_of
from .dtypes import dtype_name, numpy_dtype, shape_in
from .graph.donation import verify_donation
from .graph.extents import verify_extents
from .module import example_of
from .npu.legality import Kernel, MachineViolation, refused
from .open_sizes import assuming, typical_sizes
from .precision import recorded_precision
from .sizes import Sizes

AttributeT = TypeVar("AttributeT", bound=Attribute)

DIMENSION_LIMIT = 1 << 63
"""Dimensions are below it: MLIR keeps them in 64 bits, with a sign."""

ELEMENTS_LIMIT = 1 << 59
"""Elements of a tensor are below it: of 16 bytes each, the widest there are, they make 2^63 bytes."""


class PlacedError(VerifyException):
    """What is wrong with one op. message: the op and the fault; place: where it is written, where that is known."""

    def __init__(self, message: str, place: FileLineColLoc | None):
        super().__init__(message if place is None else f"{place.filename.data}:{place.line.data}: {message}")
        self.message = message
        self.place = place


# -- reading -------------------------------------------------------------------------------------------------


class _Lexer(MLIRLexer):
    """xDSL's lexer, whose expression for a string takes exponential time where the string has no end: this one never
    takes back what it has matched, and accepts the same strings."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class _Element(Parser._TensorLiteralElement):
    """A number of `dense<...>`; of floats, hexadecimal digits are its bits, which xDSL takes for its value."""

    def to_float(self, parser: AttrParser) -> float:
        if self.span.text[:2] in ("0x", "0X"):
            parser.raise_error("Expected the type of a float beside its bits", at_position=self.span)
        return super().to_float(parser)

    def to_type(
        self, parser: AttrParser, type: AnyFloat | IntegerType | IndexType | ComplexType
    ) -> float | int | tuple[float, float] | tuple[int, int]:
        if not isinstance(type, AnyFloat) or self.span.text[:2] not in ("0x", "0X"):
            return super().to_type(parser, type)
        kind = numpy_dtype(dtype_name(type))
        try:
            bits = int(self.span.text, 16).to_bytes(kind.itemsize, "little")
        except OverflowError:
            parser.raise_error(f"Expected the bits of {type}", at_position=self.span)
        return float(np.frombuffer(bits, kind.newbyteorder("<"))[0])


class TextParser(Parser):
    """xDSL's parser with a lexer that takes linear time. All text of our levels is read by it."""

    def __init__(self, context: Context, text: str, filename: str = "<unknown>"):
        super().__init__(context, "", filename)
        self._parser_state = ParserState(_Lexer(Input(text, filename)))
        self._uses_early = False
        """Whether a value is used before it is defined."""

    def _parse_tensor_literal_element(self) -> Parser._TensorLiteralElement:
        found = super()._parse_tensor_literal_element()
        return _Element(found.is_negative, found.value, found.span)

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeT) -> SSAValue[AttributeT]:
        value = super().resolve_operand(operand, type)
        self._uses_early |= operand.operand_name in self.forward_ssa_references
        return value

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        """The module. Raises ParseError, and PlacedError for ops that use values before these are computed."""
        found = super().parse_module(allow_implicit_module)
        if self._uses_early:
            check_order(found)
        return found


class _PlacingParser(TextParser):
    """Locates ops that carry no `loc(...)` at their names, and complains at the place that is wrong."""

    def __init__(self, context: Context, text: str, filename: str, first_line: int):
        super().__init__(context, text, filename)
        self._first_line = first_line
        self._starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self._file = StringAttr(filename)
        self._names: list[int] = []
        self._uses: dict[SSAValue, Span] = {}

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        self._names.append(start)
        try:
            op = super().parse_operation()
        except PlacedError:
            raise
        except VerifyException as error:  # of a type or an attribute
            raise PlacedError(one_line(str(error)), self._place(self._names[-1])) from error
        name = self._names.pop()
        if isinstance(op.location, UnknownLoc):
            op.location = self._place(name)
        if op.has_trait(IsolatedFromAbove):
            self._check_defined(start)
        if isinstance(op, ModuleOp) and len(op.body.blocks) != 1:
            self.raise_error(f"a module has one block, not {len(op.body.blocks)}", name)
        problem = oversized(op)
        if problem is not None:
            self.raise_error(f"'{op.name}' {problem}", name)
        return op

    def _get_op_by_name(self, name: str) -> type[Operation]:
        try:
            return super()._get_op_by_name(name)
        except ParseError as error:  # xDSL complains about what stands behind the name
            start = self._names[-1]
            quoted = self.lexer.input.content[start] == '"'
            self.raise_error(error.msg, start, start + len(name) + 2 * quoted)

    def _parse_op_result_list(self) -> list[tuple[Span, int]]:
        results = super()._parse_op_result_list()
        self._names[-1] = self._current_token.span.start
        return results

    def _place(self, at: int) -> FileLineColLoc:
        line = bisect_right(self._starts, at)
        column = at - self._starts[line - 1] + 1
        return FileLineColLoc(self._file, IntAttr(line - 1 + self._first_line), IntAttr(column))

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeT) -> SSAValue[AttributeT]:
        value = super().resolve_operand(operand, type)
        if operand.operand_name in self.forward_ssa_references:
            self._uses.setdefault(value, operand.span)
        return value

    def _check_defined(self, start: int) -> None:
        """Raises ParseError at the first use of a value that the text from `start` on uses and nothing defines."""
        undefined = [
            span
            for values in self.forward_ssa_references.values()
            for value in values.values()
            if (span := self._uses[value]).start >= start
        ]
        if undefined:
            first, *others = sorted(undefined, key=lambda span: span.start)
            names = sorted({span.text for span in others} - {first.text})
            more = f" (nor is {', '.join(names)})" if names else ""
            self.raise_error(f"{first.text} is used here, but not defined{more}", first)

    def parse_shape_dimension(self, allow_dynamic: bool = True) -> int:
        span = self._current_token.span
        size = super().parse_shape_dimension(allow_dynamic)
        if size >= DIMENSION_LIMIT:
            self.raise_error(f"dimension {span.text} does not fit into 64 bits", span)
        return size

    def module(self, implicit_module: bool) -> ModuleOp:
        try:
            return self.parse_module(implicit_module)
        except ParseError:
            self._check_defined(0)  # xDSL's own complaint is at the end of the file
            raise
        except RecursionError:
            reason = "operations, types or attributes are nested too deeply"
        except (ValueError, OverflowError, NotImplementedError) as error:  # of an attribute that takes no such number
            digits = "integer string conversion" in str(error)
            reason = "the number has too many digits" if digits else one_line(str(error))
        self.raise_error(reason)


def parse_module(
    context: Context, text: str, filename: str, first_line: int = 1, implicit_module: bool = True
) -> ModuleOp:
    """The module in `text`, not verified; `first_line` is its first line's number. Raises ParseError, or PlacedError
    for types and attributes that cannot be."""
    try:
        with typical_sizes():
            return _PlacingParser(context, text, filename, first_line).module(implicit_module)
    except ParseError as error:
        raise ParseError(error.span, _what_is_wrong(error)) from None


def check_order(module: Operation) -> None:
    """Raises PlacedError at an op that uses a value which an op behind it in its block gives, or one around it."""
    for outer in module.walk():
        for block in (block for region in outer.regions for block in region.blocks):
            numbers = {op: i for i, op in enumerate(block.ops)}
            for op, number in numbers.items():
                for user in op.walk():
                    for value in user.operands:
                        if isinstance(value.owner, Operation) and numbers.get(value.owner, -1) >= number:
                            name = f"%{value.name_hint}" if value.name_hint else "a value"
                            said = f"'{user.name}' uses {name} of '{value.owner.name}' before it is computed"
                            raise PlacedError(said, place_of(user))


def _what_is_wrong(error: ParseError) -> str:
    """xDSL's message, but for the two that files get which are no MLIR at all: these say nothing of what stands
    there."""
    found = error.span.text
    if error.msg.startswith("Expected suffix identifier after"):
        return f"expected a name after '{found[-1:]}'"
    if error.msg.startswith("End of file reached before closing string"):
        return "the string that begins here has no closing quote on its line, or an escape that there is not"
    if error.msg == "Could not parse entire input!":
        return (
            f"expected an operation, found '{one_line(found)}'"
            if found
            else "expected an operation, found none"
        )
    return error.msg


def oversized(op: Operation) -> str | None:
    """What is wrong with the sizes of an op's results and block arguments; None where memory could hold them."""
    for value in (
        *op.results,
        *(arg for region in op.regions for block in region.blocks for arg in block.args),
    ):
        elements = prod(max(n, 1) for n in _shape(value.type))
        if elements >= ELEMENTS_LIMIT:
            return f"has a value of type {value.type}: no memory holds {elements} elements"
    return None


def _shape(type_: Attribute) -> tuple[int, ...]:
    """The shape of a type, xDSL's or ours; () for one without."""
    if isinstance(type_, ShapedType):
        return shape_in(type_) if isinstance(type_, TensorType) else type_.get_shape()
    shape = getattr(type_, "shape", ())
    return shape if isinstance(shape, tuple) else ()


# -- checking ------------------------------------------------------------------------------------------------


def verify(module: ModuleOp) -> None:
    """Verifies a module. Raises PlacedError with one sentence: the place, the op and what is wrong."""
    with typical_sizes():
        try:
            _verify(module)
        except VerifyException as error:
            raise next(complaints(module), PlacedError(one_line(str(error)), None)) from error


def _verify(module: ModuleOp) -> None:
    """Verifies a module, and those in it at the sizes for which their choices were made."""
    examples = _examples(module)
    if not examples:
        module.verify()
        for op in (module, *module.ops):
            _verify_ours(op)
        return
    module.verify(verify_nested_ops=False)
    for op in module.ops:
        if isinstance(op, ModuleOp) and op in examples:
            with assuming(examples[op]):
                _verify(op)
        else:
            op.verify()
            _verify_ours(op)


def _examples(module: Operation) -> dict[ModuleOp, Sizes]:
    """The modules in a module that say for which sizes their choices were made, and these."""
    inner = [op for op in module.ops if isinstance(op, ModuleOp)] if isinstance(module, ModuleOp) else []
    return {op: sizes for op in inner if (sizes := example_of(op)) is not None}


def _verify_ours(op: Operation) -> None:
    """Verifies our attributes of xDSL's ops: donated arguments and bounded results of functions, records of modules."""
    if isinstance(op, FuncOp):
        verify_donation(op)
        verify_extents(op)
    elif isinstance(op, ModuleOp):
        recorded_precision(op)


def complaints(module: ModuleOp) -> Iterator[PlacedError]:
    """What is wrong with each op of a module, inner ones first."""
    examples = _examples(module)
    for inner, sizes in examples.items():
        with assuming(sizes):
            found = list(complaints(inner))
        yield from found
    for op in _inner_first(module, examples):
        try:
            op.verify(verify_nested_ops=False)
            _verify_ours(op)
        except VerifyException as error:
            if isinstance(op, Kernel) and isinstance(_first_cause(error), MachineViolation):
                yield from (PlacedError(f"'{v.op.name}' {v.problem}", place_of(v.op)) for v in refused(op))
                continue
            message = one_line(str(error))
            attribute = _wrong_attribute(op, message)
            if attribute is not None:
                message = f"{attribute}: {message}"
            yield PlacedError(
                message if message.startswith(f"'{op.name}'") else f"'{op.name}' {message}", place_of(op)
            )


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _wrong_attribute(op: Operation, message: str) -> str | None:
    """`property 'dims'` where `message` is what the constraint of one says, which does not name it; else None."""
    if not isinstance(op, IRDLOperation):
        return None
    definition = op.get_irdl_definition()
    given = (
        ("property", definition.properties, op.properties),
        ("attribute", definition.attributes, op.attributes),
    )
    for kind, constraints, values in given:
        for name, constraint in constraints.items():
            try:
                if name in values:
                    constraint.constr.verify(values[name], VerificationContext())
            except VerifyException as error:
                if one_line(str(error)) == message.removeprefix("Operation does not verify: "):
                    return f"{kind} '{name}'"
    return None


def _inner_first(op: Operation, but: Collection[Operation] = ()) -> Iterator[Operation]:
    """An op and those in it, inner ones first, without some."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                if inner not in but:
                    yield from _inner_first(inner, but)
    yield op


def one_line(message: str) -> str:
    """A diagnostic of several lines as one sentence."""
    return " ".join(line.strip() for line in message.splitlines() if line.strip())
