"""Many elements to one, as nodes of ONNX: reductions, windows, running sums, sorts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import is_float, itemsize, size
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import (
    ArgReduceOp,
    CumulateOp,
    IotaOp,
    ReduceOp,
    ReduceWindowOp,
    SelectAndScatterOp,
    SortOp,
)
from ...dialects.graph.reductions import window_count
from .elementwise import node_of
from .errors import Unsayable
from .moves import along, inverse, pad, reshape, transpose
from .values import Value, type_of
from .writer import OnnxWriter

_REDUCE = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
_OF_TRUTH = {"sum": "ReduceMax", "or": "ReduceMax", "max": "ReduceMax", "prod": "ReduceMin", "and": "ReduceMin",
             "min": "ReduceMin"}  # fmt: skip


def combine(kind: str, x: Value, y: Value) -> Value:
    """Two partial results of a reduction."""
    return node_of(REDUCTION_FUNCTION[kind], x, y)


def neutral(kind: str, w: OnnxWriter, dtype: str) -> Value:
    return w.number(identity(kind, dtype), dtype)


def widened(x: Value, kind: str) -> Value:
    """Sums and products of narrow floats are in f32, and rounded once."""
    return x.cast("f32") if kind in ("sum", "prod") and is_float(x.dtype) and itemsize(x.dtype) < 4 else x


def reduce(op: ReduceOp, w: OnnxWriter) -> Value:
    return reduced(w.full(op.x), text(op.kind), to_ints(op.dims))


def reduced(x: Value, kind: str, dims: Sequence[int]) -> Value:
    """x combined along dimensions, which disappear."""
    w = x.writer
    shape = [n for d, n in enumerate(x.shape) if d not in dims]
    if not size(x.shape):
        return w.expand(neutral(kind, w, x.dtype), shape)
    if not dims:
        return x
    node = (_OF_TRUTH if x.dtype == "i1" else _REDUCE).get(kind)
    if node is not None:
        return w.node(node, [widened(x, kind), w.ints(dims)], shape, keepdims=0).cast(x.dtype)
    for d in dims:  # of bits
        x = windows(x, kind, d, x.shape[d])
    return reshape(x, shape)


def arg_reduce(op: ArgReduceOp, w: OnnxWriter) -> list[Value | None]:
    x, dim, kind = w.full(op.x), integer(op.dim), text(op.kind)
    shape, (_, index) = [n for d, n in enumerate(x.shape) if d != dim], type_of(op.index)
    value = place = None
    if op.value.uses.get_length():
        value = reduced(x, kind, [dim])
    if op.index.uses.get_length():
        place = w.node(f"Arg{kind.title()}", [x], shape, "i64", axis=dim, keepdims=0).cast(index)
    return [value, place]


# -- windows ---------------------------------------------------------------------------------------------------


def windows(x: Value, kind: str, dim: int, window: int, dilation: int = 1) -> Value:
    """Each window along a dimension combined to its first position: two windows of half the size, and of one element
    more where the size is odd."""
    if window == 1:
        return x
    half, n = window // 2, x.shape[dim]
    part = windows(x, kind, dim, half, dilation)
    pair = n - (2 * half - 1) * dilation
    made = combine(kind, along(part, dim, 0, pair), along(part, dim, half * dilation, half * dilation + pair))
    if window == 2 * half:
        return made
    left = n - 2 * half * dilation
    return combine(kind, along(made, dim, 0, left), along(x, dim, 2 * half * dilation, n))


@dataclass(frozen=True)
class Pooled:
    """What a MaxPool gives, with the dimensions of its operand in the order `perm`."""

    perm: list[int]
    values: list[Value]


def reduce_window(op: ReduceWindowOp, w: OnnxWriter) -> Value:
    x, kind = w.full(op.x), text(op.kind)
    window, strides, dilation, low, high = (
        to_ints(p) for p in (op.window, op.strides, op.dilation, op.low, op.high)
    )
    wide = [d for d, n in enumerate(window) if n > 1]
    if len(wide) == 1 and window[wide[0]] == x.shape[wide[0]] and not any(n != 1 for n in strides):
        d, ends = wide[0], [(lo, hi) for lo, hi in zip(low, high, strict=True) if (lo, hi) != (0, 0)]
        if dilation[d] == 1 and ends in ([(window[d] - 1, 0)], [(0, window[d] - 1)]) and (low[d], high[d]) == ends[0]:
            return running(x, kind, d, low[d] == 0)
    if kind == "max" and is_float(x.dtype) and size(x.shape):
        pooled = _pool(x, window, strides, dilation, low, high)
        if pooled is not None:
            return transpose(pooled.values[0], inverse(pooled.perm))
    dtype, x = x.dtype, widened(x, kind)
    x = pad(x, neutral(kind, w, x.dtype), low, high)
    for d, (n, step, apart) in enumerate(zip(window, strides, dilation, strict=True)):
        x = windows(x, kind, d, n, apart)
        x = along(x, d, 0, x.shape[d], step)
    return x.cast(dtype)


def _pool(
    x: Value, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int], low: Sequence[int],
    high: Sequence[int], places: bool = False,
) -> Pooled | None:  # fmt: skip
    """The maxima of windows by a MaxPool, with `places` the place of each in the value that is pooled, flat; None where
    it has no form for them: it goes along three dimensions at most, and each window has an element of x."""
    spec = list(zip(window, strides, dilation, low, high, strict=True))
    spatial = [d for d, (n, step, _, lo, hi) in enumerate(spec) if (n, step, lo, hi) != (1, 1, 0, 0)]
    if not 1 <= len(spatial) <= 3:
        return None
    kernel, steps, apart, before, behind = (list(column) for column in zip(*(spec[d] for d in spatial), strict=True))
    spans = [(n - 1) * step + 1 for n, step in zip(kernel, apart, strict=True)]
    if any(not 0 <= n < s for ends in (before, behind) for n, s in zip(ends, spans, strict=True)):
        return None
    perm = [*(d for d in range(len(x.shape)) if d not in spatial), *spatial]
    moved = transpose(x, perm)
    lead = moved.shape[: -len(spatial)] if len(spatial) == len(perm) - 2 else (1, size(moved.shape[: -len(spatial)]))
    inner = [moved.shape[i - len(spatial)] for i in range(len(spatial))]
    counts = [window_count(n + lo + hi, s, step, 1) for n, lo, hi, s, step in zip(inner, before, behind, spans, steps)]
    options = {"kernel_shape": kernel, "strides": steps, "dilations": apart, "pads": [*before, *behind]}
    outputs = [((*lead, *counts), x.dtype), ((*lead, *counts), "i64")][: 1 + places]
    made = x.writer.nodes("MaxPool", [reshape(moved, [*lead, *inner])], outputs, **options)
    shape = [*moved.shape[: -len(spatial)], *counts]
    return Pooled(perm, [reshape(v, shape) for v in made])


def cumulate(op: CumulateOp, w: OnnxWriter) -> Value:
    return running(w.full(op.x), text(op.kind), integer(op.dim), bool(integer(op.reverse)))


def running(x: Value, kind: str, dim: int, reverse: bool) -> Value:
    """Each element combined with all before it along a dimension, or with all behind it."""
    w, dtype, x = x.writer, x.dtype, widened(x, kind)
    node = {"sum": "CumSum", "prod": "CumProd"}.get(kind)
    if node is not None and dtype != "i1":
        return w.node(node, [x, w.number(dim, "i64")], x.shape, reverse=int(reverse)).cast(dtype)
    room, none = [x.shape[d] - 1 if d == dim else 0 for d in range(len(x.shape))], [0] * len(x.shape)
    ends = (none, room) if reverse else (room, none)
    return windows(pad(x, neutral(kind, w, x.dtype), *ends), kind, dim, x.shape[dim]).cast(dtype)


def select_and_scatter(op: SelectAndScatterOp, w: OnnxWriter) -> Value:
    """By the places that a MaxPool gives, and a ScatterElements over the flat tensor."""
    x, source = w.full(op.x), w.full(op.source)
    window, strides, low, high = (to_ints(p) for p in (op.window, op.strides, op.low, op.high))
    kind = text(op.kind)
    if text(op.select) != "ge" or not is_float(x.dtype):
        raise Unsayable(f"selects by '{text(op.select)}' of {x.dtype}: ONNX knows places of maxima of floats")
    found = _pool(x, window, strides, (1,) * len(window), low, high, places=True)
    if found is None:
        raise Unsayable("has windows that ONNX's MaxPool does not have")
    start = w.expand(neutral(kind, w, x.dtype), [size(x.shape)])
    flat = [reshape(v, [size(v.shape)]) for v in (found.values[1], transpose(source, found.perm))]
    reduction = {"sum": "add", "prod": "mul"}.get(kind, kind)
    made = w.node("ScatterElements", [start, *flat], start.shape, axis=0, reduction=reduction)
    return transpose(reshape(made, [x.shape[d] for d in found.perm]), inverse(found.perm))


# -- sorts -----------------------------------------------------------------------------------------------------


def sort(op: SortOp, w: OnnxWriter) -> list[Value | None]:
    """By TopK, which keeps the order of equals: by the least important key first."""
    dim, keep, order = integer(op.dim), op.kept(), op.order()
    shape, _ = type_of(op.xs[0])
    kept = tuple(keep if d == dim else n for d, n in enumerate(shape))
    keys = list(zip(order.operands, order.descending, strict=True))[::-1]
    places = first = None
    for number, (i, descending) in enumerate(keys, 1):
        ends, key = kept if number == len(keys) else shape, w.full(op.xs[i])
        key = key if places is None else _picked(key, places, dim)
        outputs = [(ends, key.dtype), (ends, "i64")]
        first, found = w.nodes("TopK", [key, w.ints([ends[dim]])], outputs, axis=dim, largest=int(descending))
        places = found if places is None else _picked(places, found, dim)
    assert places is not None
    made: list[Value | None] = []
    for i, (x, result) in enumerate(zip(op.xs, op.outputs, strict=True)):
        if not result.uses.get_length():
            made.append(None)
        elif isinstance(x.owner, IotaOp) and integer(x.owner.dim) == dim:
            made.append(places.cast(type_of(x)[1]))
        else:
            made.append(first if i == order.operands[0] else _picked(w.full(x), places, dim))
    return made


def _picked(x: Value, places: Value, dim: int) -> Value:
    return x.writer.node("GatherElements", [x, places], places.shape, axis=dim)
