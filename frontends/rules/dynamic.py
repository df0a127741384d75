"""Ops whose shapes are operands.

These operands are sizes, which the walk over a program with open dimensions knows as numbers or `OpenSize`s; the
operands that a rule gets are the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...dialects.dtypes import tensor
from ...dialects.graph import GatherOp, IotaOp, PadOp, ReshapeOp, SliceOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from .. import bindings
from ..bindings import Op
from ..open_shapes import Sized
from ..walk import Rule, Walk
from . import movement
from .base import Results, Types, Values
from .movement import as_index


def _sizes(walk: Walk, op: Op, place: int) -> Sequence[int] | None:
    """The sizes that an operand is; None where they are not known."""
    found: Any = cast("Sized", walk).numbers.get(op.operands[place])
    return None if found is None else list(found.reshape(-1))


def _broadcast(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    if args[0].type == types[0]:
        return args
    return [walk.broadcast(args[0], types[0], tuple(bindings.int_array(op, "broadcast_dimensions")))]


def _iota(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return walk.emit(IotaOp, [], types, dim=bindings.int_attribute(op, "iota_dimension"))


def _pad(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    low, high, interior = (_sizes(walk, op, i) for i in (2, 3, 4))
    if low is None or high is None or interior is None:
        return None
    if not any_open([*low, *high, *interior]) and not any((*low, *high, *interior)):
        return args[:1]
    return walk.emit(PadOp, args, types, low=low, high=high, interior=interior)


def _slice(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    starts, limits, strides = (_sizes(walk, op, i) for i in (1, 2, 3))
    if starts is None or limits is None or strides is None:
        return None
    if args[0].type == types[0]:
        return args
    return walk.emit(SliceOp, args, types, starts=starts, limits=limits, strides=strides)


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


DYNAMIC_RULES: dict[str, Rule] = {
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_reshape": movement.STRUCTURAL["stablehlo.reshape"],
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_pad": _pad,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.dynamic_gather": _gather,
}
"""Rules for the walk over programs with open dimensions; for any element types."""
