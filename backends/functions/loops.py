"""What the executors need to know of the loops of kernels."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue
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


def iterations(loop: scf.ForOp, known: Mapping[SSAValue, int]) -> range:
    """The values of a loop's index, by the numbers of its bounds. Raises VerifyException for bounds that are none of
    the known numbers, and for a step that gets nowhere."""
    if any(v not in known for v in (loop.lb, loop.ub, loop.step)):
        raise VerifyException(f"{describe(loop)} needs constant bounds")
    first, last, step = (known[v] for v in (loop.lb, loop.ub, loop.step))
    if step < 1:
        raise VerifyException(f"{describe(loop)} needs a step of 1 or more, not {step}")
    return range(first, last, step)
