"""The order that the flags of a safe kernel give, as a graph: which of them can go without running the kernel again.
That it is safe, the run that writes the graph down finds out.

One run of the clocks writes the graph down. A *point* is where a queue comes to know more than before: behind a wait, a
barrier, a scalar instruction or a unit flag. A point knows what the point before it on its queue knows, and what the
points knew that it waits for. What the instructions up to the next point need to be over is its *need*. It does not
depend on flags, so a kernel without some flag is safe if every point still knows what it needs.

Without a flag, only points behind its waits can know less. They are visited in program order, as long as they do: a
flag that is needed is found out by the first instruction that needs it, and one that is not is no longer felt where
the next flag from the same queue is waited for. So the work for all flags together is about that of one run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from operator import gt

from .clocks import Clocks, FlagFifo, Stamp
from .model import CheckedKernel, CheckedNode, CheckedSection, Place, TensorAccess, TouchedBytes

Known = tuple[int, ...]
"""For each queue, how many of its instructions are over; 0 for a point's own queue where that runs in order."""

NOBODY = -1


class WaitGraph(Clocks):
    """The graph of one run of a kernel, as far as the first fault in the order of its instructions."""

    def __init__(
        self,
        kernel: CheckedKernel,
        flags: Mapping[int, int],
        tracked: frozenset[int] = frozenset(),
        only: CheckedSection | None = None,
        start: Mapping[int, int] | None = None,
        in_order: bool = False,
    ) -> None:
        """`flags`: the number of the flag that a node belongs to, by the node's id."""
        super().__init__(kernel, tracked, only=only, start=start, in_order=in_order)
        self.ordered = [in_order or queue not in kernel.unordered for queue in range(len(kernel.queue_names))]
        self.unordered = False
        """Whether the instruction that runs needs those of its own queue."""
        self.flags = flags
        self.mixed: set[int] = set()
        """Flags that share an event: without one of them, the waits of the other are for other sets."""
        self.waiting: dict[int, list[int]] = {}
        """The points behind the waits of each flag."""
        self.queues: list[int] = []
        """The queue of each point; NOBODY for one that joins all of a core."""
        self.previous: list[int] = []
        self.joins: list[list[tuple[int, int, int]]] = []
        """What each point waits for: a point, the number of its queue's last instruction then, and the flag."""
        self.known: list[Known] = []
        self.needs: list[list[int]] = []
        """For each queue, the number of the last instruction that must be over."""
        self.again: list[list[tuple[int, int, int]]] = []
        """Flags that are raised again: queue and number of the wait that must be over, and the flag."""
        self.raising: dict[int, list[int]] = {}
        """The points at which each flag is raised again."""
        self.later: list[list[int]] = []
        """The points that hear of what a point knows."""
        self.nothing = (0,) * len(kernel.queue_names)
        self.here = [self._point(queue, NOBODY, []) for queue in range(len(kernel.queue_names))]
        """The last point of each queue."""
        self._owners: dict[int, int] = {}
        self.safe = not self.unsafe()
        """Whether there is no such fault: the graph is whole."""

    # -- without a flag ----------------------------------------------------------------------------------------

    def without(self, flag: int) -> dict[int, Known] | None:
        """What points know without a flag, where that is less; None where it is not enough for some."""
        changed: dict[int, Known] = {}
        visits = list(self.waiting.get(flag, ()))
        heapq.heapify(visits)
        last = NOBODY
        while visits:
            point = heapq.heappop(visits)
            if point == last:
                continue
            last = point
            known = self._knows(point, changed, flag)
            if known == self.known[point]:
                continue
            if any(map(gt, self.needs[point], known)):
                return None
            if any(number > known[queue] for queue, number, other in self.again[point] if other != flag):
                return None
            changed[point] = known
            for later in self.later[point]:
                heapq.heappush(visits, later)
        return changed

    def remove(self, flag: int, changed: Mapping[int, Known]) -> None:
        """Takes a flag away; `changed` is what `without` says of it."""
        for point in self.waiting.pop(flag, ()):
            self.joins[point] = [join for join in self.joins[point] if join[2] != flag]
        for point in self.raising.pop(flag, ()):
            self.again[point] = [again for again in self.again[point] if again[2] != flag]
        for point, known in changed.items():
            self.known[point] = known

    def _knows(self, point: int, changed: Mapping[int, Known], without: int) -> Known:
        queue, previous = self.queues[point], self.previous[point]
        known = list(self.nothing if previous == NOBODY else changed.get(previous) or self.known[previous])
        for source, number, flag in self.joins[point]:
            if flag != without or flag == NOBODY:
                known[:] = map(max, known, changed.get(source) or self.known[source])
                other = self.queues[source]
                if other != NOBODY:
                    known[other] = max(known[other], number)
        if queue != NOBODY and self.ordered[queue]:
            known[queue] = 0
        return tuple(known)

    # -- the run -----------------------------------------------------------------------------------------------

    def _point(self, queue: int, previous: int, joins: list[tuple[int, int, int]]) -> int:
        point = len(self.queues)
        self.queues.append(queue)
        self.previous.append(previous)
        self.joins.append(joins)
        self.needs.append(list(self.nothing))
        self.again.append([])
        self.later.append([])
        for source in {previous, *(source for source, _, _ in joins)} - {NOBODY}:
            self.later[source].append(point)
        self.known.append(self._knows(point, {}, NOBODY))
        return point

    def _join(self, queue: int, joins: list[tuple[int, int, int]]) -> None:
        self.here[queue] = self._point(queue, self.here[queue], joins)

    def _now(self, queue: int) -> tuple[int, int]:
        return self.here[queue], self.begun[queue]

    def _raised(self, queue: int) -> list[int]:
        return [*self._now(queue)]

    def _need(self, queue: int, before: Stamp) -> None:
        """The next instruction of a queue needs another one to be over."""
        if before[0] != queue or self.unordered:
            needs = self.needs[self.here[queue]]
            needs[before[0]] = max(needs[before[0]], before[1])

    def _work(self, node: CheckedNode) -> None:
        queue, env = node.queue, self.env
        stamp = self._count(node)
        self.unordered = node.unordered and not self.in_order
        unused = node.fresh[1] if node.fresh is not None and node.fresh[0].evaluate(env) == 0 else None
        if node.sums is not None:
            self._unit_flags(node, node.sums, unused is not None, stamp)
        read: list[TouchedBytes] = []
        for place in node.reads:
            if place is not unused:
                read += place.cells(env)
        for cell in read:
            if cell.writer is not None:
                self._need(queue, cell.writer)
        for place in node.writes:
            for cell in place.cells(env):
                if cell.writer is not None and cell.writer is not stamp:
                    self._need(queue, cell.writer)
                for reader in cell.readers.items():
                    self._need(queue, reader)
                cell.readers = {}
                cell.writer = stamp
        for cell in read:
            if cell.writer is not stamp:
                cell.readers[queue] = stamp[1]
        self._beyond_cells(node, stamp)

    def _unit_flags(self, node: CheckedNode, sums: Place, fresh: bool, stamp: Stamp) -> None:
        drains, now = node.fresh is None, self._now(node.queue)
        joins: dict[tuple[int, int], None] = {}
        for cell in sums.cells(self.env):
            if cell.flagger is not None and cell.flagged == drains:
                point, number = cell.known
                joins[point, number] = None
            cell.flagged, cell.flagger, cell.known = not drains, stamp, now
        if joins:
            self._join(node.queue, [(point, number, NOBODY) for point, number in joins])

    def _scalar(self, queue: int) -> None:
        self._tell([other for other in self._core(queue) if other != queue], *self._now(queue))

    def _pipe_barrier(self, node: CheckedNode) -> None:
        self._count(node)
        flag = self.flags.get(id(node), NOBODY)
        self._join(node.queue, [(*self._now(node.queue), flag)])
        self.waiting.setdefault(flag, []).append(self.here[node.queue])

    def _barrier(self, node: CheckedNode) -> None:
        self._count(node)
        core = self._core(node.queue)
        together = self._point(NOBODY, NOBODY, [(*self._now(queue), NOBODY) for queue in core])
        self._tell(core, together, 0)

    def _core(self, queue: int) -> list[int]:
        sections = self.kernel.queue_sections
        return [other for other, section in enumerate(sections) if section == sections[queue]]

    def _tell(self, queues: Iterable[int], point: int, number: int) -> None:
        for queue in queues:
            self._join(queue, [(point, number, NOBODY)])

    def _touch(self, transfer: TensorAccess, tensor: int, stamp: Stamp) -> None:
        regions = self.touched[tensor].regions(transfer, self.env)
        for before, _, _ in self._conflicts(transfer, regions):
            self._need(stamp[0], before)
        self._keep(transfer, regions, stamp)

    def _owned(self, event: FlagFifo, node: CheckedNode) -> int:
        """The flag of a node, which is to be the only one with its event."""
        flag = self.flags.get(id(node), NOBODY)
        owner = self._owners.setdefault(id(event), flag)
        if owner != flag:
            self.mixed |= {owner, flag}
        return flag

    def _set(self, node: CheckedNode) -> None:
        event = self._event(node)
        flag = self._owned(event, node)
        stamp = self._count(node)
        if event.waited is not None and event.waited[0] != node.queue:
            self.again[self.here[node.queue]].append((*event.waited, flag))
            self.raising.setdefault(flag, []).append(self.here[node.queue])
        event.clocks.append(self._raised(node.queue))
        event.set.append(stamp)

    def _wait(self, node: CheckedNode) -> None:
        event = self._event(node)
        flag = self._owned(event, node)
        event.waited = self._count(node)
        event.set.popleft()
        point, number = event.clocks.popleft()
        self._join(node.queue, [(point, number, flag)])
        self.waiting.setdefault(flag, []).append(self.here[node.queue])
        if node.pair[1] == "S":
            self._scalar(node.queue)

    def _wait_cross(self, node: CheckedNode, number: int) -> None:
        self._count(node)
        raised = [self.cross[s, number, node.event].popleft()[0] for s in self._senders(number, node.event)]
        self._join(node.queue, [(point, known, NOBODY) for point, known in raised])
        if self.kernel.queue_names[node.queue] == "S":
            self._scalar(node.queue)
