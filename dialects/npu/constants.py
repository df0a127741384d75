"""Scalar operands of vector instructions: buffers of one element that hold a constant."""

from __future__ import annotations

from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import SSAValue

from .buffers import AllocOp, buffer_users, whole_buffer
from .interface import NpuOp
from .vector import VFillOp


def constant_in(value: SSAValue) -> float | int | None:
    """The number that a buffer holds whenever it is read; None for any other buffer."""
    alloc = whole_buffer(value).owner
    if not isinstance(alloc, AllocOp):
        return None
    writers = [
        op
        for op in buffer_users(alloc.result)
        if isinstance(op, NpuOp) and any(whole_buffer(v) is alloc.result for v in op.writes())
    ]
    if len(writers) != 1 or not isinstance(writers[0], VFillOp):
        return None
    attr = writers[0].value
    assert isinstance(attr, FloatAttr | IntegerAttr)
    return attr.value.data
