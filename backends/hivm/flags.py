"""Flags, barriers and the flags between cores: each is one op in HIVM."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer, text
from ...dialects.hivm import attributes as attrs
from ...dialects.hivm import synchronization as hivm
from ...dialects.npu import BarrierOp, PipeBarrierOp, SetCrossOp, SetFlagOp, SyncOp, WaitCrossOp
from .building import made
from .emitter import FunctionEmitter
from .memory import FunctionMemory

CROSS_TARGET = "MTE2"
CROSS_SOURCE = "FIX"
"""The pipes of a flag between cores that our npu level does not name: who waits for a cube core, and whom a vector core
waits for."""


def pipe(name: str) -> attrs.Enumeration:
    """HIVM's name of a pipe."""
    found: attrs.Enumeration = attrs.Pipe(f"PIPE_{name}")
    return found


class FlagRules:
    """Adds what orders pipes and cores. core: AIC or AIV; ffts: where the flags between cores are."""

    def __init__(self, emit: FunctionEmitter, memory: FunctionMemory, core: str, ffts: SSAValue | None) -> None:
        self.emit, self.memory, self.core, self.ffts = emit, memory, core, ffts

    def __call__(self, op: Operation) -> None:
        if isinstance(op, SyncOp):
            self._flag(op)
        elif isinstance(op, PipeBarrierOp):
            self.emit.add(made(hivm.PipeBarrierOp, pipe=pipe(text(op.pipe))))
        elif isinstance(op, BarrierOp):
            self.emit.add(made(hivm.PipeBarrierOp, pipe=pipe("ALL")))
        else:
            assert isinstance(op, SetCrossOp | WaitCrossOp)
            self._cross(op)

    def _flag(self, op: SyncOp) -> None:
        kind = hivm.SetFlagOp if isinstance(op, SetFlagOp) else hivm.WaitFlagOp
        slots, first = integer(op.properties["slots"]), integer(op.properties["event"])
        event = self.emit.plus(self.memory.counter(op.linear()[0], slots), first)
        fixed = attrs.Event(f"EVENT_ID{event}") if isinstance(event, int) else None
        computed = None if isinstance(event, int) else self.emit.as_i64(event)
        pipes = {"set_pipe": pipe(op.source_pipe()), "wait_pipe": pipe(op.target_pipe())}
        self.emit.add(made(kind, static_event_id=fixed, dynamic_event_id=computed, **pipes))

    def _cross(self, op: SetCrossOp | WaitCrossOp) -> None:
        here = "CUBE" if self.core == "AIC" else "VECTOR"
        if isinstance(op, SetCrossOp):
            source, target = text(op.source), CROSS_TARGET
        else:
            source, target = CROSS_SOURCE if self.core == "AIV" else "MTE3", text(op.target)
        properties = {
            "tcore_type": attrs.CoreType(here),
            "tpipe": pipe(source),
            "pipe": pipe(target),
            "static_flag_id": IntegerAttr(integer(op.event), i64),
        }
        if isinstance(op, SetCrossOp):
            self.emit.add(made(hivm.SyncBlockSetOp, ffts_base_addr=self.ffts, **properties))
        else:
            self.emit.add(made(hivm.SyncBlockWaitOp, **properties))
