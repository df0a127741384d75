"""Flags and barriers: what orders the pipes of a core and the cores of a block. They cost waiting, no work."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, var_operand_def
from xdsl.traits import EffectInstance

from ...machine import PIPES, Machine
from ..base import INDEX, integer, text
from ..effects import ORDERS
from .interface import FREE, Cost, NpuOp
from .types import Pipe


def check_pipes(op: NpuOp) -> None:
    """The pipes that a flag names may exist; npu-check knows the machine's. Raises VerifyException."""
    for key in ("source", "target", "pipe"):
        if key in op.properties and not text(op.properties[key]).isidentifier():
            raise op.error(f"{key} {text(op.properties[key])!r} is not a pipe, such as {', '.join(PIPES)}")


class OrderOp(NpuOp):
    """Moves nothing, and nothing moves across it."""

    def verify_(self) -> None:
        super().verify_()
        check_pipes(self)

    def effects(self) -> AbstractSet[EffectInstance]:
        return ORDERS

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return FREE


class SyncOp(OrderOp):
    """Orders two pipes of one core through event `event` + (counter modulo `slots`)."""

    ADDRESSED: ClassVar[bool] = True
    N_OUTPUTS: ClassVar[int] = 0

    def source_pipe(self) -> Pipe:
        return Pipe(text(self.properties["source"]))

    def target_pipe(self) -> Pipe:
        return Pipe(text(self.properties["target"]))

    def pipes(self) -> Sequence[Pipe]:
        return self.source_pipe(), self.target_pipe()

    def sources(self) -> Sequence[SSAValue]:
        return ()

    def destinations(self) -> Sequence[SSAValue]:
        return ()

    def verify_(self) -> None:
        super().verify_()
        if len(self.linear()) != 1:
            raise self.error(f"needs one slot number, has {len(self.linear())}")
        event, slots = integer(self.properties["event"]), integer(self.properties["slots"])
        if event < 0 or slots < 1 or event + slots > 8:
            raise self.error(f"uses events {event}..{event + slots - 1}; a pipe pair has 0..7")


@irdl_op_definition
class SetFlagOp(SyncOp):
    """Raised by pipe `source` for pipe `target` when all it was given before is done."""

    name = "npu.set_flag"
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    source = prop_def(StringAttr)
    target = prop_def(StringAttr)
    event = prop_def(IntegerAttr)
    slots = prop_def(IntegerAttr)


@irdl_op_definition
class WaitFlagOp(SyncOp):
    """Holds pipe `target` until pipe `source` raised the flag, and consumes it."""

    name = "npu.wait_flag"
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    source = prop_def(StringAttr)
    target = prop_def(StringAttr)
    event = prop_def(IntegerAttr)
    slots = prop_def(IntegerAttr)


@irdl_op_definition
class BarrierOp(OrderOp):
    """Waits until all pipes of the core are idle."""

    name = "npu.barrier"
    PIPE: ClassVar[Pipe] = Pipe.S
    N_OUTPUTS: ClassVar[int] = 0


@irdl_op_definition
class PipeBarrierOp(OrderOp):
    """Holds a pipe until all that it was given before is over. Between dependent instructions of a pipe that may begin
    the second one earlier."""

    name = "npu.pipe_barrier"
    N_OUTPUTS: ClassVar[int] = 0
    pipe = prop_def(StringAttr)

    def pipes(self) -> Sequence[Pipe]:
        return (Pipe(text(self.pipe)),)

    def verify_(self) -> None:
        super().verify_()
        if text(self.pipe) == Pipe.S:
            raise self.error("pipe S ends each instruction by itself, and has no barrier")


@irdl_op_definition
class SetCrossOp(OrderOp):
    """Tells the other cores of the block that pipe `source` finished what it was given (a counting flag)."""

    name = "npu.set_cross"
    N_OUTPUTS: ClassVar[int] = 0
    source = prop_def(StringAttr)
    event = prop_def(IntegerAttr)

    def pipes(self) -> Sequence[Pipe]:
        return (Pipe(text(self.source)),)


@irdl_op_definition
class WaitCrossOp(OrderOp):
    """Holds pipe `target` until the block's other core set the event once more."""

    name = "npu.wait_cross"
    N_OUTPUTS: ClassVar[int] = 0
    target = prop_def(StringAttr)
    event = prop_def(IntegerAttr)

    def pipes(self) -> Sequence[Pipe]:
        return (Pipe(text(self.target)),)
