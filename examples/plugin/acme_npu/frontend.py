"""Reads `.chain` files: a type and functions that are applied in turn, as in `f32[64, 256]: exp mish`."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from tilewright.dialects.dtypes import element_type, tensor
from tilewright.dialects.graph import ELEMENTWISE

_LINE = re.compile(r"\s*(\w+)\[([\d,\s]*)\]\s*:\s*((?:\w+\s*)*)")


def read(content: bytes, filename: str) -> ModuleOp:
    """The module of a file. Raises ValueError for what is none."""
    found = _LINE.fullmatch(content.decode())
    if found is None:
        raise ValueError("expected a type and functions, as in f32[64, 256]: exp mish")
    kind = tensor([int(n) for n in found[2].split(",")], element_type(found[1]))
    block = Block(arg_types=[kind])
    value: SSAValue = block.args[0]
    for name in found[3].split():
        if name not in ELEMENTWISE or len(ELEMENTWISE[name].get_irdl_definition().operands) != 1:
            raise ValueError(f"there is no function {name} of one operand")
        op = ELEMENTWISE[name].create(operands=[value], result_types=[kind])
        op.location = FileLineColLoc(StringAttr(filename), IntAttr(1), IntAttr(1))
        block.add_op(op)
        value = op.results[0]
    block.add_op(ReturnOp(value))
    return ModuleOp([FuncOp("main", ([kind], [kind]), Region(block))])
