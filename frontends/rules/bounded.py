"""Dimensions of which only the first elements count: their sizes, and what makes ops right along them."""

from __future__ import annotations

from xdsl.ir import SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import shape_in, tensor
from ...dialects.graph import (
    ConcatOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherOp,
    GraphOp,
    IotaOp,
    PadOp,
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
from .movement import as_index, number_in, stacked

_LARGEST = 2**31 - 1


def _set_size(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return [walk.extents.mark(args[0], as_index(walk, args[1]), bindings.int_attribute(op, "dimension"))]


def _get_size(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return [walk.extents.size(args[0], bindings.int_attribute(op, "dimension"))]


def _broadcast(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    made = walk.broadcast(args[0], types[0], tuple(bindings.int_array(op, "broadcast_dimensions")))
    return [_sized(walk, op, made, args[1])]


def _iota(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    (made,) = walk.emit(IotaOp, [], types, dim=bindings.int_attribute(op, "iota_dimension"))
    return [_sized(walk, op, made, args[0])]


def _reshape(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    (made,) = walk.emit(ReshapeOp, args[:1], types)
    return [_sized(walk, op, made, args[1])]


def _sized(walk: Walk, op: Op, made: SSAValue, sizes: SSAValue) -> SSAValue:
    """The result of an op whose shape is an operand: dimensions that MLIR leaves open have the sizes in there."""
    parts = bindings.tensor_parts(op.results[0].type)
    assert parts is not None
    for d, n in enumerate(parts[0]):
        if n == bindings.DYNAMIC and d not in walk.extents.of(made):
            made = walk.extents.mark(made, as_index(walk, number_in(walk, sizes, d)), d)
    return made


def as_bounded(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """An argument of a bounded type, of the size that it is refined to: what is behind it are zeros."""
    x, (whole,) = args[0], types
    shape, zeros = shape_of(x), [0] * len(shape_of(x))
    bound = shape_in(whole)
    if shape == bound:
        return [x]
    behind = [b - n for b, n in zip(bound, shape, strict=True)]
    value = walk.scalar(0, element_of(x))
    (made,) = walk.emit(PadOp, [x, value], [whole], low=zeros, high=behind, interior=zeros)
    for d, n in enumerate(shape):
        if n != bound[d]:
            made = walk.extents.mark(made, walk.extents.number(n), d)
    return [made]


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
        most = walk.broadcast(stacked(walk, limits), tensor(shape, I32), (along,))
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
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_reshape": _reshape,
}
"""Of any element types."""
