"""The streams of the host program: commands that meet without an event between them, and waits that never end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from ....dialects.base import describe, integer
from ....dialects.npu import GmType
from ....dialects.npu.streams import COMPUTE, QUEUES, Command, EventOp, RecordEventOp, WaitEventOp
from .finding import Bytes, Finding
from .order import Conflict, StreamOrder, TensorPlaces, frames_of, queues_of, synchronous_functions


def check_streams(callers_first: Sequence[FuncOp]) -> list[Finding]:
    """All findings of the functions of a program."""
    ops = (op for func in callers_first for op in func.walk())
    if not any(isinstance(op, EventOp) or _beside(op) for op in ops):
        return []
    frames = frames_of(callers_first)
    synchronous = synchronous_functions(callers_first)
    out: list[Finding] = []
    for func in callers_first:
        memory = TensorPlaces(func, frames)
        events = any(isinstance(op, EventOp) for op in func.walk())
        if events or queues_of(func, memory) - {COMPUTE, None}:
            out += StreamCheck(func, memory, synchronous).run()
    return out


def _beside(op: Operation) -> bool:
    """Whether a command is on another stream than the launches."""
    return isinstance(op, Command) and op.queue not in (COMPUTE, None)


class StreamCheck:
    """The streams of one function."""

    def __init__(self, func: FuncOp, memory: TensorPlaces, synchronous: Collection[str]) -> None:
        self.func, self.memory = func, memory
        self.order = StreamOrder(memory, synchronous, self.race, self.lost)
        self.found: dict[tuple[Operation, Operation | None], Finding] = {}

    def run(self) -> list[Finding]:
        """Each pair of ops once."""
        if self.memory.called:
            self.order.border(self.func)
        self.order.block(self.func.body.block)
        return list(self.found.values())

    def race(self, conflict: Conflict) -> None:
        first, second = conflict.first, conflict.second
        key = (first.op, second.op)
        if key in self.found:
            return
        theirs, mine = QUEUES[first.queue], QUEUES[second.queue]
        does = ("writes" if first.write else "reads", "write" if second.write else "read")
        place = conflict.place
        where = self.memory.ranges.get(place)
        on_device = isinstance(place, str) or isinstance(place.type, GmType)
        what = "device memory" if on_device else "what the host has"
        what = f"{{first}} on {theirs} {does[0]} {what} that {{second}} on {mine} may {does[1]} too early"
        path = f"{mine} has waited for nothing of {theirs}"
        if conflict.known:
            past = self.order.trail[first.queue][conflict.known - 1]
            path = f"{mine} has waited for {theirs} up to {describe(past)}"
        found = None if where is None else Bytes("gm", *where)
        self.found[key] = Finding("stream-race", what, first.op, second.op, found, path=(path,))

    def lost(self, op: WaitEventOp) -> None:
        """A wait that no record comes before on every way."""
        event = integer(op.event)
        if (op, None) in self.found:
            return
        records = [r for r in self.func.walk() if isinstance(r, RecordEventOp) and integer(r.event) == event]
        ops = {r: i for i, r in enumerate(self.func.walk())}
        behind = [r for r in records if ops[r] > ops[op]]
        finding = Finding("unrecorded-event", f"{{first}} waits for event {event}, which nobody records", op)
        if behind:
            what = (
                f"{{first}} waits for event {event}, which only {{second}} behind it records: it never ends"
            )
            finding = Finding("event-deadlock", what, op, behind[0])
        elif records:
            what = f"{{first}} waits for event {event}, which {{second}} records on some ways only"
            finding = Finding("unrecorded-event", what, op, records[0])
        self.found[op, None] = finding
