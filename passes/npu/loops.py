"""The loops of a kernel: all run from 0 with step 1 to a constant."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.scf import ForOp
from xdsl.ir import SSAValue

from ...dialects import npu, tile
from ...dialects.base import describe
from ..errors import PassError


def counts_of(loops: Iterable[ForOp]) -> dict[SSAValue, int]:
    """How many values the index of each loop takes."""
    return {loop.body.block.args[0]: trip_count(loop) for loop in loops}


def trip_count(op: ForOp) -> int:
    """Iterations of a loop from 0 by 1, an `OpenSize` where they are open. Raises PassError for another bound."""
    bound = op.ub.owner
    if isinstance(bound, tile.SizeOp | npu.SizeOp):
        return bound.number
    if not isinstance(bound, ConstantOp) or not isinstance(bound.value, IntegerAttr):
        raise PassError(f"{describe(op)} needs a constant upper bound")
    return bound.value.value.data
