"""The order of the instructions of one block of cores, by vector clocks: a race detector.

Every pipe of a core is a queue that begins its instructions in order. `clocks[q][r]` is how many instructions of queue
r are known to be over when the next one of queue q starts; of its own queue all, where the machine ends one instruction
of a pipe before it begins the next. What the cores issue is met in program order, and gives every clock:

    set_flag [P -> Q]     keeps a copy of P's clock in the flag's fifo, with all that P began
    wait_flag [P -> Q]    joins Q's clock with the oldest copy
    set_cross, wait_cross the same between the cores of a block
    pipe_barrier [P]      all that P began is over
    barrier               joins all clocks of the core, with all that its pipes began
    scalar instructions   are over before anything later is issued: the clock of S joins all others of the core
    unit flags            a drain is over after the product that flags its sums, the next product after that drain

An access that meets an earlier one, one of the two to write, is a race unless its queue knows the other to be over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dialects.npu import Pipe
from .errors import Race, fault
from .marks import Mark
from .places import BufferPlace, ByteCell

if TYPE_CHECKING:
    from .cores import SteppedCore
    from .nodes import Barrier, Cross, Flag, IssuedNode, PipeBarrier


class _Event:
    """A flag's fifo of raised clocks, and who set and consumed it last."""

    __slots__ = ("clocks", "waited")

    def __init__(self) -> None:
        self.clocks: deque[tuple[list[int], Mark]] = deque()
        self.waited: Mark | None = None


class BlockOrder:
    """What orders the instructions of the cores of a block. checks: whether races are faults; flags that never come
    always are. counted: whether a flag may be raised again before it is consumed."""

    def __init__(self, cores: Sequence[SteppedCore], checks: bool, counted: bool) -> None:
        self.cores, self.checks, self.counted = cores, checks, counted
        count = 0
        for core in cores:
            core.first_queue = count
            count += len(core.section.pipes)
        self.clocks = [[0] * count for _ in range(count)]
        self.begun = [0] * count
        """How many instructions each pipe has begun."""
        self.events: dict[tuple[int, str, str, int], _Event] = {}
        self.cross: dict[tuple[int, int, int], deque[tuple[list[int], Mark]]] = {}

    def queues(self, core: SteppedCore) -> range:
        """The numbers of a core's pipes."""
        return range(core.first_queue, core.first_queue + len(core.section.pipes))

    def over(self, queue: int) -> list[int]:
        """What is over where all that a pipe began is."""
        clock = self.clocks[queue].copy()
        clock[queue] = self.begun[queue]
        return clock

    def knows(self, mark: Mark, before: Mark) -> bool:
        """Whether an instruction of the block starts after another one is over."""
        return before.number <= self.clocks[mark.queue][before.queue]

    # -- on-chip memory ------------------------------------------------------------------------------------

    def race(self, mark: Mark, before: Mark, what: str, where: ByteCell | str) -> Race:
        """The fault of an instruction that meets an earlier one; what: "reads what {} may still write"."""
        said = what.format(f"'{before.op.name}' on {before.core.pipe_of(before)}")
        return Race("race", mark.op, said, str(where), before.op)

    def unit_flags(self, core: SteppedCore, sums: BufferPlace, drains: bool, fresh: bool, mark: Mark) -> None:
        """A drain with unit flags is over after the product that flags its sums, and the product that begins them anew
        after that drain: each waits for the other, fractal by fractal."""
        clock, known = self.clocks[mark.queue], self.over(mark.queue)
        for cell in core.cells(sums, sums.slot(core.env)):
            if drains and not cell.flagged:
                raise fault("deadlock", mark.op, "waits for sums that no product before it flags", str(cell))
            if fresh and cell.flagged:
                what = "waits until the sums are drained that a product before it flagged"
                raise fault("deadlock", mark.op, what, str(cell))
            if cell.flagger is not None and cell.flagged == drains:
                clock[:] = map(max, clock, cell.known)
            cell.flagged, cell.flagger, cell.known = not drains, mark, known

    # -- within a core -------------------------------------------------------------------------------------

    def scalar(self, core: SteppedCore, node: IssuedNode) -> None:
        """What the scalar unit did, or waited for, is over before anything that it issues later."""
        own = core.first_queue + node.queue
        over = self.over(own)
        for q in self.queues(core):
            if q != own:
                self.clocks[q][:] = map(max, self.clocks[q], over)

    def barrier(self, core: SteppedCore, node: Barrier) -> None:
        core.begin(node)
        joined = [max(column) for column in zip(*map(self.over, self.queues(core)), strict=True)]
        for q in self.queues(core):
            self.clocks[q][:] = joined

    def pipe_barrier(self, core: SteppedCore, node: PipeBarrier) -> None:
        mark = core.begin(node)
        self.clocks[mark.queue][mark.queue] = mark.number

    def _event(self, core: SteppedCore, node: Flag) -> _Event:
        key = (core.number, *node.pair, node.channel(core.env))
        found = self.events.get(key)
        if found is None:
            found = self.events[key] = _Event()
        return found

    def set_flag(self, core: SteppedCore, node: Flag) -> None:
        event, mark = self._event(core, node), core.begin(node)
        clock = self.clocks[mark.queue]
        if self.checks and not self.counted:
            if event.clocks:
                raise fault(
                    "reused-flag", node.op, "raises a flag again that nothing consumed", said_flag(node, core)
                )
            waited = event.waited
            if waited is not None and waited.number > clock[waited.queue]:
                what = "may raise its flag again before it is consumed"
                raise fault("reused-flag", node.op, what, said_flag(node, core))
        event.clocks.append((self.over(mark.queue), mark))

    def wait_flag(self, core: SteppedCore, node: Flag) -> None:
        event, mark = self._event(core, node), core.begin(node)
        event.waited = mark
        if not event.clocks:
            raise fault(
                "deadlock", node.op, "waits for a flag that nothing before it raises", said_flag(node, core)
            )
        clock = self.clocks[mark.queue]
        clock[:] = map(max, clock, event.clocks.popleft()[0])
        if node.pair[1] == Pipe.S:
            self.scalar(core, node)

    # -- between cores -------------------------------------------------------------------------------------

    def senders(self, core: SteppedCore, event: int) -> list[SteppedCore]:
        """The cores of the block whose event a core waits for."""
        return [c for c in self.cores if c.section is not core.section and event in c.section.sends]

    def ready(self, core: SteppedCore, event: int) -> bool:
        """Whether all that a core waits for has been raised."""
        senders = self.senders(core, event)
        return bool(senders) and all(self.cross.get((c.number, core.number, event)) for c in senders)

    def set_cross(self, core: SteppedCore, node: Cross) -> None:
        mark = core.begin(node)
        for other in self.cores:
            if other.section is not core.section:
                fifo = self.cross.setdefault((core.number, other.number, node.event), deque())
                fifo.append((self.over(mark.queue), mark))

    def wait_cross(self, core: SteppedCore, node: Cross) -> None:
        mark = core.begin(node)
        clock = self.clocks[mark.queue]
        for sender in self.senders(core, node.event):
            raised, _ = self.cross[sender.number, core.number, node.event].popleft()
            clock[:] = map(max, clock, raised)
        if core.section.pipes[node.queue] == Pipe.S:
            self.scalar(core, node)

    def finish(self) -> None:
        """What must hold when all cores are done. Raises FlagFault."""
        if not self.checks:
            return
        for (_, source, target, number), event in self.events.items():
            if event.clocks:
                said = f"flag {number} from {source} to {target}"
                raise fault(
                    "unpaired-flag", event.clocks[0][1].op, "raises a flag that nothing consumes", said
                )
        for core in self.cores:
            for cell in core.memory.every:
                if cell.flagged and cell.flagger is not None:
                    raise fault("unpaired-flag", cell.flagger.op, "flags sums that nothing drains", str(cell))
        for (_, _, number), fifo in self.cross.items():
            if fifo:
                what = "raises a cross-core event that nothing consumes"
                raise fault("unpaired-flag", fifo[0][1].op, what, f"event {number}")


def said_flag(node: Flag, core: SteppedCore) -> str:
    return f"flag {node.channel(core.env)} from {node.pair[0]} to {node.pair[1]}"
