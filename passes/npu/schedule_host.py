"""npu-schedule-host: gives each command of the host program a stream, and orders the streams with events.

Before:  npu.launch @k %x, %y {...}
         %h = npu.to_host %y
After:   npu.launch @k %x, %y {..., stream = "compute"}
         npu.record_event {event = 0, stream = "compute"}
         npu.wait_event {event = 0, stream = "copy_out"}
         %h = npu.to_host %y {stream = "copy_out"}

Each op names its stream. One walk in program order finds, for each command, the conflicting earlier commands on other
queues: writes of its inputs and all uses of its outputs, by the addresses of the memory plan. The command waits for
those that its queue does not know to be finished, the latest first, since that may imply the others.

Blocks are walked from the inside out. An event between a command inside a loop or a branch and one outside is
placed at the border. A called function begins and ends on the compute stream, so its caller sees one command there.
Dependences between iterations of a loop are found by walking its body twice; their events are also recorded once
before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation

from ...dialects.base import describe, integer, integer_attr
from ...dialects.npu.host_program import ControlOp
from ...dialects.npu.streams import COMPUTE, QUEUES, Command, EventOp, RecordEventOp, WaitEventOp
from ...dialects.npu.structure import AS_A_STAGE, NpuYieldOp
from ..base import LevelPass
from ..calls import callers_first
from ..errors import PassError
from .check.order import Clock, Conflict, StreamOrder, TensorPlaces, frames_of, queues_of


@dataclass(frozen=True)
class NpuScheduleHostPass(LevelPass):
    """Assigns streams and inserts record_event and wait_event."""

    name = "npu-schedule-host"

    def run(self, module: ModuleOp) -> None:
        functions = callers_first(module)
        frames = frames_of(functions)
        for func in functions:
            memory = TensorPlaces(func, frames)
            for inner in list(func.walk()):
                if isinstance(inner, EventOp):
                    inner.detach()
                    inner.erase()
                elif isinstance(inner, Command):
                    assign(inner, memory)
            if queues_of(func, memory) - {COMPUTE}:
                EventPlacer(memory).function(func)


def assign(op: Command, memory: TensorPlaces) -> None:
    """Gives a command the stream that it belongs on; none to the end of a region that copies nothing. A launch is
    joined to none any more: events may come between."""
    for name in AS_A_STAGE:
        op.properties.pop(name, None)
    if isinstance(op, NpuYieldOp) and not memory.moved(op):
        op.properties.pop("stream", None)
    else:
        op.properties["stream"] = StringAttr(op.home())


@dataclass
class RegionWalk:
    """One walk over a function, a branch, or two rounds of a loop. `place`: the ops that events stand between, in
    order; `after`: what each queue knows behind each of them; `before`: the same where the round starts."""

    order: StreamOrder
    blocks: Sequence[Block]
    around: FuncOp | ControlOp
    place: dict[Operation, int]
    found: list[Conflict]
    after: dict[Operation, list[Clock]] = field(default_factory=dict)
    before: list[Clock] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    second: bool = False

    def top(self, op: Operation) -> Operation:
        """The op of the walked blocks that an op is or is in."""
        while op.parent not in self.blocks and op is not self.around:
            parent = op.parent_op()
            assert parent is not None
            op = parent
        return op

    def earlier(self, conflict: Conflict) -> bool:
        """Whether the first of two commands ran in the round before."""
        return self.second and conflict.first.stamp <= self.counts[conflict.first.queue]

    def lateness(self, conflict: Conflict) -> tuple[bool, int]:
        return not self.earlier(conflict), self.place.get(self.top(conflict.first.op), -1)


class EventPlacer:
    """Orders the streams of one function, whose commands have theirs."""

    def __init__(self, memory: TensorPlaces) -> None:
        self.memory = memory
        self.events: dict[tuple[Operation, int], int] = {}
        """The event that is recorded on a queue behind an op, or for a block's first op at its start."""
        self.primed: set[int] = set()
        """Events that are recorded before their loop, too."""
        self.made = 0

    def function(self, func: FuncOp) -> None:
        self.blocks([func.body.block], func)
        if any(isinstance(op, ControlOp) for op in func.walk()):
            self.prune(func)
        numbers: dict[int, int] = {}
        for op in func.walk():
            if isinstance(op, EventOp):
                new = numbers.setdefault(integer(op.event), len(numbers))
                op.properties["event"] = integer_attr(new)

    def prune(self, func: FuncOp) -> None:
        """Leaves out each wait without which the function is still safe: what its blocks needed one by one may follow
        from an event at a border."""
        for op in [op for op in func.walk() if isinstance(op, WaitEventOp)]:
            block, after = op.parent, op.next_op
            assert block is not None and after is not None
            op.detach()
            if self.safe(func):
                op.erase()
            else:
                block.insert_op_before(op, after)
        used = {integer(op.event) for op in func.walk() if isinstance(op, WaitEventOp)}
        for op in [op for op in func.walk() if isinstance(op, RecordEventOp)]:
            if integer(op.event) not in used:
                op.detach()
                op.erase()

    def safe(self, func: FuncOp) -> bool:
        """Whether nothing of a function is unordered."""
        order = StreamOrder(self.memory, (), _unsafe, _unsafe)
        try:
            if self.memory.called:
                order.border(func)
            order.block(func.body.block)
        except _Unsafe:
            return False
        return True

    def blocks(self, blocks: Sequence[Block], around: FuncOp | ControlOp) -> None:
        """Orders what happens in the body of a function or a branch, or in the regions of a loop in turn."""
        for op in [op for block in blocks for op in block.ops]:
            if isinstance(op, ControlOp):
                for way in op.ways():
                    self.blocks(way, op)
        found: list[Conflict] = []
        order = StreamOrder(self.memory, (), found.append, _lost)
        ops = [op for block in blocks for op in block.ops]
        walk = RegionWalk(order, blocks, around, {op: i for i, op in enumerate(ops)}, found)
        if isinstance(around, FuncOp) and self.memory.called:
            order.border(around)
        for second in (False, True) if isinstance(around, ControlOp) and around.REPEATS else (False,):
            walk.second, walk.counts = second, list(order.known.counts)
            walk.before = [order.clock(q) for q in range(len(QUEUES))]
            for op in [op for block in blocks for op in block.ops]:
                self.op(walk, op)

    def op(self, walk: RegionWalk, op: Operation) -> None:
        """Lets an op wait for what it needs, then goes past it."""
        while True:
            walk.found.clear()
            walk.order.attempt(op)
            if not walk.found:
                break
            self.wait(walk, max(walk.found, key=walk.lateness), op)
        walk.order.op(op)
        walk.after[op] = [walk.order.clock(q) for q in range(len(QUEUES))]

    def wait(self, walk: RegionWalk, conflict: Conflict, op: Operation) -> None:
        """Inserts an event between the two commands of a conflict, the second of which is or is in `op`."""
        queue, source = conflict.first.queue, walk.top(conflict.first.op)
        if source is walk.around or (walk.earlier(conflict) and isinstance(source, NpuYieldOp)):
            first = next(iter(walk.place))
            event, clock = self.event(walk, first, queue, True), walk.before[queue]
        else:
            event, clock = self.event(walk, source, queue, False), walk.after[source][queue]
            if walk.earlier(conflict) and walk.place[source] >= walk.place[op]:
                self.prime(walk, event, queue)
        block = op.parent
        assert block is not None
        block.insert_op_before(_event(WaitEventOp, event, conflict.second.queue, op), op)
        walk.order.known.events[event] = clock
        walk.order.wait(conflict.second.queue, clock)

    def event(self, walk: RegionWalk, at: Operation, queue: int, start: bool) -> int:
        """The event of a queue behind an op, or at the start of the round whose first op that is."""
        key = (at, queue - len(QUEUES) if start else queue)
        if key not in self.events:
            self.events[key], self.made = self.made, self.made + 1
            record = _event(RecordEventOp, self.events[key], queue, at)
            block = at.parent
            assert block is not None
            if start:
                block.insert_op_before(record, block.first_op or at)
            else:
                block.insert_op_after(record, at)
        return self.events[key]

    def prime(self, walk: RegionWalk, event: int, queue: int) -> None:
        """Records an event before the loop, for its first round."""
        if event in self.primed:
            return
        self.primed.add(event)
        loop = walk.around
        block = loop.parent
        assert block is not None
        block.insert_op_before(_event(RecordEventOp, event, queue, loop), loop)


def _event(kind: type[EventOp], event: int, queue: int, near: Operation) -> EventOp:
    properties = {"event": integer_attr(event), "stream": StringAttr(QUEUES[queue])}
    return kind.create(properties=properties, location=near.location)


class _Unsafe(Exception):
    """Two commands are not ordered, or a wait has nothing to wait for."""


def _unsafe(what: object) -> NoReturn:
    raise _Unsafe


def _lost(op: WaitEventOp) -> NoReturn:
    raise PassError(
        f"{describe(op)} waits for event {integer(op.event)}, which nobody recorded: a bug of the pass"
    )
