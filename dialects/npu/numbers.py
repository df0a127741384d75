"""What the scalar unit does with numbers in ub: buffers of one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, var_operand_def

from ...machine import Machine
from ..base import text
from ..dtypes import size
from ..elementwise import FUNCTIONS, Function
from .interface import FREE, Cost, buffer
from .legality import refuse_path
from .types import BufferType, Pipe
from .vector import ElementwiseVectorOp, VectorOp


class NumberOp(VectorOp):
    """Works on single elements, and is over before the scalar unit issues anything else. Its cycle is that in which it
    is issued."""

    PIPE: ClassVar[Pipe] = Pipe.S

    def refused_by(self, machine: Machine) -> str | None:
        return None if "ub" in machine.spaces else refuse_path(machine, "ub", "ub", self.PIPE)

    def instructions(self) -> Sequence[tuple[str, str]]:
        return ()

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return FREE

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        return FREE

    def verify_(self) -> None:
        super().verify_()
        for v in self.main_operands():
            if size(buffer(v).shape) != 1:
                raise self.error(f"works on single elements, not {v.type}")


@irdl_op_definition
class ScalarOp(NumberOp, ElementwiseVectorOp):
    """A scalar function of numbers in ub, on the scalar unit."""

    name = "npu.scalar"
    values = var_operand_def(BufferType)
    dest = operand_def(BufferType)
    function = prop_def(StringAttr)

    @property
    def FUNCTION(self) -> Function:  # one op for all
        return FUNCTIONS[text(self.function)]

    def verify_(self) -> None:
        found = FUNCTIONS.get(text(self.function))
        if found is None or len(self.values) != found.arity:
            takes = (
                "is no function" if found is None else f"takes {found.arity} numbers, not {len(self.values)}"
            )
            raise self.error(f"{text(self.function)!r} {takes}")
        super().verify_()


@irdl_op_definition
class SetNumberOp(NumberOp):
    """Writes a number to ub, from the scalar unit."""

    name = "npu.set_number"
    dest = operand_def(BufferType)
    value = prop_def(FloatAttr | IntegerAttr)
