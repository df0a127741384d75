"""What the executors need to know of the loops of kernels."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe
from ...dialects.open_index import OpenIndexOp


def bounds(loop: scf.ForOp) -> tuple[int, int, int]:
    """(first, step, trip count) of a loop whose bounds are constants or open sizes. Raises VerifyException for
    others."""
    numbers: list[int] = []
    for v in (loop.lb, loop.ub, loop.step):
        owner = v.owner
        if isinstance(owner, OpenIndexOp):
            numbers.append(owner.number)
            continue
        if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, IntegerAttr):
            raise VerifyException(f"{describe(loop)} needs constant bounds")
        numbers.append(owner.value.value.data)
    first, last, step = numbers
    return first, step, max(0, -(-(last - first) // step))
