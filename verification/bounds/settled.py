"""Selections that change nothing but which NaN a number is.

Quantized twins, and what plugins write in JAX, test the bits of a number for NaN, so that XLA merges nothing with it
(`dialects.scalars.settle`). From the number's own bound follows the bound of what is selected, and from the bounds of
its bits it does not: near 0 all of them are unsure, those that make a NaN included.
"""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np
from xdsl.ir import Operation, SSAValue

from ...dialects import graph as ops
from ...dialects.dtypes import dtype_name, is_float, numpy_dtype
from ...dialects.graph.interface import element_of


def settles(op: Operation) -> int | None:
    """The operand that a selection gives where it is a number, and for which it gives NaN where that is NaN."""
    if _named(op, "select"):
        test, first, second = op.operands
        if _is_nan(first) and _tests_bits(test, second):
            return 2
        if _is_nan(second) and _compares_with_itself(test, first):
            return 1
    return None


def _named(op: object, name: str) -> TypeGuard[ops.ElementwiseOp]:
    return isinstance(op, ops.ElementwiseOp) and op.FUNCTION.name == name


def _tests_bits(test: SSAValue, x: SSAValue) -> bool:
    """Whether a value says that the bits of x without the sign are more than those of infinity."""
    if not _named(test.owner, "gt") or not is_float(element_of(x)):
        return False
    size, most = test.owner.operands
    if not _named(size.owner, "and"):
        return False
    bits, mask = size.owner.operands
    kind = numpy_dtype(element_of(x))
    infinite = np.asarray(math.inf, kind).view(f"uint{8 * kind.itemsize}")
    wanted = np.iinfo(infinite.dtype).max >> 1, int(infinite)
    return (
        _named(bits.owner, "bitcast")
        and bits.owner.operands[0] is x
        and (_whole(mask), _whole(most)) == wanted
    )


def _compares_with_itself(test: SSAValue, x: SSAValue) -> bool:
    return _named(test.owner, "eq") and all(v is x for v in test.owner.operands)


def _constant(value: SSAValue) -> ops.ConstantOp | None:
    """The constant of one number that a value is everywhere."""
    op = value.owner
    while isinstance(op, ops.BroadcastOp):
        op = op.operands[0].owner
    return op if isinstance(op, ops.ConstantOp) and op.value.data.splat else None


def _whole(value: SSAValue) -> int | None:
    op = _constant(value)
    return None if op is None or is_float(element_of(value)) else int(op.value.data.elements()[0])


def _is_nan(value: SSAValue) -> bool:
    op = _constant(value)
    return (
        op is not None and is_float(dtype_name(element_of(value))) and math.isnan(op.value.data.elements()[0])
    )
