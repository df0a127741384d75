"""Which values of a module are quantized."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from ..dialects.quantized import quantized


def is_stored(module: ModuleOp) -> bool:
    """Whether no value of a module has a quantized type."""
    return not any(quantized(v.type) for op in module.walk() for v in values_of(op))


def values_of(op: Operation) -> list[SSAValue]:
    """Results of an op, and arguments of its blocks."""
    return [*op.results, *(a for region in op.regions for block in region.blocks for a in block.args)]
