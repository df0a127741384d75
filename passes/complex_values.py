"""Which values of a graph are complex, and whether anything computes with them."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from ..dialects.base import text
from ..dialects.dtypes import COMPLEX
from ..dialects.graph import GraphOp


def is_real(module: ModuleOp) -> bool:
    """Whether complex tensors are only handed on: nothing computes with them, no loop, branch or call carries any."""
    if not any(map(is_complex_tensor, _types(module))):
        return True
    for op in module.ops:
        if not isinstance(op, FuncOp):
            continue
        main = text(op.sym_name) == "main"
        if not main and any(map(is_complex_tensor, op.function_type.inputs)):
            return False
        for inner in op.walk():
            if inner is op or (isinstance(inner, GraphOp) and inner.WHOLE):
                continue
            if main and isinstance(inner, ReturnOp):
                continue
            if any(is_complex_tensor(v.type) for v in (*inner.operands, *inner.results)):
                return False
    return True


def _types(module: ModuleOp) -> Iterable[Attribute]:
    """The types of all values, objects that many of them share once: to compare types takes as long as to walk."""
    found: dict[int, Attribute] = {}
    for op in module.walk():
        for r in op.results:
            found[id(r.type)] = r.type
        for region in op.regions:
            for block in region.blocks:
                for arg in block.args:
                    found[id(arg.type)] = arg.type
    return found.values()


def is_complex_tensor(kind: Attribute) -> bool:
    return isinstance(kind, TensorType) and kind.element_type == COMPLEX
