"""Reductions, windows and cumulative ops whose body is any function of scalars.

StableHLO lets a body be taken for associative. So it is applied to whole tensors, a few neighbours at a time: always
in their order, since it need not be commutative. Slices and pads of operands are folded into the loads of the kernels
that this becomes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Block, BlockArgument, SSAValue

from ...dialects.dtypes import element_type, size, tensor
from ...dialects.graph import ConstantOp, ElementwiseOp, IotaOp, PadOp, SliceOp
from ...dialects.graph.interface import element_of, shape_of
from ..walk import BOOLEAN, Walk
from .base import Values

Combine = Callable[[Values, Values], Values]
"""What a body makes of the tensors before and after: one for each operand, all of one shape."""

NEIGHBOURS = 16
"""So many elements are combined at once at most: each is a load of its own in one kernel."""

RADIX = 4
"""How many pieces a step of a cumulative op joins. More make fewer kernels, but apply the body more often."""

_I32 = element_type("i32")


def plain_body(walk: Walk, region: Any, elements: Sequence[Any]) -> tuple[Block, Values] | None:
    """A region on scalars of these element types, and what it yields; None where it holds more than scalar functions
    and constants."""
    body = walk.region(region, [tensor([], e) for e in elements]).block
    last = body.last_op
    if last is None or not all(
        isinstance(op, ElementwiseOp | ConstantOp) for op in body.ops if op is not last
    ):
        return None
    return body, list(last.operands)


def on_tensors(walk: Walk, values: Values, known: dict[SSAValue, SSAValue], shape: Sequence[int]) -> Values:
    """What `values` of a plain body are for the tensors `known` in place of its arguments; extends `known`."""

    def at(value: SSAValue) -> SSAValue:
        if value in known:
            return known[value]
        op = value.owner
        if isinstance(op, ConstantOp):
            made = walk.fill(walk.constant(op.value.data), shape)
        elif isinstance(op, ElementwiseOp):
            operands = [at(v) for v in op.operands]
            made = walk.emit(type(op), operands, [tensor(shape, element_of(value))])[0]
        else:  # from around the op
            made = walk.fill(value, shape)
        known[value] = made
        return made

    return [at(v) for v in values]


def arguments_of(value: SSAValue) -> set[int]:
    """The arguments of its body that a scalar depends on."""
    pending, found, seen = [value], set[int](), set[SSAValue]()
    while pending:
        v = pending.pop()
        if v in seen:
            continue
        seen.add(v)
        if isinstance(v, BlockArgument):
            found.add(v.index)
        elif isinstance(v.owner, ElementwiseOp):
            pending += v.owner.operands
    return found


def region_function(walk: Walk, region: Any, elements: Sequence[Any]) -> Callable[[Values], Values] | None:
    """A region on scalars of these element types, as a function of tensors of one shape; None where `plain_body` has
    none."""
    found = plain_body(walk, region, elements)
    if found is None:
        return None
    body, results = found

    def apply(operands: Values) -> Values:
        known: dict[SSAValue, SSAValue] = dict(zip(body.args, operands, strict=True))
        return on_tensors(walk, results, known, shape_of(operands[0]))

    return apply


def combining(walk: Walk, region: Any, elements: Sequence[Any]) -> Combine | None:
    """The body of a reduction of operands of these element types; None where `region_function` has none."""
    function = region_function(walk, region, [*elements, *elements])
    return None if function is None else lambda before, after: function([*before, *after])


def _chain(combine: Combine, parts: Sequence[Values]) -> Values:
    """Neighbours, in their order, by halves."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return combine(_chain(combine, parts[:middle]), _chain(combine, parts[middle:]))


def _slice(
    walk: Walk, x: SSAValue, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]
) -> SSAValue:
    shape = [max(-(-(b - a) // s), 0) for a, b, s in zip(starts, limits, strides, strict=True)]
    if tuple(shape) == shape_of(x):
        return x
    out = tensor(shape, element_of(x))
    return walk.emit(SliceOp, [x], [out], starts=starts, limits=limits, strides=strides)[0]


def _cut(walk: Walk, x: SSAValue, d: int, start: int, limit: int, stride: int = 1) -> SSAValue:
    """`x[start:limit:stride]` along dimension d."""
    shape = shape_of(x)
    ends = [limit if i == d else n for i, n in enumerate(shape)]
    steps = [stride if i == d else 1 for i in range(len(shape))]
    return _slice(walk, x, [start if i == d else 0 for i in range(len(shape))], ends, steps)


def padded(
    walk: Walk, x: SSAValue, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None = None
) -> SSAValue:
    """x with zeros around it, and `interior` of them between its elements."""
    between = interior or [0] * len(low)
    if not any((*low, *high, *between)):
        return x
    spec = zip(shape_of(x), low, high, between, strict=True)
    shape = [max(n + max(n - 1, 0) * i + lo + hi, 0) for n, lo, hi, i in spec]
    element = element_of(x)
    zero = walk.scalar(0, element)
    return walk.emit(PadOp, [x, zero], [tensor(shape, element)], low=low, high=high, interior=between)[0]


def choose(walk: Walk, mask: SSAValue, first: Values, second: Values) -> Values:
    """`first` where the mask is true, `second` elsewhere."""
    pairs = zip(first, second, strict=True)
    return [walk.elementwise("select", [mask, a, b], a.type) for a, b in pairs]


def _beyond(walk: Walk, shape: Sequence[int], d: int, function: str, limit: int) -> SSAValue:
    """Where the position along dimension d compares so with `limit`."""
    (place,) = walk.emit(IotaOp, [], [tensor(shape, _I32)], dim=d)
    bound = walk.fill(walk.scalar(limit, _I32), shape)
    return walk.elementwise(function, [place, bound], tensor(shape, BOOLEAN))


def started(walk: Walk, combine: Combine, inits: Values, xs: Values) -> Values:
    """The start values combined with xs."""
    return combine([walk.fill(init, shape_of(x)) for init, x in zip(inits, xs, strict=True)], xs)


def reduced(walk: Walk, combine: Combine, xs: Values, dims: Sequence[int]) -> Values:
    """xs combined along `dims`, which have elements and keep size 1: groups of neighbours, until one is left."""
    for d in sorted(dims, reverse=True):
        while (n := shape_of(xs[0])[d]) > 1:
            fitting = [g for g in range(NEIGHBOURS, 3, -1) if n % g == 0]
            group = n if n <= NEIGHBOURS else (fitting or [NEIGHBOURS // 2])[0]
            xs = _grouped(walk, combine, xs, d, group)
    return xs


def _grouped(walk: Walk, combine: Combine, xs: Values, d: int, group: int) -> Values:
    """Each `group` neighbours along d combined; the last group may have fewer."""
    n = shape_of(xs[0])[d]
    count, full = -(-n // group), n - (-(-n // group) - 1) * group
    whole = [[_cut(walk, x, d, k, n, group) for x in xs] for k in range(full)]
    made = _chain(combine, whole)
    for k in range(full, group):
        part = [_cut(walk, x, d, k, n, group) for x in xs]
        behind = [int(i == d) for i in range(len(shape_of(xs[0])))]
        part = [padded(walk, x, [0] * len(behind), behind) for x in part]
        there = _beyond(walk, shape_of(part[0]), d, "lt", count - 1)
        made = choose(walk, there, combine(made, part), made)
    return made


def cumulated(walk: Walk, combine: Combine, xs: Values, d: int, reverse: bool) -> Values:
    """Each element combined with all before it along d (behind it where `reverse`): each step joins `RADIX` pieces."""
    shape = shape_of(xs[0])
    n, width = shape[d], 1
    while width < n:
        made = xs
        for shift in range(width, min(RADIX * width, n), width):
            edge, zeros = [shift if i == d else 0 for i in range(len(shape))], [0] * len(shape)
            if reverse:
                moved = [padded(walk, _cut(walk, x, d, shift, n), zeros, edge) for x in xs]
                there = _beyond(walk, shape, d, "lt", n - shift)
                joined = combine(made, moved)
            else:
                moved = [padded(walk, _cut(walk, x, d, 0, n - shift), edge, zeros) for x in xs]
                there = _beyond(walk, shape, d, "ge", shift)
                joined = combine(moved, made)
            made = choose(walk, there, joined, made)
        xs, width = made, RADIX * width
    return xs


def existing(walk: Walk, combine: Combine) -> Combine:
    """A body that takes one more operand, bools, and leaves elements out where they are false."""

    def extended(before: Values, after: Values) -> Values:
        *xs, left = before
        *ys, right = after
        only = choose(walk, left, combine(xs, ys), ys)
        return [*choose(walk, right, only, xs), walk.elementwise("or", [left, right], left.type)]

    return extended


def windowed(
    walk: Walk,
    combine: Combine,
    xs: Values,
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> Values:
    """xs combined over windows that lie inside."""
    shape = shape_of(xs[0])
    spec = zip(shape, window, strides, dilation, strict=True)
    counts = [(n - (w - 1) * step - 1) // s + 1 for n, w, s, step in spec]
    if size(window) <= NEIGHBOURS:
        parts = []
        for tap in itertools.product(*(range(w) for w in window)):
            starts = [k * step for k, step in zip(tap, dilation, strict=True)]
            limits = [a + (c - 1) * s + 1 for a, c, s in zip(starts, counts, strides, strict=True)]
            parts.append([_slice(walk, x, starts, limits, strides) for x in xs])
        return _chain(combine, parts)
    for d in reversed(range(len(shape))):
        xs = _along(walk, combine, xs, d, window[d], dilation[d], strides[d], counts[d])
    return xs


def _along(
    walk: Walk, combine: Combine, xs: Values, d: int, window: int, step: int, stride: int, out: int
) -> Values:
    """xs combined over `window` places of dimension d, `step` apart, for `out` starts, `stride` apart: from partial
    results over 1, 2, 4... places."""
    total: Values | None = None
    done, part, width = 0, xs, 1
    while done < window:
        if window & width:
            first = done * step
            piece = [_cut(walk, x, d, first, first + (out - 1) * stride + 1, stride) for x in part]
            total = piece if total is None else combine(total, piece)
            done += width
        if done < window:
            length = shape_of(part[0])[d]
            left = [_cut(walk, x, d, 0, length - width * step) for x in part]
            part = combine(left, [_cut(walk, x, d, width * step, length) for x in part])
            width *= 2
    assert total is not None
    return total
