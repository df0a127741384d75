"""Truths in device memory are bytes, and bits in HIVM's buffers: they are converted behind loads and before stores.

Before:  npu.load_nd %mask, %m            After:  npu.load_nd %mask, %bytes
         npu.vselect %m, %x, %y, %z               npu.vconvert %bytes, %wide     (i1 -> f16)
                                                  npu.vne %wide, %zero, %m       (f16 -> i1)
                                                  npu.vselect %m, %x, %y, %z

The export has the i1 buffers that transfers touch as i8, and all others as bits.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from ....dialects.npu import (
    ELEMENTWISE,
    LoadNdOp,
    NpuOp,
    StoreNdOp,
    TransferOp,
    VectorOp,
    buffer,
    buffer_users,
    whole_buffer,
)
from ....dialects.npu.structure import SectionOp
from .lanes import Lanes, SectionBuffers


def convert_truths(section: SectionOp, buffers: SectionBuffers) -> None:
    """Puts conversions between the transfers of truths in a section and the instructions that compute with them."""
    moves = [op for op in section.body.walk() if isinstance(op, LoadNdOp | StoreNdOp)]
    for op in moves:
        tile = op.tile()
        if buffer(tile).dtype() != "i1" or buffer(tile).space != "ub" or not _is_computed_with(tile):
            continue
        if isinstance(op, LoadNdOp):
            _behind(op, buffers)
        else:
            _before(op, buffers)


def _is_computed_with(tile: SSAValue) -> bool:
    """Whether an instruction of the vector unit uses the buffer of a value."""
    return any(isinstance(user, VectorOp) for user in buffer_users(whole_buffer(tile)))


def _behind(op: LoadNdOp, buffers: SectionBuffers) -> None:
    tile = op.dest
    bits = buffers.new(buffer(tile).shape, "i1", op)
    for use in list(tile.uses):
        if isinstance(use.operation, NpuOp) and not isinstance(use.operation, TransferOp):
            use.operation.operands[use.index] = bits
    following = op.next_op
    assert following is not None
    b = Lanes(buffers, following, bits)
    wide = b.convert(tile, "f16")
    b.add_op(ELEMENTWISE["ne"].create(operands=[wide, b.number(0.0, "f16"), bits], location=op.location))


def _before(op: StoreNdOp, buffers: SectionBuffers) -> None:
    tile = op.source
    b = Lanes(buffers, op, tile)
    wide = b.convert(tile, "f16")
    stored = b.convert(wide, "i1", into=buffers.new(buffer(tile).shape, "i1", op))
    op.operands[0] = stored
