"""Ops whose shapes are operands.

These operands are sizes, which the walk over a program with open dimensions knows as numbers or `OpenSize`s; the
operands that a rule gets are the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from xdsl.ir import SSAValue

from ...dialects.dtypes import element_type, tensor
from ...dialects.graph import DynamicSliceOp, GatherOp, PadOp, ReshapeOp, SliceOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open, certain
from .. import bindings
from ..attributes import called
from ..bindings import Op, Value
from ..open_shapes import (
    CUSTOM_CALL,
    REDUCE_WINDOW,
    RNG_BITS,
    TOP_K,
    Sized,
    known_sizes,
    slice_extents,
    window_numbers,
)
from ..walk import Rule, Walk
from . import control, movement
from .base import Results, Types, Values
from .contractions import convolved
from .movement import as_index, number_in
from .random_bits import RULES as RANDOM
from .reductions import Windows, window_reduction
from .sorting import largest


def _sizes(walk: Walk, op: Op, place: int) -> Sequence[int] | None:
    """The sizes that an operand is; None where they are not known."""
    return known_sizes(cast("Sized", walk), op.operands[place])


def _pad(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    low, high, interior = (_sizes(walk, op, i) for i in (2, 3, 4))
    if low is None or high is None or interior is None:
        return None
    if not any_open([*low, *high, *interior]) and not any((*low, *high, *interior)):
        return args[:1]
    return walk.emit(PadOp, args, types, low=low, high=high, interior=interior)


# -- slices ------------------------------------------------------------------------------------------------


def _slice(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    starts, limits, strides = (_sizes(walk, op, i) for i in (1, 2, 3))
    if strides is None:
        return None
    if starts is None or limits is None:
        return _slice_at_data(walk, op, args, types, strides)
    if args[0].type == types[0]:
        return args
    return walk.emit(SliceOp, args, types, starts=starts, limits=limits, strides=strides)


def _slice_at_data(walk: Walk, op: Op, args: Values, types: Types, strides: Sequence[int]) -> Results:
    """A slice of known extents that begins where data says."""
    extents = slice_extents(cast("Sized", walk), op)
    if extents is None or not walk.movable(args, types):
        return None
    x = args[0]
    highest = [n - e for n, e in zip(shape_of(x), extents, strict=True)]
    begins = _unclamped(walk, op.operands[1], highest)
    starts = [as_index(walk, s) for s in _elements(walk, begins, len(extents))]
    box = tensor(extents, element_of(x))
    (made,) = walk.emit(DynamicSliceOp, [x, *starts], [box], sizes=extents)
    if all(s == 1 for s in strides):
        return [made]
    return walk.emit(SliceOp, [made], types, starts=[0] * len(extents), limits=extents, strides=strides)


def _unclamped(walk: Walk, starts: Value, highest: Sequence[int]) -> Value:
    """What a start is before it is clamped as a dynamic slice clamps it in any case."""
    made = bindings.owner(starts)
    if made is None or made.operation.name != "stablehlo.clamp":
        return starts
    least, inner, most = made.operands
    low, high = (known_sizes(cast("Sized", walk), v) for v in (least, most))
    if low is None or high is None or len(low) != len(highest) or len(high) != len(highest):
        return starts
    same = all(certain(a, "==", 0) for a in low)
    same = same and all(certain(a, "==", b) for a, b in zip(high, highest, strict=True))
    return inner if same else starts


def _elements(walk: Walk, value: Value, count: int) -> list[SSAValue]:
    """The numbers of a vector as scalars: those that it is put together from, where it is."""
    sized = cast("Sized", walk)
    numbers = known_sizes(sized, value)
    if numbers is not None:
        parts = bindings.tensor_parts(value.type)
        assert parts is not None
        return [walk.scalar(n, element_type(parts[1])) for n in numbers]
    made = bindings.owner(value)
    name = None if made is None else made.operation.name
    if made is not None and name == "stablehlo.concatenate":
        lengths = [bindings.tensor_parts(v.type) for v in made.operands]
        return [
            x
            for v, parts in zip(made.operands, lengths, strict=True)
            if parts is not None
            for x in _elements(walk, v, parts[0][0])
        ]
    if made is not None and name == "stablehlo.reshape" and count == 1:
        return [number_in(walk, sized.value(made.operands[0]), 0)]
    whole = sized.value(value)
    return [number_in(walk, whole, i) for i in range(count)]


# -- gathers -----------------------------------------------------------------------------------------------


def _gather(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    sizes = _sizes(walk, op, 2)
    if sizes is None or not walk.movable(args[:1], types):
        return None
    dimensions, index_dim = bindings.gather_dimensions(op)
    starts = _one_place(walk, op, args, dimensions, sizes)
    if starts is not None:
        limits = [a + n for a, n in zip(starts, sizes, strict=True)]
        box = tensor(sizes, element_of(args[0]))
        (made,) = walk.emit(SliceOp, args[:1], [box], starts=starts, limits=limits, strides=[1] * len(sizes))
        return [made] if made.type == types[0] else walk.emit(ReshapeOp, [made], types)
    operands = [args[0], as_index(walk, args[1])]
    return walk.emit(GatherOp, operands, types, index_dim=index_dim, slice_sizes=sizes, **dimensions)


def _one_place(
    walk: Walk, op: Op, args: Values, dimensions: Mapping[str, Sequence[int]], sizes: Sequence[int]
) -> list[int] | None:
    """Where the only slice of a gather begins, if that is known and inside of its table: `x[:n]` is such a gather."""
    places, shape = _sizes(walk, op, 1), shape_of(args[0])
    if places is None or len(shape_of(args[1])) != 1 or dimensions["x_batch"]:
        return None
    starts = [0] * len(shape)
    for d, place in zip(dimensions["start_map"], places, strict=True):
        starts[d] = place
    inside = all(a >= 0 and a + n <= extent for a, n, extent in zip(starts, sizes, shape, strict=True))
    return starts if inside else None


# -- by element types ---------------------------------------------------------------------------------------


def _where(asks: Callable[[Walk, Values, Types], bool], rule: Rule) -> Rule:
    """A rule for some element types: `Walk.native` asks for those that the device computes with, `Walk.movable` for
    those that it has, complex numbers among them."""
    return lambda walk, op, args, types: rule(walk, op, args, types) if asks(walk, args, types) else None


def _convolution(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    padding = _sizes(walk, op, 2)
    return None if padding is None else convolved(walk, op, args, types, padding[::2], padding[1::2])


def _reduce_window(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    numbers, functions = window_numbers(cast("Sized", walk), op), called(op)
    if numbers is None or len(functions) != 1:
        return None
    window, strides, base, dilation, low, high = numbers
    spec = Windows(window, strides, dilation, base, low, high)
    return window_reduction(walk, walk.symbols[functions[0]].regions[0], args, types, spec)


def _top_k(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    count = _sizes(walk, op, 1)
    return None if count is None else largest(walk, args[0], types, count[0])


def _custom_call(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    rule = _CALLS.get(bindings.string(op, "call_target_name"), control.RULES[CUSTOM_CALL])
    return rule(walk, op, args, types)


_CALLS: dict[str, Rule] = {
    REDUCE_WINDOW: _where(Walk.native, _reduce_window),
    TOP_K: _where(Walk.native, _top_k),
    RNG_BITS: RANDOM["stablehlo.rng_bit_generator"],
}
"""Rules for the custom calls that stand for ops with shapes for operands."""

DYNAMIC_RULES: dict[str, Rule] = {
    CUSTOM_CALL: _custom_call,
    "stablehlo.dynamic_broadcast_in_dim": movement.STRUCTURAL["stablehlo.broadcast_in_dim"],
    "stablehlo.dynamic_reshape": movement.STRUCTURAL["stablehlo.reshape"],
    "stablehlo.dynamic_iota": _where(Walk.native, movement.RULES["stablehlo.iota"]),
    "stablehlo.dynamic_pad": _where(Walk.movable, _pad),
    "stablehlo.real_dynamic_slice": _where(Walk.movable, _slice),
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.dynamic_conv": _where(Walk.native, _convolution),
}
"""Rules for the walk over programs with open dimensions."""
