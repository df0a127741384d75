"""Cumulative reductions on the vector unit."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.irdl import irdl_op_definition, operand_def, prop_def

from ...machine import Machine
from ..base import integer, text
from ..elementwise import REDUCTION_FUNCTION
from ..shapes import check_cumulate
from .interface import Cost, buffer, vector_dtype, vector_elements
from .types import BufferType
from .vector import VectorOp


@irdl_op_definition
class VCumulateOp(VectorOp):
    """Combines each element with all before it along `dim` (behind it where `reverse` is 1).

    It goes by doubling: each element with the one 1, 2, 4... places before it. Along the innermost dimension the places
    are not aligned to the lanes, so each round moves the data once more.
    """

    name = "npu.vcumulate"
    source = operand_def(BufferType)
    dest = operand_def(BufferType)
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    reverse = prop_def(IntegerAttr)

    @property
    def instruction(self) -> str:
        return REDUCTION_FUNCTION[text(self.kind)]

    def verify_(self) -> None:
        super().verify_()
        shapes = buffer(self.source).shape, buffer(self.dest).shape
        check_cumulate(self, text(self.kind), *shapes, integer(self.dim))

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.cost_of_part(machine, indices, (None,) * len(buffer(self.source).shape))

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        """Rows and columns beyond the tensor are worked on too: they hold the neutral element."""
        unit, dtype, kind = machine.vector, vector_dtype(self.source, self.dest), buffer(self.dest)
        dim, lanes = integer(self.dim), vector_elements(kind)
        rounds = max(kind.shape[dim] - 1, 0).bit_length()
        each = unit.cycles(self.instruction, dtype, lanes)
        if all(n == 1 for n in kind.shape[dim + 1 :]):
            each += unit.cycles("copy", dtype, lanes)
        return Cost(max(rounds * each, 1), elements=lanes)
