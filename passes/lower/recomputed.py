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
from functools import cached_property

from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from ...dialects import tile as ops
from ...dialects.affine import Expr
from ...dialects.base import describe, ints, pack, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import FusionOp, ReshapeOp, VectorSchedule, YieldOp
from ...dialects.graph.interface import shape_of
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.occupancy import Occupancy
from ...dialects.tile import TileType, tile_type
from ...dialects.tile.interface import is_updated
from ...dialects.tile.vector import IN_PLACE
from ...kernels.builder import KernelBuilder, gm_of
from ...kernels.emit import Emitter
from ...kernels.graph import StageGraph
from ...kernels.plan import KernelPlan
from ...kernels.price import Price
from ...kernels.stage import Ref, StageStoreBox
from ...machine import Machine
from ..errors import NoKernel
from ..npu.busy import work_microseconds
from ..npu.trial import allocated
from .axes import read_by
from .row_readings import loads_of, readings_of
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


def with_rows(reader: FusionOp, maker: FusionOp) -> FusionOp:
    """A fusion like a reader, which makes what it reads of another one itself; in no block yet."""
    own = [v for v in reader.inputs if source_of(v).owner is not maker]
    inputs = list(dict.fromkeys((*maker.inputs, *own)))
    block = Block(arg_types=[v.type for v in inputs])
    known: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))

    def shaped(value: SSAValue) -> SSAValue:
        if value not in known:
            assert isinstance(value.owner, ReshapeOp)
            copy = value.owner.clone({value.owner.x: shaped(value.owner.x)})
            block.add_op(copy)
            known[value] = copy.result
        return known[value]

    for fusion in (maker, reader):
        inside: dict[SSAValue, SSAValue] = dict(zip(fusion.inputs, map(shaped, fusion.inputs), strict=True))
        if not nested_in(fusion):
            copy = fusion.clone(inside)
            copy.schedule = None
            block.add_op(copy)
            known.update(zip(fusion.results, copy.results, strict=True))
            continue
        inside = {arg: shaped(v) for arg, v in zip(fusion.body.block.args, fusion.inputs, strict=True)}
        for op in fusion.body.block.ops:
            if isinstance(op, YieldOp):
                known.update(zip(fusion.results, (inside[v] for v in op.values), strict=True))
            else:
                block.add_op(op.clone(inside))
    block.add_op(YieldOp.create(operands=[known[r] for r in reader.results]))
    return FusionOp.create(
        operands=inputs,
        result_types=list(reader.result_types),
        properties=dict(reader.properties),
        attributes=dict(reader.attributes),
        regions=[Region(block)],
        location=reader.location,
    )


def inputs_of(makers: Sequence[FusionOp], operands: Sequence[SSAValue]) -> list[SSAValue]:
    """What a kernel takes that makes rows itself, in order; operands: what its reader takes, rows among it."""
    values = list(operands)
    for maker in reversed(makers):
        values = [v for v in values if source_of(v).owner is not maker]
        values += [v for v in _read(maker) if v not in values]
    return values


def _read(fusion: FusionOp) -> list[SSAValue]:
    return [fusion.inputs[a.index] for a in read_by(fusion.body.block)]


class RowStages(VectorKernel):
    """The stages of a fusion whose results are rows: each is one run of memory, along one axis. axes: how many axes its
    tiles have at least; those that it lacks come first, and have one element."""

    def __init__(self, fusion: FusionOp, machine: Machine, axes: int = 0):
        super().__init__(fusion, machine, VectorSchedule())
        if axes > len(self.extents):
            ones = ((),) * (axes - len(self.extents))
            super().__init__(fusion, machine, VectorSchedule(axes=ones + tuple(map(tuple, self.merged))))
        self.along: dict[int, int] = {}
        """The axis of each result that is a row."""
        self.made_by: dict[int, list[int]] = {}
        """The stages of each result, with its tile last."""
        stores = {i: s.op for i, s in enumerate(self.stages) if isinstance(s.op, StageStoreBox)}
        for at, op in stores.items():
            wide = [d for d in op.dims if d.extent != 1]
            whole = sum(other.output == op.output for other in stores.values()) == 1 and not op.offset
            if whole and len(wide) <= 1 and all(d.stride == 1 for d in wide):
                last = len(self.extents) - 1
                self.along[op.output] = next((d.axis for d in wide if d.axis is not None), last)
                self.made_by[op.output] = self.stages.ordered(self.stages.ancestors(at))

    def length(self, number: int, wanted: int) -> int:
        """How many elements of a row are made where so many are wanted: all where each depends on all."""
        axis = self.along[number]
        for stage in (self.stages[i] for i in self.made_by[number]):
            if (
                axis in stage.reduces
                or stage.spacing is not None
                or getattr(stage.op, "fill", None) is not None
            ):
                return self.extents[axis]
        return wanted

    def emit(
        self,
        builder: KernelBuilder,
        number: int,
        begin: Expr[SSAValue],
        length: int,
        done: dict[Ref, SSAValue],
    ) -> SSAValue:
        """The tile of so many elements of a row, from `begin` on. done: the tiles of stages that are there."""
        axis = self.along[number]
        emitter = Emitter(
            builder, [length if a == axis else n for a, n in enumerate(self.extents)], {axis: begin}
        )
        for i in self.made_by[number]:
            if (i, 0) not in done:
                emitter.emit(i, self.stages[i], done)
        (store,) = (s for s in self.stages if s.target == number)
        return done[store.operands[0]]


class RecomputingKernel(ScheduledKernel):
    """The kernel of a reader, which makes rows itself. operands: what the reader takes, inside `fusion`."""

    def __init__(
        self, fusion: FusionOp, machine: Machine, reader: ScheduledKernel, operands: Sequence[SSAValue]
    ):
        self.fusion, self.machine, self.reader, self.operands = fusion, machine, reader, operands
        self.makers, self.kinds = nested_in(fusion)[:-1], reader.kinds

    @cached_property
    def _rows(self) -> Sequence[RowStages]:
        """The stages of what it makes itself, in order."""
        return [RowStages(maker, self.machine) for maker in self.makers]

    def candidates(self, name: str) -> Iterator[Schedule]:
        return self.reader.candidates(name)

    def check(self, name: str, schedule: Schedule) -> None:
        self.reader.check(name, schedule)

    def occupancy(self, schedule: Schedule) -> Occupancy:
        return self.reader.occupancy(schedule)

    def price(self, schedule: Schedule) -> Price:
        price, longer = self.reader.price(schedule), (self.longer(schedule) or 0.0) * self.machine.clock_mhz
        return replace(price, before=price.before + longer)

    @property
    def unstaged(self) -> str:
        return "; ".join(filter(None, [self.reader.unstaged, MADE_HERE]))

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        """Those of the reader, and those of what it makes itself."""
        rows = {f"made here {i}" if i else "made here": row.stages for i, row in enumerate(self._rows)}
        return {**self.reader.stage_graphs(), **rows}

    def plan_with(self, schedule: Schedule) -> KernelPlan:
        return replace(self.reader.plan_with(schedule), unstaged=self.unstaged)

    def longer(self, schedule: Schedule) -> float | None:
        """By how many microseconds each core works longer for the rows; None where they have no room on chip. Raises
        PassError, and KeyError for what the machine does not have."""
        works: list[float] = []
        for kernel in (self.reader, self):
            lowered = allocated(kernel.build("trial", schedule), self.machine)
            if lowered is None:
                return None
            works.append(work_microseconds(lowered, self.machine))
        return works[1] - works[0]

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        reader, axes = self.reader, max(len(row.extents) for row in self._rows)
        if isinstance(reader, VectorKernel) and isinstance(schedule, VectorSchedule):
            ones = (1,) * (axes - len(reader.extents))
            merged = ((),) * len(ones) + tuple(map(tuple, reader.merged))
            tile, grid = ones + (schedule.tile or ()), ones + (schedule.grid or ())
            schedule = replace(schedule, axes=merged, tile=tile, grid=grid)
            reader = type(reader)(reader.fusion, self.machine, schedule) if ones else reader
        kernel, values = reader.build(name, schedule), list(self.operands)
        rows = [i for i, v in enumerate(values) if source_of(v).owner in self.makers]
        args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
        ranks = [len(tile_type(load.result).shape) for i in rows for load in loads_of(args[i])]
        most = max([axes, *ranks])
        for row in reversed(self._rows):
            wide = row if len(row.extents) == most else RowStages(row.fusion, self.machine, most)
            values = _with_rows(kernel, values, wide)
        return kernel


def _with_rows(kernel: ops.KernelOp, values: Sequence[SSAValue], row: RowStages) -> list[SSAValue]:
    """Lets a kernel make the rows of a fusion that are among the `values` that it takes; what it takes then. Raises
    NoKernel where it does more with them than to load runs of them."""
    block, first = kernel.body.block, len(to_ints(kernel.grid))
    given = dict(zip(values, block.args[first:], strict=False))
    tensors: dict[int, list[BlockArgument]] = {}
    for value, arg in given.items():
        source = source_of(value)
        if isinstance(source, OpResult) and source.op is row.fusion:
            tensors.setdefault(source.index, []).append(arg)
    read = _read(row.fusion)
    builder = KernelBuilder(row.machine, "vector", [1], [gm_of(v) for v in read], [])
    done: dict[tuple[Expr[SSAValue], int], dict[Ref, SSAValue]] = {}
    taken: dict[ops.LoadOp, tuple[SSAValue, Expr[SSAValue]]] = {}
    for number, args in tensors.items():
        reading = readings_of(kernel, args, size(shape_of(row.yielded[number])))
        if reading is None or number not in row.along or row.paired:
            raise NoKernel(f"{describe(row.fusion)} makes no row that its reader loads runs of")
        length = row.length(number, reading.length)
        begin = reading.begin if length == reading.length else Expr[SSAValue]()
        tile = row.emit(builder, number, begin, length, done.setdefault((begin, length), {}))
        for load, place in reading.places.items():
            taken[load] = tile, place + reading.begin - begin
    if taken:
        _put(builder, next(iter(taken)), taken)
    for i, value in enumerate(read):
        if value not in given:
            given[value] = block.insert_arg(gm_of(value), first + len(given))
        builder.gm(i).replace_all_uses_with(given[value])
    for load, (tile, place) in taken.items():
        _take(load, tile, place)
    gone = [arg for args in tensors.values() for arg in args]
    for arg in gone:
        for use in list(arg.uses):
            use.operation.detach()
            use.operation.erase()
        block.erase_arg(arg)
    return [value for value, arg in given.items() if arg not in gone]


def _put(
    builder: KernelBuilder, load: Operation, taken: dict[ops.LoadOp, tuple[SSAValue, Expr[SSAValue]]]
) -> None:
    """Puts what was built before the first op of a section that is a load of a row or has one inside, and views before
    the section."""
    section = load.parent_op()
    while section is not None and not isinstance(section, ops.SectionOp):
        section = section.parent_op()
    assert section is not None and section.parent is not None
    inside = section.body.block
    anchor = next(op for op in inside.ops if any(inner in taken for inner in op.walk()))
    for op in list(builder.body.ops):
        op.detach()
        if isinstance(op, ops.ViewOp):
            section.parent.insert_op_before(op, section)
        else:
            inside.insert_op_before(op, anchor)


def _take(load: ops.LoadOp, row: SSAValue, place: Expr[SSAValue]) -> None:
    """Takes what a load reads from the tile of a row, in its place. Raises NoKernel for tiles of other ranks."""
    block, kind, shape = load.parent, tile_type(load.result), tile_type(row).shape
    assert block is not None
    if len(shape) != len(kind.shape):
        raise NoKernel(f"tiles of {len(kind.shape)} axes cannot be as those of a row with {len(shape)}")
    along, across = (next((d for d, n in enumerate(s) if n != 1), len(s) - 1) for s in (shape, kind.shape))
    across, length = along if size(kind.shape) == 1 else across, size(kind.shape)
    found, written = (
        row,
        is_updated(load.result) or any(IN_PLACE in u.operation.attributes for u in load.result.uses),
    )
    if length != shape[along] or place != Expr() or across != along or written:
        sizes = [length if d == along else 1 for d in range(len(shape))]
        indices, offsets = pack([place if d == along else Expr() for d in range(len(shape))])
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
