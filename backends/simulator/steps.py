"""What a program does: commands on queues, the events between them, loops; and the whole of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Operation

from ...dialects.base import source_of
from ...dialects.npu.streams import PROGRAM, Command
from ...machine import Machine
from .kernel import KernelRun, TimedKernel


class OfOp:
    """What an op of the host program does."""

    op: Operation

    @property
    def source(self) -> str | None:
        """`file:line` of the user's source."""
        return source_of(self.op)


@dataclass(frozen=True)
class Launch(OfOp):
    """One run of a kernel; `op` is the launch of the host program. `queue`, here and below: the stream that runs it;
    None for what waits for all before it and holds up all behind it.

    The first `overhead` of its microseconds start it: a launch, or where it is `joined` to the launch before, a barrier
    over the cores of that launch, less the time in which the kernel loads ahead of it. `saved`: microseconds of its run
    that are not counted, as it loads ahead of its barrier what takes longer than that, or is side by side with others:
    of what these take together, each has the share that it has of what they would take alone. once_bytes: what must
    cross HBM, as far as L2 does not have it or cannot keep it, however often the kernel moves it. warm: the share of
    each operand's bytes that would cross HBM if L2 had all that fits there.
    """

    kernel: TimedKernel
    run: KernelRun
    overhead: float
    joined: bool
    microseconds: float
    op: Operation
    queue: str | None
    once_bytes: float
    warm: tuple[float, ...] = ()
    saved: float = 0.0


    @property
    def cold_cycles(self) -> int:
        """Cycles that the run takes longer as L2 does not have what it reads."""
        return max(0, self.run.cycles - self.kernel.run(self.warm).cycles) if self.warm else 0


@dataclass(frozen=True)
class Copy(OfOp):
    """A copy within device memory: `bytes` are read and as many written, `hbm_bytes` of both cross HBM."""

    bytes: int
    hbm_bytes: int
    cycles: int
    microseconds: float
    op: Operation
    queue: str | None


@dataclass(frozen=True)
class Transfer(OfOp):
    """`bytes` that cross the link between host and device, for the host op `name`.

    Where `control`, the program itself reads a number of device memory, and waits for it.
    """

    name: str
    bytes: int
    control: bool
    link_microseconds: float
    microseconds: float
    op: Operation
    queue: str | None


@dataclass(frozen=True)
class HostCall(OfOp):
    """Work that the host does: a runtime call, and the `elements` that it computes."""

    name: str
    elements: int
    compute_microseconds: float
    microseconds: float
    op: Operation
    queue: str | None


@dataclass(frozen=True)
class Scalars(OfOp):
    """Arithmetic on numbers that the program's own thread does: `operations` of them."""

    operations: int
    microseconds: float
    op: Operation
    queue: str | None


@dataclass(frozen=True)
class EventRecord:
    """An event happens when what its queue was given is over."""

    event: int
    queue: str
    microseconds: float = 0.0


@dataclass(frozen=True)
class EventWait:
    """What its queue is given next starts after the event."""

    event: int
    queue: str
    microseconds: float = 0.0


Work = Launch | Copy | Transfer | HostCall | Scalars
Step = Work | EventRecord | EventWait


def track(step: Work) -> str:
    """The queue that shows a command: its own, or where it is synchronous the one that it belongs on."""
    if step.queue is not None:
        return step.queue
    return step.op.home() if isinstance(step.op, Command) else PROGRAM


@dataclass(frozen=True)
class Repeat:
    """Steps that run `times` times, each time alike; `call` is the op that runs them where they are a function's."""

    steps: tuple[Step | Repeat, ...]
    times: int
    call: Operation | None = None

    @cached_property
    def microseconds(self) -> float:
        """What all times would take one command after the other."""
        return self.times * sum(step.microseconds for step in self.steps)

    @cached_property
    def queues(self) -> frozenset[str | None]:
        """The queues that its steps are on."""
        inner = (s.queues if isinstance(s, Repeat) else {s.queue} for s in self.steps)
        return frozenset().union(*inner)

    @cached_property
    def ordered(self) -> bool:
        """Whether there are events among its steps."""
        return any(
            s.ordered if isinstance(s, Repeat) else isinstance(s, EventRecord | EventWait) for s in self.steps
        )


@dataclass(frozen=True)
class Simulation:
    """What a program does in time: its steps in order, and the loops and branches whose course was assumed.

    microseconds: from the first command to the end of the last; arena_bytes: device memory that the plan takes, 0
    before it; constant_bytes: the constants among it; donated_bytes: the arguments whose memory may be used for
    anything.
    """

    machine: Machine
    kernels: dict[str, TimedKernel]
    steps: tuple[Step | Repeat, ...]
    microseconds: float
    assumed_trips: tuple[str, ...]
    assumed_branches: tuple[str, ...]
    arena_bytes: int
    constant_bytes: int
    donated_bytes: int

    def flat(self) -> Iterator[tuple[Work, int]]:
        """Each command once, with how often it runs."""
        return _flat(self.steps, 1)


def _flat(steps: Sequence[Step | Repeat], times: int) -> Iterator[tuple[Work, int]]:
    for step in steps:
        if isinstance(step, Repeat):
            yield from _flat(step.steps, times * step.times)
        elif not isinstance(step, EventRecord | EventWait):
            yield step, times
