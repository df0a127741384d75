"""Matrices in l1 and l0c take whole fractals, which the vendor's instructions fill and read: 16 rows, 32 bytes."""

from __future__ import annotations

from xdsl.rewriter import Rewriter

from ....dialects.npu import AllocOp, BufferType, LoadNdOp, SlotOp, buffer, buffer_users
from ....dialects.npu.structure import SectionOp
from ....dialects.npu.types import fractal_bytes


def lay_in_fractals(section: SectionOp) -> None:
    """Lets the matrices of a section take whole fractals, where these are more bytes than their rows."""
    for alloc in [op for op in section.body.block.ops if isinstance(op, AllocOp)]:
        kind = buffer(alloc.result)
        if kind.space not in ("l1", "l0c") or any(
            isinstance(u, LoadNdOp) for u in buffer_users(alloc.result)
        ):
            continue
        if fractal_bytes(kind.shape, kind.element, kind.space) == kind.slot_bytes:
            continue
        whole = BufferType.of(kind.shape, kind.element, kind.space, kind.slots, fractals=True)
        for use in list(alloc.result.uses):
            if isinstance(use.operation, SlotOp):
                Rewriter.replace_value_with_new_type(use.operation.result, whole.one_slot)
        Rewriter.replace_value_with_new_type(alloc.result, whole)
