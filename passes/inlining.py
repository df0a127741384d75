"""Calls become what is called: for passes that treat each place that a function is called from by itself."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import SSAValue

from ..dialects.base import text
from .calls import callers_first


def inline_calls(module: ModuleOp) -> None:
    """Inlines all functions of a module in @main. Raises PassError for a function that calls itself."""
    order = callers_first(module)
    bodies = {text(f.sym_name): f for f in order}
    for func in reversed(order):  # a function's own calls are inlined before it is
        for op in [op for op in func.walk() if isinstance(op, CallOp)]:
            _inline(op, bodies[_callee(op)])
    for func in order:
        if text(func.sym_name) != "main":
            func.detach()
            func.erase()


def _callee(op: CallOp) -> str:
    callee = op.callee
    assert isinstance(callee, SymbolRefAttr)
    return callee.root_reference.data


def _inline(call: CallOp, func: FuncOp) -> None:
    block = call.parent
    assert block is not None
    mapping: dict[SSAValue, SSAValue] = dict(zip(func.body.block.args, call.arguments, strict=True))
    for op in func.body.block.ops:
        if isinstance(op, ReturnOp):
            for old, new in zip(call.results, op.operands, strict=True):
                old.replace_all_uses_with(mapping.get(new, new))
        else:
            block.insert_op_before(op.clone(mapping), call)
    call.detach()
    call.erase()
