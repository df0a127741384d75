"""Stages of kernels that move by index, run along an axis or sort: their ops, and the tile ops that these become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerType, Signedness, StringAttr
from xdsl.ir import SSAValue

from ..dialects import tile as ops
from ..dialects.base import INDEX, Expr, integer_attr, ints, pack
from ..dialects.elementwise import REDUCTION_FUNCTION
from ..dialects.tile import TileType, tile_type
from .builder import number
from .emit import Emitter, build_stage
from .loops import begun, continued
from .nest import NestWriter
from .stage import Apply, Axis, Extract, Fill, FromBox, KernelStage, Ref, Spread, StageOp

WORD = IntegerType(32, Signedness.UNSIGNED)
"""What a sort works in."""


@dataclass(frozen=True)
class StageScalar(StageOp):
    """The number that an input holds, at least `low` and at most `high`: no tile, but a place to load from or store
    to."""

    NAME = "scalar"
    KIND = "scalar"

    input: int
    low: int
    high: int

    @property
    def source(self) -> int | None:
        return self.input


@build_stage.register
def _(op: StageScalar, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    low, high = integer_attr(op.low), integer_attr(op.high)
    source, offsets = [e.builder.gm(op.input)], pack([])[1]
    return e.builder.add(ops.ScalarOp, source, [INDEX], offsets=offsets, low=low, high=high).results


@dataclass(frozen=True)
class LoadIndirect(FromBox):
    """For each element of its operand, the box of an input that begins so many elements behind its first one."""

    NAME = "load_indirect"
    TAKES = (1, 1)


@build_stage.register
def _(op: LoadIndirect, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    view, (_, sizes, _) = e.view(e.builder.gm(op.input), op.box), e.taken(op.box)
    return e.builder.add(ops.LoadIndirectOp, [view, *tiles], e.types(stage), sizes=ints(sizes)).results


@dataclass(frozen=True)
class StageGather(StageOp):
    """The elements of its first operand at places that the second one has, which count them row by row."""

    NAME = "gather"
    TAKES = (2, 2)

    @property
    def function(self) -> str | None:
        return "gather"


@build_stage.register
def _(op: StageGather, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(ops.GatherOp, tiles, e.types(stage)).results


@dataclass(frozen=True)
class Count(StageOp):
    """`start`, so many for each place along axes: (axis, step), and `step` times the index along an axis of its tile
    if that is given; added to its operand, which is left as it is where all that is 0."""

    NAME = "count"

    start: int = 0
    places: tuple[tuple[Axis, int], ...] = ()
    axis: Axis | None = None
    step: int = 0

    @property
    def moves(self) -> frozenset[int]:
        return frozenset(a for a, _ in self.places)


@build_stage.register
def _(op: Count, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    place = sum((e.at(a) * step for a, step in op.places), Expr(op.start))
    if tiles and place == Expr() and not op.step:
        return tiles
    (kind,), (indices, rows) = e.types(stage), pack([place])
    dim, step = integer_attr(0 if op.axis is None else stage.dimension(op.axis)), integer_attr(op.step)
    one = TileType.of([1] * len(kind.shape), kind.element, "ub") if tiles and not op.step else kind
    made = e.builder.add(ops.IotaOp, indices, [one], offsets=rows, dim=dim, step=step).results
    return e.builder.add(ops.ELEMENTWISE["add"], [*tiles, *made], [kind]).results if tiles else made


@dataclass(frozen=True)
class TileExtent(StageOp):
    """How many elements a tile has along an axis."""

    NAME = "tile_extent"
    KIND = "fill"

    axis: Axis


@build_stage.register
def _(op: TileExtent, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(ops.FillOp, [], e.types(stage), value=number(e.tile[op.axis])).results


@dataclass(frozen=True)
class Cumulate(StageOp):
    """Each element combined with all before it along an axis, or with all behind it in `reverse`. neutral: what changes
    nothing."""

    NAME = "cumulate"
    TAKES = (1, 1)

    by: str
    axis: Axis
    neutral: float | int
    reverse: bool = False

    @property
    def does(self) -> str:
        return f"running {self.by}"

    @property
    def function(self) -> str | None:
        return REDUCTION_FUNCTION[self.by]

    @property
    def carries(self) -> frozenset[int]:
        return frozenset({self.axis})


@build_stage.register
def _(op: Cumulate, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    kind, dim = StringAttr(op.by), integer_attr(stage.dimension(op.axis))
    reverse = integer_attr(int(op.reverse))
    return e.builder.add(ops.CumulateOp, tiles, e.types(stage), kind=kind, dim=dim, reverse=reverse).results


@begun.register
def _(op: Cumulate, w: NestWriter, stage: KernelStage, operands: Sequence[Ref]) -> Sequence[Ref]:
    return [w.put(Fill(op.neutral), stage.elements, stage.axes - {op.axis}, (), stage.tile_axes)]


@continued.register
def _(
    op: Cumulate, w: NestWriter, stage: KernelStage, operands: Sequence[Ref], carried: Sequence[Ref]
) -> tuple[Sequence[Ref], Sequence[Ref]]:
    (made,), kind, shape = w.again(stage, operands), stage.elements, stage.tile_axes
    before = w.put(Spread(), kind, stage.axes, carried, shape)
    made = w.put(Apply(REDUCTION_FUNCTION[op.by]), kind, stage.axes, [before, made], shape)
    last = 0 if op.reverse else w.tile[op.axis] - 1
    edge = w.put(Extract(((stage.dimension(op.axis), last, 1),)), kind, stage.axes - {op.axis}, [made], shape)
    return [made], [edge]


@dataclass(frozen=True)
class Accumulate(StageOp):
    """What the pieces before have made, which the first operand begins, combined with the second one, piece by piece
    along axes: (axis, its extent)."""

    NAME = "accumulate"
    TAKES = (2, 2)

    by: str
    axes: tuple[tuple[Axis, int], ...]

    @property
    def function(self) -> str | None:
        return REDUCTION_FUNCTION[self.by]

    @property
    def reduces(self) -> frozenset[int]:
        return frozenset(a for a, _ in self.axes)

    @property
    def carries(self) -> frozenset[int]:
        return self.reduces


@build_stage.register
def _(op: Accumulate, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(ops.ELEMENTWISE[REDUCTION_FUNCTION[op.by]], tiles, e.types(stage)).results


@dataclass(frozen=True)
class ScatterRows(StageOp):
    """The first operand, into whose elements along the axis `rows` those of the third operand are put, one after the
    other along the axis `updates` of so many; the second operand says into which ones of all rows."""

    NAME = "scatter"
    TAKES = (3, 3)

    by: str
    rows: Axis
    updates: Axis
    extent: int

    @property
    def does(self) -> str:
        return f"scatter by {self.by}"

    @property
    def moves(self) -> frozenset[int]:
        return frozenset({self.rows})

    @property
    def reduces(self) -> frozenset[int]:
        return frozenset({self.updates})

    @property
    def carries(self) -> frozenset[int]:
        return self.reduces


@build_stage.register
def _(op: ScatterRows, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    first, offsets = pack([e.at(op.rows)])
    kind = StringAttr(op.by)
    return e.builder.add(ops.ScatterOp, [*tiles, *first], e.types(stage), offsets=offsets, kind=kind).results


@dataclass(frozen=True)
class Sort(StageOp):
    """The rows of all operands, ordered by those that are `keys`, and the first elements of each. descending, total:
    how each key is ordered, as `graph.sort` says; work: the axis whose elements are what it works in."""

    NAME = "sort"

    keys: tuple[int, ...]
    descending: tuple[int, ...]
    total: tuple[int, ...]
    work: Axis


@build_stage.register
def _(op: Sort, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    *rows, _ = tile_type(tiles[0]).shape
    kinds = [*e.types(stage), TileType.of([*rows, e.tile[op.work]], WORD, "ub")]
    how = {"keys": ints(op.keys), "descending": ints(op.descending), "total": ints(op.total)}
    return e.builder.add(ops.SortOp, tiles, kinds, **how).results[:-1]
