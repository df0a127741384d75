"""The order of the commands of a host program: a clock for each stream, and one for the program's thread.

A queue runs in order, so what is known of its progress is a number: how many of its commands are over. The program's
thread gives every command to its stream, so a command starts after all that the thread has waited for. An event keeps
its queue's clock, a wait joins it; a command without a stream waits for everything, and everything waits for it. Two
commands that touch the same bytes, one of them to write, must be ordered, and so must the one that makes a value in the
host's memory and the one that uses it.

A function that is called is one command of the compute stream for its caller. It has streams of its own, on which it
begins and ends with a command that touches all its tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer, text
from ...dialects.npu.streams import COMPUTE, PROGRAM, QUEUES, RecordEventOp, WaitEventOp
from .device import Tensor
from .errors import Race, fault

Place = tuple[int, int] | SSAValue
"""Bytes of device memory, or a value in the host's memory."""

NUMBER = {queue: i for i, queue in enumerate(QUEUES)}
THREAD = NUMBER[PROGRAM]


class Streams:
    """The streams of a run of a function."""

    def __init__(self) -> None:
        self.clocks = [[0] * len(QUEUES) for _ in QUEUES]
        self.events: dict[int, list[int]] = {}
        self.last: dict[Place, dict[tuple[int, bool], tuple[int, Operation]]] = {}
        """For each place its last accesses, by queue and whether they write: the command's number and its op."""

    def clock(self, queue: int) -> list[int]:
        """What the next command of a queue will know."""
        return list(map(max, self.clocks[queue], self.clocks[THREAD]))

    def record(self, op: RecordEventOp) -> None:
        self.events[integer(op.event)] = self.clock(NUMBER[text(op.stream)])

    def wait(self, op: WaitEventOp) -> None:
        """Raises Deadlock for an event that was not recorded."""
        happened = self.events.get(integer(op.event))
        if happened is None:
            raise fault("deadlock", op, f"waits for event {integer(op.event)}, which nobody recorded")
        clock = self.clocks[NUMBER[text(op.stream)]]
        clock[:] = map(max, clock, happened)

    def command(
        self, op: Operation, queue: str | None, reads: Iterable[Place], writes: Iterable[Place]
    ) -> None:
        """A command of a queue, None where it is synchronous. Raises Race."""
        if queue is None:
            at, clock = THREAD, [max(column) for column in zip(*self.clocks, strict=True)]
        else:
            at = NUMBER[queue]
            clock = self.clock(at)
        clock[at] += 1
        self.clocks[at] = clock
        if queue is None:
            self.clocks = [clock.copy() for _ in QUEUES]
        self._access(at, op, reads, writes)

    def use(self, op: Operation, reads: Iterable[Place]) -> None:
        """The program's thread reads numbers. Raises Race."""
        self._access(THREAD, op, reads, ())

    def finish(self, op: Operation) -> None:
        """The function ends: all that it did is over before. Raises Race."""
        self.command(op, COMPUTE, (), list(self.last))

    def _access(self, queue: int, op: Operation, reads: Iterable[Place], writes: Iterable[Place]) -> None:
        number, clock = self.clocks[queue][queue], self.clock(queue)
        found = [(place, False) for place in reads if not _is_empty(place)]
        found += [(place, True) for place in writes if not _is_empty(place)]
        for place, write in found:
            for other in self._meeting(place, write):
                for (theirs, wrote), (before, by) in self.last[other].items():
                    if theirs != queue and (write or wrote) and before > clock[theirs]:
                        verbs = ("writes" if write else "reads", "write" if wrote else "read")
                        still = f"'{by.name}' on {QUEUES[theirs]} may still {verbs[1]}"
                        said = f"{verbs[0]} on {QUEUES[queue]} what {still}"
                        raise Race("race", op, said, said_place(other), by)
        for place, write in found:
            self.last.setdefault(place, {})[queue, write] = (number, op)

    def _meeting(self, place: Place, write: bool) -> Sequence[Place]:
        """The places that were touched before and share bytes with one."""
        if isinstance(place, tuple):
            start, end = place
            return [p for p in self.last if isinstance(p, tuple) and p[0] < end and start < p[1]]
        return [place] if place in self.last and not write else []


def _is_empty(place: Place) -> bool:
    return isinstance(place, tuple) and place[0] == place[1]


def said_place(place: Place) -> str:
    if isinstance(place, tuple):
        return f"device bytes {place[0]}..{place[1] - 1}"
    return f"%{place.name_hint}" if place.name_hint else "a value of the host"


def bytes_of(tensor: Tensor) -> tuple[int, int]:
    return tensor.address, tensor.address + tensor.bytes
