"""The textual form and the small helpers that all three dialects share.

Every Tilewright op prints as

    %r = level.name %a, %b at [%i * 128, %k * 64 + 3] {sizes = [128, 64]} : (types) -> type

`at [...]` is there for ops that address a box of memory: one linear expression of the enclosing loops'
indices for each dimension. Properties print as plain lists, numbers and strings. Where all operand and result
types agree, the type is written once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import ClassVar, TypeVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    DenseArrayBase,
    FileLineColLoc,
    FusedLoc,
    IndexType,
    IntegerAttr,
    IntegerType,
    NameLoc,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import BaseAttr, IRDLOperation, PropertyDef
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from . import open_sizes
from .affine import Expr
from .open_sizes import decoded
from .open_text import number_text, open_integer, open_ints, open_number, parse_number

INDEX = IndexType()

OpT = TypeVar("OpT", bound="FormattedOp")
V = TypeVar("V", bound=Hashable)

INTEGERS_KEPT = 4096

_INTS: dict[tuple[int, ...], DenseArrayBase] = {}
_VALUES: dict[bytes, tuple[int, ...]] = {}
"""What i64 arrays hold, by their bytes: passes ask again and again."""


def ints(values: Sequence[int]) -> DenseArrayBase:
    """`values` as the dense i64 array that properties hold; equal lists share one attribute."""
    key = tuple([v if type(v) is int else open_sizes.encode(v) for v in values])
    found = _INTS.get(key)
    if found is None:
        is_any_open = any(map(open_sizes.is_open, values))
        found = _INTS[key] = open_ints(key) if is_any_open else DenseArrayBase.from_list(i64, key)
    return found


def to_ints(attr: DenseArrayBase | None) -> tuple[int, ...]:
    """The integers of a dense array property; () for an absent one."""
    if attr is None:
        return ()
    if attr.elt_type is not i64:
        return tuple(int(v) for v in cast("DenseArrayBase[IntegerType]", attr).get_values())
    found = _VALUES.get(attr.data.data)
    if found is None:
        values = cast("DenseArrayBase[IntegerType]", attr).get_values()
        found = _VALUES[attr.data.data] = decoded(tuple(int(v) for v in values))
    return found


Row = tuple[int, tuple[tuple[int, int], ...]]
"""What an op stores of one expression: the constant, and (number of the index operand, coefficient) pairs."""

_ROWS: dict[tuple[tuple[int, ...], int], tuple[Row, ...]] = {}
"""What lists of integers stand for, by the number of index operands."""


def _rows(attr: DenseArrayBase, n_indices: int) -> tuple[Row, ...]:
    """The expressions over `n_indices` operands that an op stores: a flat array with a row of `n_indices` coefficients
    and a constant for each."""
    flat = to_ints(attr)
    found = _ROWS.get((flat, n_indices))
    if found is None:
        starts = range(0, len(flat), n_indices + 1)
        found = _ROWS[flat, n_indices] = tuple(
            (flat[i + n_indices], tuple((j, flat[i + j]) for j in range(n_indices) if flat[i + j]))
            for i in starts
        )
    return found


def unpack(attr: DenseArrayBase, indices: Sequence[V]) -> tuple[Expr[V], ...]:
    """The expressions that an op stores, over its index operands or what stands for them."""
    return tuple(
        [
            Expr.gathered(constant, [(indices[j], c) for j, c in terms])
            for constant, terms in _rows(attr, len(indices))
        ]
    )


def unpack_over(attr: DenseArrayBase, values: Sequence[Expr[V]]) -> tuple[Expr[V], ...]:
    """The expressions that an op stores, where its index operands have these values."""
    return tuple(
        [
            Expr.combine(constant, [(c, values[j]) for j, c in terms])
            for constant, terms in _rows(attr, len(values))
        ]
    )


def encode(exprs: Sequence[Expr[V]], indices: Sequence[V]) -> DenseArrayBase:
    """What an op with these index operands stores of expressions. Raises TypeError for other variables."""
    place = {v: i for i, v in enumerate(indices)}
    flat: list[int] = []
    for e in exprs:
        row = [0] * len(indices)
        for variable, coefficient in e.terms:
            if variable not in place:
                raise TypeError(f"{e} has a variable that is no index operand")
            row[place[variable]] = coefficient
        flat += (*row, e.constant)
    return ints(flat)


def pack(exprs: Sequence[Expr]) -> tuple[list[SSAValue], DenseArrayBase]:
    """The index operands that expressions need, and what an op with these stores. Raises TypeError for a variable
    that is no SSA value: a symbol must be substituted first."""
    indices = list(dict.fromkeys(v for e in exprs for v, _ in e.terms))
    for v in indices:
        if not isinstance(v, SSAValue):
            raise TypeError(f"{v} is no index operand: substitute it before an op is made")
    return indices, encode(exprs, indices)


class FormattedOp(IRDLOperation):
    """Base of all Tilewright ops: the one textual form described at the top of this module."""

    ADDRESSED: ClassVar[bool] = False
    """True where trailing `indices` operands and an `offsets` property give a box: printed as `at [...]`."""

    SYMBOL: ClassVar[str | None] = None
    """The property that holds the op's symbol, printed as `@name` before the operands."""

    # as IRDLOperation's, which is written in Python; passes keep ops in sets and dicts
    __hash__ = object.__hash__

    @property
    def level(self) -> str:
        return self.name.split(".", 1)[0]

    def error(self, message: str) -> VerifyException:
        return VerifyException(f"'{self.name}' {message}")

    # -- printing ------------------------------------------------------------------------------------------

    def main_operands(self) -> Sequence[SSAValue]:
        if not self.ADDRESSED:
            return self.operands
        return [v for v in self.operands if v.type != INDEX]

    def index_operands(self) -> Sequence[SSAValue]:
        return [v for v in self.operands if v.type == INDEX] if self.ADDRESSED else ()

    def linear(self) -> tuple[Expr, ...]:
        """The expressions of the op's `at [...]`, over its index operands."""
        return unpack(self._offsets(), self.index_operands())

    def linear_over(self, values: Sequence[Expr[V]]) -> tuple[Expr[V], ...]:
        """The same where the index operands have these values."""
        return unpack_over(self._offsets(), values)

    def _offsets(self) -> DenseArrayBase:
        attr = self.properties["offsets"]
        assert isinstance(attr, DenseArrayBase)
        return attr

    def print(self, printer: Printer) -> None:
        main = self.main_operands()
        hidden = set()
        if self.SYMBOL is not None:
            hidden.add(self.SYMBOL)
            printer.print_string(" ")
            printer.print_symbol_name(_symbol_text(self.properties[self.SYMBOL]))
        if main:
            printer.print_string(" ")
            printer.print_list(main, printer.print_ssa_value)
        if self.ADDRESSED and "offsets" in self.properties:
            hidden.add("offsets")
            printer.print_string(" at [")
            printer.print_list(
                self.linear(), lambda e: e.write(printer.print_string, printer.print_ssa_value)
            )
            printer.print_string("]")
        shown = {k: v for k, v in self.properties.items() if k not in hidden}
        if shown:
            printer.print_string(" {")
            printer.print_list(sorted(shown.items()), lambda kv: _print_property(printer, *kv))
            printer.print_string("}")
        elif self.regions and not (self.attributes or main or self.results):
            printer.print_string(" {}")  # or the first region would be read as the properties
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)
        types_in = [v.type for v in main]
        types_out = list(self.result_types)
        if types_in or types_out:
            printer.print_string(" : ")
            if types_in and types_out and len({*types_in, *types_out}) == 1 and len(types_out) == 1:
                printer.print_attribute(types_out[0])
            else:
                printer.print_string("(")
                printer.print_list(types_in, printer.print_attribute)
                printer.print_string(")")
                if types_out:
                    printer.print_string(" -> ")
                    if len(types_out) == 1:
                        printer.print_attribute(types_out[0])
                    else:
                        printer.print_string("(")
                        printer.print_list(types_out, printer.print_attribute)
                        printer.print_string(")")
        for region in self.regions:
            printer.print_string(" ")
            printer.print_region(region)

    # -- parsing -------------------------------------------------------------------------------------------

    @classmethod
    def parse(cls: type[OpT], parser: Parser) -> OpT:
        main: list[UnresolvedOperand] = []
        properties: dict[str, Attribute] = {}
        if cls.SYMBOL is not None:
            name = parser.parse_symbol_name()
            properties[cls.SYMBOL] = name if cls.SYMBOL == "sym_name" else SymbolRefAttr(name)
        # an op that takes no operands must not eat the result name of the next op
        takes_operands = bool(cls.get_irdl_definition().operands)
        first = parser.parse_optional_unresolved_operand() if takes_operands else None
        if first is not None:
            main.append(first)
            while parser.parse_optional_punctuation(","):
                main.append(parser.parse_unresolved_operand())
        indices: list[SSAValue] = []
        if cls.ADDRESSED and parser.parse_optional_keyword("at"):
            exprs = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_linear(parser))
            indices, properties["offsets"] = pack(exprs)
        if parser.parse_optional_punctuation("{"):
            if not parser.parse_optional_punctuation("}"):
                while True:
                    start = parser.pos
                    key, value = _parse_property(parser)
                    declared = cls.get_irdl_definition().properties.get(key)
                    if declared is None:
                        parser.raise_error(f"'{cls.name}' has no property {key!r}", start, start + len(key))
                    properties[key] = _numbers(value, declared, parser)
                    if not parser.parse_optional_punctuation(","):
                        break
                parser.parse_punctuation("}")
        attributes = parser.parse_optional_attr_dict_with_keyword()
        types_in: list[Attribute] = []
        types_out: list[Attribute] = []
        at = parser.pos
        if parser.parse_optional_punctuation(":"):
            listed = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
            if listed is None:
                only = parser.parse_type()
                types_in, types_out = [only] * len(main), [only]
            else:
                types_in = list(listed)
                if parser.parse_optional_punctuation("->"):
                    several = parser.parse_optional_comma_separated_list(
                        parser.Delimiter.PAREN, parser.parse_type
                    )
                    types_out = [parser.parse_type()] if several is None else list(several)
        if len(types_in) != len(main):
            parser.raise_error(
                f"'{cls.name}' has {len(main)} operands but {len(types_in)} operand types", at, parser.pos
            )
        operands = [parser.resolve_operand(o, t) for o, t in zip(main, types_in, strict=True)]
        regions: list[Region] = []
        while (region := parser.parse_optional_region()) is not None:
            regions.append(region)
        return cls.create(
            operands=[*operands, *indices],
            result_types=types_out,
            properties=properties,
            attributes=dict(attributes.data) if attributes else {},
            regions=regions,
        )


def _symbol_text(attr: Attribute) -> str:
    return attr.root_reference.data if isinstance(attr, SymbolRefAttr) else text(attr)


def parse_linear(parser: Parser) -> Expr:
    """One linear expression, `%i * 128 + %k + -3`."""
    total = Expr()
    while True:
        operand = parser.parse_optional_unresolved_operand()
        if operand is None:
            total = total + parse_number(parser)
        else:
            value = parser.resolve_operand(operand, INDEX)
            factor = parse_number(parser) if parser.parse_optional_characters("*") else 1
            total = total + Expr.of(value, factor)
        if not parser.parse_optional_punctuation("+"):
            return total


def _print_property(printer: Printer, name: str, value: Attribute) -> None:
    printer.print_string(name)
    if isinstance(value, UnitAttr):
        return
    printer.print_string(" = ")
    if isinstance(value, DenseArrayBase) and value.elt_type == i64:
        printer.print_string("[" + ", ".join(number_text(v) for v in to_ints(value)) + "]")
    elif isinstance(value, IntegerAttr) and value.type == i64:
        printer.print_string(number_text(integer(value)))
    else:
        printer.print_attribute(value)


def _parse_property(parser: Parser) -> tuple[str, Attribute]:
    name = parser.parse_identifier()
    if not parser.parse_optional_punctuation("="):
        return name, UnitAttr()
    return name, parser.parse_attribute()


def _numbers(value: Attribute, declared: PropertyDef, parser: Parser) -> Attribute:
    """A property as its op has it: a list of numbers as a dense array, and open ones, which stand in quotes, as what
    stands for them."""
    kind = declared.constr.attr if isinstance(declared.constr, BaseAttr) else None
    if isinstance(value, StringAttr) and kind is IntegerAttr:
        return integer_attr(open_number(value.data, parser))
    if not isinstance(value, ArrayAttr):
        return value
    if all(isinstance(v, IntegerAttr) and v.type == i64 for v in value.data):
        return ints([v.value.data for v in value.data if isinstance(v, IntegerAttr)])
    if kind is not DenseArrayBase or not all(isinstance(v, StringAttr | IntegerAttr) for v in value.data):
        return value
    return ints([open_number(v.data, parser) if isinstance(v, StringAttr) else integer(v) for v in value.data])


def text(attr: Attribute) -> str:
    """The Python string of a string property."""
    assert isinstance(attr, StringAttr)
    return attr.data


@lru_cache(INTEGERS_KEPT)
def integer_attr(value: int) -> IntegerAttr:
    """`value` as the i64 attribute that properties hold; those made lately are shared."""
    return open_integer(value) if open_sizes.is_open(value) else IntegerAttr(int(value), i64)


def integer(attr: Attribute) -> int:
    """The Python int of an integer property."""
    assert isinstance(attr, IntegerAttr)
    return open_sizes.decode(attr.value.data)


def block_of(value: SSAValue) -> Block | None:
    """The block that a value is made in."""
    return value.owner if isinstance(value.owner, Block) else value.owner.parent


def describe(op: Operation) -> str:
    """`'npu.load' (model.py:12)`: how an op is named in a message to the user."""
    place = source_of(op)
    return f"'{op.name}' ({place})" if place else f"'{op.name}'"


def source_of(op: Operation) -> str | None:
    """`file:line` of the user's source that `op` came from, `file:node` of a model whose nodes have names, or None."""
    return located_at(op.location)


def located_at(location: Attribute) -> str | None:
    """`file:line` or `file:node` of a location, or None."""
    place, node = _innermost(location)
    return None if place is None else f"{place.filename.data}:{node or place.line.data}"


def place_of(op: Operation) -> FileLineColLoc | None:
    """Where in the user's source `op` came from: the innermost place of its location, or None."""
    return _innermost(op.location)[0]


def node_of(op: Operation) -> str:
    """The name of the model's node that `op` came from; empty where its location has none."""
    return _innermost(op.location)[1]


NODE = "tilewright.node "
"""Begins the name of a location that is a node of a model: loc("tilewright.node /fc/Gemm"("model.onnx":4:0))."""


def _innermost(loc: Attribute) -> tuple[FileLineColLoc | None, str]:
    """The innermost place of a location, and the node that is named there."""
    node = ""
    while True:
        if isinstance(loc, FileLineColLoc):
            return loc, node
        if isinstance(loc, NameLoc):
            if loc.desc.data.startswith(NODE):
                node = loc.desc.data.removeprefix(NODE)
            loc = loc.location
        elif isinstance(loc, CallSiteLoc):
            loc = loc.callee
        elif isinstance(loc, FusedLoc) and isinstance(loc.locations, ArrayAttr) and loc.locations.data:
            loc = loc.locations.data[0]
        else:
            return None, node
