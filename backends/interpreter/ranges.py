"""The range of every index in a kernel, read from its structure."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr

from ...dialects.base import integer, to_ints
from ...dialects.npu import IndexOp
from ...dialects.npu.structure import KernelOp, SectionOp
from ..functions.loops import bounds
from ..functions.scope import Ranges


def index_ranges(kernel: KernelOp) -> Ranges:
    """The range of every index in a kernel."""
    ranges: Ranges = {}
    for arg, n in zip(kernel.body.block.args, to_ints(kernel.grid), strict=False):
        ranges[arg] = (0, n - 1)
    for op in kernel.walk():
        if isinstance(op, SectionOp):
            ranges[op.body.block.args[0]] = (0, integer(op.units) - 1)
        elif isinstance(op, scf.ForOp):
            first, step, trips = bounds(op)
            ranges[op.body.block.args[0]] = (first, first + max(trips - 1, 0) * step)
        elif isinstance(op, IndexOp):
            ranges[op.result] = (integer(op.low), integer(op.high))
        elif isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
            ranges[op.result] = (op.value.value.data, op.value.value.data)
    return ranges
