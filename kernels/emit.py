"""Builds tile ops of stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, UnitAttr
from xdsl.ir import SSAValue

from ..dialects import tile as ops
from ..dialects.base import Expr, integer_attr, ints, pack
from ..dialects.open_sizes import is_open
from ..dialects.tile import TileType
from ..dialects.tile.vector import IN_PLACE
from .builder import KernelBuilder, number
from .product_stages import OperandDim
from .stage import (
    Apply,
    ArgReduce,
    BoxDim,
    Extract,
    Fill,
    Iota,
    KernelStage,
    Mask,
    Reduce,
    ReduceWindows,
    Ref,
    Round,
    Spacing,
    Spread,
    StageLoadBox,
    StageOp,
    StageStoreBox,
    Transpose,
    Unpack,
)


@dataclass
class Emitter:
    """What stages need while they are built: tile extents and loop positions. origins: where each tile begins that is
    in l1, by axis; steps: how many mma steps have been added to the sums; around: the axes of the loops that are
    open."""

    builder: KernelBuilder
    tile: Sequence[int]
    position: dict[int, Expr] = field(default_factory=dict[int, Expr])
    origins: dict[SSAValue, Mapping[int, Expr]] = field(default_factory=dict[SSAValue, Mapping[int, Expr]])
    steps: Expr = field(default_factory=lambda: Expr())
    around: tuple[int, ...] = ()

    def types(self, stage: KernelStage) -> list[TileType]:
        """Of the results of a stage."""
        extents = stage.extents(self.tile)
        return [TileType.of(extents, element, "ub") for element in stage.elements]

    def at(self, axis: int) -> Expr:
        return self.position.get(axis, Expr())

    def inside(self, tile: SSAValue, axis: int) -> Expr:
        """How far along an axis the loops have gone since a tile was made."""
        origin = self.origins.get(tile)
        return self.at(axis) if origin is None else self.at(axis) - origin.get(axis, Expr())

    def view(self, source: SSAValue, dims: Sequence[BoxDim | OperandDim], offset: int = 0) -> SSAValue:
        """A tensor of device memory as these dimensions."""
        return self.builder.view(source, [d.extent for d in dims], [d.stride for d in dims], offset)

    def taken(
        self, dims: Sequence[BoxDim], tiles: Sequence[SSAValue] = (), spacing: Spacing | None = None
    ) -> tuple[list[Expr], list[int], list[int]]:
        """Where a load or store begins along each dimension, how much it takes, and every which element."""
        found = [self._taken_along(dim, tiles, spacing) for dim in dims]
        return [place for place, _, _ in found], [n for _, n, _ in found], [step for _, _, step in found]

    def _taken_along(
        self, dim: BoxDim, tiles: Sequence[SSAValue], spacing: Spacing | None
    ) -> tuple[Expr, int, int]:
        start = Expr(dim.start) if dim.plus is None else Expr.of(tiles[dim.plus]) + dim.start
        if dim.axis is None:
            return start, 1, 1
        at, extent = self.at(dim.axis), self.tile[dim.axis]
        if spacing is None or spacing.axis != dim.axis:
            return at * dim.step + start, extent, dim.step
        return spacing.place(at, extent), spacing.length(extent), 1

    @contextmanager
    def located(self, stage: KernelStage) -> Iterator[None]:
        """What is built inside comes from where a stage does."""
        outer, self.builder.location = self.builder.location, stage.location
        yield
        self.builder.location = outer

    def emit(self, i: int, stage: KernelStage, done: dict[Ref, SSAValue]) -> None:
        """Builds stage number `i` from the tiles in `done`, and adds its own."""
        with self.located(stage):
            results = build_stage(stage.op, self, stage, [done[r] for r in stage.operands])
        done.update({(i, j): r for j, r in enumerate(results)})
        if stage.op.space == "l1":
            self.origins.update((tile, dict(self.position)) for tile in results)


@singledispatch
def build_stage(op: StageOp, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """The results of a stage with this op, from the tiles of its operands: a function for each class of ops, which a
    module that has ops of its own registers."""
    raise TypeError(f"no tile ops are known for {op.NAME}")


@build_stage.register
def _(op: Fill, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(ops.FillOp, [], e.types(stage), value=number(op.value)).results


@build_stage.register
def _(op: Iota, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    indices, rows = pack([e.at(op.axis) * op.step + op.start])
    dim, step = integer_attr(stage.dimension(op.axis)), integer_attr(op.step)
    return e.builder.add(ops.IotaOp, indices, e.types(stage), offsets=rows, dim=dim, step=step).results


@build_stage.register
def _(op: StageLoadBox, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    b, (kind,) = e.builder, e.types(stage)
    dims = [op.box[d] for d in op.order] or op.box
    view = e.view(b.gm(op.input), dims, op.offset)
    places, sizes, steps = e.taken(dims, tiles, stage.spacing)
    if op.order:
        *outer, lines, columns = kind.shape
        kind = TileType.of([*outer, columns, lines], kind.element, kind.space)
    return [b.load(view, places, sizes, kind, steps, op.fill)]


@build_stage.register
def _(op: StageStoreBox, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    b, dims = e.builder, op.box or (BoxDim(1, 1, None),)
    b.store(tiles[0], e.view(b.output(op.output), dims, op.offset), *e.taken(dims, tiles))
    return ()


@build_stage.register
def _(op: Apply, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    made = e.builder.add(ops.ELEMENTWISE[op.of], tiles, e.types(stage))
    if op.over:
        made.attributes[IN_PLACE] = UnitAttr()
    return made.results


@build_stage.register
def _(op: Round, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(ops.RoundToOp, tiles, e.types(stage), mode=StringAttr(op.mode)).results


@build_stage.register
def _(op: Spread, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    kinds = e.types(stage)
    if tiles[0].type == kinds[0]:
        return tiles
    return e.builder.add(ops.BroadcastOp, tiles, kinds).results


@build_stage.register
def _(op: Transpose, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(ops.TransposeOp, tiles, e.types(stage), perm=ints(op.perm)).results


@build_stage.register
def _(op: Extract, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    (kind,) = e.types(stage)
    taken = {d: (start, step) for d, start, step in op.taken}
    starts, steps = zip(*(taken.get(d, (0, 1)) for d in range(len(kind.shape))), strict=True)
    ends = (start - min(step, 0) * (n - 1) for start, step, n in zip(starts, steps, kind.shape, strict=True))
    moved = {d: e.at(axis) * elements for d, axis, elements in op.moved}
    places = [moved.get(d, Expr()) + end for d, end in enumerate(ends)]
    if kind == tiles[0].type and all(place == Expr() for place in places):
        return tiles
    indices, offsets = pack(places)
    sizes, steps = ints(kind.shape), ints(steps)
    return e.builder.add(
        ops.ExtractOp, [*tiles, *indices], [kind], offsets=offsets, sizes=sizes, steps=steps
    ).results


@build_stage.register
def _(op: Unpack, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(ops.UnpackOp, tiles, e.types(stage)).results


@build_stage.register
def _(op: Mask, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    bounds, dims = dict(op.bounds), stage.tile_axes or range(len(e.tile))
    indices, rows = pack([e.at(a) if a in bounds else Expr() for a in dims])
    return e.builder.add(
        ops.MaskOp,
        [*tiles, *indices],
        [tiles[0].type],
        offsets=rows,
        bounds=ints([bounds.get(a, e.tile[a]) for a in dims]),
        value=number(op.value),
    ).results


@build_stage.register
def _(op: Reduce, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    dims, kind = ints([stage.dimension(a) for a, _ in op.axes]), StringAttr(op.by)
    counted = _counted(e, op.axes)
    return e.builder.add(ops.ReduceOp, tiles, e.types(stage), kind=kind, dims=dims, counted=counted).results


@build_stage.register
def _(op: ReduceWindows, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    return e.builder.add(
        ops.ReduceOp, tiles, e.types(stage), kind=StringAttr(op.by), dims=ints([stage.dimension(a) for a in op.axes])
    ).results


@build_stage.register
def _(op: ArgReduce, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    kind, dim, counted = StringAttr(op.by), integer_attr(stage.dimension(op.axis)), _counted(e, [(op.axis, op.extent)])
    return e.builder.add(ops.ArgReduceOp, tiles, e.types(stage), kind=kind, dim=dim, counted=counted).results


def _counted(e: Emitter, axes: Sequence[tuple[int, int]]) -> DenseArrayBase | None:
    """How many elements count along these axes, of so many each, where a tile may be longer than an open one; None
    where all do."""
    longer = any(is_open(n) and e.tile[a] >= n for a, n in axes)
    return ints([n for _, n in axes]) if longer else None
