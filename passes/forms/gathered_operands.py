"""Operands of products that are slices of a table, at places that the program computes: the product loads them itself.

    %w = graph.gather %table, %expert : tensor<128x2048x768xbf16>, tensor<144x1xi32> -> tensor<144x2048x768xbf16>
    %y = graph.contract %x, %w {lhs_batch = [0], rhs_batch = [0], ...}

Each product of the batch has one place. The scalar unit reads it, and the loads of that product begin there, so that no
slice is ever copied: this is what a mixture of experts needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from ...dialects.base import Expr, to_ints
from ...dialects.graph import ContractOp, GatherOp
from ...dialects.graph.interface import shape_of
from ...dialects.open_sizes import certain
from .access import resolve


def gathers_of(op: Operation) -> list[GatherOp]:
    """The gathers whose slices a product loads at their places."""
    if not isinstance(op, ContractOp):
        return []
    sides = (
        (op.lhs, to_ints(op.lhs_batch), to_ints(op.lhs_contract)),
        (op.rhs, to_ints(op.rhs_batch), to_ints(op.rhs_contract)),
    )
    found = [gather_of(*side) for side in sides]
    return [*dict.fromkeys(gather for gather in found if gather is not None)]


def gather_of(value: SSAValue, batch: Sequence[int], summed: Sequence[int]) -> GatherOp | None:
    """The gather of slices that an operand is, seen through layout ops; None for one that no product loads at its
    places. batch, summed: dimensions of the operand.

    One product of the batch has one place for each dimension of the table, as one load begins at one. What is summed
    over is whole in a slice: loads reach over its end, where other numbers of the table are and not zeros.
    """
    shape = shape_of(value)
    load = resolve(value, [Expr.of(d) for d in range(len(shape))], shape, _is_gathered)
    gather = load.base.owner
    if not isinstance(gather, GatherOp) or load.fill is not None:
        return None
    offset, table = to_ints(gather.offset_dims), shape_of(gather.x)
    sizes, kept = to_ints(gather.slice_sizes), gather.slice_dims()
    for d, at in enumerate(load.position):
        if d not in offset:
            if any(a not in batch for a in at.variables):
                return None
            continue
        inside = kept[offset.index(d)]
        whole = certain(sizes[inside], "==", table[inside])
        if not whole and any(a in summed for a in at.variables):
            return None
    return gather


def _is_gathered(value: SSAValue) -> bool:
    return isinstance(value.owner, GatherOp)
