"""A kernel as nodes that run fast: each instruction with its places, boxes and what it computes, flags, loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects import npu as ops
from ...dialects.base import describe, integer, text, to_ints
from ...dialects.npu import GmType, NpuOp, Pipe, structure
from ...dialects.npu.scratch import works_in
from ...dialects.open_sizes import value_at
from ...dialects.sizes import Sizes
from ...machine import Machine
from ..functions.loops import iterations
from ..functions.turns import Signals, implied_signals, in_order
from .instructions import instruction
from .nodes import Barrier, Cross, Flag, IssuedNode, Loop, PipeBarrier
from .places import BufferPlace, SectionBuffer
from .values import PlannedKernel


@dataclass(eq=False)
class PlannedSection:
    """The program of one kind of core."""

    op: structure.SectionOp
    number: int
    core: str
    units: int
    nodes: list[IssuedNode] = field(default_factory=list)
    buffers: list[SectionBuffer] = field(default_factory=list)
    pipes: list[Pipe] = field(default_factory=list)
    sends: set[int] = field(default_factory=set)
    """The cross-core events that it sets."""

    def queue(self, pipe: Pipe) -> int:
        """The number of a pipe."""
        if pipe not in self.pipes:
            self.pipes.append(pipe)
        return self.pipes.index(pipe)


class SteppedKernel(PlannedKernel):
    """A kernel at given sizes, for all its launches."""

    def __init__(
        self,
        kernel: structure.KernelOp,
        machine: Machine,
        sizes: Sizes,
        addressed: bool = True,
        implied: bool = False,
    ) -> None:
        """addressed: whether buffers are where they were placed, not each in memory of its own; implied: whether
        sections that take turns wait for each other before npu-synchronize, too. Raises VerifyException for what is no
        op of a kernel."""
        self.op, self.machine, self.sizes = kernel, machine, sizes
        super().__init__(to_ints(kernel.grid), kernel.body.block.args)
        self.addressed = addressed
        self.name = text(kernel.sym_name)
        self.count = len(self.tensors)
        self.outputs, self.workspaces = integer(kernel.outputs), integer(kernel.workspaces)
        self.loaded: set[int] = set()
        """The tensors that instructions read."""
        self.sections: list[PlannedSection] = []
        for op in kernel.body.block.ops:
            if isinstance(op, structure.SectionOp):
                self.sections.append(PlannedSection(op, len(self.sections), text(op.core), integer(op.units)))
            else:
                self.name_values(op)
        self.rooms = {name: space.bytes for name, space in machine.spaces.items() if name != "gm"}
        signals = implied_signals(kernel) if implied else [Signals() for _ in self.sections]
        for section, own in zip(self.sections, signals, strict=True):
            _Builder(self, section, own).run()

    def number(self, n: int) -> int:
        """The value of an int or an open size."""
        return n if type(n) is int else value_at(n, self.sizes)

    @cached_property
    def ordered(self) -> list[PlannedSection]:
        """The sections in the order in which they run where none waits for another."""
        order = in_order(self.op)
        return sorted(self.sections, key=lambda section: order.index(section.op))

    @property
    def points(self) -> Iterator[tuple[int, ...]]:
        """The places of the grid."""
        return itertools.product(*map(range, self.grid))

    def name_values(self, op: Operation) -> None:
        """Ops that only name things."""
        if isinstance(op, ops.SizeOp):
            self.known[op.result] = self.number(op.number)
        elif not self.names(op):
            raise VerifyException(f"{describe(op)} is not an op of a kernel")


class _Builder:
    """Fills a section with nodes."""

    def __init__(self, plan: SteppedKernel, section: PlannedSection, signals: Signals) -> None:
        """signals: what ops wait for and raise though no op says so."""
        self.plan, self.section, self.signals = plan, section, signals
        self.places: dict[SSAValue, BufferPlace] = {}

    def run(self) -> None:
        body = self.section.op.body.block
        self.plan.index(body.args[0])
        for event in self.signals.begin.elements():
            self.section.nodes.append(self.signal(self.section.op, event, True))
        self.fill(body, self.section.nodes)

    def fill(self, block: Block, nodes: list[IssuedNode]) -> None:
        for op in block.ops:
            nodes += [self.signal(op, event, False) for event in self.signals.waits.get(op, ())]
            for kinds, how in _HOW:
                if isinstance(op, kinds):
                    made = how(self, op)
                    if made is not None:
                        nodes.append(made)
                    break
            else:
                self.plan.name_values(op)
            nodes += [self.signal(op, event, True) for event in self.signals.raises.get(op, ())]

    def signal(self, op: Operation, event: int, sets: bool, pipe: Pipe = Pipe.S) -> Cross:
        """A cross-core event that an op raises, or waits for."""
        if sets:
            self.section.sends.add(event)
        return Cross(op, self.section.queue(pipe), sets, event)

    def skip(self, op: Operation) -> None:
        """Ops at which nothing happens."""

    def alloc(self, op: ops.AllocOp) -> None:
        made = SectionBuffer.of(op, len(self.section.buffers), self.plan.addressed)
        self.section.buffers.append(made)
        self.places[op.result] = BufferPlace(made)

    def slot(self, op: ops.SlotOp) -> None:
        made = self.places[op.source].buffer
        (counter,) = self.plan.rows(op)
        self.places[op.result] = BufferPlace(made, counter if made.slots > 1 else None)

    def loop(self, op: scf.ForOp) -> Loop:
        made = Loop(op, self.plan.index(op.body.block.args[0]), iterations(op, self.plan.known))
        self.fill(op.body.block, made.body)
        return made

    def flag(self, op: ops.SyncOp) -> Flag:
        sets, pair = isinstance(op, ops.SetFlagOp), (op.source_pipe(), op.target_pipe())
        (counter,) = self.plan.rows(op)
        queue = self.section.queue(pair[0] if sets else pair[1])
        return Flag(
            op, queue, sets, pair, integer(op.properties["event"]), integer(op.properties["slots"]), counter
        )

    def cross(self, op: ops.SetCrossOp | ops.WaitCrossOp) -> Cross:
        sets = isinstance(op, ops.SetCrossOp)
        return self.signal(op, integer(op.event), sets, Pipe(text(op.properties["source" if sets else "target"])))

    def barrier(self, op: ops.BarrierOp) -> Barrier:
        return Barrier(op, self.section.queue(Pipe.S))

    def pipe_barrier(self, op: ops.PipeBarrierOp) -> PipeBarrier:
        return PipeBarrier(op, self.section.queue(*op.pipes()))

    def work(self, op: NpuOp) -> IssuedNode:
        queue = self.section.queue(op.PIPE)
        for value in op.reads():
            if isinstance(value.type, GmType):
                self.plan.loaded.add(self.plan.tensors[value])
        if isinstance(op, ops.IndexOp):
            self.plan.index(op.result)
        made = instruction(op, queue, self.plan, self.places)
        if (spoilt := works_in(op)) is not None and self.plan.addressed:
            scratch = SectionBuffer.worked_in(len(self.section.buffers), *spoilt)
            self.section.buffers.append(scratch)
            made.scratch = BufferPlace(scratch)
        made.unordered = op.is_unordered(self.plan.machine)
        return made


_HOW: Sequence[tuple[tuple[type, ...], Callable[[_Builder, Any], IssuedNode | None]]] = (
    ((ops.AllocOp,), _Builder.alloc),
    ((ops.SlotOp,), _Builder.slot),
    ((scf.YieldOp,), _Builder.skip),
    ((ops.ViewOp,), lambda builder, op: builder.plan.name_values(op)),
    ((scf.ForOp,), _Builder.loop),
    ((ops.SyncOp,), _Builder.flag),
    ((ops.SetCrossOp, ops.WaitCrossOp), _Builder.cross),
    ((ops.BarrierOp,), _Builder.barrier),
    ((ops.PipeBarrierOp,), _Builder.pipe_barrier),
    ((NpuOp,), _Builder.work),
)
"""How to add an op to a section, by class."""
