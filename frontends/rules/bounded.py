"""Dimensions of which only the first elements count: their sizes, and what makes ops right along them."""

from __future__ import annotations

from xdsl.ir import SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import tensor
from ...dialects.graph import (
    ConcatOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherOp,
    GraphOp,
    ReshapeOp,
    ReverseOp,
)
from ...dialects.graph.extents import BoundedDim
from ...dialects.graph.interface import element_of, shape_of
from .. import bindings
from ..bindings import Op
from ..extents import I32, Extents, Rewrite
from ..walk import Rule, Walk
from .base import Results, Types, Values
from .movement import as_index

_LARGEST = 2**31 - 1


def _set_size(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return [walk.extents.mark(args[0], as_index(walk, args[1]), bindings.int_attribute(op, "dimension"))]


def _get_size(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return [walk.extents.size(args[0], bindings.int_attribute(op, "dimension"))]


def _reversed(extents: Extents, op: GraphOp, i: int, d: int, n: SSAValue) -> BoundedDim:
    """What counts is moved to the end of the dimension first."""
    walk, x = extents.walk, op.operands[i]
    shape = shape_of(x)
    twice = tensor([2 * s if k == d else s for k, s in enumerate(shape)], element_of(x))
    with extents.taken_whole(x):
        (both,) = walk.emit(ConcatOp, [x, x], [twice], dim=d)
    starts = [n if k == d else extents.number(0) for k in range(len(shape))]
    (op.operands[i],) = walk.emit(DynamicSliceOp, [both, *starts], [x.type], sizes=shape)
    return BoundedDim(d)


def _read_inside(extents: Extents, op: GraphOp, i: int, d: int, n: SSAValue) -> BoundedDim:
    """A box of what counts: it begins where all of it is there."""
    assert isinstance(op, DynamicSliceOp)
    at = 1 + d
    op.operands[at] = extents.least(op.operands[at], _last(extents, n, to_ints(op.sizes)[d]))
    return BoundedDim(None)


def _written_inside(extents: Extents, op: GraphOp, i: int, d: int, n: SSAValue) -> BoundedDim | None:
    """A box of what counts is replaced, by all of the update."""
    assert isinstance(op, DynamicUpdateSliceOp)
    if i != 0:
        return None
    at = 2 + d
    op.operands[at] = extents.least(op.operands[at], _last(extents, n, shape_of(op.update)[d]))
    return BoundedDim(d)


def _last(extents: Extents, n: SSAValue, size: int) -> SSAValue:
    """Where the last `size` of the first n elements begin; 0 where there are not so many."""
    return extents.combined("max", extents.combined("add", n, extents.number(-size)), extents.number(0))


def _gathered_inside(extents: Extents, op: GraphOp, i: int, d: int, n: SSAValue) -> BoundedDim | None:
    """What is gathered along the dimension begins where all of it is there."""
    assert isinstance(op, GatherOp)
    starts = to_ints(op.start_map)
    if i != 0 or d not in starts:
        return None
    walk, indices, along = extents.walk, op.indices, integer(op.index_dim)
    shape, last = shape_of(indices), _last(extents, n, to_ints(op.slice_sizes)[d])
    if along == len(shape):  # each index is a number
        most = walk.fill(last, shape)
    else:
        limits = [last if k == d else extents.number(_LARGEST) for k in starts]
        parts = [walk.emit(ReshapeOp, [v], [tensor([1], I32)])[0] for v in limits]
        if len(parts) > 1:
            parts = walk.emit(ConcatOp, parts, [tensor([len(parts)], I32)], dim=0)
        most = walk.broadcast(parts[0], tensor(shape, I32), (along,))
    op.operands[1] = walk.elementwise("min", [indices, most], indices.type)
    return BoundedDim(None)


REWRITES: dict[type[GraphOp], Rewrite] = {
    DynamicSliceOp: _read_inside,
    DynamicUpdateSliceOp: _written_inside,
    GatherOp: _gathered_inside,
    ReverseOp: _reversed,
}
"""For dimensions of which these ops say nothing themselves."""

STRUCTURAL: dict[str, Rule] = {
    "stablehlo.set_dimension_size": _set_size,
    "stablehlo.get_dimension_size": _get_size,
}
"""Of any element types."""
