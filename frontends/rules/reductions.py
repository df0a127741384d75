"""Reductions over dimensions and windows, recognised by what their bodies compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute, BlockArgument, Region, SSAValue

from ...dialects.dtypes import dtype_name, is_complex, shape_in, size, tensor
from ...dialects.elementwise import LINEAR, REDUCTION_FUNCTION, identity
from ...dialects.graph import (
    ArgReduceOp,
    ElementwiseOp,
    IotaOp,
    PadOp,
    ReduceOp,
    ReduceWindowOp,
    ReshapeOp,
)
from ...dialects.graph.interface import element_of, shape_of
from .. import bindings
from ..bindings import Op
from ..walk import BOOLEAN, Rule, Walk
from .base import Results, Types, Values, scalar_value
from .bodies import combining, cumulated, existing, padded, reduced, region_function, started, windowed

Tree = tuple[Any, ...] | int
"""What a scalar of a body is: the number of a block argument, or (function, operand trees...)."""

_KINDS = {function: kind for kind, function in REDUCTION_FUNCTION.items()}
_COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})
_MAX_BODY = 16
"""Longer bodies are no reduction we know, and trees of them could grow exponentially."""


def trees_of(region: Region) -> list[Tree] | None:
    """What each yielded value of a body computes; None where it is not scalar functions of the arguments."""
    block = region.block
    last = block.last_op
    if last is None or sum(1 for _ in block.ops) > _MAX_BODY:
        return None
    trees = [_tree(v) for v in last.operands]
    return None if None in trees else [t for t in trees if t is not None]


def _tree(value: SSAValue) -> Tree | None:
    if isinstance(value, BlockArgument):
        return value.index
    op = value.owner
    if not isinstance(op, ElementwiseOp):
        return None
    operands = [_tree(v) for v in op.operands]
    if None in operands:
        return None
    if op.FUNCTION.name in _COMMUTATIVE:
        operands.sort(key=repr)
    return (op.FUNCTION.name, *operands)


def body_trees(walk: Walk, region: Any, types: Sequence[Any]) -> list[Tree] | None:
    """What a body makes of two elements of each of `types`; None where it is not scalar functions."""
    elements = [t.element_type for t in types]
    key = bindings.single_op(region)
    if key is None:
        return _converted(walk, region, elements)
    key = (*key, *elements)
    if key not in walk.bodies:
        walk.bodies[key] = _converted(walk, region, elements)
    return walk.bodies[key]


def _converted(walk: Walk, region: Any, elements: Sequence[Attribute]) -> list[Tree] | None:
    scalars = [tensor([], element) for element in elements]
    return trees_of(walk.region(region, [*scalars, *scalars]))


def kinds_of(trees: list[Tree] | None, types: Types) -> list[str] | None:
    """The reduction of each operand, where the body combines each with itself only."""
    found = [kind_of(tree, i, len(trees or ())) for i, tree in enumerate(trees or ())]
    kinds = [k for k in found if k is not None]
    return kinds if kinds and len(kinds) == len(found) and linear(kinds, types) else None


def linear(kinds: Sequence[str], types: Types) -> bool:
    """Whether each kind is one that treats the parts of complex numbers each by itself, where they are combined."""
    return all(k in LINEAR or not is_complex(t.element_type) for k, t in zip(kinds, types, strict=True))


def kind_of(tree: Tree, i: int, n: int) -> str | None:
    """The reduction that combines argument i with argument i + n."""
    if not isinstance(tree, tuple) or tree[0] not in _KINDS or tree[1:] != (i, i + n):
        return None
    return _KINDS[tree[0]]


def _is_neutral(init: SSAValue, kind: str) -> bool:
    return scalar_value(init) == identity(kind, dtype_name(element_of(init)))


def with_init(walk: Walk, result: SSAValue, init: SSAValue, kind: str) -> SSAValue:
    """`result` combined with the start value, which the graph's reductions do not take."""
    if _is_neutral(init, kind):
        return result
    start = walk.fill(init, shape_of(result))
    return walk.elementwise(REDUCTION_FUNCTION[kind], [result, start], result.type)


def _reduce(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    n = len(types)
    inputs, inits, dims = args[:n], args[n:], bindings.int_array(op, "dimensions")
    if any(shape_of(inputs[0])[d] == 0 for d in dims):
        starts = [_as(walk, init, t.element_type) for init, t in zip(inits, types, strict=True)]
        return [walk.fill(start, shape_in(t)) for start, t in zip(starts, types, strict=True)]
    trees = body_trees(walk, op.regions[0], types)
    if (arg := _arg_kind(trees, inputs, inits, dims)) is not None:
        return walk.emit(ArgReduceOp, inputs[:1], types, kind=arg, dim=dims[0])
    inputs = [_as(walk, x, t.element_type) for x, t in zip(inputs, types, strict=True)]
    kinds = kinds_of(trees, types)
    if kinds is None:
        return _reduce_any(walk, op, inputs, inits, dims, types)
    results = []
    for x, init, kind, t in zip(inputs, inits, kinds, types, strict=True):
        result = walk.emit(ReduceOp, [x], [t], kind=kind, dims=dims)[0]
        results.append(with_init(walk, result, init, kind))
    return results


def _as(walk: Walk, x: SSAValue, element: Attribute) -> SSAValue:
    """x in the element type that a body computes in."""
    return x if element_of(x) == element else walk.elementwise("convert", [x], tensor(shape_of(x), element))


def _reduce_any(
    walk: Walk, op: Op, inputs: Values, inits: Values, dims: Sequence[int], types: Types
) -> Results:
    """A reduction by any function of scalars."""
    walk.extents.refuse(inputs)
    combine = combining(walk, op.regions[0], [t.element_type for t in types])
    if combine is None:
        return None
    shape = shape_of(inputs[0])
    if size(shape) == 0:
        return [walk.fill(init, shape_in(t)) for init, t in zip(inits, types, strict=True)]
    made = reduced(walk, combine, inputs, dims)
    if dims:
        made = [walk.emit(ReshapeOp, [x], [t])[0] for x, t in zip(made, types, strict=True)]
    return started(walk, combine, inits, made)


def _arg_trees(beats: str) -> list[Tree]:
    """JAX's argmax (`gt`) or argmin (`lt`) body on (value, index, other value, other index).

    A NaN wins over any number; among equals the lower index wins.
    """
    wins = ("or", *sorted([(beats, 0, 2), ("ne", 0, 0)], key=repr))
    tie = ("and", *sorted([("eq", 0, 2), ("lt", 1, 3)], key=repr))
    return [("select", wins, 0, 2), ("select", ("or", *sorted([wins, tie], key=repr)), 1, 3)]


_ARG_KINDS = {"max": _arg_trees("gt"), "min": _arg_trees("lt")}


def _arg_kind(trees: list[Tree] | None, inputs: Values, inits: Values, dims: Sequence[int]) -> str | None:
    """`max` or `min` where a reduction of (x, iota along its dimension) is JAX's argmax or argmin."""
    kind = next((k for k, t in _ARG_KINDS.items() if t == trees), None)
    if kind is None or len(dims) != 1:
        return None
    positions = inputs[1].owner
    if not isinstance(positions, IotaOp) or positions.dim.value.data != dims[0]:
        return None
    return kind if _is_neutral(inits[0], kind) and scalar_value(inits[1]) == 0 else None


@dataclass(frozen=True)
class Windows:
    """Where windows lie: a number for each dimension. base: one more than what goes between elements of the operand."""

    window: Sequence[int]
    strides: Sequence[int]
    dilation: Sequence[int]
    base: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]


def _reduce_window(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    rank = len(shape_in(types[0]))
    strides, dilation, base = (
        bindings.int_array(op, name) or (1,) * rank
        for name in ("window_strides", "window_dilations", "base_dilations")
    )
    spec = Windows(
        bindings.int_array(op, "window_dimensions"), strides, dilation, base, *bindings.padding(op, rank)
    )
    return window_reduction(walk, op.regions[0], args, types, spec)


def window_reduction(walk: Walk, region: Any, args: Values, types: Types, spec: Windows) -> Results:
    """Operands and, behind them, their start values, combined over windows by a body."""
    n = len(types)
    kinds = kinds_of(body_trees(walk, region, types), types)
    args = [*(_as(walk, x, t.element_type) for x, t in zip(args[:n], types, strict=True)), *args[n:]]
    if kinds is None:
        return _windows_of_any(walk, region, args[:n], args[n:], types, spec)
    interior = [d - 1 for d in spec.base]
    results = []
    for x, init, kind, t in zip(args[:n], args[n:], kinds, types, strict=True):
        # As in XLA, windows skip what is outside of the operand, whatever the start value is.
        spread = _spread(walk, x, kind, interior) if any(interior) else x
        result = walk.emit(
            ReduceWindowOp,
            [spread],
            [t],
            kind=kind,
            window=spec.window,
            strides=spec.strides,
            dilation=spec.dilation,
            low=spec.low,
            high=spec.high,
        )[0]
        results.append(with_init(walk, result, init, kind))
    return results


def _windows_of_any(
    walk: Walk, region: Any, inputs: Values, inits: Values, types: Types, spec: Windows
) -> Results:
    """Windows combined by any function of scalars; they skip what is outside of the operands."""
    walk.extents.refuse(inputs)
    combine, shape = combining(walk, region, [t.element_type for t in types]), shape_of(inputs[0])
    if combine is None:
        return None
    if size(shape_in(types[0])) == 0 or size(shape) == 0:
        return [walk.fill(init, shape_in(t)) for init, t in zip(inits, types, strict=True)]
    rank = len(shape)
    low, high, window = spec.low, spec.high, spec.window
    strides, dilation, base = spec.strides, spec.dilation, spec.base
    wide = [d for d, w in enumerate(window) if w > 1]
    if len(wide) == 1 and {*strides, *dilation, *base} == {1}:
        (d,) = wide
        others = any(low[i] or high[i] for i in range(rank) if i != d)
        ends, n = (low[d], high[d]), shape[d]
        if not others and window[d] == n and ends in ((n - 1, 0), (0, n - 1)):
            made = cumulated(walk, combine, inputs, d, ends[0] == 0)
            return started(walk, combine, inits, made)
    interior = [d - 1 for d in base]
    if any((*low, *high, *interior)):
        there = walk.fill(walk.scalar(True, BOOLEAN), shape)
        inputs = [padded(walk, x, low, high, interior) for x in (*inputs, there)]
        *made, some = windowed(walk, existing(walk, combine), inputs, window, strides, dilation)
        begun = started(walk, combine, inits, made)
        empty = [walk.fill(init, shape_in(t)) for init, t in zip(inits, types, strict=True)]
        return [walk.elementwise("select", [some, a, b], a.type) for a, b in zip(begun, empty, strict=True)]
    return started(walk, combine, inits, windowed(walk, combine, inputs, window, strides, dilation))


def _map(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    function = region_function(walk, op.regions[0], [element_of(x) for x in args])
    return None if function is None or not args else function(args)


def _spread(walk: Walk, x: SSAValue, kind: str, interior: list[int]) -> SSAValue:
    """x with `interior` neutral elements between its own."""
    element, zeros = element_of(x), (0,) * len(interior)
    neutral = walk.scalar(identity(kind, dtype_name(element)), element)
    shape = [d + max(d - 1, 0) * i for d, i in zip(shape_of(x), interior, strict=True)]
    padded = tensor(shape, element)
    return walk.emit(PadOp, [x, neutral], [padded], low=zeros, high=zeros, interior=interior)[0]


RULES: dict[str, Rule] = {
    "stablehlo.map": _map,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
}
