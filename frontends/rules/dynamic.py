"""Ops whose shapes are operands.

These operands are sizes, which the walk over a program with open dimensions knows as numbers or `OpenSize`s; the
operands that a rule gets are the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ...dialects.dtypes import tensor
from ...dialects.graph import GatherOp, IotaOp, PadOp, ReduceWindowOp, ReshapeOp, SliceOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from .. import bindings
from ..bindings import Op
from ..open_shapes import Sized, window_counts
from ..walk import Rule, Walk
from . import movement
from .base import Results, Types, Values
from .movement import as_index
from .reductions import kinds_of, trees_of, with_init

CallRule = Callable[[Walk, Op, Values, Sequence[Sequence[int]]], Results]


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


def _windows(walk: Walk, op: Op, args: Values, numbers: Sequence[Sequence[int]]) -> Results:
    """A reduction over windows as long as a dimension, which JAX exports as a call of the function of its body."""
    window, strides, base, dilation, border = numbers
    if any_open(base) or set(base) != {1}:
        return None
    n = len(args) // 2
    symbols = bindings.callees(op, walk.symbols)
    scalars = [tensor([], element_of(x)) for x in args[:n]]
    trees = trees_of(walk.region(walk.symbols[symbols[0]].regions[0], [*scalars, *scalars]))
    low, high = border[0::2], border[1::2]
    shape = window_counts(shape_of(args[0]), window, strides, low, high, dilation, base)
    types = [tensor(shape, element_of(x)) for x in args[:n]]
    kinds = kinds_of(trees, types)
    if kinds is None:
        return None
    lists = {"window": window, "strides": strides, "dilation": dilation, "low": low, "high": high}
    results = []
    for x, init, kind, t in zip(args[:n], args[n:], kinds, types, strict=True):
        (made,) = walk.emit(ReduceWindowOp, [x], [t], kind=kind, **lists)
        results.append(with_init(walk, made, init, kind))
    return results


DYNAMIC_CALLS: dict[str, tuple[int, CallRule]] = {"stablehlo.dynamic_reduce_window": (5, _windows)}
"""Custom calls whose last operands, so many, are sizes, and their rules, which get these as numbers."""

DYNAMIC_RULES: dict[str, Rule] = {
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_reshape": movement.STRUCTURAL["stablehlo.reshape"],
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_pad": _pad,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.dynamic_gather": _gather,
}
"""Rules for the walk over programs with open dimensions; for any element types."""
