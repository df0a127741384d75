"""Streams and events, in CANN's terms: which queue runs each command of the host program, and what orders them.

The program's own thread walks the host program and gives commands to streams. A stream runs its commands in order;
streams run side by side. An event that one stream records is what another one waits for:

    npu.launch @k %x, %y {..., stream = "compute"} : ...
    npu.record_event {event = 0, stream = "compute"}
    npu.wait_event {event = 0, stream = "copy_out"}
    %h = npu.to_host %y {stream = "copy_out"} : ...

A command without a stream is synchronous: it starts when all before it is over, and all behind it waits for it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, NamedTuple

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
from xdsl.traits import EffectInstance

from ...machine import Machine
from ..base import text
from ..dtypes import shape_in
from ..effects import ORDERS
from .host_program import HostProgramOp, HostVisitor, R

COMPUTE, COPY_IN, COPY_OUT, HOST = "compute", "copy_in", "copy_out", "host"
"""Streams: kernels and copies within device memory; transfers to the device; transfers to the host; host calls."""

PROGRAM = "program"
"""The program's own thread. It gives every command to its stream, so what waits for it is all that comes behind."""

STREAMS = (COMPUTE, COPY_IN, COPY_OUT, HOST)
QUEUES = (*STREAMS, PROGRAM)


def is_number(type_: Attribute) -> bool:
    """Whether a value of the host program is a number in the host's memory: a tensor of rank 0."""
    return isinstance(type_, TensorType) and not shape_in(type_)


class CommandCost(NamedTuple):
    """What a command takes on its stream: `bytes` that it moves, and the time from its start to its end."""

    bytes: int
    microseconds: float


class Command(HostProgramOp):
    """Something that the host program gives to a stream."""

    STREAM: ClassVar[str] = COMPUTE

    stream = opt_prop_def(StringAttr)

    def home(self) -> str:
        """The stream that it belongs on."""
        return self.STREAM

    @property
    def queue(self) -> str | None:
        """The stream that it runs on, None where it is synchronous."""
        return None if self.stream is None else text(self.stream)

    @property
    def on_host(self) -> bool:
        """Whether the host computes its values: it is no part of a function that is compiled for the device."""
        return self.STREAM == HOST

    @abstractmethod
    def reads(self) -> Sequence[SSAValue]: ...

    @abstractmethod
    def writes(self) -> Sequence[SSAValue]: ...

    def evaluate(self, contents: Sequence[Any]) -> Sequence[Any]:
        """What it writes, as JAX arrays in the order of `writes`, for the contents of what it reads and of its numbers
        at issue. Asked of commands that backends/interpreter/commands.py does not have."""
        raise NotImplementedError

    def cost(self, machine: Machine) -> CommandCost:
        """Its cost on `machine`. Asked of commands that the simulator has no rule for."""
        raise NotImplementedError

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.command(self)

    def verify_(self) -> None:
        if self.stream is not None and text(self.stream) not in STREAMS:
            raise self.error(f"stream {text(self.stream)!r} is not one of {', '.join(STREAMS)}")


class EventOp(HostProgramOp):
    """An event and the queue that records it or waits for it."""

    PASSIVE: ClassVar[bool] = True

    event = prop_def(IntegerAttr)
    stream = prop_def(StringAttr)

    def effects(self) -> AbstractSet[EffectInstance]:
        return ORDERS


@irdl_op_definition
class RecordEventOp(EventOp):
    """The event happens when all commands that its stream was given before are over."""

    name = "npu.record_event"

    def verify_(self) -> None:
        if text(self.stream) not in STREAMS:
            raise self.error(f"stream {text(self.stream)!r} is not one of {', '.join(STREAMS)}")

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.record_event(self)


@irdl_op_definition
class WaitEventOp(EventOp):
    """What its stream is given from here on starts after the event, as it was recorded last before this op in program
    order. On the stream `program` the program's own thread waits."""

    name = "npu.wait_event"

    def verify_(self) -> None:
        if text(self.stream) not in QUEUES:
            raise self.error(f"stream {text(self.stream)!r} is not one of {', '.join(QUEUES)}")

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.wait_event(self)


__all__ = [
    "COMPUTE",
    "COPY_IN",
    "COPY_OUT",
    "HOST",
    "PROGRAM",
    "QUEUES",
    "STREAMS",
    "Command",
    "CommandCost",
    "EventOp",
    "RecordEventOp",
    "WaitEventOp",
    "is_number",
]
