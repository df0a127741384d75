"""The StableHLO of host ops as text, in which numbers may be open sizes: `tensor<$[b]x$[8*s]xf32>`.

Whatever a number says in such a text, a dimension, the end of a slice or an element of a constant, a size may stand in
its place. With numbers for its symbols it is the text of a program for these sizes alone. `$$` is a dollar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from .dtypes import shape_in
from .open_sizes import any_open, is_open
from .sizes import SizeError, Sizes, names_in, parse_size

_PLACE = re.compile(r"\$(?:\$|\[([^\]\[$]*)\])")


@irdl_attr_definition
class OpenTextAttr(Data[str]):
    """StableHLO in which sizes stand for numbers: `#graph.text<"... tensor<$[8*s]xf32> ...">`."""

    name = "graph.text"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            found = parser.parse_str_literal()
        try:
            sizes = [size for size in _PLACE.findall(found) if size and names_in(size)]
        except SizeError as error:
            parser.raise_error(str(error))
        if not sizes:
            parser.raise_error("a text without open sizes is a string")
        return found

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.data)


HostText: TypeAlias = StringAttr | OpenTextAttr
"""The StableHLO of a host op, for one size or for many."""


def number_in_text(number: int) -> str:
    """What stands in an open text for an int or an `OpenSize`."""
    return f"$[{number}]" if is_open(number) else str(number)


def type_in_text(shape: Sequence[int], element: str) -> str:
    """What stands in an open text for a tensor type. element: as StableHLO writes it."""
    return f"tensor<{'x'.join([*map(number_in_text, shape), element])}>"


def tensor_in_text(kind: TensorType) -> str:
    """The same for a type of the IR."""
    shape = shape_in(kind)
    return type_in_text(shape, str(kind.element_type)) if any_open(shape) else str(kind)


def escaped(text: str) -> str:
    """Text without sizes as an open text."""
    return text.replace("$", "$$")


def open_form(module: HostText) -> str:
    """The open text of a host op."""
    return module.data if isinstance(module, OpenTextAttr) else escaped(module.data)


def host_text(text: str) -> HostText:
    """An open text as a host op has it."""
    has_sizes = any(found != "$$" for found in (m.group() for m in _PLACE.finditer(text)))
    return OpenTextAttr(text) if has_sizes else StringAttr(text.replace("$$", "$"))


def text_at(module: HostText, sizes: Sizes) -> str:
    """The StableHLO of a host op at given sizes. Raises SizeError for a symbol without a size."""
    if isinstance(module, StringAttr):
        return module.data
    return _filled(module.data, tuple(sizes.items()))


@lru_cache(1024)
def _filled(text: str, sizes: tuple[tuple[str, int], ...]) -> str:
    values = dict(sizes)

    def number(found: re.Match[str]) -> str:
        size = found.group(1)
        return "$" if size is None else str(parse_size(size, values).constant)

    return _PLACE.sub(number, text)
