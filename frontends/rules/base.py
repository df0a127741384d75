"""What the rules share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects.dtypes import is_float, numpy_dtype
from ...dialects.graph import ConstantOp
from ...dialects.graph.attributes import Literal

Types = list[TensorType]
Values = list[SSAValue]
Results = Sequence[SSAValue] | None


def constant_value(value: SSAValue) -> np.ndarray | None:
    """The array that `value` is known to hold; None unless it comes from a constant."""
    owner = value.owner
    return owner.value.data.array() if isinstance(owner, ConstantOp) else None


def scalar_value(value: SSAValue) -> float | int | bool | None:
    """The scalar that `value` is known to hold; None unless it comes from a constant of one element."""
    array = constant_value(value)
    return array.item() if array is not None and array.size == 1 else None


FOLDED = 1 << 16
"""Constants of up to so many elements are converted at compile time."""


def converted(literal: Literal, dtype: str) -> Literal | None:
    """A constant in another element type; None where it is large, or where numpy may round or wrap otherwise than
    StableHLO."""
    source, target = literal.elements(), numpy_dtype(dtype)
    if source.size > FOLDED or "c" in (literal.dtype[0], dtype[0]):
        return None
    with np.errstate(all="ignore"):
        made = (
            source != 0 if dtype == "i1" else np.trunc(source) if _truncates(literal.dtype, dtype) else source
        )
        result = made.astype(target)
        back = result.astype(source.dtype)
        exact = ((back == made) | ((back != back) & (made != made))).all()
    if dtype == "i1" or exact or (literal.dtype, dtype) in _ROUND_ONCE:
        return Literal(dtype, literal.shape, result.tobytes(), literal.splat)
    return None


def _truncates(source: str, target: str) -> bool:
    return is_float(source) and not is_float(target)


_ROUND_ONCE = frozenset(
    {("f64", "f32"), ("f64", "f16"), ("f32", "f16"), ("f32", "bf16"), ("i32", "f32"), ("i64", "f32")}
)
"""Conversions that numpy rounds to nearest even, once."""
