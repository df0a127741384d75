"""What the rules share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects.graph import ConstantOp

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
