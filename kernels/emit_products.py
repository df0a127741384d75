"""Builds the tile ops of the stages of products."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, UnitAttr
from xdsl.ir import SSAValue

from ..dialects import tile as ops
from ..dialects.base import Expr, integer_attr, ints, pack
from ..dialects.npu.types import padded_bytes, row_strides
from ..dialects.tile import TileType
from .emit import Emitter, build_stage
from .product_stages import (
    DrainSums,
    HandOn,
    LeavingSums,
    LoadHanded,
    LoadOperand,
    LoadRow,
    MoveOperand,
    MoveRow,
    Multiply,
    NoSums,
    OperandDim,
    ReadPlace,
    StoreSums,
    lengths,
    matrix,
)
from .stage import KernelStage

Tiles = Sequence[SSAValue]


def _kind(stage: KernelStage, e: Emitter) -> TileType:
    """The type of what a stage gives."""
    shape = stage.op.shape(e.tile)
    assert shape is not None
    return TileType.of(shape, stage.elements[0], stage.op.space)


@build_stage.register
def _(op: ReadPlace, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    place, b = op.place, e.builder
    indices, offsets = pack([sum((e.at(a) * c for a, c in terms), Expr(start)) for start, terms in place.at])
    view = b.view(b.gm(place.input), place.shape, row_strides(place.shape))
    low, high = integer_attr(0), integer_attr(place.highest)
    return b.add(ops.ScalarOp, [view, *indices], [IndexType()], offsets=offsets, low=low, high=high).results


@build_stage.register
def _(op: LoadOperand, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    b, numbers = e.builder, iter(tiles)
    view = e.view(b.gm(op.input), op.box, op.offset)
    offsets: list[Expr] = []
    for dim in op.box:
        at = Expr() if dim.begins is None else Expr.of(next(numbers))
        at = at + dim.start
        for axis, step in (*dim.along, *dim.placed_by):
            at = at + dim.shared(e.at(axis)) * step
        offsets.append(at)
    return [b.load(view, offsets, lengths(op.box, e.tile), _kind(stage, e), [d.step for d in op.box])]


@build_stage.register
def _(op: MoveOperand, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    (tile,) = tiles
    taken = [_taken(op, dim, e, tile) for dim in op.box]
    offsets, sizes, steps, window, window_steps = (list(each) for each in zip(*taken, strict=True))
    windowed = any(n != 1 for n in window)
    for i, dim in enumerate(op.box[:-1]):
        if windowed and not op.transpose and all(a in op.summed for a in dim.axes):
            # no result moves along it: its sums stand among those of windows, in the order of their axes
            window[i], window_steps[i], sizes[i], steps[i] = sizes[i], steps[i], 1, 1
    indices, rows = pack(offsets)
    return e.builder.add(
        ops.MoveOp,
        [tile, *indices],
        [_kind(stage, e)],
        offsets=rows,
        sizes=ints(sizes),
        steps=ints(steps) if any(n != 1 for n in steps) else None,
        window=ints(window) if windowed else None,
        window_steps=ints(window_steps) if windowed else None,
        transpose=integer_attr(1) if op.transpose else None,
    ).results


def _taken(
    op: MoveOperand, dim: OperandDim, e: Emitter, tile: SSAValue
) -> tuple[Expr, int, int, int, int]:
    """What a move takes along a dimension of a tile: from where on, how many and every which element, and how many
    windows, how far apart."""
    at, count, step, repeat, apart = Expr(), 1, 1, 1, 1
    for axis, every in dim.along:
        inside, length = e.inside(tile, axis), e.tile[axis]
        if dim.strided:
            at, count, step = inside * every, length, every
        elif len(dim.along) == 1:
            at, count = dim.shared(inside), length // dim.each
        elif axis not in op.rows and axis not in op.columns:
            continue  # the load is at its place
        elif axis in op.summed and op.transpose:  # beside a batch axis only: no window
            at, count, step = inside * every, length, every
        elif axis in op.summed:
            at, repeat, apart = at + inside * every, length, every
        else:
            count, step = length, every
    return at, count, step, repeat, apart


@build_stage.register
def _(op: LoadRow, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    b, (offsets, sizes, steps) = e.builder, e.taken(op.box)
    view = e.view(b.gm(op.input), op.box, op.offset)
    return [b.load(view, offsets, sizes, _kind(stage, e), steps)]


@build_stage.register
def _(op: MoveRow, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    (tile,) = tiles
    indices, offsets = pack([e.inside(tile, a) for a in op.columns] or [Expr()])
    sizes = ints([e.tile[a] for a in op.columns] or [1])
    row, machine = _kind(stage, e), e.builder.machine
    twice = 2 * padded_bytes(row.shape, row.element) <= machine.spaces[row.space].bytes
    slots = integer_attr(2) if twice and {*op.columns} & {*e.around} else None
    return e.builder.add(
        ops.MoveRowOp, [tile, *indices], [row], offsets=offsets, sizes=sizes, slots=slots
    ).results


@build_stage.register
def _(op: NoSums, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    e.steps = Expr()
    return e.builder.add(ops.ZeroOp, [], [_kind(stage, e)]).results


@build_stage.register
def _(op: Multiply, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    indices, offsets = pack([e.steps])
    return e.builder.add(ops.MmaOp, [*tiles, *indices], [tiles[2].type], offsets=offsets).results


@build_stage.register
def _(op: HandOn, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    relu = UnitAttr() if op.relu else None
    return e.builder.add(ops.HandOnOp, tiles, [_kind(stage, e)], relu=relu).results


@build_stage.register
def _(op: LoadHanded, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    offsets, sizes, _ = e.taken(op.box)
    return [e.builder.load(e.view(e.builder.gm(op.input), op.box), offsets, sizes, _kind(stage, e))]


@build_stage.register
def _(op: StoreSums, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    view = e.view(e.builder.output(op.output), op.box, op.offset)
    return _leave(op, e, tiles, view, *e.taken(op.box))


@build_stage.register
def _(op: DrainSums, e: Emitter, stage: KernelStage, tiles: Tiles) -> Tiles:
    terms = op.first_row, op.first_column
    indices, offsets = pack([sum((e.at(a) * c for a, c in each), Expr()) for each in terms])
    sizes = ints(matrix(e.tile, op.rows, op.columns))
    return e.builder.add(ops.DrainOp, [*tiles, *indices], e.types(stage), offsets=offsets, sizes=sizes).results


def _leave(
    op: LeavingSums,
    e: Emitter,
    tiles: Tiles,
    view: SSAValue,
    offsets: Sequence[Expr],
    sizes: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Tiles:
    sums, *scales = tiles
    e.builder.store(
        sums, view, offsets, sizes, steps, op.factor, op.zero, op.relu, scales[0] if scales else None
    )
    return ()
