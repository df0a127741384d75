"""Passes: what to do with the ops of the prefix-xor unit on a chip without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from tilewright.dialects.base import ints
from tilewright.dialects.dtypes import numpy_dtype, tensor
from tilewright.dialects.graph import ELEMENTWISE, ConstantOp, DataAttr, PadOp, SliceOp
from tilewright.dialects.graph.attributes import Literal
from tilewright.dialects.graph.interface import element_of, shape_of
from tilewright.machine import Machine

from .ops import PrefixXorOp


@dataclass(frozen=True)
class AcmeExpandPass(ModulePass):
    """Writes `acme.prefix_xor` out as xors with the elements 1, 2, 4... places before, where the target has no px."""

    name = "acme-expand"
    target: str = "ascend-910b1"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if "px" in Machine.load(self.target).spaces:
            return
        for inner in list(op.walk()):
            if isinstance(inner, PrefixXorOp):
                expand(inner)


def expand(op: PrefixXorOp) -> None:
    """Replaces one op."""
    block = op.parent
    assert block is not None

    def add(cls: type[Operation], operands: list[SSAValue], result: Any, **properties: Any) -> SSAValue:
        made = cls.create(
            operands=operands, result_types=[result], properties=properties, location=op.location
        )
        block.insert_op_before(made, op)
        return made.results[0]

    shape, element = shape_of(op.x), element_of(op.x)
    last, n, value, step = len(shape) - 1, shape[-1], op.x, 1
    zero = Literal.of(numpy_dtype(element).type(0))
    nothing = add(ConstantOp, [], tensor([], element), value=DataAttr(zero))
    zeros, ones = [0] * len(shape), [1] * len(shape)
    while step < n:
        kept = [*shape[:-1], n - step]
        front = add(
            SliceOp, [value], tensor(kept, element), starts=ints(zeros), limits=ints(kept), strides=ints(ones)
        )
        low = [step if d == last else 0 for d in range(len(shape))]
        moved = add(
            PadOp, [front, nothing], op.result.type, low=ints(low), high=ints(zeros), interior=ints(zeros)
        )
        value, step = add(ELEMENTWISE["xor"], [value, moved], op.result.type), 2 * step
    op.result.replace_all_uses_with(value)
    op.detach()
    op.erase()
