"""What the fixpipe does to sums on their way out of the cube, in the place of an epilogue.

The epilogues that it can express are chains: relu, a scaling to f32 numbers, relu, and a conversion, where an integer
is rounded to even, moved by its zero point and saturated before. Their values are those of the vector cores bit for
bit: relu and a scaling by a positive number may change places, as may relu and a rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, UnitAttr, f32
from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer_attr
from ...dialects.dtypes import dtype_name, limits
from ...dialects.graph import ELEMENTWISE, FusionOp
from ...dialects.graph.interface import element_of
from ...dialects.npu.legality import refuse_drain
from ...machine import Machine
from ..access import splat_of


@dataclass(frozen=True)
class Drain:
    """Sums, negative ones as 0 with `relu`, times `factor`, and, where integers are stored, rounded to even, plus
    `zero`, saturated."""

    relu: bool = False
    factor: float | None = None
    zero: int = 0

    def refused_by(self, machine: Machine, total: str, dtype: str) -> str | None:
        """Why a machine does not do so to accumulators of a type that are stored as another; None where it does."""
        factor = None if self.factor is None else FloatAttr(self.factor, f32)
        zero = integer_attr(self.zero) if self.zero else None
        return refuse_drain(machine, total, dtype, factor, zero, UnitAttr() if self.relu else None)


def drain_of(fusion: FusionOp, sums: SSAValue, total: str, machine: Machine) -> Drain | None:
    """What the fixpipe does to the sums of a fusion, accumulators of type `total`, in the place of all that stands
    behind its product; None where it cannot, or where nothing stands there."""
    yielded = fusion.body.block.last_op
    assert yielded is not None
    if machine.scaled_drains is None or len(yielded.operands) != 1 or yielded.operands[0] is sums:
        return None
    chain = _Chain(sums, total)
    drain = chain.drain()
    dtype = dtype_name(element_of(chain.end))
    if (
        drain is None
        or chain.end is not yielded.operands[0]
        or drain.refused_by(machine, total, dtype) is not None
    ):
        return None
    return drain


class _Chain:
    """Follows the chain of elementwise ops from a value on, as far as the fixpipe can do what they do. `end` is the
    last value that was reached."""

    def __init__(self, sums: SSAValue, total: str):
        self.end, self.total = sums, total

    def drain(self) -> Drain | None:
        """What the ops from the sums to the end of the chain do together; None where they are no such chain."""
        exact = self._type() == self.total
        relu = self._relu()
        scaled = self._factor(relu) if exact else None
        if scaled is not None:
            return self._scaled(*scaled)
        if exact and self.total == "f32":
            self._next("convert")
        return Drain(self._relu() or relu)

    def _factor(self, relu: bool) -> tuple[float, bool] | None:
        """Goes on behind a scaling of accumulators as f32 numbers by a number, 1 where they are only converted: that,
        and whether negative ones were 0 before. None where they are neither."""
        start = self.end
        if self.total == "f32" or (self._next("convert") is not None and self._type() == "f32"):
            relu = self._relu() or relu
            scaled = self._next("mul")
            if scaled is not None and (factor := _number(scaled)) is not None:
                return factor, relu
            if scaled is None and (self.total != "f32" or self._peek("round_even") is not None):
                return 1.0, relu
        self.end = start
        return None

    def _scaled(self, factor: float, relu: bool) -> Drain | None:
        """From behind the scaling on. Negative numbers may become 0 there as well as before it where the factor is
        positive."""
        positive = factor > 0
        relu = self._relu(positive) or relu
        if self._next("round_even") is None:
            self._next("convert")
            return Drain(self._relu(positive) or relu, float(factor))
        relu = self._relu(positive) or relu
        moved = self._next("add")
        zero = 0 if moved is None else _number(moved)
        if zero is None or not float(zero).is_integer():
            return None
        zero = int(zero)
        low, high = self._clamped(zero if relu and positive else -math.inf)
        if self._next("convert") is None or (dtype := self._type()) not in ("i8", "ui8"):
            return None
        least, most = limits(dtype)
        clipped = positive and low == zero != least
        if high != most or not (low == least or clipped):
            return None
        return Drain(relu or clipped, float(factor), zero)

    def _clamped(self, low: float) -> tuple[float, float]:
        """The ends between which the next ops leave numbers that are at least `low`."""
        high = math.inf
        while True:
            if (op := self._peek("clamp")) is not None and op.operands[1] is self.end:
                ends = splat_of(op.operands[0]), splat_of(op.operands[2])
                if None in ends:
                    return low, high
                self.end = op.results[0]
            elif (op := self._next("max")) is not None:
                ends = _number(op), math.inf
            elif (op := self._next("min")) is not None:
                ends = -math.inf, _number(op)
            else:
                return low, high
            assert ends[0] is not None and ends[1] is not None
            low, high = (min(max(end, ends[0]), ends[1]) for end in (low, high))

    def _type(self) -> str:
        return dtype_name(element_of(self.end))

    def _relu(self, allowed: bool = True) -> bool:
        """Goes on behind all that makes negative numbers 0, if that is allowed; whether there is any."""
        found = False
        while allowed and (op := self._peek("max")) is not None and _is_zero(_number(op)):
            self.end, found = op.results[0], True
        return found

    def _next(self, function: str) -> Operation | None:
        """Goes on behind the op, if it computes a function of the end alone, and of one number where it is of two."""
        op = self._peek(function)
        if op is None or (len(op.operands) > 1 and _number(op) is None):
            return None
        self.end = op.results[0]
        return op

    def _peek(self, function: str) -> Operation | None:
        """The op that computes a function of the end, where nothing else uses it."""
        user = self.end.get_user_of_unique_use()
        return user if isinstance(user, ELEMENTWISE[function]) else None


def _is_zero(number: float | None) -> bool:
    return number is not None and number == 0 and math.copysign(1, number) > 0


def _number(op: Operation) -> float | None:
    """The operand of an op of two that is one known number."""
    return next((n for v in op.operands if (n := splat_of(v)) is not None), None)
