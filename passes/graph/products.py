"""Convolutions that are matrix products: the window has one place, where it meets the whole input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from ...dialects.base import integer, ints, to_ints
from ...dialects.dtypes import tensor
from ...dialects.graph import ContractOp, ConvOp
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine

if TYPE_CHECKING:
    from .simplify import Rewriter


def conv_as_product(op: ConvOp, rewriter: Rewriter, machine: Machine) -> bool:
    """The gradient of a convolution's weights has such windows, and so has a dense layer written as a convolution. A
    product walks the window's positions as one long axis, in the order in which they lie in memory.

    Dimensions in which the window is a point and goes everywhere are those of the product; groups are its batch.
    """
    lhs_layout, rhs_layout, layout = (to_ints(a) for a in (op.lhs_layout, op.rhs_layout, op.out_layout))
    summed = _summed(op)
    if summed is None or not any(shape_of(op.lhs)[lhs_layout[2 + i]] > 1 for i in summed):
        return False
    groups = integer(op.groups)
    lhs = _grouped(rewriter, op.lhs, lhs_layout[1], groups)
    rhs = _grouped(rewriter, op.rhs, rhs_layout[1], groups)

    def left(d: int) -> int:
        return d + (groups > 1 and d >= lhs_layout[1])

    def right(d: int) -> int:
        return d + (groups > 1 and d >= rhs_layout[1])

    spatial = range(len(layout) - 2)
    kept = [i for i in spatial if i not in summed]
    points = [right(rhs_layout[2 + i]) for i in kept]  # of extent 1: they end up beside the output features
    free = sorted(
        [(left(lhs_layout[0]), layout[0]), *((left(lhs_layout[2 + i]), layout[2 + i]) for i in kept)]
    )
    features = right(rhs_layout[1])
    shapes = shape_of(lhs), shape_of(rhs)
    ends = sorted([features, *points])
    batched = [groups] if groups > 1 else []
    made = [*batched, *(shapes[0][d] for d, _ in free), *(shapes[1][d] for d in ends)]
    product = rewriter.add(
        ContractOp,
        [lhs, rhs],
        tensor(made, element_of(op.result)),
        lhs_batch=ints([lhs_layout[1]] if groups > 1 else []),
        rhs_batch=ints([rhs_layout[1]] if groups > 1 else []),
        lhs_contract=ints([left(lhs_layout[1]), *(left(lhs_layout[2 + i]) for i in summed)]),
        rhs_contract=ints([right(rhs_layout[0]), *(right(rhs_layout[2 + i]) for i in summed)]),
    )
    product = rewriter.reshape(product, [*made[: len(batched) + len(free)], shapes[1][features]])
    # the result's dimensions that are here: the groups before the features of one, the others as they are found
    order = {out: len(batched) + i for i, (_, out) in enumerate(free)}
    perm: list[int] = []
    for d in range(len(layout)):
        if d == layout[1]:
            perm += [0] if batched else []
            perm.append(len(batched) + len(free))
        elif d in order:
            perm.append(order[d])
    return rewriter.replace(rewriter.reshape(rewriter.transpose(product, perm), shape_of(op.result)))


def _summed(op: ConvOp) -> list[int] | None:
    """The spatial dimensions that the window fills, if in all others it is a point that goes everywhere; else None."""
    lhs, rhs, out = shape_of(op.lhs), shape_of(op.rhs), shape_of(op.result)
    lists = (op.strides, op.low, op.high, op.lhs_dilation, op.rhs_dilation)
    found = []
    for i, (stride, low, high, spread, dilation) in enumerate(zip(*map(to_ints, lists), strict=True)):
        extent, window = lhs[to_ints(op.lhs_layout)[2 + i]], rhs[to_ints(op.rhs_layout)[2 + i]]
        if low or high or spread != 1:
            return None
        if window == extent and out[to_ints(op.out_layout)[2 + i]] == 1 and (dilation == 1 or window == 1):
            found.append(i)
        elif window != 1 or stride != 1:
            return None
    return found


def _grouped(rewriter: Rewriter, x: SSAValue, d: int, groups: int) -> SSAValue:
    """x with the groups of dimension d before it."""
    if groups == 1:
        return x
    shape = shape_of(x)
    return rewriter.reshape(x, [*shape[:d], groups, shape[d] // groups, *shape[d + 1 :]])
