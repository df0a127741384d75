"""What every frontend has to know of the graph level: the device's element types, constants, counted loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, BlockArgument, SSAValue

from ..dialects.dtypes import element_type, names
from ..dialects.graph import ELEMENTWISE, ConstantOp, WhileOp
from ..dialects.graph.interface import element_of
from ..dialects.open_sizes import is_open
from ..machine import Machine

NATIVE = frozenset(map(element_type, "f32 f16 bf16 i8 i16 i32 i64 ui8 ui16 ui32 ui64 i1".split()))
"""Element types that every device computes with."""


def native_types(machine: Machine | None) -> frozenset[Attribute]:
    """Element types that a device computes with: those of all, and what the vector unit of this machine holds beside
    them. Ops on others run on the host."""
    if machine is None:
        return NATIVE
    return NATIVE | {element_type(name) for name in names() if machine.holds("ub", name)}


def constant_value(value: SSAValue) -> np.ndarray | None:
    """The array that `value` is known to hold; None unless it comes from a constant."""
    owner = value.owner
    return owner.value.data.array() if isinstance(owner, ConstantOp) else None


def scalar_value(value: SSAValue) -> float | int | bool | None:
    """The scalar that `value` is known to hold; None unless it comes from a constant of one element."""
    array = constant_value(value)
    return array.item() if array is not None and array.size == 1 else None


def count_trips(
    loop: WhileOp, number: Callable[[SSAValue], float | int | bool | None] = scalar_value
) -> tuple[int, int] | None:
    """(carried position, trips) of a loop that counts by one to a constant, as fori_loop and scan do. number: what a
    value is, if that is known; start and limit may be open."""
    test = loop.yielded(0).values[0].owner
    if not isinstance(test, ELEMENTWISE["lt"]):
        return None
    at, limit = _position(test.operands[0], loop, 0), _known(test.operands[1], loop, number)
    if at is None or limit is None or not isinstance(element_of(loop.inits[at]), IntegerType):
        return None
    start, step = number(loop.inits[at]), loop.yielded(1).values[at].owner
    if start is None or not isinstance(step, ELEMENTWISE["add"]):
        return None
    for carried, amount in (step.operands, reversed(step.operands)):
        if _position(carried, loop, 1) == at and scalar_value(amount) == 1:
            trips = _whole(limit) - _whole(start)
            return at, trips if trips >= 0 else 0
    return None


def _whole(number: Any) -> Any:
    return number if is_open(number) else int(number)


def _position(value: SSAValue, loop: WhileOp, region: int) -> int | None:
    """Which carried value a block argument of the region is."""
    if isinstance(value, BlockArgument) and value.owner is loop.regions[region].block:
        return value.index
    return None


def _known(
    value: SSAValue, loop: WhileOp, number: Callable[[SSAValue], float | int | bool | None]
) -> Any:
    """The constant a condition compares with, which the loop may carry along unchanged."""
    at = _position(value, loop, 0)
    if at is None:
        return number(value)
    unchanged = _position(loop.yielded(1).values[at], loop, 1) == at
    return number(loop.inits[at]) if unchanged else None
