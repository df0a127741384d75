"""Ops that create, move and index data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from ...dialects.dtypes import dtype_name, element_type, numpy_dtype, shape_in, tensor
from ...dialects.graph import (
    ConcatOp,
    ConstantOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherOp,
    IotaOp,
    PadOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.attributes import Literal
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.host_text import host_text, type_in_text
from ...dialects.open_sizes import any_open
from .. import bindings
from ..bindings import Op
from ..walk import Rule, Walk
from .base import Results, Types, Values, constant_value

_I32 = element_type("i32")


def _constant(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    value = walk.constant_of(op, types[0])
    return None if value is None else [value]


def _iota(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return walk.emit(IotaOp, [], types, dim=bindings.int_attribute(op, "iota_dimension"))


def _broadcast_in_dim(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return _spread(walk, args, types, bindings.int_array(op, "broadcast_dimensions"))


def _broadcast(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    rank = len(shape_in(types[0]))
    return _spread(walk, args, types, range(rank - len(shape_of(args[0])), rank))


def _spread(walk: Walk, args: Values, types: Types, dims: Sequence[int]) -> Results:
    """Of any element types: in one that the device does not have, only a uniform constant is spread here."""
    if not walk.movable(args, types):
        return _spread_constant(walk, args[0], shape_in(types[0]))
    if args[0].type == types[0] and all(i == d for i, d in enumerate(dims)):
        return args
    return [walk.broadcast(args[0], types[0], tuple(dims))]


def _spread_constant(walk: Walk, value: SSAValue, shape: tuple[int, ...]) -> Results:
    owner = value.owner
    if any_open(shape) or not isinstance(owner, ConstantOp) or not owner.value.data.splat:
        return None
    literal = owner.value.data
    return [walk.constant(Literal(literal.dtype, shape, literal.data, True))]


def _reshape(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return args if args[0].type == types[0] else walk.emit(ReshapeOp, args, types)


def _transpose(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return walk.emit(TransposeOp, args, types, perm=bindings.int_array(op, "permutation"))


def _slice(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    if args[0].type == types[0]:
        return args
    return walk.emit(
        SliceOp,
        args,
        types,
        starts=bindings.int_array(op, "start_indices"),
        limits=bindings.int_array(op, "limit_indices"),
        strides=bindings.int_array(op, "strides"),
    )


def _pad(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    low, high = bindings.int_array(op, "edge_padding_low"), bindings.int_array(op, "edge_padding_high")
    interior = bindings.int_array(op, "interior_padding")
    # an equal shape does not say that nothing is done: the end may crop as much as goes between the elements
    if not any((*low, *high, *interior)):
        return args[:1]
    return walk.emit(PadOp, args, types, low=low, high=high, interior=interior)


def _reverse(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return walk.emit(ReverseOp, args, types, dims=bindings.int_array(op, "dimensions"))


def _concatenate(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    dim = bindings.int_attribute(op, "dimension")
    if any(dim in walk.extents.of(x) for x in args[:-1]):
        return [walk.extents.joined(args, types[0], dim)]
    return walk.emit(ConcatOp, args, types, dim=bindings.int_attribute(op, "dimension"))


def _gather(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    if not walk.movable(args[:1], types):
        return None
    x, indices = args[0], as_index(walk, args[1])
    dimensions, index_dim = bindings.gather_dimensions(op)
    sizes = bindings.int_array(op, "slice_sizes")
    return walk.emit(GatherOp, [x, indices], types, index_dim=index_dim, slice_sizes=sizes, **dimensions)


def _dynamic_slice(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    if not walk.movable(args[:1], types):
        return None
    operands = [args[0], *(as_index(walk, a) for a in args[1:])]
    return walk.emit(DynamicSliceOp, operands, types, sizes=bindings.int_array(op, "slice_sizes"))


def _dynamic_update_slice(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    if not walk.movable(args[:2], types):
        return None
    operands = [*args[:2], *(as_index(walk, a) for a in args[2:])]
    return walk.emit(DynamicUpdateSliceOp, operands, types)


def number_in(walk: Walk, x: SSAValue, i: int) -> SSAValue:
    """Number i of a vector as a scalar; a scalar itself."""
    if not shape_of(x):
        return x
    element = element_of(x)
    if shape_of(x)[0] > 1:
        (x,) = walk.emit(SliceOp, [x], [tensor([1], element)], starts=[i], limits=[i + 1], strides=[1])
    return walk.emit(ReshapeOp, [x], [tensor([], element)])[0]


def stacked(walk: Walk, numbers: Sequence[SSAValue]) -> SSAValue:
    """Scalars of one type, one behind the other."""
    element = element_of(numbers[0])
    parts = [walk.emit(ReshapeOp, [x], [tensor([1], element)])[0] for x in numbers]
    if len(parts) > 1:
        return walk.emit(ConcatOp, parts, [tensor([len(parts)], element)], dim=0)[0]
    return parts[0]


def as_index(walk: Walk, value: SSAValue) -> SSAValue:
    """`value`, of any integer type, as i32; users clamp it to a dimension, so saturation is exact."""
    name, shape = dtype_name(element_of(value)), shape_of(value)
    if name == "i32":
        return value
    known = constant_value(value)
    if known is not None:
        info = np.iinfo(np.int32)
        return walk.constant(
            Literal.of(np.asarray(np.clip(known.astype(object), info.min, info.max), np.int32))
        )
    result = tensor(shape, _I32)
    if walk.native([value], []):
        limits = np.iinfo(numpy_dtype(name))
        for function, limit in (("max", np.iinfo(np.int32).min), ("min", np.iinfo(np.int32).max)):
            if limits.min < limit < limits.max:
                bound = walk.fill(walk.scalar(limit, element_of(value)), shape)
                value = walk.elementwise(function, [value, bound], value.type)
        return walk.elementwise("convert", [value], result)
    return walk.host_call("stablehlo.convert", host_text(_convert_text(name, shape)), [value], [result])[0]


def _convert_text(name: str, shape: Sequence[int]) -> str:
    """StableHLO that converts a tensor of `name` to i32, as an open text."""
    source, index = (type_in_text(shape, n) for n in (name, "i32"))
    body = f"    %index = stablehlo.convert %x : ({source}) -> {index}\n    return %index : {index}\n"
    return f"module {{\n  func.func public @main(%x: {source}) -> {index} {{\n{body}  }}\n}}\n"


RULES: dict[str, Rule] = {
    "stablehlo.iota": _iota,
    "stablehlo.transpose": _transpose,
    "stablehlo.slice": _slice,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.concatenate": _concatenate,
}

STRUCTURAL: dict[str, Rule] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.broadcast": _broadcast,
    "stablehlo.reshape": _reshape,
    "stablehlo.gather": _gather,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
}
