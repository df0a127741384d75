"""Stages of a vector kernel: what is loaded, computed and stored, known by the axes that it spans, before tiles have
sizes. They are data: they print (text.py), compare and hash, and emit.py builds tile ops of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute

from ..dialects.base import Expr
from ..dialects.dtypes import itemsize
from ..dialects.elementwise import REDUCTION_FUNCTION
from ..dialects.npu.types import GmType, Pipe, padded_size

Ref = tuple[int, int]
"""A stage's number and which of its results."""

Axis = Annotated[int, "axis"]
"""The number of an axis. Stages can be told other numbers for what has this type (renumber.py)."""

StageKind = Literal["scalar", "load", "drain", "given", "fill", "op", "reduce", "store"]
"""When a stage is built, and which pipe it is on: loads first, stores last; a drain brings what the cube has; another
part of the kernel has made what is given; a scalar is a number that the core itself reads, and no tile."""

PIPES: Mapping[StageKind, Pipe] = {"scalar": Pipe.S, "load": Pipe.MTE2, "store": Pipe.MTE3}
"""The pipe that stages of a kind are on; all others are on the vector unit's."""

TAKES: Mapping[StageKind, tuple[int, int | None]] = {
    **dict.fromkeys(("scalar", "load", "drain", "given", "fill"), (0, 0)),
    **dict.fromkeys(("reduce", "store"), (1, 1)),
}
"""How many operands stages of a kind take at least and at most; others take any number."""


@dataclass(frozen=True)
class Spacing:
    """Along `axis` a tile is longer or shorter than others: it has all elements between those of which `step` takes one
    in so many, or one element for each pair. A negative step takes them from the end of an axis of `of` elements on."""

    axis: Axis
    step: int = 1
    pairs: bool = False
    of: int = 0

    def length(self, extent: int) -> int:
        """Its elements where others have so many."""
        return extent // 2 if self.pairs else (extent - 1) * abs(self.step) + 1

    def place(self, at: Expr, extent: int) -> Expr:
        """Where it begins where others of so many elements begin at a place, which is even where there is one element
        for each pair."""
        if self.step < 0:
            return (at + extent - self.of) * self.step
        if not self.pairs:
            return at * self.step
        return Expr(at.constant // 2, {v: c // 2 for v, c in at.terms})


@dataclass(frozen=True)
class BoxDim:
    """One dimension of what is loaded or stored: its extent, its stride in elements, and the axis that it is walked
    along, None where there is one place; `step` elements at a time from `start` on. plus: the number of the operand, a
    scalar, that says how much further on."""

    extent: int
    stride: int
    axis: Axis | None
    step: int = 1
    start: int = 0
    plus: int | None = None


# -- what a stage does ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageOp:
    """What a stage does. The fields of a subclass are all that tells two of them apart."""

    NAME: ClassVar[str]
    """What text calls it."""
    KIND: ClassVar[StageKind] = "op"
    PIPE: ClassVar[Pipe | None] = None
    """The pipe that it is on, where its kind does not say so."""
    SPACE: ClassVar[str] = "ub"
    """The memory that has its results."""
    TAKES: ClassVar[tuple[int, int | None] | None] = None
    """How many operands it takes at least and at most, None for no limit; None where its kind says so."""

    @property
    def kind(self) -> StageKind:
        return self.KIND

    @property
    def space(self) -> str:
        return self.SPACE

    @property
    def takes(self) -> tuple[int, int | None]:
        """How many operands it takes at least and at most; None for no limit."""
        least, most = TAKES.get(self.kind, (0, None)) if self.TAKES is None else self.TAKES
        also = sum(d.plus is not None for d in self.dims)
        return least + also, None if most is None else most + also

    @property
    def scalars(self) -> frozenset[int]:
        """The numbers of its operands that are scalars, which say where it begins."""
        return frozenset(d.plus for d in self.dims if d.plus is not None)

    def shape(self, tile: Sequence[int]) -> Sequence[int] | None:
        """The extents of its results for a tile of the axes; None where they are those of the axes that it spans."""
        return None

    @property
    def does(self) -> str:
        """What it does in a word or two, for people: all that tells it apart is in its text."""
        return self.NAME

    @property
    def function(self) -> str | None:
        """What the vector unit computes; None for what is no function of its."""
        return None

    @property
    def moves(self) -> frozenset[int]:
        """Axes whose loop indices it reads: those along which it loads or stores, for most."""
        return frozenset(d.axis for d in self.dims if d.axis is not None)

    @property
    def reduces(self) -> frozenset[int]:
        """Axes that it reduces."""
        return frozenset()

    @property
    def carries(self) -> frozenset[int]:
        """Axes along which a tile goes from each piece to the next; its first operand is then what the first piece
        begins with, unless loops.py says otherwise."""
        return frozenset()

    @property
    def combines(self) -> str | None:
        """The kind of a reduction: what partial results of it are combined by."""
        return None

    @property
    def dims(self) -> Sequence[BoxDim]:
        """The dimensions of what it loads or stores."""
        return ()

    @property
    def source(self) -> int | None:
        """The number of the input that it loads."""
        return None

    @property
    def target(self) -> int | None:
        """The number of the output that it stores."""
        return None


@dataclass(frozen=True)
class Fill(StageOp):
    """One number everywhere."""

    NAME = "fill"
    KIND = "fill"

    value: float | int

    @property
    def does(self) -> str:
        return f"{self.NAME} {self.value:g}"


@dataclass(frozen=True)
class Iota(StageOp):
    """`start` and `step` times the index along an axis of the domain."""

    NAME = "iota"

    axis: Axis
    step: int = 1
    start: int = 0

    @property
    def moves(self) -> frozenset[int]:
        return frozenset({self.axis})


@dataclass(frozen=True)
class FromBox(StageOp):
    """Loads a box of an input."""

    KIND: ClassVar[StageKind] = "load"

    input: int
    box: tuple[BoxDim, ...]

    @property
    def dims(self) -> Sequence[BoxDim]:
        return self.box

    @property
    def source(self) -> int | None:
        return self.input


@dataclass(frozen=True)
class IntoBox(StageOp):
    """Stores its first operand into a box of an output."""

    KIND: ClassVar[StageKind] = "store"

    output: int
    box: tuple[BoxDim, ...]

    @property
    def dims(self) -> Sequence[BoxDim]:
        return self.box

    @property
    def target(self) -> int | None:
        return self.output


@dataclass(frozen=True)
class StageLoadBox(FromBox):
    """A box of an input, `offset` elements behind its first one. fill: what places outside of the input give; None
    where there are none. order: the order in which the dimensions are moved, where that is not theirs: the tile's last
    two axes are then swapped."""

    NAME = "load"

    offset: int = 0
    fill: float | int | None = None
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class StageStoreBox(IntoBox):
    """Its operand, into a box of an output, `offset` elements behind its first one, whose elements are `element`s."""

    NAME = "store"

    element: Attribute
    offset: int = 0


@dataclass(frozen=True)
class Given(StageOp):
    """A tile that another part of the kernel has made, by a name that this part knows it by; as: what it counts as."""

    NAME = "given"

    name: str
    counts_as: StageKind = "given"
    along: tuple[Axis, ...] = ()

    @property
    def kind(self) -> StageKind:
        return self.counts_as

    @property
    def moves(self) -> frozenset[int]:
        return frozenset(self.along)


@dataclass(frozen=True)
class Apply(StageOp):
    """An elementwise function of its operands. over: whether its result takes the place of the first one."""

    NAME = "apply"

    of: str
    over: bool = False

    @property
    def does(self) -> str:
        return self.of

    @property
    def function(self) -> str | None:
        return self.of


@dataclass(frozen=True)
class Round(StageOp):
    """A conversion that rounds by a rule, as `RoundToOp` of the tile dialect names it."""

    NAME = "round"

    mode: str

    @property
    def does(self) -> str:
        return f"{self.NAME} {self.mode}"

    @property
    def function(self) -> str | None:
        return "convert"


@dataclass(frozen=True)
class Spread(StageOp):
    """Its operand repeated over the axes of its result."""

    NAME = "spread"


@dataclass(frozen=True)
class Transpose(StageOp):
    """The axes of a tile in another order."""

    NAME = "transpose"

    perm: tuple[int, ...]


@dataclass(frozen=True)
class Extract(StageOp):
    """Elements of a tile: along each dimension that is `taken` from a start on, one in so many: (dimension, start,
    step); with a negative step from the last one on. moved: (dimension, axis, elements) where it starts so many
    elements further for each place along an axis. picks: whether the vector unit picks them one by one."""

    NAME = "extract"

    taken: tuple[tuple[int, int, int], ...]
    picks: bool = False
    moved: tuple[tuple[int, Axis, int], ...] = ()

    @property
    def moves(self) -> frozenset[int]:
        return frozenset(axis for _, axis, _ in self.moved)

    @property
    def function(self) -> str | None:
        return "gather" if self.picks else None


@dataclass(frozen=True)
class Unpack(StageOp):
    """The numbers of pairs of 4 bits."""

    NAME = "unpack"

    @property
    def function(self) -> str | None:
        return "unpack"


@dataclass(frozen=True)
class Mask(StageOp):
    """A number in the place of elements behind the bounds along some axes: (axis, bound)."""

    NAME = "mask"

    bounds: tuple[tuple[Axis, int], ...]
    value: float | int

    @property
    def moves(self) -> frozenset[int]:
        return frozenset(a for a, _ in self.bounds)

    @property
    def function(self) -> str | None:
        return "select"


@dataclass(frozen=True)
class Reduce(StageOp):
    """A reduction along axes of the domain: (axis, its extent)."""

    NAME = "reduce"
    KIND = "reduce"

    by: str
    axes: tuple[tuple[Axis, int], ...]

    @property
    def does(self) -> str:
        return f"{self.by} of rows"

    @property
    def function(self) -> str | None:
        return REDUCTION_FUNCTION[self.by]

    @property
    def reduces(self) -> frozenset[int]:
        return frozenset(a for a, _ in self.axes)

    @property
    def combines(self) -> str | None:
        return self.by


@dataclass(frozen=True)
class ReduceWindows(StageOp):
    """The same within a tile: one element for a window of all elements along some axes."""

    NAME = "reduce_windows"
    KIND = "reduce"

    by: str
    axes: tuple[Axis, ...]

    @property
    def does(self) -> str:
        return f"{self.by} of windows"

    @property
    def function(self) -> str | None:
        return REDUCTION_FUNCTION[self.by]


@dataclass(frozen=True)
class ArgReduce(StageOp):
    """The largest or smallest element along an axis of the domain, which has so many, and its index."""

    NAME = "arg_reduce"
    KIND = "reduce"

    by: str
    axis: Axis
    extent: int

    @property
    def does(self) -> str:
        return f"arg{self.by} of rows"

    @property
    def reduces(self) -> frozenset[int]:
        return frozenset({self.axis})

    @property
    def combines(self) -> str | None:
        return self.by


# -- a stage -------------------------------------------------------------------------------------------------


@dataclass
class KernelStage:
    """One tile op: what it does, to which results of stages before it. elements: the element types of its results,
    which span the domain's `axes`. spacing: the axis along which its results have other lengths than what else spans
    it. pooled: axes along which it has windows in the place of their elements. location: where the graph op that it
    belongs to came from, which does not count in comparisons. tile_axes: the axes that the dimensions of its results
    are, in order, of which those that it does not span have one element; empty where these are all of the domain's.

    kind, function, moves, reduces, combines, source and target are what `op` says. view, along: what a load or store
    moves in all, and the axis of each of its dimensions.
    """

    op: StageOp
    elements: Sequence[Attribute]
    axes: frozenset[int]
    operands: Sequence[Ref] = ()
    spacing: Spacing | None = None
    pooled: frozenset[int] = frozenset()
    location: LocationAttr | None = field(default=None, compare=False)
    tile_axes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        op, self.elements, self.operands = self.op, tuple(self.elements), tuple(self.operands)
        self.kind: StageKind = op.kind
        self.function, self.combines, self.source = op.function, op.combines, op.source
        self.moves, self.reduces, self.target = op.moves, op.reduces, op.target
        self.along: Sequence[int | None] = [d.axis for d in op.dims]
        self.view: GmType | None = None
        if isinstance(op, StageLoadBox | StageStoreBox):
            element = op.element if isinstance(op, StageStoreBox) else self.elements[0]
            strides = [d.stride * d.step for d in op.dims]
            self.view = GmType.of([d.extent for d in op.dims], element, strides)

    @property
    def pipe(self) -> Pipe:
        """The pipe that it is on."""
        return self.op.PIPE or PIPES.get(self.op.kind, Pipe.V)

    @property
    def space(self) -> str:
        """Where its results are: on chip, or in the core's own registers."""
        return "scalar" if self.kind == "scalar" else self.op.space

    def extents(self, tile: Sequence[int]) -> list[int]:
        """Elements of its results along each of their dimensions, for the extents of a tile."""
        if self.kind == "scalar":
            return []
        own = self.op.shape(tile)
        if own is not None:
            return list(own)
        extents = spanning(tile, self.axes, self.spacing)
        return [extents[a] for a in self.tile_axes] if self.tile_axes else extents

    def dimension(self, axis: int) -> int:
        """Which dimension of its results an axis is."""
        return self.tile_axes.index(axis) if self.tile_axes else axis

    def box(self, tile: Sequence[int]) -> list[int]:
        """What it loads or stores at once, for the extents of a tile."""
        extents = spanning(tile, self.axes, self.spacing)
        return [1 if a is None else extents[a] for a in self.along]

    def nearest(self) -> int | None:
        """The axis along which what it loads or stores lies side by side; None where it moves single elements, or
        nothing."""
        return next(iter(self.in_memory()), None)

    def in_memory(self) -> list[int]:
        """The axes along which what it loads or stores lies in memory, the one with elements side by side first."""
        if self.view is None:
            return []
        moved = zip(self.view.strides, self.along, self.view.shape, strict=True)
        found = sorted((abs(s), a) for s, a, n in moved if s and a is not None and n != 1)
        return [*dict.fromkeys(a for _, a in found)]


def spanning(tile: Sequence[int], axes: frozenset[int], spacing: Spacing | None = None) -> list[int]:
    """Extents of what spans only `axes` of a tile, with other ones along one of them."""
    extents = [t if a in axes else 1 for a, t in enumerate(tile)]
    if spacing is not None:
        extents[spacing.axis] = spacing.length(extents[spacing.axis])
    return extents


def tile_bytes(
    tile: Sequence[int], axes: frozenset[int], elements: Iterable[Attribute], spacing: Spacing | None = None
) -> int:
    """Bytes of the tiles of these element types that span only `axes`, with other ones along one of them."""
    return bytes_of_widths(tile, axes, map(itemsize, elements), spacing)


def bytes_of_widths(
    tile: Sequence[int], axes: frozenset[int], widths: Iterable[int], spacing: Spacing | None = None
) -> int:
    """The same for elements of so many bytes."""
    extents = spanning(tile, axes, spacing)
    return sum(padded_size(extents, width) for width in widths)
