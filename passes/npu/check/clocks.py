"""Happens-before within one block of cores, by vector clocks.

Every pipe is a queue that begins its instructions in order. `clock[q][r]` is how many instructions of queue r are known
to be over when the next instruction of queue q starts. Of its own queue those are what a barrier or a flag has told it
of, and all where the machine ends one instruction of a pipe before it begins the next. Issue is in program order, so
one walk over the program gives every clock:

    set_flag [P -> Q]     keeps a copy of P's clock in the event's fifo, with all that P began
    wait_flag [P -> Q]    joins Q's clock with the oldest copy
    pipe_barrier [P]      all that P began is over
    barrier               joins all clocks of the core, with all that its pipes began
    scalar instructions   finish before anything later is issued: the clock of S joins all others
    unit flags            a drain is over after the product that flags its sums, the next product after that drain

Each cell of memory keeps its last write and, for each queue, the last read since. That is enough: whatever is
ordered after the last access of a queue is ordered after the earlier ones: what tells of one tells of all before it.

Loops run `reduced_trips` times; docs/passes/npu-check.md argues why that many are enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .model import (
    BARRIER,
    LOOP,
    PIPE_BARRIER,
    SET,
    SET_CROSS,
    WAIT,
    WAIT_CROSS,
    WORK,
    CheckedKernel,
    CheckedNode,
    CheckedSection,
    Place,
    TensorAccess,
    TouchedBytes,
)
from .touches import TouchedRegion, TouchedTensor

Stamp = tuple[int, int]
"""An instruction: its queue and its number there, from 1."""


def reduced_trips(trips: int, period: int) -> int:
    """How many iterations of a loop show everything that all of them do; slots repeat after `period`."""
    least = 2 * period + 1
    return trips if trips < least + period else least + (trips - least) % period


ORDER = frozenset({"race", "reused-flag", "unpaired-flag", "deadlock"})
"""Faults that flags cause or prevent."""


class _Stop(Exception):
    """The first fault was met."""


@dataclass(frozen=True)
class Fault:
    """A finding as the clocks see it: two instructions (the second may be absent) and a cell or tensor."""

    kind: str
    what: str
    first: Stamp
    second: Stamp | None = None
    cell: TouchedBytes | None = None
    known: int = 0
    """For races: how many instructions of the first's queue the second's has waited for."""


class FlagFifo:
    """A flag's fifo of raised clocks, and who set and consumed it last."""

    __slots__ = ("clocks", "node", "set", "waited")

    def __init__(self) -> None:
        self.clocks: deque[list[int]] = deque()
        self.set: deque[Stamp] = deque()
        self.waited: Stamp | None = None


class Clocks:
    """Runs a kernel's sections side by side at one grid point."""

    def __init__(
        self,
        kernel: CheckedKernel,
        tracked: frozenset[int] = frozenset(),
        full: bool = False,
        only: CheckedSection | None = None,
        start: Mapping[int, int] | None = None,
        same: Mapping[int, int] | None = None,
        in_order: bool = False,
    ) -> None:
        """`tracked`: device tensors whose accesses are ordered too. `full`: no loop is shortened. `only`: one
        section, as if the others were not there. `start`: grid coordinates and unit, 0 where left out. `same`:
        tensors that are another one. `in_order`: as if each pipe ended what it began before it began another
        instruction."""
        self.same = same or {}
        self.kernel, self.tracked, self.full = kernel, tracked, full
        self.sections = kernel.sections if only is None else [only]
        queues = len(kernel.queue_names)
        self.clocks = [[0] * queues for _ in range(queues)]
        self.begun = [0] * queues
        """How many instructions each queue has begun."""
        self.in_order = in_order
        self.trail: list[list[CheckedNode]] = [[] for _ in range(queues)]
        self.envs: list[list[tuple[int, ...]]] = [[] for _ in range(queues)]
        self.explain = False
        self.faults: list[Fault] = []
        self.stop = False
        self.events: dict[tuple[int, str, str, int], FlagFifo] = {}
        self.cross: dict[tuple[int, int, int], deque[tuple[list[int], Stamp]]] = {}
        self.touched = {t: TouchedTensor(kernel) for t in tracked}
        self.senders = {
            (event, section.number) for section in self.sections for event in _sent(section.nodes)
        }
        self.env = [0] * len(kernel.counts)
        for variable, value in (start or {}).items():
            self.env[variable] = value
        self.needs: set[int] = set()
        """Outputs that are read before they are written: they must come with contents."""

    def unsafe(self) -> bool:
        """Whether the order of instructions has a fault; runs no further than the first."""
        self.stop = True
        try:
            self.run()
        except _Stop:
            return True
        return False

    def _fault(self, fault: Fault) -> None:
        self.faults.append(fault)
        if self.stop and fault.kind in ORDER:
            raise _Stop

    def run(self) -> list[Fault]:
        """All faults, in the order they are met."""
        for section in self.sections:
            for slots in section.cells:
                for cell in slots:
                    cell.clear()
        envs = {s.number: list(self.env) for s in self.sections}
        running: dict[int, tuple[Iterator[CheckedNode], CheckedNode | None]] = {
            s.number: (self._steps(s.nodes, s.number), None) for s in self.sections
        }
        while running:
            moved = False
            for number, (steps, stuck) in list(running.items()):
                self.env = envs[number]
                if stuck is not None and not self._ready(number, stuck.event):
                    continue
                moved = True
                blocked = next(steps, None)
                if blocked is None:
                    del running[number]
                else:
                    running[number] = (steps, blocked)
            if not moved:
                for node in [stuck for _, stuck in running.values() if stuck is not None][:1]:
                    what = "{first} waits for a cross-core event that no other core raises by then"
                    self._fault(Fault("deadlock", what, self._count(node)))
                return self.faults
        self._leftovers()
        return self.faults

    # -- control -------------------------------------------------------------------------------------------

    def _steps(self, nodes: Sequence[CheckedNode], number: int) -> Iterator[CheckedNode]:
        """Runs nodes; yields each wait_cross whose event is not raised yet."""
        for node in nodes:
            if node.kind == LOOP and node.crosses:
                for trip in range(self._trips(node)):
                    self.env[node.variable] = trip
                    yield from self._steps(node.body, number)
            elif node.kind == WAIT_CROSS:
                while not self._ready(number, node.event):
                    yield node
                self._wait_cross(node, number)
            else:
                self.walk((node,))

    def _trips(self, node: CheckedNode) -> int:
        """All of a loop that fills a workspace where another section may read what it has not stored."""
        if self.full or (node.fills and self.tracked):
            return node.trips
        return reduced_trips(node.trips, self.kernel.period)

    def _loop(self, node: CheckedNode) -> None:
        trips, period, variable = self._trips(node), self.kernel.period, node.variable
        body, env = node.body, self.env
        if trips == node.trips:
            for trip in range(trips):
                env[variable] = trip
                self.walk(body)
            return
        depths: list[dict[tuple[int, str, str, int], int]] = []
        for trip in range(trips):
            env[variable] = trip
            self.walk(body)
            if trip + 1 in (period, 2 * period):
                depths.append({key: len(event.clocks) for key, event in self.events.items() if event.clocks})
        if depths[0] != depths[1]:  # flags pile up or run out: only all iterations tell when
            for trip in range(trips, node.trips):
                env[variable] = trip
                self.walk(body)

    def walk(self, nodes: Sequence[CheckedNode]) -> None:
        """Runs nodes that need nothing from other cores."""
        for node in nodes:
            kind = node.kind
            if kind == WORK:
                self._work(node)
            elif kind == SET:
                self._set(node)
            elif kind == WAIT:
                self._wait(node)
            elif kind == LOOP:
                self._loop(node)
            elif kind == PIPE_BARRIER:
                self._pipe_barrier(node)
            elif kind == BARRIER:
                self._barrier(node)
            elif kind == SET_CROSS:
                self._set_cross(node)

    def _count(self, node: CheckedNode) -> Stamp:
        """Gives a node its number in its queue."""
        queue = node.queue
        self.trail[queue].append(node)
        if self.explain:
            self.envs[queue].append(tuple(self.env))
        self.begun[queue] = number = self.begun[queue] + 1
        return queue, number

    # -- instructions ------------------------------------------------------------------------------------------

    def _work(self, node: CheckedNode) -> None:
        queue = node.queue
        clock, env = self.clocks[queue], self.env
        stamp = self._count(node)
        number = stamp[1]
        if self.in_order or not node.unordered:
            clock[queue] = number - 1
        unused = None
        if node.fresh is not None and node.fresh[0].evaluate(env) == 0:
            unused = node.fresh[1]
        if node.sums is not None:
            self._unit_flags(node, node.sums, unused is not None, stamp)
        read: list[TouchedBytes] = []
        for place in node.reads:
            if place is unused:
                continue
            memory = place.memory
            cells = place.cells(env)
            read += cells
            for cell in cells:
                writer = cell.writer
                if writer is None:
                    what = "{first} reads what nothing wrote"
                    self._fault(Fault("uninitialised", what, stamp, None, cell))
                elif writer[1] > clock[writer[0]]:
                    self._race("reads while {first} may still write", writer, stamp, cell)
                elif cell.owner is not memory:
                    self._fault(
                        Fault(
                            "overlap",
                            "{first} overwrites a buffer that {second} still reads",
                            writer,
                            stamp,
                            cell,
                        )
                    )
        for place in node.writes:
            memory = place.memory
            for cell in place.cells(env):
                writer, readers = cell.writer, cell.readers
                if readers:  # who knows that they are over knows it of what they read
                    for reader, last in readers.items():
                        if last > clock[reader]:
                            self._race("writes while {first} may still read", (reader, last), stamp, cell)
                    cell.readers = {}
                elif writer is not None and writer is not stamp and writer[1] > clock[writer[0]]:
                    self._race("writes while {first} may still write", writer, stamp, cell)
                cell.writer, cell.owner = stamp, memory
        for cell in read:
            if cell.writer is not stamp:
                cell.readers[queue] = number
        self._beyond_cells(node, stamp)

    def _beyond_cells(self, node: CheckedNode, stamp: Stamp) -> None:
        """What an instruction does besides its cells: device memory, and what waits for a scalar one."""
        for transfer in node.device:
            tensor = self.same.get(transfer.tensor, transfer.tensor)
            if tensor in self.tracked:
                self._touch(transfer, tensor, stamp)
        if self.kernel.queue_names[stamp[0]] == "S":
            self._scalar(stamp[0])

    def _unit_flags(self, node: CheckedNode, sums: Place, fresh: bool, stamp: Stamp) -> None:
        """A drain with unit flags is over after the product that flags its sums, and the product that begins them anew
        after that drain: each waits for the other, fractal by fractal."""
        drains, clock = node.fresh is None, self.clocks[node.queue]
        known = self._raised(node.queue)
        for cell in sums.cells(self.env):
            before = cell.flagger
            if drains and not cell.flagged:
                what = "{first} waits for sums that no product before it flags"
                self._fault(Fault("deadlock", what, stamp, None, cell))
            elif fresh and cell.flagged:
                what = "{first} waits until the sums are drained that {second} flagged"
                self._fault(Fault("deadlock", what, stamp, before, cell))
            elif before is not None and cell.flagged == drains:
                clock[:] = map(max, clock, cell.known)
            cell.flagged, cell.flagger, cell.known = not drains, stamp, known

    def _race(self, what: str, first: Stamp, second: Stamp, cell: TouchedBytes | None) -> None:
        known = self.clocks[second[0]][first[0]]
        self._fault(Fault("race", "{second} " + what, first, second, cell, known))

    def _scalar(self, queue: int) -> None:
        """What the scalar unit waited for is over before anything that it issues later."""
        own, section = self._raised(queue), self.kernel.queue_sections[queue]
        for other, clock in enumerate(self.clocks):
            if other != queue and self.kernel.queue_sections[other] == section:
                clock[:] = map(max, clock, own)

    def _barrier(self, node: CheckedNode) -> None:
        stamp = self._count(node)
        section = self.kernel.queue_sections[stamp[0]]
        core = [q for q, s in enumerate(self.kernel.queue_sections) if s == section]
        joined = [max(column) for column in zip(*map(self._raised, core), strict=True)]
        for queue in core:
            self.clocks[queue][:] = joined

    def _pipe_barrier(self, node: CheckedNode) -> None:
        queue, number = self._count(node)
        self.clocks[queue][queue] = number

    # -- flags ---------------------------------------------------------------------------------------------

    def _event(self, node: CheckedNode) -> FlagFifo:
        section = self.kernel.queue_sections[node.queue]
        number = node.event + (node.counter.evaluate(self.env) % node.slots if node.slots > 1 else 0)
        key = (section, *node.pair, number)
        found = self.events.get(key)
        if found is None:
            found = self.events[key] = FlagFifo()
        return found

    def _set(self, node: CheckedNode) -> None:
        event = self._event(node)
        stamp = self._count(node)
        clock = self.clocks[node.queue]
        waited = event.waited
        if self.kernel.op.counted is not None:
            pass
        elif event.clocks:
            what = "{second} raises a flag again that {first} raised and nothing consumed"
            self._fault(Fault("reused-flag", what, event.set[-1], stamp))
        elif waited is not None and waited[1] > clock[waited[0]]:
            what = "{second} may raise its flag again before {first} consumed it"
            self._fault(Fault("reused-flag", what, waited, stamp, None, clock[waited[0]]))
        event.clocks.append(self._raised(node.queue))
        event.set.append(stamp)

    def _wait(self, node: CheckedNode) -> None:
        event = self._event(node)
        stamp = self._count(node)
        event.waited = stamp
        if not event.clocks:
            what = "{first} waits for a flag that nothing before it raises"
            self._fault(Fault("deadlock", what, stamp))
            return
        clock, raised = self.clocks[node.queue], event.clocks.popleft()
        event.set.popleft()
        clock[:] = map(max, clock, raised)
        if node.pair[1] == "S":
            self._scalar(node.queue)

    def _raised(self, queue: int) -> list[int]:
        """What is over where all that a queue began is."""
        clock = self.clocks[queue].copy()
        clock[queue] = self.begun[queue]
        return clock

    def _set_cross(self, node: CheckedNode) -> None:
        stamp = self._count(node)
        own = self.kernel.queue_sections[node.queue]
        for other in self.sections:
            if other.number != own:
                fifo = self.cross.setdefault((own, other.number, node.event), deque())
                fifo.append((self._raised(node.queue), stamp))

    def _senders(self, number: int, event: int) -> list[int]:
        return [s.number for s in self.sections if s.number != number and (event, s.number) in self.senders]

    def _ready(self, number: int, event: int) -> bool:
        senders = self._senders(number, event)
        return bool(senders) and all(self.cross.get((s, number, event)) for s in senders)

    def _wait_cross(self, node: CheckedNode, number: int) -> None:
        self._count(node)
        clock = self.clocks[node.queue]
        for sender in self._senders(number, node.event):
            raised, _ = self.cross[sender, number, node.event].popleft()
            clock[:] = map(max, clock, raised)
        if self.kernel.queue_names[node.queue] == "S":
            self._scalar(node.queue)

    def _leftovers(self) -> None:
        for event in self.events.values():
            if event.set:
                what = "{first} raises a flag that nothing consumes"
                self._fault(Fault("unpaired-flag", what, event.set[0]))
        for section in self.sections:
            left = {c.flagger for slots in section.cells for c in slots if c.flagged}
            for flagger in sorted(f for f in left if f is not None):
                self._fault(Fault("unpaired-flag", "{first} flags sums that nothing drains", flagger))
        for fifo in self.cross.values():
            if fifo:
                what = "{first} raises a cross-core event that nothing consumes"
                self._fault(Fault("unpaired-flag", what, fifo[0][1]))

    # -- device memory -------------------------------------------------------------------------------------

    def _touch(self, transfer: TensorAccess, tensor: int, stamp: Stamp) -> None:
        """Checks an access to a tensor that the kernel both reads and writes against all earlier ones."""
        regions = self.touched[tensor].regions(transfer, self.env)
        clock = self.clocks[stamp[0]]
        for before, wrote, apart in self._conflicts(transfer, regions):
            if apart or before[1] > clock[before[0]]:
                verbs = ("writes" if transfer.write else "reads", "write" if wrote else "read")
                what = f"{verbs[0]} device memory that {{first}} may still {verbs[1]}"
                self._race(what, before, stamp, None)
        if transfer.reads and not all(region is None or region.filled() for region in regions):
            if transfer.tensor in self.kernel.workspaces:
                what = "{first} reads elements of a workspace that nothing wrote"
                self._fault(Fault("uninitialised", what, stamp))
            elif transfer.tensor in self.kernel.outputs:
                self.needs.add(transfer.tensor)
        self._keep(transfer, regions, stamp)

    def _conflicts(
        self, transfer: TensorAccess, regions: Iterable[TouchedRegion | None]
    ) -> Iterator[tuple[Stamp, bool, bool]]:
        """The last accesses to what an access touches that one of the two writes, but not both by accumulating alike;
        with each, whether it writes, and whether it is another unit's, so that nothing orders them."""
        sections = self.kernel.queue_sections
        for unit, region in enumerate(regions):
            for (queue, other, wrote, combined), number in () if region is None else region.touched():
                if (wrote or transfer.write) and not (combined and combined == transfer.combines):
                    apart = other != unit and sections[queue] == transfer.section.number
                    yield (queue, number), wrote, apart

    def _keep(self, transfer: TensorAccess, regions: Iterable[TouchedRegion | None], stamp: Stamp) -> None:
        for unit, region in enumerate(regions):
            if region is not None:
                region.touch((stamp[0], unit, transfer.write, transfer.combines), stamp[1])


def _sent(nodes: Sequence[CheckedNode]) -> set[int]:
    found: set[int] = set()
    for node in nodes:
        if node.kind == SET_CROSS:
            found.add(node.event)
        elif node.kind == LOOP:
            found |= _sent(node.body)
    return found
