"""Select-and-scatter, the gradient of pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from xdsl.ir import SSAValue

from ...dialects.dtypes import dtype_name, element_type, size, tensor
from ...dialects.elementwise import SCATTERS, identity
from ...dialects.graph import IotaOp, ReshapeOp, ScatterOp, SelectAndScatterOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.graph.selecting import COMBINES, SELECTS
from .. import bindings
from ..bindings import Op
from ..walk import BOOLEAN, Rule, Walk
from .base import Results, Types, Values
from .bodies import choose, existing, padded, region_function, windowed
from .reductions import Tree, kinds_of, trees_of, with_init

MOST_PLACES = 64
"""A kernel of graph.select_and_scatter writes out what it does for each place of a window and for each element between
two windows. Where there are more, there are few windows, which a scatter takes."""

_I32 = element_type("i32")
_TURNED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}
"""Comparisons with their operands the other way round."""
_ORDERS: dict[Tree, str] = {
    **{(name, 0, 1): name for name in SELECTS},
    **{(name, 1, 0): turned for name, turned in _TURNED.items()},
}


def _select_and_scatter(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    x, source, init = args
    shape, element = shape_of(x), element_of(x)
    if x.type != types[0] or element_of(source) != element or element == BOOLEAN:
        return None
    scalar = tensor([], element)
    kinds = kinds_of(trees_of(walk.region(op.regions[1], [scalar, scalar])), types)
    if kinds is None or kinds[0] not in COMBINES:
        return None
    if size(shape) == 0 or size(shape_of(source)) == 0:
        return [walk.fill(init, shape)]
    ones = (1,) * len(shape)
    window, strides = (bindings.int_array(op, f"window_{n}") or ones for n in ("dimensions", "strides"))
    low, high = bindings.padding(op, len(shape))
    select = trees_of(walk.region(op.regions[0], [scalar, scalar]))
    order = _ORDERS.get(select[0]) if select else None
    if order is not None and max(math.prod(window), math.prod(strides)) <= MOST_PLACES:
        (result,) = walk.emit(
            SelectAndScatterOp,
            [x, source],
            types,
            select=order,
            kind=kinds[0],
            window=window,
            strides=strides,
            low=low,
            high=high,
        )
        return [with_init(walk, result, init, kinds[0])]
    function = region_function(walk, op.regions[0], [element, element])
    if function is None or kinds[0] not in SCATTERS or size(shape) > np.iinfo(np.int32).max:
        return None
    place = _places(walk, function, x, (window, strides, low, high))
    neutral = walk.fill(walk.scalar(identity(kinds[0], dtype_name(element)), element), [size(shape), 1])
    count = size(shape_of(source))
    operands = [neutral, _shaped(walk, place, [count]), _shaped(walk, source, [count, 1])]
    (result,) = walk.emit(ScatterOp, operands, [neutral.type], kind=kinds[0])
    return [with_init(walk, _shaped(walk, result, shape), init, kinds[0])]


def _places(
    walk: Walk, select: Callable[[Values], Values], x: SSAValue, spec: tuple[tuple[int, ...], ...]
) -> SSAValue:
    """The number of the element of x that each window selects, -1 where it has none."""
    window, strides, low, high = spec
    shape, ones = shape_of(x), (1,) * len(window)

    def combine(before: Values, after: Values) -> Values:
        (keep,) = select([before[0], after[0]])
        return choose(walk, keep, before, after)

    (number,) = walk.emit(IotaOp, [], [tensor([size(shape)], _I32)], dim=0)
    xs = [x, _shaped(walk, number, shape)]
    if not any((*low, *high)):
        return windowed(walk, combine, xs, window, strides, ones)[1]
    xs = [padded(walk, v, low, high) for v in (*xs, walk.fill(walk.scalar(True, BOOLEAN), shape))]
    _, place, some = windowed(walk, existing(walk, combine), xs, window, strides, ones)
    none = walk.fill(walk.scalar(-1, _I32), shape_of(place))
    return walk.elementwise("select", [some, place, none], place.type)


def _shaped(walk: Walk, x: SSAValue, shape: tuple[int, ...] | list[int]) -> SSAValue:
    if shape_of(x) == tuple(shape):
        return x
    return walk.emit(ReshapeOp, [x], [tensor(shape, element_of(x))])[0]


RULES: dict[str, Rule] = {"stablehlo.select_and_scatter": _select_and_scatter}
