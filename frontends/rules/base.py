"""What the rules share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects.dtypes import is_float, numpy_dtype
from ...dialects.graph.attributes import Literal
from ..known import constant_value, scalar_value

Types = list[TensorType]
Values = list[SSAValue]
Results = Sequence[SSAValue] | None

__all__ = ["FOLDED", "Results", "Types", "Values", "constant_value", "converted", "scalar_value"]


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
