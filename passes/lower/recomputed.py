"""Kernels that make rows themselves that they would read: fusions of rows stand inside the fusion of their reader.

Before:  %r = graph.fusion %x {...} ; %y = graph.fusion %r, %w {schedule} {...}
After:   %y = graph.fusion %x, %w {schedule} { %r = graph.fusion %x {...} ; %y = graph.fusion %r, %w {...} }

The reader is built as it is without them. Then the stages of a row stand in front of all that a core does, for the
elements that it reads, and each load of the row takes them from there:

         @contract_0:  %t = tile.load %x ...; %n = tile.mul %t, %scale
                       scf.for %k ... { %r = tile.extract %n at [%k * 32] {sizes = [32]} ... }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from ...dialects import tile as ops
from ...dialects.affine import Expr
from ...dialects.base import describe, ints, pack, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import FusionOp, ReshapeOp, VectorSchedule
from ...dialects.graph.interface import shape_of
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.occupancy import Occupancy
from ...dialects.tile import TileType, tile_type
from ...dialects.tile.interface import is_updated
from ...dialects.tile.vector import IN_PLACE
from ...kernels.builder import KernelBuilder, gm_of
from ...kernels.emit import Emitter
from ...kernels.graph import StageGraph
from ...kernels.plan import PlannedAxis, PlannedGraph
from ...kernels.stage import LoadBox, Ref, StoreBox
from ...machine import Machine
from ..errors import NoKernel
from ..npu.busy import work_microseconds
from ..npu.trial import allocated
from .axes import read_by
from .row_readings import Readings, readings_of
from .scheduled import ScheduledKernel
from .vector import VectorKernel

MADE_HERE = "rows that it reads are made in front of what it does with them"
"""What the plans of kernels say that make rows themselves."""


def nested_in(fusion: FusionOp) -> list[FusionOp]:
    """The fusions inside one that makes rows itself, in order, the reader last; none inside another one."""
    return [op for op in fusion.body.block.ops if isinstance(op, FusionOp)]


def source_of(value: SSAValue) -> SSAValue:
    """The value of which one is another shape."""
    while isinstance(value.owner, ReshapeOp):
        value = value.owner.x
    return value


def inputs_of(makers: Sequence[FusionOp], operands: Sequence[SSAValue]) -> list[SSAValue]:
    """What a kernel takes that makes rows itself, in order; operands: what its reader takes, rows among it."""
    values = list(operands)
    for maker in reversed(makers):
        values = [v for v in values if source_of(v).owner is not maker]
        values += [v for v in maker.inputs if v not in values]
    return values


class RowStages(VectorKernel):
    """The stages of a fusion whose results are rows: each is one run of memory, along one axis. Raises NoKernel for
    another fusion. more: leading axes of one element that its tiles have besides."""

    def __init__(self, fusion: FusionOp, machine: Machine, more: int = 0):
        super().__init__(fusion, machine, VectorSchedule())
        if more:
            merged = tuple(map(tuple, self.merged))
            super().__init__(fusion, machine, VectorSchedule(axes=((),) * more + merged))
        self.stores = {s.target: s for s in self.stages if isinstance(s.op, StoreBox)}
        self.along: dict[int, int] = {}
        """The axis of each result that is a row."""
        for stage in self.stores.values():
            assert isinstance(stage.op, StoreBox)
            wide = [d for d in stage.op.dims if d.extent != 1]
            if (
                not self.paired
                and len(wide) <= 1
                and all(d.stride == 1 for d in wide)
                and not stage.op.offset
            ):
                last = len(self.extents) - 1
                self.along[stage.op.output] = next((d.axis for d in wide if d.axis is not None), last)

    def is_whole(self, number: int) -> bool:
        """Whether each element of a row depends on all of them, or on where they are."""
        axis, needed = self.along[number], self._needed(number)
        return any(
            axis in s.reduces
            or s.spacing is not None
            or (isinstance(s.op, LoadBox) and s.op.fill is not None)
            for s in (self.stages[i] for i in needed)
        )

    def _needed(self, number: int) -> list[int]:
        at = next(i for i, s in enumerate(self.stages) if s is self.stores[number])
        return StageGraph.ordered(self.stages, self.stages.ancestors(at))

    def emit(
        self, builder: KernelBuilder, number: int, begin: Expr, length: int, done: dict[Ref, SSAValue]
    ) -> SSAValue:
        """The tile of so many elements of a row, from `begin` on. done: the tiles of stages that are there."""
        axis = self.along[number]
        emitter = Emitter(builder, [length if a == axis else n for a, n in enumerate(self.extents)])
        emitter.position[axis] = begin
        for i in self._needed(number):
            if (i, 0) not in done:
                emitter.emit(i, self.stages[i], done)
        return done[self.stores[number].operands[0]]


class RecomputingKernel(ScheduledKernel):
    """The kernel of a reader, which makes rows itself. operands: what the reader takes, inside `fusion`."""

    def __init__(
        self, fusion: FusionOp, machine: Machine, reader: ScheduledKernel, operands: Sequence[SSAValue]
    ):
        self.fusion, self.machine, self.reader, self.operands = fusion, machine, reader, operands
        *self.makers, _ = nested_in(fusion)
        self.kinds = reader.kinds

    def candidates(self, name: str) -> Iterator[Schedule]:
        return self.reader.candidates(name)

    def check(self, name: str, schedule: Schedule) -> None:
        self.reader.check(name, schedule)

    def occupancy(self, schedule: Schedule) -> Occupancy:
        return self.reader.occupancy(schedule)

    def bound(self, schedule: Schedule) -> float:
        return self.reader.bound(schedule) + (self.longer(schedule) or 0.0)

    def longer(self, schedule: Schedule) -> float | None:
        """By how many microseconds each core works longer for the rows; None where they have no room on chip. Raises
        PassError."""
        works: list[float] = []
        for kernel in (self.reader, self):
            lowered = allocated(kernel.build("trial", schedule), self.machine)
            if lowered is None:
                return None
            works.append(work_microseconds(lowered, self.machine))
        return works[1] - works[0]

    @property
    def unstaged(self) -> str:
        return "; ".join(filter(None, [self.reader.unstaged, MADE_HERE]))

    def planned_axes(self, schedule: Schedule) -> Sequence[PlannedAxis]:
        return self.reader.planned_axes(schedule)

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        return self.reader.stage_graphs()

    def planned_graphs(self, schedule: Schedule) -> Sequence[PlannedGraph]:
        return self.reader.planned_graphs(schedule)

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        rows = [RowStages(maker, self.machine) for maker in self.makers]
        reader, rank = self.reader, max(len(row.extents) for row in rows)
        if isinstance(reader, VectorKernel) and isinstance(schedule, VectorSchedule) and schedule.tile:
            more = max(rank - len(schedule.tile), 0)
            if more:
                reader, schedule = self._raised(reader, schedule, more)
        kernel, values = reader.build(name, schedule), list(self.operands)
        rank = max(rank, _rank_of(kernel, values, self.makers))
        for row in reversed(rows):
            made = RowStages(row.fusion, self.machine, rank - len(row.extents))
            values = _with_rows(kernel, values, made)
        return kernel

    @staticmethod
    def _raised(
        reader: VectorKernel, schedule: VectorSchedule, more: int
    ) -> tuple[VectorKernel, VectorSchedule]:
        """A kernel whose tiles have so many leading axes of one element more, and the schedule for that."""
        ones, axes = (1,) * more, tuple(map(tuple, reader.merged))
        raised = replace(
            schedule,
            axes=((),) * more + axes,
            tile=ones + (schedule.tile or ()),
            grid=ones + (schedule.grid or ()),
        )
        return type(reader)(reader.fusion, reader.machine, raised), raised


def _rank_of(kernel: ops.KernelOp, values: Sequence[SSAValue], makers: Sequence[FusionOp]) -> int:
    """The rank of the tiles of rows that a kernel loads."""
    first, ranks = len(to_ints(kernel.grid)), {0}
    for i, value in enumerate(values):
        if source_of(value).owner in makers:
            for use in kernel.body.block.args[first + i].uses:
                for op in (use.operation, *(u.operation for r in use.operation.results for u in r.uses)):
                    ranks |= {len(tile_type(op.result).shape)} if isinstance(op, ops.LoadOp) else set()
    return max(ranks)


def _with_rows(kernel: ops.KernelOp, values: Sequence[SSAValue], row: RowStages) -> list[SSAValue]:
    """Lets a kernel make the rows of a fusion that are among the `values` that it takes; what it takes then. Raises
    NoKernel where it does more with them than to load runs of them."""
    block, first = kernel.body.block, len(to_ints(kernel.grid))
    tensors: dict[int, list[BlockArgument]] = {}
    for value, arg in zip(values, block.args[first:], strict=False):
        source = source_of(value)
        if isinstance(source, OpResult) and source.op is row.fusion:
            tensors.setdefault(source.index, []).append(arg)
    readings: dict[int, Readings] = {}
    for number, args in tensors.items():
        extent = size(shape_of(row.yielded[number]))
        found = readings_of(kernel, args, extent) if number in row.along else None
        if found is None:
            raise NoKernel(f"{describe(row.fusion)} makes no row that its reader loads runs of")
        readings[number] = found
    builder = KernelBuilder(row.machine, "vector", [1], [gm_of(a) for a in read_by(row.block)], [])
    done: dict[tuple[Expr, int], dict[Ref, SSAValue]] = {}
    made: dict[int, tuple[SSAValue, Expr]] = {}
    for number, reading in readings.items():
        whole = row.is_whole(number)
        length = row.extents[row.along[number]] if whole else reading.length
        begin, inside = (Expr(), reading.begin) if whole else (reading.begin, Expr())
        tile = row.emit(builder, number, begin, length, done.setdefault((begin, length), {}))
        made[number] = tile, inside
    anchor = _first_of({load for reading in readings.values() for load in reading.places})
    _put(kernel, builder, anchor)
    given = dict(zip(values, block.args[first:], strict=False))
    for i, value in enumerate(row.fusion.inputs[a.index] for a in read_by(row.block)):
        if value not in given:
            given[value] = block.insert_arg(gm_of(value), first + len(given))
        builder.gm(i).replace_all_uses_with(given[value])
    for number, (tile, inside) in made.items():
        for load, place in readings[number].places.items():
            _read(load, tile, place + inside)
    gone = {arg for args in tensors.values() for arg in args}
    for arg in gone:
        for view in [use.operation for use in arg.uses]:
            view.detach()
            view.erase()
        block.erase_arg(arg)
    return [value for value, arg in given.items() if arg not in gone]


def _first_of(loads: set[ops.LoadOp]) -> Operation:
    """The first op of a section that is one of these loads, or has one inside."""
    section = next(iter(loads)).parent_op()
    while not isinstance(section, ops.SectionOp):
        assert section is not None
        section = section.parent_op()
    return next(op for op in section.body.block.ops if any(inner in loads for inner in op.walk()))


def _put(kernel: ops.KernelOp, builder: KernelBuilder, anchor: Operation) -> None:
    """Puts what was built before an op of a section, and views before all sections."""
    section, inside = anchor.parent_op(), anchor.parent
    head = kernel.body.block
    assert section is not None and inside is not None
    for op in list(builder.body.ops):
        op.detach()
        if isinstance(op, ops.ViewOp):
            head.insert_op_before(op, section)
        else:
            inside.insert_op_before(op, anchor)


def _read(load: ops.LoadOp, row: SSAValue, place: Expr[SSAValue]) -> None:
    """Takes what a load reads from the tile of a row, in its place."""
    block, kind = load.parent, tile_type(load.result)
    assert block is not None
    shape = tile_type(row).shape
    along = next((d for d, n in enumerate(shape) if n != 1), len(shape) - 1)
    across = next((d for d, n in enumerate(kind.shape) if n != 1), along)
    if len(shape) != len(kind.shape):
        raise NoKernel(f"tiles of {len(kind.shape)} axes cannot be as those of a row with {len(shape)}")
    length, found = size(kind.shape), row
    if length != shape[along] or place != Expr() or across != along or _is_written(load.result):
        sizes, rank = [length if d == along else 1 for d in range(len(shape))], range(len(shape))
        indices, offsets = pack([place if d == along else Expr() for d in rank])
        cut = ops.ExtractOp.create(
            operands=[row, *indices],
            result_types=[TileType.of(sizes, kind.element, kind.space)],
            properties={"offsets": offsets, "sizes": ints(sizes), "steps": ints([1] * len(sizes))},
            location=load.location,
        )
        block.insert_op_before(cut, load)
        found = cut.result
    if across != along:
        perm = [*range(len(shape))]
        perm[across], perm[along] = along, across
        transposed = ops.TransposeOp.create(
            operands=[found], result_types=[kind], properties={"perm": ints(perm)}, location=load.location
        )
        block.insert_op_before(transposed, load)
        found = transposed.result
    load.result.replace_all_uses_with(found)
    load.detach()
    load.erase()


def _is_written(tile: SSAValue) -> bool:
    """Whether something is written over a tile."""
    users = (use.operation for use in tile.uses)
    return is_updated(tile) or any(IN_PLACE in op.attributes for op in users)
