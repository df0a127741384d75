"""Which instructions touch each on-chip buffer of a section."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Block, SSAValue

from ...dialects.npu import AllocOp, BufferType, NpuOp, Pipe, SlotOp, buffer
from ...dialects.npu.structure import SectionOp


@dataclass
class Usage:
    """Where a buffer is touched: instructions in program order, with their blocks and pipes. supposed: bytes that it is
    to take in the place of its own."""

    alloc: AllocOp
    ops: list[NpuOp] = field(default_factory=list)
    supposed: int | None = None

    @property
    def type(self) -> BufferType:
        return buffer(self.alloc.result)

    @property
    def bytes(self) -> int:
        """What the buffer takes, or is supposed to."""
        return self.type.slot_bytes * self.type.slots if self.supposed is None else self.supposed

    def private_block(self) -> Block | None:
        """The one block whose vector instructions alone use the buffer, if there is one."""
        blocks = {op.parent for op in self.ops}
        if len(blocks) == 1 and self.type.slots == 1 and all(op.PIPE == Pipe.V for op in self.ops):
            return blocks.pop()
        return None


def alloc_of(value: SSAValue) -> AllocOp | None:
    """The allocation behind a buffer value or a slot of it; None for device tensors."""
    op = value.owner
    while isinstance(op, SlotOp):
        op = op.source.owner
    return op if isinstance(op, AllocOp) else None


def usages(section: SectionOp) -> dict[AllocOp, Usage]:
    """Every buffer of a section with the instructions that use it."""
    found: dict[AllocOp, Usage] = {}
    for op in section.body.walk():
        if isinstance(op, AllocOp):
            found[op] = Usage(op)
        elif isinstance(op, NpuOp):
            for value in dict.fromkeys(op.main_operands()):
                alloc = alloc_of(value)
                if alloc is not None:
                    found[alloc].ops.append(op)
    return found
