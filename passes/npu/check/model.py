"""A kernel, compiled once into flat nodes that the clocks can run fast.

Each section becomes a list of nodes: instructions with the memory cells they touch, flags, loops. A *cell* is a
range of bytes of one memory space in which every access begins and ends: a slot of a buffer, cut where another
buffer's slot begins or ends inside it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i8
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ....dialects import npu as ops
from ....dialects.affine import Expr
from ....dialects.base import FormattedOp, describe, integer, text, to_ints, unpack_over
from ....dialects.npu import BufferType, GmType, NpuOp, Pipe, structure
from ....dialects.npu.scratch import scratch_bytes, works_in
from ....dialects.open_sizes import any_open, example_sizes, value_at
from ....machine import Machine
from ...errors import PassError
from .affine import TouchedBox

ZERO: Expr[int] = Expr()
WORK, SET, WAIT, BARRIER, PIPE_BARRIER, SET_CROSS, WAIT_CROSS, LOOP, GONE = range(9)


class TouchedBytes:
    """Bytes [start, end) of a space, and who touched them last: `writer` and `readers` are (queue, number). Of sums
    with unit flags, `flagged` says whether they wait to be drained, `flagger` which product or drain left them so,
    and `known` what that had waited for."""

    __slots__ = ("end", "flagged", "flagger", "known", "owner", "readers", "space", "start", "writer")

    def __init__(self, space: str, start: int, end: int) -> None:
        self.space, self.start, self.end = space, start, end
        self.writer: tuple[int, int] | None = None
        self.owner: SSAValue | None = None
        self.readers: dict[int, int] = {}
        self.flagged = False
        self.flagger: tuple[int, int] | None = None
        self.known: Sequence[int] = ()

    def clear(self) -> None:
        """As if nobody had touched them."""
        self.writer, self.owner, self.readers = None, None, {}
        self.flagged, self.flagger, self.known = False, None, ()


@dataclass(slots=True)
class Place:
    """A buffer operand: the cells of each slot, and the counter that selects one."""

    alloc: SSAValue
    slots: list[list[TouchedBytes]]
    counter: Expr[int] | None
    memory: SSAValue
    """What its bytes belong to: the buffer, or the one that stands for all that are shared."""

    def cells(self, env: Sequence[int]) -> list[TouchedBytes]:
        """The cells of the slot that is selected in an environment."""
        return self.slots[self.counter.evaluate(env) % len(self.slots) if self.counter is not None else 0]


@dataclass(slots=True)
class CheckedNode:
    """One instruction, flag or loop of a section. `queue` is the pipe that runs it, by number in the kernel;
    `event` is the first channel of a flag, `sums` where a product or a drain has unit flags; `unordered` of an
    instruction that may begin before those ahead of it on its pipe are over."""

    kind: int
    op: Operation
    queue: int = 0
    reads: Sequence[Place] = ()
    writes: Sequence[Place] = ()
    fresh: tuple[Expr[int], Place] | None = None
    device: Sequence[TensorAccess] = ()
    sums: Place | None = None
    pair: tuple[str, str] = ("", "")
    event: int = 0
    slots: int = 1
    counter: Expr[int] = ZERO
    variable: int = 0
    trips: int = 0
    body: list[CheckedNode] = field(default_factory=list)
    unordered: bool = False
    crosses: bool = False
    fills: bool = False
    """Whether each iteration of the loop stores a part of a workspace before other cores are told."""


@dataclass(slots=True, eq=False)
class TensorAccess:
    """One access to a device tensor. `tensor` is the number of the kernel's argument, `box` in elements of
    `view`; None where the place depends on data. `loops` are the variables of the loops around it. `combines`: how a
    write is combined with what is there, so that it reads that, too."""

    op: NpuOp
    tensor: int
    view: GmType
    box: TouchedBox | None
    write: bool
    section: CheckedSection
    loops: tuple[int, ...]
    combines: str = ""

    @property
    def reads(self) -> bool:
        return not self.write or self.combines != ""

    def alike(self, other: TensorAccess) -> bool:
        """Whether both are combined with what is there in one way: these need no order."""
        return self.combines != "" and self.combines == other.combines


@dataclass
class CheckedSection:
    """The program of one kind of core."""

    op: structure.SectionOp
    number: int
    core: str
    units: int
    nodes: list[CheckedNode] = field(default_factory=list)
    names: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """For each loop's variable: the index's name, first value and step."""
    allocs: list[ops.AllocOp] = field(default_factory=list)
    queues: dict[Pipe, int] = field(default_factory=dict)
    works: list[CheckedNode] = field(default_factory=list)
    cells: list[list[TouchedBytes]] = field(default_factory=list)


class CheckedKernel:
    """A kernel, ready to be checked. What is open in it has the sizes of the example. Raises PassError for indices it
    cannot follow."""

    def __init__(self, op: structure.KernelOp, machine: Machine) -> None:
        self.op, self.machine = op, machine
        self.name = text(op.sym_name)
        self.sizes = example_sizes()
        self.grid = tuple(value_at(n, self.sizes) for n in to_ints(op.grid))
        self.counts: list[int] = [*self.grid, 1]
        """How many values each variable takes; the unit's is set per section."""
        self.reaches: dict[tuple[Expr[int], int, int, int], tuple[int, int]] = {}
        """What places (offset, count, step) reach to, for so many units: many grid points ask for the same."""
        self.unit = len(self.grid)
        self.values: dict[SSAValue, Expr[int]] = {}
        self.tensors: dict[SSAValue, int] = {}
        self.transfers: list[TensorAccess] = []
        self.unknown: dict[int, SSAValue] = {}
        """Variables that stand for integers read from device memory."""
        self.queue_names: list[str] = []
        self.queue_sections: list[int] = []
        self.unordered: set[int] = set()
        """The queues with instructions that may begin before those ahead of them are over."""
        self.period = 1
        self.steering: set[int] = set()
        """Grid coordinates and the unit, where slots or events depend on them."""
        self._rows: dict[tuple[int, ...], tuple[Expr[int], ...]] = {}
        self._kept: list[Attribute] = []
        args = op.body.block.args
        for i in range(len(self.grid)):
            self.values[args[i]] = Expr.of(i)
        self.n_tensors = len(args) - len(self.grid)
        self.workspaces = range(self.n_tensors - integer(op.workspaces), self.n_tensors)
        self.outputs = range(self.workspaces.start - integer(op.outputs), self.workspaces.start)
        for i, arg in enumerate(args[len(self.grid) :]):
            self.tensors[arg] = i
        self.sections: list[CheckedSection] = []
        for inner in op.body.block.ops:
            if isinstance(inner, structure.SectionOp):
                section = CheckedSection(inner, len(self.sections), text(inner.core), integer(inner.units))
                self.sections.append(section)
            else:
                self.plain(inner)
        for section in self.sections:
            _SectionBuilder(self, section).run()

    def variable(self, count: int) -> int:
        """A new variable."""
        self.counts.append(count)
        return len(self.counts) - 1

    def is_unknown(self, expr: Expr[int]) -> bool:
        """Whether it depends on a number read from device memory."""
        return any(v in self.unknown for v, _ in expr.terms)

    def counted(self, counter: Expr[int], slots: int) -> None:
        """Takes note of a counter modulo `slots`."""
        self.period = math.lcm(self.period, slots)
        self.steering.update(v for v, _ in counter.terms if v <= self.unit)

    def starts(self, tracked: Collection[int] = ()) -> list[dict[int, int]]:
        """Values of the grid coordinates and the unit that stand for all cores: those that slots and events
        depend on, as far as they differ modulo the period; and all of those by which accesses to one of the `tracked`
        tensors move apart."""
        units = max((s.units for s in self.sections), default=1)
        apart = self._moving_apart(tracked)
        counts = {v: units if v == self.unit else self.grid[v] for v in sorted(self.steering | apart)}
        values = [range(n if v in apart else min(n, self.period)) for v, n in counts.items()]
        return [dict(zip(counts, point, strict=True)) for point in product(*values)]

    def _moving_apart(self, tensors: Collection[int]) -> set[int]:
        """The grid coordinates along which accesses to a tensor do not all move by the same elements, clipped alike."""
        found: set[int] = set()
        for tensor in tensors:
            moves: set[frozenset[tuple[int, int, int, int]]] = set()
            for transfer in self.transfers:
                if transfer.tensor != tensor or transfer.box is None:
                    continue
                steps = {
                    (v, stride, c, extent)
                    for offset, stride, extent in zip(
                        transfer.box.offsets, transfer.view.strides, transfer.view.shape, strict=True
                    )
                    for v, c in offset.terms
                    if v < self.unit
                }
                moves.add(frozenset(steps))
            for some in moves:
                found.update(v for v, *_ in some.symmetric_difference(next(iter(moves))))
        return found

    def queue(self, section: CheckedSection, pipe: Pipe) -> int:
        """The number of a pipe of a section's core."""
        found = section.queues.get(pipe)
        if found is None:
            found = section.queues[pipe] = len(self.queue_names)
            self.queue_names.append(pipe)
            self.queue_sections.append(section.number)
        return found

    def rows(self, attr: Attribute, indices: Sequence[SSAValue], op: Operation) -> tuple[Expr[int], ...]:
        """The `at [...]` expressions of an op."""
        assert isinstance(attr, DenseArrayBase)
        key = (id(attr), *map(id, indices))
        found = self._rows.get(key)
        if found is None:
            self._kept.append(attr)  # so that its id stays its own
            known = [self.value(v, op) for v in indices]
            found = self._rows[key] = tuple(map(self._settled, unpack_over(attr, known)))
        return found

    def _settled(self, place: Expr[int]) -> Expr[int]:
        """A place with numbers for open sizes."""
        if not any_open((place.constant, *(c for _, c in place.terms))):
            return place
        terms = {v: value_at(c, self.sizes) for v, c in place.terms}
        return Expr(value_at(place.constant, self.sizes), terms)

    def value(self, index: SSAValue, op: Operation) -> Expr[int]:
        found = self.values.get(index)
        if found is None:
            raise PassError(f"{describe(op)} uses an index that npu-check cannot follow")
        return found

    def plain(self, op: Operation) -> None:
        """Ops that only name things."""
        if isinstance(op, arith.ConstantOp):
            if isinstance(op.value, IntegerAttr):
                self.values[op.result] = Expr(op.value.value.data)
        elif isinstance(op, ops.SizeOp):
            self.values[op.result] = Expr(value_at(op.number, self.sizes))
        elif isinstance(op, ops.ViewOp):
            self.tensors[op.result] = self.tensors[op.source]


_Region = tuple[int, int, list[TouchedBytes]]
"""Bytes [start, end) of a space, and the cells of whom they belong to."""


class _SectionBuilder:
    """Fills a section with nodes."""

    def __init__(self, kernel: CheckedKernel, section: CheckedSection) -> None:
        self.kernel, self.section = kernel, section
        self.loops: tuple[int, ...] = ()
        self.cells: dict[SSAValue, list[list[TouchedBytes]]] = {}
        self.scratch: SSAValue | None = None
        self.places: dict[SSAValue, Place] = {}
        self.shared: dict[SSAValue, SSAValue] = {}
        self.spoilt: dict[tuple[int, int], list[TouchedBytes]] = {}
        """The cells of what instructions say they work in."""
        self.nothing = ops.AllocOp.create(result_types=[BufferType.of([1], i8, "ub")]).result
        """What these belong to then: no buffer."""

    def run(self) -> None:
        body = self.section.op.body.block
        self.kernel.values[body.args[0]] = Expr.of(self.kernel.unit)
        self._lay_out(body)
        self.fill(body, self.section.nodes)
        self.section.cells += [cells for slots in self.cells.values() for cells in slots]
        self.section.cells += self.spoilt.values()

    def _lay_out(self, body: Block) -> None:
        """Cuts the memory spaces into cells."""
        regions: dict[str, list[_Region]] = {}
        for op in body.walk():
            spoilt = works_in(op)
            if spoilt is not None and spoilt not in self.spoilt:
                cells = self.spoilt[spoilt] = []
                regions.setdefault("ub", []).append((*spoilt, cells))
            if not isinstance(op, ops.AllocOp):
                continue
            self.section.allocs.append(op)
            if op.scratch is not None:
                self.scratch = op.result
            kind = op.result.type
            assert isinstance(kind, BufferType)
            size = kind.slot_bytes
            if op.shared is not None:
                self.shared[op.result] = next(iter(self.shared), op.result)
            if op.address is not None:
                start, space = integer(op.address), kind.space
            else:  # not allocated yet: memory of its own
                start, space = 0, f"{kind.space} of {len(self.cells)}"
            listed = regions.setdefault(space, [])
            for i in range(kind.slots):
                slot: list[TouchedBytes] = []
                self.cells.setdefault(op.result, []).append(slot)
                listed += [(start + size * i + a, start + size * i + b, slot) for a, b in kind.runs]
        for space, listed in regions.items():
            listed.sort(key=lambda r: r[:2])
            cluster: list[_Region] = []
            reach = -1
            for region in listed:
                if cluster and region[0] >= reach:
                    self._cut(space, cluster)
                    cluster = []
                cluster.append(region)
                reach = max(reach, region[1]) if len(cluster) > 1 else region[1]
            if cluster:
                self._cut(space, cluster)

    def _cut(self, space: str, cluster: list[_Region]) -> None:
        if len(cluster) == 1:
            start, end, found = cluster[0]
            found.append(TouchedBytes(space, start, end))
            return
        edges = sorted({r[0] for r in cluster} | {r[1] for r in cluster})
        cells = [TouchedBytes(space, a, b) for a, b in pairwise(edges)]
        for start, end, found in cluster:
            found += cells[bisect_left(edges, start) : bisect_left(edges, end)]

    def place(self, value: SSAValue, op: Operation) -> Place:
        """The memory behind a buffer operand."""
        found = self.places.get(value)
        if found is not None:
            return found
        owner = value.owner
        if isinstance(owner, ops.SlotOp):
            cells = self.cells.get(owner.source)
            if cells is None:
                raise PassError(f"{describe(op)} uses a slot of a buffer that its section does not allocate")
            (counter,) = self.kernel.rows(owner.offsets, owner.indices, owner)
            if len(cells) == 1:
                found = Place(owner.source, cells, None, owner.source)
            elif self.kernel.is_unknown(counter):  # any slot: all of them
                found = Place(owner.source, [[c for slot in cells for c in slot]], None, owner.source)
            else:
                found = Place(owner.source, cells, counter, owner.source)
                self.kernel.counted(counter, len(cells))
        elif value in self.cells:
            found = Place(value, self.cells[value], None, self.shared.get(value, value))
        else:
            raise PassError(f"{describe(op)} uses a buffer that its section does not allocate")
        self.places[value] = found
        return found

    def fill(self, block: Block, nodes: list[CheckedNode]) -> None:
        for op in block.ops:
            how = _HOW.get(type(op))
            if how is None:
                how = _HOW[type(op)] = _how(op)
            made = how(self, op)
            if made is not None:
                nodes.append(made)

    def skip(self, op: Operation) -> None:
        """Ops that do nothing when they are met."""

    def name(self, op: Operation) -> None:
        self.kernel.plain(op)

    def flag(self, op: ops.SyncOp) -> CheckedNode:
        kernel = self.kernel
        kind = SET if isinstance(op, ops.SetFlagOp) else WAIT
        pair = (op.source_pipe(), op.target_pipe())
        (counter,) = kernel.rows(op.properties["offsets"], op.index_operands(), op)
        slots = integer(op.properties["slots"])
        if slots > 1:
            if kernel.is_unknown(counter):
                raise PassError(f"{describe(op)} selects an event by a number read from memory")
            kernel.counted(counter, slots)
        queue = kernel.queue(self.section, pair[0] if kind == SET else pair[1])
        event = integer(op.properties["event"])
        return CheckedNode(kind, op, queue, pair=pair, event=event, slots=slots, counter=counter)

    def cross(self, op: ops.SetCrossOp | ops.WaitCrossOp) -> CheckedNode:
        raises = isinstance(op, ops.SetCrossOp)
        queue = self.kernel.queue(self.section, Pipe(text(op.source if raises else op.target)))
        return CheckedNode(SET_CROSS if raises else WAIT_CROSS, op, queue, event=integer(op.event))

    def barrier(self, op: Operation) -> CheckedNode:
        return CheckedNode(BARRIER, op, self.kernel.queue(self.section, Pipe.S))

    def pipe_barrier(self, op: ops.PipeBarrierOp) -> CheckedNode:
        return CheckedNode(PIPE_BARRIER, op, self.kernel.queue(self.section, *op.pipes()))

    def loop(self, op: scf.ForOp) -> CheckedNode:
        lower, upper, step = (self.kernel.value(v, op) for v in (op.lb, op.ub, op.step))
        if lower.terms or upper.terms or step.terms or step.constant < 1:
            raise PassError(f"{describe(op)} needs constant bounds and a positive step")
        trips = max(0, -(-(upper.constant - lower.constant) // step.constant))
        variable = self.kernel.variable(max(trips, 1))
        index = op.body.block.args[0]
        self.kernel.values[index] = Expr.of(variable, step.constant) + lower.constant
        name = index.name_hint or f"i{len(self.loops)}"
        self.section.names[variable] = (name, lower.constant, step.constant)
        node = CheckedNode(LOOP, op, variable=variable, trips=trips)
        outer, self.loops = self.loops, (*self.loops, variable)
        if trips:
            self.fill(op.body.block, node.body)
        self.loops = outer
        node.crosses = any(n.crosses or n.kind in (SET_CROSS, WAIT_CROSS) for n in node.body)
        node.fills = not node.crosses and any(self._fills(n, variable) for n in node.body)
        return node

    def _fills(self, node: CheckedNode, variable: int) -> bool:
        """Whether a node stores a workspace at places that move with a variable."""
        stores = (t.box for t in node.device if t.write and t.tensor in self.kernel.workspaces)
        moves = any(variable in offset.variables for box in stores if box is not None for offset in box.offsets)
        return moves or any(self._fills(n, variable) for n in node.body)

    def work(self, op: NpuOp) -> CheckedNode:
        kernel = self.kernel
        reads, writes, device = [], [], []
        for value in op.reads():
            if type(value.type) is BufferType:
                reads.append(self.place(value, op))
            elif not op.accumulates() or value not in op.writes():
                device.append(self._transfer(op, value, False))
        for value in op.writes():
            if type(value.type) is BufferType:
                writes.append(self.place(value, op))
            else:
                device.append(self._transfer(op, value, True))
        spoilt = works_in(op)
        if spoilt is not None:
            writes.insert(0, Place(self.nothing, [self.spoilt[spoilt]], None, self.nothing))
        if self.scratch is not None and scratch_bytes(op):
            writes.append(self.place(self.scratch, op))
        node = CheckedNode(WORK, op, kernel.queue(self.section, op.PIPE), reads, writes, None, device)
        node.unordered = op.is_unordered(kernel.machine)
        if node.unordered:
            kernel.unordered.add(node.queue)
        starts = op.starts_fresh()
        if starts is not None:
            row, value = starts
            node.fresh = (
                kernel.rows(op.properties["offsets"], op.index_operands(), op)[row],
                self.place(value, op),
            )
        flagged = op.flagged_sums()
        if flagged is not None:
            node.sums = self.place(flagged, op)
        if isinstance(op, ops.IndexOp):
            low, high = integer(op.low), integer(op.high)
            variable = kernel.variable(max(high - low + 1, 1))
            kernel.unknown[variable] = op.result
            kernel.values[op.result] = Expr.of(variable) + low
        self.section.works.append(node)
        return node

    def _transfer(self, op: NpuOp, value: SSAValue, write: bool) -> TensorAccess:
        view = value.type
        assert isinstance(view, GmType)
        box = None
        if isinstance(op, FormattedOp) and "offsets" in op.properties:
            offsets = self.kernel.rows(op.properties["offsets"], op.index_operands(), op)
            ones = (1,) * len(offsets)
            sizes, steps = (op.box_sizes, op.box_steps) if isinstance(op, ops.TransferOp) else (ones, ones)
            box = TouchedBox(offsets, sizes, steps, view.shape)
        kind = op.accumulates() if write else ""
        transfer = TensorAccess(op, self.kernel.tensors[value], view, box, write, self.section, self.loops, kind)
        self.kernel.transfers.append(transfer)
        return transfer


def _how(op: Operation) -> Callable[[_SectionBuilder, Any], CheckedNode | None]:
    """How to add an op to a section. Raises PassError for ops that are not of a kernel."""
    for kinds, how in (
        ((ops.AllocOp, ops.SlotOp, scf.YieldOp), _SectionBuilder.skip),
        ((arith.ConstantOp, ops.SizeOp, ops.ViewOp), _SectionBuilder.name),
        ((scf.ForOp,), _SectionBuilder.loop),
        ((ops.SyncOp,), _SectionBuilder.flag),
        ((ops.SetCrossOp, ops.WaitCrossOp), _SectionBuilder.cross),
        ((ops.BarrierOp,), _SectionBuilder.barrier),
        ((ops.PipeBarrierOp,), _SectionBuilder.pipe_barrier),
        ((NpuOp,), _SectionBuilder.work),
    ):
        if isinstance(op, kinds):
            return how
    raise PassError(f"{describe(op)} is not an instruction that npu-check knows")


_HOW: dict[type[Operation], Callable[[_SectionBuilder, Any], CheckedNode | None]] = {}
"""What `_how` said, by type of op."""
