"""Where data is: on-chip buffers and device memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import DenseArrayBase, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ...machine import PIPES
from ..base import ints, to_ints
from ..dtypes import TYPES_KEPT, dtype_name, itemsize, size
from ..open_sizes import any_open, decode, encode, is_open
from ..open_text import dimension_text, filled, number_text, parse_number

SPACES = ("gm", "l1", "l0a", "l0b", "l0c", "ub", "bt", "fb")
"""Memory spaces that every chip has: device memory, the cube core's l1, l0a, l0b, l0c, the vector core's ub, bias table
and fixpipe parameters. A machine file may name more."""


def check_on_chip(kind: str, space: str) -> None:
    """Whether a type may be in a space: any but device memory, since a machine file may name its own; the passes that
    know the machine refuse those that it lacks. Raises VerifyException."""
    if space == "gm" or not space.isidentifier():
        raise VerifyException(f"!{kind}: {space!r} is not an on-chip space, such as {', '.join(SPACES[1:])}")


def check_closed(kind: str, shape: Sequence[int]) -> None:
    """On-chip memory has shapes that are known at compile time. Raises VerifyException for others."""
    if any_open(shape) or min(shape, default=0) < 0:
        shown = ", ".join(map(dimension_text, shape))
        raise VerifyException(f"!{kind}: its shape [{shown}] is open; what is on chip has a static shape")


ROW_BYTES = 32
"""A row of an on-chip buffer starts at a multiple of this many bytes (the DaVinci block, C0)."""


class Pipe(str):
    """An instruction queue of a core; each runs in order, all run in parallel. `Pipe(name)` is one object for each
    name: those below that every chip has, and others that a machine file names."""

    __slots__ = ()
    S: ClassVar[Pipe]
    V: ClassVar[Pipe]
    M: ClassVar[Pipe]
    MTE1: ClassVar[Pipe]
    MTE2: ClassVar[Pipe]
    MTE3: ClassVar[Pipe]
    FIX: ClassVar[Pipe]

    def __new__(cls, name: str) -> Pipe:
        found = _PIPES.get(name)
        if found is None:
            found = _PIPES[name] = super().__new__(cls, name)
        return found

    def __reduce__(self) -> tuple[type[Pipe], tuple[str]]:
        return Pipe, (str(self),)


_PIPES: dict[str, Pipe] = {}

for _name in PIPES:
    setattr(Pipe, _name, Pipe(_name))


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a dense row-major tensor. Those of a tensor without elements count for nothing: whether
    an open size is 0 is not asked."""
    out, step = [], 1
    for s in reversed(shape):
        out.append(step)
        step *= s if is_open(s) else max(s, 1)
    return tuple(reversed(out))


def print_shape(printer: Printer, shape: Sequence[int], element: Attribute) -> None:
    for n in shape:
        printer.print_string(f"{dimension_text(n)}x")
    printer.print_attribute(element)
    if any_open(shape):
        printer.print_string(f", sizes [{', '.join(number_text(n) for n in shape if is_open(n))}]")


def padded_bytes(shape: Sequence[int], element: Attribute) -> int:
    """Bytes of a row-major on-chip tile whose rows are padded to whole 32-byte blocks."""
    return padded_size(shape, itemsize(element))


def padded_size(shape: Sequence[int], width: int) -> int:
    """`padded_bytes` of elements of so many bytes."""
    inner = shape[-1] if shape else 1
    return size(shape[:-1]) * (-(-inner * width // ROW_BYTES) * ROW_BYTES)


FRACTAL_ROWS = 16
"""Rows of a fractal of the vendor's instructions, and columns of one of sums."""


class Fractals(NamedTuple):
    """The blocks in which a matrix lies in a memory of the cube: rows and columns of one. Its columns are the last
    `dims` dimensions of the buffer, its rows the others."""

    rows: int
    columns: int
    dims: int = 1

    def bytes_of(self, shape: Sequence[int], element: Attribute) -> int:
        """Bytes of a matrix in whole blocks."""
        split = len(shape) - self.dims
        rows, columns = size(shape[:split]), size(shape[split:])
        return -(-rows // self.rows) * self.rows * (-(-columns // self.columns) * self.columns) * itemsize(element)


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
    """`!npu.buffer<128x64xf16, l1>`, or with `, 2 slots`: a multi-buffer of that many equal slots. With `, pitch 80`
    neighbouring rows are 80 elements apart, and the buffer has its elements only; without, rows begin at blocks, and
    are padded to whole ones. With `, fractals [16, 32]` a slot takes whole blocks of so many rows and columns, as a
    matrix in a memory of the cube does; a third number says how many dimensions its columns are, where that is not one.
    """

    name = "npu.buffer"
    dims: DenseArrayBase = param_def()
    element: Attribute = param_def()
    space_name: StringAttr = param_def()
    slot_count: IntAttr = param_def()
    row_pitch: IntAttr = param_def()
    blocks: DenseArrayBase = param_def()

    @staticmethod
    def of(
        shape: Sequence[int],
        element: Attribute,
        space: str,
        slots: int = 1,
        pitch: int = 0,
        fractals: Fractals | None = None,
    ) -> BufferType:
        return _buffer(tuple(shape), element, space, slots, pitch, fractals)

    @property
    def fractals(self) -> Fractals | None:
        """The blocks of which a slot takes whole ones; None where it takes rows."""
        blocks = to_ints(self.blocks)
        return Fractals(*blocks) if blocks else None

    @property
    def one_slot(self) -> BufferType:
        """The type of a slot."""
        return BufferType.of(self.shape, self.element, self.space, 1, self.pitch, self.fractals)

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
    def pitch(self) -> int:
        """Elements between neighbouring rows; 0 where rows begin at blocks."""
        return self.row_pitch.data

    @property
    def row_bytes(self) -> int:
        """Bytes between neighbouring rows."""
        width = itemsize(self.element)
        inner = self.shape[-1] if self.shape else 1
        return self.pitch * width if self.pitch else -(-inner * width // ROW_BYTES) * ROW_BYTES

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot, rows padded to blocks, or in whole fractals; with a pitch from the first element to the
        last one."""
        if not self.pitch:
            rows = padded_bytes(self.shape, self.element)
            return rows if self.fractals is None else max(rows, self.fractals.bytes_of(self.shape, self.element))
        inner = self.shape[-1] if self.shape else 1
        rows = size(self.shape[:-1])
        return ((rows - 1) * self.pitch + inner) * itemsize(self.element) if rows * inner else 0

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The bytes that a slot has, from its first one on: all of them, or with elements of others between its rows
        those of each row."""
        inner = self.shape[-1] if self.shape else 1
        whole = self.slot_bytes
        if self.pitch in (0, inner) or whole <= self.row_bytes:
            return [(0, whole)]
        width = inner * itemsize(self.element)
        return [(at, at + width) for at in range(0, whole, self.row_bytes)]

    def verify(self) -> None:
        check_on_chip("npu.buffer", self.space)
        check_closed("npu.buffer", self.shape)
        if self.slots < 1:
            raise VerifyException("!npu.buffer: needs at least one slot")
        if self.pitch and self.slots > 1:
            raise VerifyException("!npu.buffer: with a pitch it has one slot")
        blocks = self.fractals
        if blocks is not None and (min(blocks[:2]) < 1 or not 0 <= blocks.dims <= len(self.shape)):
            raise VerifyException(f"!npu.buffer: {list(blocks)} are no fractals of a matrix of {list(self.shape)}")
        if blocks is not None and self.pitch:
            raise VerifyException("!npu.buffer: in fractals it has no rows with a pitch")
        if self.pitch < 0 or 0 < self.pitch < (self.shape[-1] if self.shape else 1):
            raise VerifyException(f"!npu.buffer: rows {self.pitch} elements apart overlap")

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<")
        print_shape(printer, self.shape, self.element)
        printer.print_string(f", {self.space}")
        if self.slots != 1:
            printer.print_string(f", {self.slots} slots")
        if self.pitch:
            printer.print_string(f", pitch {self.pitch}")
        if self.fractals is not None:
            blocks = to_ints(self.blocks)
            said = blocks[:2] if self.fractals.dims == 1 else blocks
            printer.print_string(f", fractals [{', '.join(map(str, said))}]")
        printer.print_string(">")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            space = parser.parse_identifier()
            slots, pitch, blocks = 1, 0, ()
            while parser.parse_optional_punctuation(","):
                if parser.parse_optional_keyword("pitch"):
                    pitch = parser.parse_integer()
                elif parser.parse_optional_keyword("fractals"):
                    blocks = _blocks(parser)
                else:
                    slots = parser.parse_integer()
                    parser.parse_keyword("slots")
        return [ints(shape), element, StringAttr(space), IntAttr(slots), IntAttr(pitch), ints(blocks)]


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
        return decode(self.start.data)

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
        if self != GmType.of(self.shape, self.element):
            strides = ", ".join(map(number_text, self.strides))
            printer.print_string(f", strides [{strides}], offset {number_text(self.offset)}")
        printer.print_string(">")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            strides, offset = None, 0
            while parser.parse_optional_punctuation(","):
                if parser.parse_optional_keyword("sizes"):
                    shape = _named(parser, shape)
                    continue
                parser.parse_keyword("strides")
                strides = _numbers(parser)
                parser.parse_punctuation(",")
                parser.parse_keyword("offset")
                offset = parse_number(parser)
        return list(GmType.of(shape, element, strides, offset).parameters)


def _blocks(parser: AttrParser) -> Fractals:
    at = parser.pos
    numbers = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    if len(numbers) not in (2, 3):
        parser.raise_error("fractals have rows, columns and a number of dimensions", at, parser.pos)
    return Fractals(*numbers)


def _numbers(parser: AttrParser) -> tuple[int, ...]:
    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_number(parser)))


def _named(parser: AttrParser, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape with the sizes that follow it in the place of what is open."""
    at = parser.pos
    try:
        return filled(shape, _numbers(parser))
    except ValueError as error:
        parser.raise_error(str(error), at, parser.pos)


@lru_cache(TYPES_KEPT)
def _buffer(
    shape: tuple[int, ...], element: Attribute, space: str, slots: int, pitch: int, fractals: Fractals | None
) -> BufferType:
    return BufferType(ints(shape), element, StringAttr(space), IntAttr(slots), IntAttr(pitch), ints(fractals or ()))


@lru_cache(TYPES_KEPT)
def _gm(shape: tuple[int, ...], element: Attribute, strides: tuple[int, ...], offset: int) -> GmType:
    return GmType(ints(shape), element, ints(strides), IntAttr(encode(offset)))
