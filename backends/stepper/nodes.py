"""What a core comes to: instructions, flags, barriers and loops of a section, ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from ...dialects import npu as ops
from .places import Row

if TYPE_CHECKING:
    from .cores import BlockCore


class IssuedNode:
    """Something that a core comes to. queue: the number of its pipe among those of its section; unordered: whether it
    may begin before what is ahead of it there is over, as all but some instructions may."""

    __slots__ = ("op", "queue", "unordered")

    def __init__(self, op: Operation, queue: int) -> None:
        self.op, self.queue, self.unordered = op, queue, True

    def run(self, core: BlockCore) -> None:
        """Does what there is to do, on a core. Raises StepFault."""
        raise NotImplementedError


class Flag(IssuedNode):
    """A flag that is set, or waited for. pair: its pipes; event: its first channel, to which the counter modulo `slots`
    is added."""

    __slots__ = ("counter", "event", "pair", "sets", "slots")

    def __init__(
        self,
        op: ops.SyncOp,
        queue: int,
        sets: bool,
        pair: tuple[str, str],
        event: int,
        slots: int,
        counter: Row,
    ) -> None:
        super().__init__(op, queue)
        self.sets, self.pair, self.event, self.slots, self.counter = sets, pair, event, slots, counter

    def channel(self, env: Sequence[int]) -> int:
        """The number of the flag between its pipes."""
        constant, terms = self.counter
        for index, coefficient in terms:
            constant += env[index] * coefficient
        return self.event + constant % self.slots

    def run(self, core: BlockCore) -> None:
        (core.order.set_flag if self.sets else core.order.wait_flag)(core, self)


class Cross(IssuedNode):
    """A cross-core event that is set, or waited for."""

    __slots__ = ("event", "sets")

    def __init__(self, op: Operation, queue: int, sets: bool, event: int) -> None:
        super().__init__(op, queue)
        self.sets, self.event = sets, event

    def run(self, core: BlockCore) -> None:
        (core.order.set_cross if self.sets else core.order.wait_cross)(core, self)


class Barrier(IssuedNode):
    """A wait until all pipes of the core are idle."""

    __slots__ = ()

    def run(self, core: BlockCore) -> None:
        core.order.barrier(core, self)


class PipeBarrier(IssuedNode):
    """A wait until a pipe of the core is idle."""

    __slots__ = ()

    def run(self, core: BlockCore) -> None:
        core.order.pipe_barrier(core, self)


class Loop(IssuedNode):
    """A loop: its index takes the values of `places`."""

    __slots__ = ("body", "index", "places")

    def __init__(self, op: Operation, index: int, places: range) -> None:
        super().__init__(op, 0)
        self.index, self.places = index, places
        self.body: list[IssuedNode] = []
