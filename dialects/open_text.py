"""Open dimensions as text in the IR: `tensor<?x128xf32, #graph.sizes<["b"]>>` and `grid = ["floordiv(b, 8)"]`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from .affine import Symbol
from .open_sizes import OpenSize, is_open
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
class OpenSizeAttr(Data[int]):
    """One open number, where an attribute that is no property holds it: `#graph.size<"512*t">`."""

    name = "graph.size"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> int:
        with parser.in_angle_brackets():
            return parse_number(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(number_text(self.data))


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
    """The open size that a text says. Its symbols are at least 1: what is empty is not open."""
    try:
        return OpenSize.of(parse_size(text, {name: Symbol(name, 1) for name in names_in(text)}))
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
