"""Axes and shapes of the functions of `.tw`, and what all of them check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from xdsl.ir import SSAValue

from ...dialects.dtypes import is_float
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.sizes import LARGEST
from .builder import shape_text, type_text
from .diagnostics import Problem
from .numbers import Number, is_whole

Tensor = SSAValue
Value = SSAValue | Number
Ints = Sequence[int]


def axis_of(x: Tensor, axis: int, called: str = "axis") -> int:
    """An axis of x counted from the front. Raises Problem where there is none."""
    rank = len(shape_of(x))
    if not -rank <= axis < rank:
        raise Problem(
            f"{called} {axis} is outside {type_text(x.type)}, which has {rank} dimension{'s' * (rank != 1)}",
            argument=called,
        )
    return axis % rank


def axes_of(x: Tensor, axis: int | Ints | None) -> list[int]:
    """Distinct axes of x in order; all where `axis` is None. Raises Problem."""
    if axis is None:
        return list(range(len(shape_of(x))))
    given = each_of(axis, 1)
    axes = sorted(axis_of(x, a) for a in given)
    if len(set(axes)) != len(axes):
        raise Problem(f"axis {given} names one twice", argument="axis")
    return axes


def each_of(value: int | Ints, count: int) -> list[int]:
    """A list of whole numbers; one number stands for `count` of them."""
    return [value] * count if is_whole(value) else list(cast("Ints", value))


def static_shape(shape: Ints) -> list[int]:
    if any(n < 0 for n in shape):
        raise Problem(f"the shape {shape_text(shape)} has a negative dimension", argument="shape")
    if math.prod(shape) > LARGEST:
        raise Problem(f"the shape {shape_text(shape)} is too large", argument="shape")
    return list(shape)


def floats(called: str, x: Tensor) -> None:
    """Raises Problem where x is no float."""
    if not is_float(element_of(x)):
        raise Problem(f"`{called}` is for floats, not {type_text(x.type)}", help="convert with `as f32`")
