"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from ...dialects.dtypes import dtype_name, element_type, is_float, tensor
from ...dialects.graph import ContractOp, ConvOp, ReshapeOp, ReverseOp, TransposeOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.quantized import quantized
from .. import bindings
from ..bindings import Op
from ..walk import Rule, Walk
from .base import Results, Types, Values

_F32 = element_type("f32")


def _operands(walk: Walk, args: Values, types: Types) -> Values | None:
    """Both operands with one element type, whose products the result's can hold; None where the host must."""
    elements = [element_of(a) for a in args]
    if any(map(quantized, (a.type for a in args))):
        return args  # the verifier knows which go together
    names = {*map(dtype_name, elements), dtype_name(types[0].element_type)}
    pairs = {n[0] == "c" for n in names}
    if "i1" in names or len({is_float(n) for n in names}) > 1 or len(pairs) > 1:
        return None
    if elements[0] == elements[1]:
        return args
    if not is_float(elements[0]):
        return None
    return [
        a if e == _F32 else walk.elementwise("convert", [a], tensor(shape_of(a), _F32))
        for a, e in zip(args, elements, strict=True)
    ]


def _dot_general(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    operands = _operands(walk, args, types)
    return operands and walk.emit(ContractOp, operands, types, **bindings.dot_dimensions(op))


def _dot(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    operands = _operands(walk, args, types)
    last = len(shape_of(args[0])) - 1
    return operands and walk.emit(
        ContractOp, operands, types, lhs_batch=(), rhs_batch=(), lhs_contract=[last], rhs_contract=[0]
    )


def _convolution(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    low, high = bindings.padding(op, len(bindings.conv_dimensions(op)["rhs_layout"]) - 2)
    return convolved(walk, op, args, types, low, high)


def convolved(
    walk: Walk, op: Op, args: Values, types: Types, low: Sequence[int], high: Sequence[int]
) -> Results:
    """A convolution with so much padding along each spatial dimension."""
    layouts = bindings.conv_dimensions(op)
    spatial = layouts["rhs_layout"][2:]
    if not 1 <= len(spatial) <= 3:
        return None
    operands = _operands(walk, args, types)
    if operands is None:
        return None
    lhs, rhs = operands
    groups = bindings.int_attribute(op, "feature_group_count", 1)
    batch_groups = bindings.int_attribute(op, "batch_group_count", 1)
    if batch_groups > 1:
        batch, feature, *_ = layouts["lhs_layout"]
        lhs = _grouped_features(walk, lhs, batch, feature, batch_groups)
        groups = batch_groups
    reversal = bindings.int_array(op, "window_reversal")
    backwards = [d for d, r in zip(spatial, reversal, strict=bool(reversal)) if r]
    if backwards:
        rhs = walk.emit(ReverseOp, [rhs], [rhs.type], dims=backwards)[0]
    ones = (1,) * len(spatial)
    return walk.emit(
        ConvOp,
        [lhs, rhs],
        types,
        strides=bindings.int_array(op, "window_strides") or ones,
        low=low,
        high=high,
        lhs_dilation=bindings.int_array(op, "lhs_dilation") or ones,
        rhs_dilation=bindings.int_array(op, "rhs_dilation") or ones,
        groups=groups,
        **layouts,
    )


def _grouped_features(walk: Walk, x: SSAValue, batch: int, feature: int, groups: int) -> SSAValue:
    """x with its batch in `groups` parts, which are parts of the features instead: a part meets its own outputs either
    way."""
    shape, element = list(shape_of(x)), element_of(x)
    parts = [*shape[:batch], groups, shape[batch] // groups, *shape[batch + 1 :]]
    (x,) = walk.emit(ReshapeOp, [x], [tensor(parts, element)])
    others = [d for d in range(len(parts)) if d != batch]
    others.insert(others.index(feature + (feature > batch)), batch)
    (x,) = walk.emit(TransposeOp, [x], [tensor([parts[d] for d in others], element)], perm=others)
    shape[batch] //= groups
    shape[feature] *= groups
    return walk.emit(ReshapeOp, [x], [tensor(shape, element)])[0]


RULES: dict[str, Rule] = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.convolution": _convolution,
}
