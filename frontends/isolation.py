"""One op of jaxlib's MLIR bindings as a module of its own, which MLIR can lower, print or compile by itself. Used from
bindings.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from .attributes import Op, Value

_SMALL = 64
"""Constants of up to this many elements are written into the modules of the ops that use them."""


def isolate(op: Op, symbols: dict[str, Op]) -> tuple[list[Value], ir.Module]:
    """A module whose @main is `op` alone, and the values around `op` that this @main takes.

    Small constants come along: some ops, such as dynamic_gather, only compile with theirs in sight.
    """
    outside = list(dict.fromkeys([*op.operands, *_captured(op)]))
    values = [v for v in outside if not _is_small_constant(v)]
    with op.context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            kind = ir.FunctionType.get([v.type for v in values], [r.type for r in op.results])
            main = func.FuncOp("main", kind, visibility="public")
            for callee in _callees(op, symbols):
                symbols[callee].operation.clone()
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            inside = dict(zip(values, block.arguments, strict=True))
            inside.update((v, v.owner.clone().results[0]) for v in outside if v not in inside)
            clone = op.operation.clone()
            _substitute(clone, inside)
            func.ReturnOp(list(clone.results))
    return values, module


def owner(value: Value) -> Op | None:
    """The op that makes a value; None for an argument of a block."""
    found = value.owner
    return found if isinstance(found, ir.Operation | ir.OpView) else None


def nested(op: Op) -> Iterator[Op]:
    """All ops inside an op."""
    for region in op.regions:
        for block in region:
            for inner in block.operations:
                yield inner
                yield from nested(inner)


def _is_small_constant(value: Value) -> bool:
    made = owner(value)
    if made is None or made.operation.name != "stablehlo.constant":
        return False
    return math.prod(ir.ShapedType(value.type).shape) <= _SMALL


def _captured(op: Op) -> list[Value]:
    inner = list(nested(op))
    defined = {r for o in inner for r in o.results}
    for holder in (op, *inner):
        defined.update(a for region in holder.regions for block in region for a in block.arguments)
    return [v for o in inner for v in o.operands if v not in defined]


def _substitute(op: Op, mapping: dict[Value, Value]) -> None:
    for o in (op, *nested(op)):
        for sharding in ("sdy.sharding", "mhlo.sharding"):
            if sharding in o.attributes:  # it may name a mesh of the module that op comes from
                del o.attributes[sharding]
        for i, v in enumerate(o.operands):
            if v in mapping:
                o.operands[i] = mapping[v]


def _callees(op: Op, symbols: dict[str, Op]) -> list[str]:
    """Functions that `op` reaches by name, in the order it meets them."""
    found: dict[str, None] = {}
    pending = [op, *nested(op)]
    while pending:
        o = pending.pop()
        for name in ("callee", "decomposition", "called_computations"):
            if name not in o.attributes:
                continue
            attr: Any = o.attributes[name]
            references: Any = attr if isinstance(attr, ir.ArrayAttr) else [attr]
            for reference in references:
                callee = reference.value
                if callee in symbols and callee not in found:
                    found[callee] = None
                    pending += nested(symbols[callee])
    return list(found)
