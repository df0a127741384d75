"""Where data is: on-chip buffers and device memory."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

from xdsl.dialects.builtin import DenseArrayBase, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..base import ints, to_ints
from ..dtypes import TYPES_KEPT, dtype_name, itemsize, size

SPACES = ("gm", "l1", "l0a", "l0b", "l0c", "ub", "bt", "fb")
"""Named memory spaces: device memory, the cube core's l1, l0a, l0b, l0c, the vector core's ub, bias table and
fixpipe parameters."""

ROW_BYTES = 32
"""A row of an on-chip buffer starts at a multiple of this many bytes (the DaVinci block, C0)."""


class Pipe(StrEnum):
    """Instruction queues of a core; each runs in order, all run in parallel."""

    S = "S"
    V = "V"
    M = "M"
    MTE1 = "MTE1"
    MTE2 = "MTE2"
    MTE3 = "MTE3"
    FIX = "FIX"


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a dense row-major tensor."""
    out, step = [], 1
    for s in reversed(shape):
        out.append(step)
        step *= max(s, 1)
    return tuple(reversed(out))


def print_shape(printer: Printer, shape: Sequence[int], element: Attribute) -> None:
    for s in shape:
        printer.print_string(f"{s}x")
    printer.print_attribute(element)


def padded_bytes(shape: Sequence[int], element: Attribute) -> int:
    """Bytes of a row-major on-chip tile whose rows are padded to whole 32-byte blocks."""
    inner = shape[-1] if shape else 1
    row = -(-inner * itemsize(element) // ROW_BYTES) * ROW_BYTES
    return size(shape[:-1]) * row


class OnChipType(ParametrizedAttribute, TypeAttribute):
    """The type of a value in a memory of a core: a buffer or a tile."""

    @property
    def space(self) -> str:
        """The name of the memory."""
        raise NotImplementedError

    def dtype(self) -> str:
        """The short name of the element type. Raises ValueError for one we do not know."""
        raise NotImplementedError


@irdl_attr_definition
class BufferType(OnChipType):
    """`!npu.buffer<128x64xf16, l1>`, or with `, 2 slots`: a multi-buffer of that many equal slots."""

    name = "npu.buffer"
    dims: DenseArrayBase = param_def()
    element: Attribute = param_def()
    space_name: StringAttr = param_def()
    slot_count: IntAttr = param_def()

    @staticmethod
    def of(shape: Sequence[int], element: Attribute, space: str, slots: int = 1) -> BufferType:
        return _buffer(tuple(shape), element, space, slots)

    @property
    def shape(self) -> tuple[int, ...]:
        return to_ints(self.dims)

    @property
    def space(self) -> str:
        return self.space_name.data

    def dtype(self) -> str:
        return dtype_name(self.element)

    @property
    def slots(self) -> int:
        return self.slot_count.data

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot, rows padded to blocks."""
        return padded_bytes(self.shape, self.element)

    def verify(self) -> None:
        if self.space not in SPACES[1:]:
            raise VerifyException(
                f"!npu.buffer: {self.space!r} is not an on-chip space ({', '.join(SPACES[1:])})"
            )
        if self.slots < 1:
            raise VerifyException("!npu.buffer: needs at least one slot")

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<")
        print_shape(printer, self.shape, self.element)
        printer.print_string(f", {self.space}")
        if self.slots != 1:
            printer.print_string(f", {self.slots} slots")
        printer.print_string(">")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            space = parser.parse_identifier()
            slots = 1
            if parser.parse_optional_punctuation(","):
                slots = parser.parse_integer()
                parser.parse_keyword("slots")
        return [ints(shape), element, StringAttr(space), IntAttr(slots)]


@irdl_attr_definition
class GmType(ParametrizedAttribute, TypeAttribute):
    """A tensor in device memory, `!npu.gm<128x64xf16>`; a view adds `, strides [1, 128], offset 64` (elements)."""

    name = "npu.gm"
    dims: DenseArrayBase = param_def()
    element: Attribute = param_def()
    step: DenseArrayBase = param_def()
    start: IntAttr = param_def()

    @staticmethod
    def of(
        shape: Sequence[int], element: Attribute, strides: Sequence[int] | None = None, offset: int = 0
    ) -> GmType:
        return _gm(tuple(shape), element, row_strides(shape) if strides is None else tuple(strides), offset)

    @property
    def shape(self) -> tuple[int, ...]:
        return to_ints(self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each dimension."""
        return to_ints(self.step)

    @property
    def offset(self) -> int:
        """Elements before the first one."""
        return self.start.data

    @property
    def dense(self) -> bool:
        """True for a whole row-major tensor."""
        return self.offset == 0 and self.strides == row_strides(self.shape)

    @property
    def distinct(self) -> bool:
        """Whether no two positions are the same element of the tensor."""
        reach = 1
        for stride, n in sorted(zip(self.strides, self.shape, strict=True)):
            if n > 1:
                if stride < reach:
                    return False
                reach = stride * n
        return True

    @property
    def bytes(self) -> int:
        return size(self.shape) * itemsize(self.element)

    def verify(self) -> None:
        if len(self.strides) != len(self.shape):
            raise VerifyException(f"!npu.gm: {len(self.strides)} strides for {len(self.shape)} dimensions")

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<")
        print_shape(printer, self.shape, self.element)
        if not self.dense:
            printer.print_string(f", strides [{', '.join(map(str, self.strides))}], offset {self.offset}")
        printer.print_string(">")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            strides, offset = row_strides(shape), 0
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("strides")
                strides = tuple(
                    parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
                )
                parser.parse_punctuation(",")
                parser.parse_keyword("offset")
                offset = parser.parse_integer()
        return [ints(shape), element, ints(strides), IntAttr(offset)]


@lru_cache(TYPES_KEPT)
def _buffer(shape: tuple[int, ...], element: Attribute, space: str, slots: int) -> BufferType:
    return BufferType(ints(shape), element, StringAttr(space), IntAttr(slots))


@lru_cache(TYPES_KEPT)
def _gm(shape: tuple[int, ...], element: Attribute, strides: tuple[int, ...], offset: int) -> GmType:
    return GmType(ints(shape), element, ints(strides), IntAttr(offset))
