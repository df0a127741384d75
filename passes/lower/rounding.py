"""Chains of a rounding, limits and a conversion to integers, as conversions that round and saturate.

Before:  %r = round_even %x ; %c = clamp -128, %r, 127 ; %i = convert %c : f32 -> i8
After:   %h = round_to %x {mode = "odd"} : f32 -> f16 ; %i = round_to %h {mode = "even"} : f16 -> i8

A number that is rounded to odd first, to two bits more than the result has at least, is rounded at last to
what it would have been at once (S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums: proved
algorithms using rounding to odd, IEEE Transactions on Computers 57(4), 2008). Limits within the range of the
integers that are not its ends stay limits: they are whole, so they may come before the last rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from ...dialects.dtypes import dtype_name, itemsize, limits
from ...dialects.graph import ELEMENTWISE, ElementwiseOp
from ...dialects.graph.interface import element_of
from ...machine.parts import VectorUnit
from ..forms.access import splat_of

DIGITS = {"f16": 11, "f32": 24}
"""Significant bits of floats that are rounded."""


@dataclass(frozen=True)
class Rounding:
    """A chain that ends in integers: of `value`, by conversions `path`, each a rule and the dtype it gives, the last
    one within `low` and `high` where they are given; `ops` are those between the value and the end."""

    value: SSAValue
    path: tuple[tuple[str, str], ...]
    low: int | None
    high: int | None
    ops: frozenset[Operation]


def roundings(members: Sequence[Operation], unit: VectorUnit) -> dict[Operation, Rounding]:
    """The chains among the members of a fusion that a vector unit computes so, by their last ops."""
    found: dict[Operation, Rounding] = {}
    inside = set(members)
    for op in members:
        chain = _rounding(op, inside, unit) if isinstance(op, ELEMENTWISE["convert"]) else None
        if chain is not None:
            found[op] = chain
    return found


def _rounding(op: ElementwiseOp, inside: set[Operation], unit: VectorUnit) -> Rounding | None:
    """The chain that ends in a conversion."""
    target, source = (dtype_name(element_of(v)) for v in (op.results[0], op.operands[0]))
    if target[0] not in "iu" or target == "i1" or source not in DIGITS:
        return None
    path = _path(source, target, unit)
    if path is None:
        return None
    value, ops, bounds = op.operands[0], [], []
    rounded = False
    while (made := _made(value, inside)) is not None:
        if isinstance(made, ELEMENTWISE["round_even"]) and not rounded:
            rounded, value = True, made.operands[0]
        elif (bound := _bound(made)) is not None:
            value, ends = bound
            bounds.append(ends)
        else:
            break
        ops.append(made)
    if not rounded and not (bounds and _is_whole(value)):
        return None
    low, high = -math.inf, math.inf
    for least, most in reversed(bounds):
        low, high = (min(max(end, least), most) for end in (low, high))
    ends = limits(target)
    if not (ends[0] <= low <= high <= ends[1] and float(low).is_integer() and float(high).is_integer()):
        return None
    return Rounding(
        value,
        path,
        int(low) if low != ends[0] else None,
        int(high) if high != ends[1] else None,
        frozenset(ops),
    )


def _path(source: str, target: str, unit: VectorUnit) -> tuple[tuple[str, str], ...] | None:
    """The conversions from one dtype to another, rounded once to even; None where there are none."""
    if unit.rounds("even", source, target):
        return (("even", target),)
    bits = 8 * itemsize(target) + 2
    for half, digits in DIGITS.items():
        if digits >= bits and unit.rounds("odd", source, half) and unit.rounds("even", half, target):
            return (("odd", half), ("even", target))
    return None


def _made(value: SSAValue, inside: set[Operation]) -> Operation | None:
    """The member that makes a value which nothing else needs."""
    made = value.owner
    if not isinstance(made, Operation) or made not in inside or value.get_user_of_unique_use() is None:
        return None
    return made


def _bound(op: Operation) -> tuple[SSAValue, tuple[float, float]] | None:
    """What an op keeps within two numbers, and these."""
    if isinstance(op, ELEMENTWISE["clamp"]):
        low, high = splat_of(op.operands[0]), splat_of(op.operands[2])
        return None if low is None or high is None else (op.operands[1], (low, high))
    if not isinstance(op, (ELEMENTWISE["max"], ELEMENTWISE["min"])):
        return None
    for i, number in enumerate(map(splat_of, op.operands)):
        if number is not None and splat_of(op.operands[1 - i]) is None:
            ends = (number, math.inf) if isinstance(op, ELEMENTWISE["max"]) else (-math.inf, number)
            return op.operands[1 - i], ends
    return None


def _is_whole(value: SSAValue) -> bool:
    """Whether a value is known to have whole numbers only: rounded ones, to which a whole number may be added."""
    op = value.owner
    if isinstance(op, ELEMENTWISE["round_even"]):
        return True
    if not isinstance(op, ELEMENTWISE["add"]):
        return False
    for i, number in enumerate(map(splat_of, op.operands)):
        if number is not None and float(number).is_integer():
            return _is_whole(op.operands[1 - i])
    return False
