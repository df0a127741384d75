"""Products whose accumulators do not leave the cube in the type that the program asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dialects.dtypes import dtype_name, element_type, tensor
from ...dialects.graph import ELEMENTWISE, ContractOp, ConvOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.legality import refuse_drain
from ...machine import Machine

if TYPE_CHECKING:
    from .simplify import Rewriter


def convert_accumulators(op: ContractOp | ConvOp, rewriter: Rewriter, machine: Machine) -> bool:
    """A product of integers that is wanted as i8 becomes one in i32, converted on the vector cores: the way out of the
    cube rounds f32, and passes everything else on as it is."""
    dtype, wanted = dtype_name(element_of(op.lhs)), dtype_name(element_of(op.result))
    if dtype not in machine.cube:
        return False
    total = machine.accumulator(dtype)
    if refuse_drain(machine, total, wanted) is None:
        return False
    wide = tensor(shape_of(op.result), element_type(total))
    product = rewriter.add(type(op), list(op.operands), wide, **op.properties)
    return rewriter.replace(rewriter.add(ELEMENTWISE["convert"], [product], op.result.type))
