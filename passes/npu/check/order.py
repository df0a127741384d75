"""What is ordered among the commands of a host program: a clock for each stream, and one for the program's thread.

A queue runs in order, so what is known of its progress is a number: how many of its commands are over. A queue's clock
has that number for each queue, as its next command will find it. The program's thread gives every command to its
stream, so a command also starts after all that the thread has waited for. An event keeps its queue's clock, a wait
joins it. Two commands that touch the same bytes, one of them to write, must be ordered; so must the one that makes a
value in the host's memory and the one that uses it.

A function is walked in program order, loops twice: of two commands more than one round apart, the first has a
successor on its own queue that is nearer. A called function begins and ends on the compute stream: for its caller it is
one command there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from ....dialects.base import integer, text
from ....dialects.npu import GmType, ViewOp, gm
from ....dialects.npu.host_program import DeviceTensorOp, HostVisitor
from ....dialects.npu.places import addresses_of, frame_of
from ....dialects.npu.streams import COMPUTE, PROGRAM, QUEUES, Command
from ....dialects.npu.structure import (
    BranchOp,
    CallOp,
    LoopOp,
    NpuYieldOp,
    RecordEventOp,
    ScalarsOp,
    WaitEventOp,
)
from ...calls import calls_of
from .ranges import around, meeting, never_above

Clock = tuple[int, ...]
"""For each of QUEUES, how many of its commands are over."""

Place = SSAValue | str
"""Something that is read and written: a tensor, a value of the host, or the memory that a function works in."""

Last = dict[Place, dict[tuple[int, bool], "Access"]]
"""For each place its last accesses, by queue and whether they write."""

NUMBER = {queue: i for i, queue in enumerate(QUEUES)}
THREAD = NUMBER[PROGRAM]
NOTHING: Clock = (0,) * len(QUEUES)


@dataclass(frozen=True)
class Access:
    """The command number `stamp` of a queue, and what it does."""

    queue: int
    stamp: int
    op: Operation
    write: bool


@dataclass(frozen=True)
class Conflict:
    """Two accesses of the same bytes that nothing orders; `known`: how far the second's queue knows the first's."""

    first: Access
    second: Access
    place: Place
    known: int


class TensorPlaces:
    """The tensors of a function, where they are, and which share bytes. `frames`: the bytes that each function it may
    call works in."""

    def __init__(self, func: FuncOp, frames: Mapping[str, tuple[int, int]]) -> None:
        self.roots: dict[SSAValue, SSAValue] = {}
        ranges: list[tuple[int, int, Place]] = []
        self.called = frame_of(func) is not None
        block = func.body.block
        self.roots.update((a, a) for a in block.args)
        for arg, start in zip(block.args, addresses_of(func) or (), strict=False):
            ranges.append((start, start + gm(arg).bytes, arg))
        called: set[str] = set()
        for op in func.walk():
            if isinstance(op, ViewOp):
                self.roots[op.result] = self.roots[op.source]
            elif isinstance(op, DeviceTensorOp):
                self.roots[op.result] = op.result
                if op.address is not None:
                    start = integer(op.address)
                    ranges.append((start, start + gm(op.result).bytes, op.result))
            elif isinstance(op, LoopOp):
                for region in op.regions:
                    for arg, value in zip(op.state_args(region.block), op.state, strict=False):
                        self.roots[arg] = self.roots[value]
            elif isinstance(op, CallOp):
                called.add(op.callee.root_reference.data)
        ranges += [(*frames[name], name) for name in sorted(called) if name in frames]
        self.all: list[Place] = [*dict.fromkeys(self.roots.values()), *sorted(called)]
        self.ranges: dict[Place, tuple[int, int]] = {p: (s, e) for s, e, p in ranges}
        self.neighbours: dict[Place, list[Place]] = {}
        for one, other in meeting(ranges):
            self.neighbours.setdefault(other, []).append(one)
            self.neighbours.setdefault(one, []).append(other)

    def places(self, values: Iterable[SSAValue]) -> list[Place]:
        """The tensors behind device values, and values of the host themselves."""
        return [self.roots.get(v, v) for v in values]

    def uses(self, op: Command) -> tuple[set[Place], set[Place]]:
        """What a command reads and what it writes."""
        return set(self.places(op.reads())), set(self.places(op.writes()))

    def near(self, places: Set[Place]) -> Set[Place]:
        """These and those that share bytes with one of them."""
        return {*places, *(other for place in places for other in self.neighbours.get(place, ()))}

    def meeting(self, first: Command, second: Command) -> tuple[Place, bool, bool] | None:
        """A tensor of `second` whose bytes both commands touch, at least one of them to write; whether the first writes
        it, and whether the second does. None where there is none."""
        uses = [(self.places(op.reads()), self.places(op.writes())) for op in (first, second)]
        for i, theirs in enumerate(uses[0]):
            touched = set(theirs)
            for j, mine in enumerate(uses[1]):
                if i or j:
                    for place in mine:
                        if place in touched or not touched.isdisjoint(self.neighbours.get(place, ())):
                            return place, bool(i), bool(j)
        return None

    def moved(self, op: NpuYieldOp) -> list[tuple[SSAValue, SSAValue]]:
        """The copies at the end of a region."""
        return [(v, t) for v, t in op.moved() if self.roots[v] is not self.roots[t]]


def later_of(one: Clock, other: Clock) -> Clock:
    return tuple(map(max, one, other))


def lifted(clock: Clock, before: Sequence[int], after: Sequence[int]) -> Clock:
    """A clock on a way where the commands from `before` to `after` do not happen: who knows all before knows them."""
    return tuple(a if k >= b else k for k, b, a in zip(clock, before, after, strict=True))


@dataclass
class Known:
    """What is known at a point of the program."""

    clocks: list[Clock]
    counts: list[int]
    events: dict[int, Clock]

    @staticmethod
    def nothing() -> Known:
        return Known([NOTHING] * len(QUEUES), [0] * len(QUEUES), {})

    def copy(self) -> Known:
        return Known(list(self.clocks), list(self.counts), dict(self.events))

    def without(self, after: Sequence[int]) -> Known:
        """The same on a way that leaves out the commands up to `after`."""

        def lift(clock: Clock) -> Clock:
            return lifted(clock, self.counts, after)

        return Known(list(map(lift, self.clocks)), list(after), {e: lift(c) for e, c in self.events.items()})

    def meet(self, other: Known) -> None:
        """What is known whichever way was taken; both count all commands."""
        self.clocks = [tuple(map(min, a, b)) for a, b in zip(self.clocks, other.clocks, strict=True)]
        common = self.events.keys() & other.events.keys()
        self.events = {e: tuple(map(min, self.events[e], other.events[e])) for e in common}


class StreamOrder(HostVisitor[None]):
    """Walks a function; `synchronous` are functions that it may call. `conflict` is told what is not ordered, `lost`
    which wait has nothing to wait for."""

    def __init__(
        self,
        memory: TensorPlaces,
        synchronous: Collection[str],
        conflict: Callable[[Conflict], None],
        lost: Callable[[WaitEventOp], None],
    ) -> None:
        self.memory, self.synchronous = memory, synchronous
        self.conflict, self.lost = conflict, lost
        self.known = Known.nothing()
        self.last: Last = {}
        self.trail: list[list[Operation]] = [[] for _ in QUEUES]
        """All commands of each queue."""
        self.trying = False

    # -- ops -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Operation) -> None:
        self.visit(op)

    def passive(self, op: Operation) -> None:
        pass

    def foreign(self, op: Operation) -> None:
        pass

    def command(self, op: Command) -> None:
        self._use(THREAD, op, op.at_issue(), ())
        self._command(op, op.queue, op.reads(), op.writes())

    def record_event(self, op: RecordEventOp) -> None:
        self.known.events[integer(op.event)] = self.clock(NUMBER[text(op.stream)])

    def wait_event(self, op: WaitEventOp) -> None:
        happened = self.known.events.get(integer(op.event))
        if happened is None:
            self.lost(op)
        else:
            self.wait(NUMBER[text(op.stream)], happened)

    def scalars(self, op: ScalarsOp) -> None:
        self._command(op, PROGRAM, op.reads(), op.writes())

    def returns(self, op: ReturnOp) -> None:
        if self.memory.called:
            self.border(op)

    def attempt(self, op: Operation) -> None:
        """Tells of the conflicts of an op as if it came next."""
        known, self.known, self.trying = self.known, self.known.copy(), True
        self.op(op)
        for trail, count in zip(self.trail, known.counts, strict=True):
            del trail[count:]
        self.known, self.trying = known, False

    def clock(self, queue: int) -> Clock:
        """What the next command of a queue will know."""
        return later_of(self.known.clocks[queue], self.known.clocks[THREAD])

    def wait(self, queue: int, clock: Clock) -> None:
        self.known.clocks[queue] = later_of(self.known.clocks[queue], clock)

    def _command(
        self, op: Operation, queue: str | None, reads: Sequence[SSAValue], writes: Sequence[SSAValue]
    ) -> None:
        if queue is None:
            self._synchronous(op, self.memory.places(reads), self.memory.places(writes))
            return
        at = NUMBER[queue]
        self._count(at, op, self.clock(at))
        self._use(at, op, reads, writes)

    def _count(self, queue: int, op: Operation, clock: Clock) -> None:
        """A command begins."""
        known = self.known
        known.counts[queue] += 1
        known.clocks[queue] = (*clock[:queue], known.counts[queue], *clock[queue + 1 :])
        self.trail[queue].append(op)

    def _synchronous(self, op: Operation, reads: Sequence[Place], writes: Sequence[Place]) -> None:
        """Waits for everything, and everything waits for it."""
        everything = NOTHING
        for clock in self.known.clocks:
            everything = later_of(everything, clock)
        self._count(THREAD, op, everything)
        self.known.clocks = [self.known.clocks[THREAD]] * len(QUEUES)
        self._access(THREAD, op, reads, writes)

    def _use(self, queue: int, op: Operation, reads: Sequence[SSAValue], writes: Sequence[SSAValue]) -> None:
        self._access(queue, op, self.memory.places(reads), self.memory.places(writes))

    def _access(self, queue: int, op: Operation, reads: Sequence[Place], writes: Sequence[Place]) -> None:
        self._compare(queue, op, reads, writes)
        self._note(queue, op, reads, writes)

    def _compare(self, queue: int, op: Operation, reads: Sequence[Place], writes: Sequence[Place]) -> None:
        """Tells of accesses before this one that it may meet."""
        clock, stamp = self.clock(queue), self.known.counts[queue]
        for places, write in ((reads, False), (writes, True)):
            for place in places:
                if write and not _on_device(place):
                    continue  # what the host makes is in memory of its own
                for other in (place, *self.memory.neighbours.get(place, ())):
                    for (theirs, wrote), access in self.last.get(other, {}).items():
                        if theirs != queue and (write or wrote) and access.stamp > clock[theirs]:
                            mine = Access(queue, stamp, op, write)
                            self.conflict(Conflict(access, mine, other, clock[theirs]))

    def _note(self, queue: int, op: Operation, reads: Sequence[Place], writes: Sequence[Place]) -> None:
        if self.trying:
            return
        for places, write in ((reads, False), (writes, True)):
            for place in places:
                access = Access(queue, self.known.counts[queue], op, write)
                self.last.setdefault(place, {})[queue, write] = access

    def yields(self, op: NpuYieldOp) -> None:
        """Numbers go to the program's thread; tensors that are elsewhere are copied, all read before any is written."""
        self._use(THREAD, op, op.at_issue(), ())
        moved = self.memory.moved(op)
        if moved:
            self._command(op, op.queue, [v for v, _ in moved], [t for _, t in moved])

    def call(self, op: CallOp) -> None:
        name = op.callee.root_reference.data
        reads, writes = self.memory.places(op.inputs()), [name, *self.memory.places(op.written())]
        if name in self.synchronous:
            self._synchronous(op, reads, writes)
        else:
            self._count(NUMBER[COMPUTE], op, self.clock(NUMBER[COMPUTE]))
            self._access(NUMBER[COMPUTE], op, reads, writes)

    def border(self, op: FuncOp | ReturnOp) -> None:
        """Begins or ends a called function: as a command that touches all its tensors, which its caller may, too."""
        self._count(NUMBER[COMPUTE], op, self.clock(NUMBER[COMPUTE]))
        self._access(NUMBER[COMPUTE], op, (), self.memory.all)

    def loop(self, op: LoopOp) -> None:
        self._use(THREAD, op, op.at_issue(), ())
        if op.trip_count is not None and never_above(1, integer(op.trip_count)):
            for _ in range(2):
                self.block(op.body.block)
            return
        if op.trip_count is None:
            self.block(op.condition.block)
        never = self.known.copy()
        for _ in range(2):
            self.block(op.body.block)
            if op.trip_count is None:
                self.block(op.condition.block)
        self.known.meet(never.without(self.known.counts))

    def branch(self, op: BranchOp) -> None:
        self._use(THREAD, op, op.at_issue(), ())
        start, before = self.known.copy(), self.last
        ends: list[Known] = []
        found: list[Last] = []
        for region in op.branches:
            if ends:
                self.known = start.without(self.known.counts)
            if not self.trying:
                self.last = {place: dict(accesses) for place, accesses in before.items()}
            self.block(region.block)
            ends.append(self.known)
            found.append(self.last)
        for last in () if self.trying else found[:-1]:
            for place, accesses in last.items():
                kept = self.last.setdefault(place, {})
                for key, access in accesses.items():
                    if key not in kept or kept[key].stamp < access.stamp:
                        kept[key] = access
        for end in ends[:-1]:
            self.known.meet(end.without(self.known.counts))


def _on_device(place: Place) -> bool:
    return isinstance(place, str) or isinstance(place.type, GmType)


def queues_of(func: FuncOp, memory: TensorPlaces) -> set[str | None]:
    """The queues that a function's own commands are on; None among them for synchronous ones."""
    found: set[str | None] = set()
    for op in func.walk():
        if isinstance(op, Command) and (not isinstance(op, NpuYieldOp) or memory.moved(op)):
            found.add(op.queue)
    return found


def synchronous_functions(callers_first: Sequence[FuncOp]) -> set[str]:
    """Functions with a command that has no stream, and those that call them."""
    found: set[str] = set()
    for func in reversed(callers_first):
        if None in queues_of(func, TensorPlaces(func, {})) or found & calls_of(func).keys():
            found.add(text(func.sym_name))
    return found


def frames_of(callers_first: Sequence[FuncOp]) -> dict[str, tuple[int, int]]:
    """For each function that is called, the bytes that it and what it calls work in."""
    found: dict[str, tuple[int, int]] = {}
    for func in reversed(callers_first):
        frame = frame_of(func)
        if frame is not None:
            parts = [frame, *(found[name] for name in calls_of(func) if name in found)]
            found[text(func.sym_name)] = around(parts)
    return found
