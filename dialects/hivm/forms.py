"""Pieces of the syntax of `hivm` ops: groups of operands, and the two custom directives."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, IntegerType, i64
from xdsl.irdl import AttrSizedOperandSegments, IRDLOperation, ParsePropInAttrDict
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    OptionalOperandVariable,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer

from .attributes import Enumeration, Event

INS = "`ins` `(` $src `:` type($src) `)`"
OUTS = "`outs` `(` $dst `:` type($dst) `)`"
RESULT = "(`->` type($result)^)?"
TEMP = "(`temp_buffer` `(` $temp_buffer^ `:` type($temp_buffer) `)`)?"

PLAIN = (ParsePropInAttrDict(),)
"""Options of an op with one variadic group of operands at most."""

GROUPS = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
"""Options of an op with several."""


def key(name: str, sign: str = "=") -> str:
    """The syntax of an optional property: `round_mode = <floor>`."""
    return f"(`{name}` `{sign}` ${name}^)?"


def typed_key(name: str) -> str:
    """The syntax of an optional operand with its type: `pad_value = %v : f32`."""
    return f"(`{name}` `=` ${name}^ `:` type(${name}))?"


def group(name: str) -> str:
    """The syntax of an optional group of operands: `indices(%i : memref<..>)`."""
    return f"(`{name}` `(` ${name}^ `:` type(${name}) `)`)?"


@irdl_custom_directive
class EventNumber(CustomDirective):
    """`<EVENT_ID3>`, or `%event` for one that is computed."""

    fixed: AttributeVariable
    computed: OptionalOperandVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        found = parser.parse_optional_unresolved_operand()
        self.computed.set(state, found)
        if found is None:
            self.fixed.set(state, Event.new(Event.parse_parameter(parser)))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        if (operand := self.computed.get(op)) is not None:
            printer.print_ssa_value(operand)
        elif (event := self.fixed.get(op)) is not None:
            assert isinstance(event, Enumeration)
            event.print_parameter(printer)
        state.last_was_punctuation, state.should_emit_space = False, True


@irdl_custom_directive
class FlagNumber(CustomDirective):
    """`3`, or `%flag` for one that is computed."""

    fixed: AttributeVariable
    computed: OptionalOperandVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        found = parser.parse_optional_unresolved_operand()
        self.computed.set(state, found)
        if found is None:
            number = parser.parse_integer()
            found_type = parser.parse_type() if parser.parse_optional_punctuation(":") else i64
            assert isinstance(found_type, IntegerType)
            self.fixed.set(state, IntegerAttr(number, found_type))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        if (operand := self.computed.get(op)) is not None:
            printer.print_ssa_value(operand)
        elif isinstance(flag := self.fixed.get(op), IntegerAttr):
            printer.print_string(str(flag.value.data))
            if flag.type != i64:
                printer.print_string(f" : {flag.type}")
        state.last_was_punctuation, state.should_emit_space = False, True
