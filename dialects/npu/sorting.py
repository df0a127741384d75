"""Sorting on the vector unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, var_operand_def

from ...machine import Machine
from ..base import to_ints
from ..dtypes import dtype_name
from ..shapes import Keys, check_sort
from .interface import Cost, buffer
from .types import BufferType
from .vector import VectorOp

SORTED_AT_ONCE = 32
MERGED_AT_ONCE = 4
"""Sort32 orders 32 (key, place) pairs; MrgSort makes one list of four."""


@irdl_op_definition
class VSortOp(VectorOp):
    """Orders the rows of the first half of the buffers by some of them into the second half, as many positions of
    each as those hold; the last buffer is what it works in: two lists of (key, place) for each row.

    One round of Sort32 and MrgSort for each key, the least important first, carries places along; then the operands
    are gathered. The round keeps the order of equals.
    """

    name = "npu.vsort"
    buffers = var_operand_def(BufferType)
    keys = prop_def(DenseArrayBase)
    descending = prop_def(DenseArrayBase)
    total = prop_def(DenseArrayBase)
    INSTRUCTION: ClassVar[str] = "sort32"

    def sources(self) -> Sequence[SSAValue]:
        return self.operands[: len(self.operands) // 2]

    def destinations(self) -> Sequence[SSAValue]:
        return self.operands[len(self.operands) // 2 :]

    def order(self) -> Keys:
        return Keys(to_ints(self.keys), to_ints(self.descending), to_ints(self.total))

    def computes_with(self) -> Sequence[SSAValue]:
        return [self.sources()[n] for n in self.order().operands]

    def instructions(self) -> Sequence[tuple[str, str]]:
        keys = [("sort32", dtype_name(buffer(self.sources()[n]).element)) for n in self.order().operands]
        return (*keys, *(("gather", dtype_name(buffer(v).element)) for v in self.destinations()[:-1]))

    def verify_(self) -> None:
        super().verify_()
        if len(self.operands) < 3:
            raise self.error("needs sources, as many destinations, and a buffer to work in")
        *outs, work = [buffer(v).shape for v in self.destinations()]
        check_sort(self, self.order(), [buffer(v).shape for v in self.sources()], outs, work)

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        rows, _ = buffer(self.sources()[0]).shape
        return self._cost_of_rows(machine, rows)

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        rows, _ = buffer(self.sources()[0]).shape
        return self._cost_of_rows(machine, rows if valid[0] is None else valid[0])

    def _cost_of_rows(self, machine: Machine, rows: int) -> Cost:
        if not rows:
            return Cost(1)
        unit, (_, n) = machine.vector, buffer(self.sources()[0]).shape
        lanes = rows * -(-n // SORTED_AT_ONCE) * SORTED_AT_ONCE
        keys = [dtype_name(buffer(self.sources()[number]).element) for number in self.order().operands]
        cycles = key_cycles(machine, keys, rows, n)
        for value in self.destinations()[:-1]:
            cycles += unit.cycles("gather", dtype_name(buffer(value).element), rows * buffer(value).shape[1])
        later = (
            len(self.order().operands) - 1
        )  # each round after the first takes its keys in the order so far
        return Cost(cycles + later * unit.cycles("gather", "i32", lanes), elements=lanes)


def key_cycles(machine: Machine, keys: Sequence[str], rows: int, n: int) -> int:
    """Cycles to order rows of n by keys of these types, without what brings their elements into the order."""
    unit, lists = machine.vector, -(-n // SORTED_AT_ONCE)
    lanes, cycles = rows * lists * SORTED_AT_ONCE, 0
    for key in keys:
        cycles += unit.cycles("sort32", key, lanes)
        left = lists
        while left > 1:
            cycles += unit.cycles("merge4", key, lanes)
            left = -(-left // MERGED_AT_ONCE)
    return cycles
