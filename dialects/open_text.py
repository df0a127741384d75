"""Open dimensions as text in the IR: `tensor<?x128xf32, #graph.sizes<["b"]>>` and `grid = ["floordiv(b, 8)"]`.

An i64 attribute holds numbers of this process in the place of open sizes (`encode`). Those that do are attributes of
their own, which print the sizes, so that text has the same meaning in every process, also in xDSL's generic form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

from xdsl.dialects.builtin import BytesAttr, DenseArrayBase, IntAttr, IntegerAttr, IntegerType, i64
from xdsl.ir import Attribute, Data, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from .affine import Symbol
from .open_sizes import OpenSize, decode, encode, is_open
from .sizes import SizeError, names_in, parse_size


@irdl_attr_definition
class OpenSizesAttr(Data[tuple[int, ...]]):
    """The open dimensions of a tensor, in order: `#graph.sizes<["b", "8*s"]>`."""

    name = "graph.sizes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[int, ...]:
        with parser.in_angle_brackets():
            return tuple(
                parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_number(parser))
            )

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"[{', '.join(map(number_text, self.data))}]")


@irdl_attr_definition
class OpenIntsAttr(ParametrizedAttribute):
    """Integers of which some are open sizes: `#graph.ints<[1, "8*s"]>`. It takes the place of a dense i64 array, and
    is one to who asks (`isinstance`). data: what `encode` gives for each, packed as in a dense array."""

    name = "graph.ints"
    data: BytesAttr = param_def()

    @property
    def elt_type(self) -> IntegerType:
        """As a dense array's."""
        return i64

    def get_values(self) -> tuple[int, ...]:
        """As a dense array's: the numbers that stand for sizes."""
        return i64.unpack(self.data.data, len(self.data.data) // i64.size)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return open_ints(tuple(map(encode, OpenSizesAttr.parse_parameter(parser)))).parameters

    def print_parameters(self, printer: Printer) -> None:
        OpenSizesAttr(tuple(map(decode, self.get_values()))).print_parameter(printer)

    def print_builtin(self, printer: Printer) -> None:
        """What xDSL's printer asks of a dense array."""
        printer.print_string(f"#{self.name}")
        self.print_parameters(printer)


@irdl_attr_definition
class OpenIntegerAttr(ParametrizedAttribute):
    """An integer that is an open size: `#graph.size<"8*s">`. It takes the place of an i64 integer, and is one to who
    asks (`isinstance`). value: what `encode` gives for it."""

    name = "graph.size"
    value: IntAttr = param_def()

    @property
    def type(self) -> IntegerType:
        """As an integer's."""
        return i64

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return open_integer(parse_number(parser)).parameters

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(number_text(decode(self.value.data)))

    def print_builtin(self, printer: Printer) -> None:
        """What xDSL's printer asks of an integer."""
        printer.print_string(f"#{self.name}")
        self.print_parameters(printer)


# both of xDSL's are final, and what ops declare is asked by isinstance
DenseArrayBase.register(OpenIntsAttr)
IntegerAttr.register(OpenIntegerAttr)


def open_ints(numbers: Sequence[int]) -> DenseArrayBase:
    """Integers, open ones as `encode` gives them, as what takes the place of a dense array."""
    return cast("DenseArrayBase", OpenIntsAttr(BytesAttr(i64.pack(tuple(numbers)))))


def open_integer(number: int) -> IntegerAttr:
    """An open size as what takes the place of an integer attribute."""
    return cast("IntegerAttr", OpenIntegerAttr(IntAttr(encode(number))))


_SYMBOLS: ContextVar[Mapping[str, Symbol]] = ContextVar("symbols")


@contextmanager
def reading(symbols: Mapping[str, Symbol]) -> Iterator[None]:
    """Symbols that are read have the bounds that they have here; others are at least 1."""
    token = _SYMBOLS.set(symbols)
    try:
        yield
    finally:
        _SYMBOLS.reset(token)


def number_text(number: int) -> str:
    """A number as the IR has it, an open one in quotes."""
    return f'"{number}"' if is_open(number) else str(number)


def dimension_text(number: int) -> str:
    """A dimension as shapes have it: `?` for an open one, which is named behind the shape."""
    return "?" if is_open(number) or number < 0 else str(number)


def parse_number(parser: AttrParser) -> int:
    """A number as `number_text` writes it."""
    text = parser.parse_optional_str_literal()
    return parser.parse_integer() if text is None else open_number(text, parser)


def open_number(text: str, parser: AttrParser) -> int:
    """The open size that a text says. Its symbols are at least 1: what is empty is not open; or see `reading`."""
    known = _SYMBOLS.get({})
    try:
        return OpenSize.of(
            parse_size(text, {name: known.get(name, Symbol(name, 1)) for name in names_in(text)})
        )
    except SizeError as error:
        parser.raise_error(str(error))


def filled(shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """A shape with `sizes` in the place of what is negative. Raises ValueError where there are too few or too many."""
    count = sum(n < 0 for n in shape)
    if count != len(sizes):
        plural = "s" * (len(sizes) != 1)
        raise ValueError(f"{len(sizes)} size{plural} for {count} open dimension{'s' * (count != 1)}")
    left = iter(sizes)
    return tuple(next(left) if n < 0 else n for n in shape)
