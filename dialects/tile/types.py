"""A tile: a statically shaped piece of a tensor, as a value, in a named memory space."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from xdsl.dialects.builtin import DenseArrayBase, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from ..base import ints, to_ints
from ..dtypes import TYPES_KEPT, dtype_name
from ..npu.types import OnChipType, check_closed, check_on_chip, print_shape


@irdl_attr_definition
class TileType(OnChipType):
    """`!tile.tile<128x64xf16, l0a>`."""

    name = "tile.tile"
    dims: DenseArrayBase = param_def()
    element: Attribute = param_def()
    space_name: StringAttr = param_def()

    @staticmethod
    def of(shape: Sequence[int], element: Attribute, space: str) -> TileType:
        return _tile(tuple(shape), element, space)

    @property
    def shape(self) -> tuple[int, ...]:
        return to_ints(self.dims)

    @property
    def space(self) -> str:
        return self.space_name.data

    def dtype(self) -> str:
        return dtype_name(self.element)

    def verify(self) -> None:
        check_on_chip("tile.tile", self.space)
        check_closed("tile.tile", self.shape)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<")
        print_shape(printer, self.shape, self.element)
        printer.print_string(f", {self.space}>")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            space = parser.parse_identifier()
        return [ints(shape), element, StringAttr(space)]


@lru_cache(TYPES_KEPT)
def _tile(shape: tuple[int, ...], element: Attribute, space: str) -> TileType:
    return TileType(ints(shape), element, StringAttr(space))
