"""Stages of matrix products and convolutions: operands go from device memory to l1 and from there to l0, where a move
unrolls an image to columns; the cube multiplies and adds up; sums leave l0c by the fixpipe.

The axes are those that the product walks: of its batch, its rows, its columns, and what is summed over. Each stage has
tiles of its own extents along them, as a load may bring what several steps take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ..dialects.base import Expr
from ..dialects.dtypes import size
from ..dialects.npu.types import Pipe
from .stage import Axis, BoxDim, FromBox, IntoBox, StageKind, StageOp

Terms = tuple[tuple[Axis, int], ...]
"""Axes with their coefficients: what a place along a dimension is the sum of."""

Extents = Mapping[int, int] | Sequence[int]
"""Elements of a tile along each axis."""


def matrix(tile: Extents, rows: Sequence[int], columns: Sequence[int]) -> list[int]:
    """Rows and columns of a matrix for a tile of such extents, with these axes as its rows and as its columns."""
    return [size([tile[a] for a in rows]), size([tile[a] for a in columns])]


@dataclass(frozen=True)
class PlaceRead:
    """Where a slice of a table begins along a dimension: a number of another tensor, which the scalar unit reads and
    clamps to [0, highest]. input: the kernel's; shape: its extents; at: where the number is along each of its
    dimensions, as a constant and axes with coefficients."""

    input: int
    shape: tuple[int, ...]
    at: tuple[tuple[int, Terms], ...]
    highest: int

    @property
    def axes(self) -> frozenset[int]:
        """Those of which each place has a slice of its own."""
        return frozenset(axis for _, terms in self.at for axis, _ in terms)


@dataclass(frozen=True)
class OperandDim:
    """One dimension of an operand's view.

    extent, stride: in elements. along: the axes that it is indexed by, with coefficients; start: what is added. each:
    elements along its axis that one element here stands for: several in what is stored of a sparse operand. strided:
    whether it is loaded with what lies between its steps, as elements that are next to each other in memory are.
    begins: where it begins, as far as that is known only at run time. placed_by: axes that only say where it begins:
    loads have one place of each, as those of windows where no move unrolls them.
    """

    extent: int
    stride: int
    along: Terms
    start: int = 0
    each: int = 1
    strided: bool = False
    begins: PlaceRead | None = None
    placed_by: Terms = ()

    @cached_property
    def axes(self) -> frozenset[int]:
        """The axes that it is indexed by."""
        return frozenset(axis for axis, _ in self.along)

    @property
    def windowed(self) -> bool:
        """Whether windows or steps are taken of it behind l1."""
        return len(self.along) != 1 or self.strided

    def shared(self, at: Expr) -> Expr:
        """The place here of a position along its axis, a multiple of `each`."""
        return Expr(at.constant // self.each, {v: c // self.each for v, c in at.terms})

    def length(self, tile: Extents) -> int:
        """The elements that a load takes for a tile of such extents."""
        if not self.windowed:
            return -(-tile[self.along[0][0]] // self.each)
        return sum((tile[axis] - 1) * step for axis, step in self.along) + 1

    @property
    def step(self) -> int:
        """Every which element a load takes."""
        return 1 if self.windowed else self.along[0][1]


def lengths(dims: Sequence[OperandDim], tile: Extents) -> list[int]:
    """What a load takes along each dimension of an operand for a tile of such extents."""
    return [dim.length(tile) for dim in dims]


@dataclass(frozen=True)
class ReadPlace(StageOp):
    """The number that says where a slice begins."""

    NAME = "read_place"
    KIND = "scalar"

    place: PlaceRead

    @property
    def moves(self) -> frozenset[int]:
        return self.place.axes

    @property
    def source(self) -> int | None:
        return self.place.input


@dataclass(frozen=True)
class LoadOperand(StageOp):
    """A box of an operand to l1. Its operands are the numbers that say where slices begin, in the order of the
    dimensions that have some."""

    NAME = "load_l1"
    KIND = "load"
    SPACE = "l1"

    input: int
    box: tuple[OperandDim, ...]
    offset: int = 0

    @property
    def takes(self) -> tuple[int, int | None]:
        return len(self.scalars), len(self.scalars)

    @property
    def scalars(self) -> frozenset[int]:
        return frozenset(range(sum(dim.begins is not None for dim in self.box)))

    @property
    def moves(self) -> frozenset[int]:
        return frozenset(axis for dim in self.box for axis, _ in (*dim.along, *dim.placed_by))

    @property
    def source(self) -> int | None:
        return self.input

    def shape(self, tile: Sequence[int]) -> Sequence[int]:
        return lengths(self.box, tile)


@dataclass(frozen=True)
class MoveOperand(StageOp):
    """A matrix from l1 to l0a or l0b, with these axes as its rows and as its columns; an image is unrolled."""

    NAME = "move"
    PIPE = Pipe.MTE1

    to: str
    box: tuple[OperandDim, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    transpose: bool = False

    @property
    def space(self) -> str:
        return self.to

    @property
    def does(self) -> str:
        return f"{self.NAME} to {self.to}"

    @property
    def summed(self) -> tuple[int, ...]:
        """The axes that the product sums over."""
        return self.columns if self.to == "l0a" else self.rows

    def shape(self, tile: Sequence[int]) -> Sequence[int]:
        rows, columns = matrix(tile, self.rows, self.columns)
        return [rows // max(dim.each for dim in self.box), columns]


@dataclass(frozen=True)
class LoadRow(FromBox):
    """What there is for each column of a product, to l1."""

    NAME = "load_row"
    SPACE = "l1"

    offset: int = 0

    def shape(self, tile: Sequence[int]) -> Sequence[int]:
        return [1 if dim.axis is None else tile[dim.axis] for dim in self.box]


@dataclass(frozen=True)
class MoveRow(StageOp):
    """That as a row of bt or fb."""

    NAME = "move_row"
    PIPE = Pipe.MTE1

    to: str
    columns: tuple[Axis, ...]

    @property
    def space(self) -> str:
        return self.to

    def shape(self, tile: Sequence[int]) -> Sequence[int]:
        return matrix(tile, (), self.columns)


@dataclass(frozen=True)
class GivesMatrix(StageOp):
    """What gives a matrix, with these axes as its rows and as its columns."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    def shape(self, tile: Sequence[int]) -> Sequence[int]:
        return matrix(tile, self.rows, self.columns)


@dataclass(frozen=True)
class NoSums(GivesMatrix):
    """An accumulator without sums."""

    NAME = "no_sums"
    PIPE = Pipe.M
    SPACE = "l0c"


@dataclass(frozen=True)
class Multiply(GivesMatrix):
    """The product of its first two operands onto its third one, which is carried along the axes that are summed over;
    with the index of a sparse matrix, and what each column begins from."""

    NAME = "multiply"
    PIPE = Pipe.M
    SPACE = "l0c"
    TAKES = (3, 5)

    summed: tuple[Axis, ...]

    @property
    def reduces(self) -> frozenset[int]:
        return frozenset(self.summed)


@dataclass(frozen=True)
class LoadHanded(FromBox):
    """What vector cores have handed over, to l1. as_dims: the axes that the dimensions of the tile are; None for one of
    one element."""

    NAME = "load_handed"
    SPACE = "l1"

    as_dims: tuple[Axis | None, ...]

    def shape(self, tile: Sequence[int]) -> Sequence[int]:
        return [1 if a is None else tile[a] for a in self.as_dims]


@dataclass(frozen=True)
class HandOn(GivesMatrix):
    """Sums by the fixpipe to l1, as an operand of the next product. relu: whether negative ones become 0."""

    NAME = "hand_on"
    PIPE = Pipe.FIX
    SPACE = "l1"
    TAKES = (1, 1)

    relu: bool = False


@dataclass(frozen=True)
class LeavingSums(StageOp):
    """Sums by the fixpipe. factor, zero: what they are multiplied by on the way, and what is added then; relu: whether
    negative ones become 0. A second operand has factors of columns."""

    KIND: ClassVar[StageKind] = "store"
    PIPE = Pipe.FIX
    TAKES = (1, 2)

    factor: float | None = None
    zero: int = 0
    relu: bool = False


@dataclass(frozen=True)
class DrainSums(StageOp):
    """Sums out of l0c, on a core that has a vector unit of its own: so many rows and columns as a tile has along these
    axes, from where some axes say."""

    NAME = "drain"
    KIND = "drain"
    TAKES = (1, 1)

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    first_row: Terms = ()
    first_column: Terms = ()

    @property
    def moves(self) -> frozenset[int]:
        return frozenset(a for a, _ in (*self.first_row, *self.first_column))


@dataclass(frozen=True)
class StoreSums(IntoBox, LeavingSums):
    """Sums into a box of an output, `offset` elements behind its first one."""

    NAME = "store_sums"

    output: int = 0
    box: tuple[BoxDim, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class HandOver(LeavingSums):
    """Sums to the workspace of what vector cores do behind the product, which has these axes: in the order in which
    a tile of sums has them."""

    NAME = "hand_over"

    order: tuple[Axis, ...] = ()

    @property
    def moves(self) -> frozenset[int]:
        return frozenset(self.order)
