"""Scatter and gather on the vector unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, var_operand_def

from ...machine import Machine
from ..base import text
from ..dtypes import dtype_name, size
from ..elementwise import REDUCTION_FUNCTION
from ..shapes import check_gather, check_scatter
from .interface import Cost, buffer, vector_dtype, vector_elements
from .legality import refuse_instruction
from .types import ROW_BYTES, BufferType
from .vector import VectorOp


@irdl_op_definition
class VScatterOp(VectorOp):
    """Rows of `updates` into the rows of `target` that `index` names, counted from `at [...]`, one after the other by
    `kind`; those outside are left out. The result may be the target itself.

    The scalar unit reads each index, compares it with the rows there are, and issues an instruction for the row.
    """

    name = "npu.vscatter"
    ADDRESSED: ClassVar[bool] = True
    target = operand_def(BufferType)
    index = operand_def(BufferType)
    updates = operand_def(BufferType)
    dest = operand_def(BufferType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    kind = prop_def(StringAttr)
    INSTRUCTION: ClassVar[str] = "copy"

    @property
    def function(self) -> str:
        """What combines a row with an update."""
        return combining(text(self.kind))

    def moves(self) -> bool:
        return text(self.kind) == "set"

    def computes_with(self) -> Sequence[SSAValue]:
        return [self.updates]

    def refused_by(self, machine: Machine) -> str | None:
        """Rows of a type without arithmetic are converted, combined and converted back, each on its own."""
        dtype = dtype_name(buffer(self.updates).element)
        if machine.vector.runs(self.function, dtype):
            return None
        work = machine.vector.computes(self.function, dtype)
        return refuse_instruction(machine, self.function, work) or refuse_instruction(machine, "convert", work)

    def in_place(self) -> bool:
        return True

    def verify_(self) -> None:
        super().verify_()
        shapes = [buffer(v).shape for v in (self.target, self.index, self.updates, self.dest)]
        check_scatter(self, text(self.kind), shapes, len(self.linear()))

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return self.cost_of_part(machine, indices, ())

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        """The worst case: every row is one of the target's."""
        unit, dtype = machine.vector, dtype_name(buffer(self.updates).element)
        rows = size(buffer(self.index).shape)
        lanes = vector_elements(buffer(self.updates)) // rows if len(buffer(self.updates).shape) > 1 else 1
        cycles = rows * row_cycles(machine, self.function, dtype, lanes)
        if self.target is not self.dest:
            cycles += unit.cycles("copy", dtype, vector_elements(buffer(self.dest)))
        return Cost(cycles, elements=rows * lanes)


def combining(kind: str) -> str:
    """The function that combines a row with an update."""
    return "copy" if kind == "set" else REDUCTION_FUNCTION[kind]


def row_cycles(machine: Machine, function: str, dtype: str, lanes: int) -> int:
    """Cycles of an update whose row is one of the target's, of so many elements that a function combines."""
    unit = machine.vector
    each = machine.row_instructions * machine.vector_issue_cycles + unit.cycles(function, dtype, lanes)
    if not unit.runs(function, dtype):
        each += 2 * unit.cycles("convert", unit.computes(function, dtype), lanes)
    return max(each - unit.streamed_cycles, 1)  # rows that meet are rare, so instructions overlap


@irdl_op_definition
class VGatherOp(VectorOp):
    """The element of `source` for each of `places`, which counts its elements row by row. Places beyond it are those of
    the kernel's mistakes: values take the nearest one, and a run by steps reports them."""

    name = "npu.vgather"
    source = operand_def(BufferType)
    places = operand_def(BufferType)
    dest = operand_def(BufferType)
    INSTRUCTION: ClassVar[str] = "gather"
    MOVES: ClassVar[bool] = True

    def verify_(self) -> None:
        super().verify_()
        source, places, dest = map(buffer, (self.source, self.places, self.dest))
        check_gather(self, source, places, dest, ROW_BYTES)

    def instructions(self) -> Sequence[tuple[str, str]]:
        return ((self.instruction, vector_dtype(self.source)),)

    def rated_dtype(self, machine: Machine) -> str:
        return vector_dtype(self.source)

    def lanes(self) -> int:
        return vector_elements(buffer(self.dest))

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        return self.cost(machine, indices)
