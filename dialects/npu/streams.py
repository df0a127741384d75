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

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
from xdsl.traits import EffectInstance

from ..base import FormattedOp, text
from ..effects import ORDERS, MemoryEffectInterface, effects_on

COMPUTE, COPY_IN, COPY_OUT, HOST = "compute", "copy_in", "copy_out", "host"
"""Streams: kernels and copies within device memory; transfers to the device; transfers to the host; host calls."""

PROGRAM = "program"
"""The program's own thread. It gives every command to its stream, so what waits for it is all that comes behind."""

STREAMS = (COMPUTE, COPY_IN, COPY_OUT, HOST)
QUEUES = (*STREAMS, PROGRAM)


def is_number(type_: Attribute) -> bool:
    """Whether a value of the host program is a number in the host's memory: a tensor of rank 0."""
    return isinstance(type_, TensorType) and not type_.get_shape()


class Command(FormattedOp, MemoryEffectInterface):
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

    def reads(self) -> Sequence[SSAValue]:
        """Device tensors and values of the host whose contents it uses when it runs."""
        raise NotImplementedError

    def effects(self) -> AbstractSet[EffectInstance]:
        return effects_on([*self.reads(), *self.at_issue()], self.writes())

    def at_issue(self) -> Sequence[SSAValue]:
        """Numbers that the program's thread must have when it gives the command to its stream."""
        return ()

    def writes(self) -> Sequence[SSAValue]:
        """Device tensors that it writes, and values of the host that it makes."""
        raise NotImplementedError

    def verify_(self) -> None:
        if self.stream is not None and text(self.stream) not in STREAMS:
            raise self.error(f"stream {text(self.stream)!r} is not one of {', '.join(STREAMS)}")


class EventOp(FormattedOp, MemoryEffectInterface):
    """An event and the queue that records it or waits for it."""

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


@irdl_op_definition
class WaitEventOp(EventOp):
    """What its stream is given from here on starts after the event, as it was recorded last before this op in program
    order. On the stream `program` the program's own thread waits."""

    name = "npu.wait_event"

    def verify_(self) -> None:
        if text(self.stream) not in QUEUES:
            raise self.error(f"stream {text(self.stream)!r} is not one of {', '.join(QUEUES)}")


__all__ = [
    "COMPUTE",
    "COPY_IN",
    "COPY_OUT",
    "HOST",
    "PROGRAM",
    "QUEUES",
    "STREAMS",
    "Command",
    "EventOp",
    "RecordEventOp",
    "WaitEventOp",
    "is_number",
]
