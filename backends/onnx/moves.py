"""The same elements at other places: values of an ONNX graph that are moved, cut, joined and padded."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.dtypes import size
from .values import Value


def reshape(x: Value, shape: Sequence[int]) -> Value:
    if x.shape == tuple(shape):
        return x
    return x.writer.node("Reshape", [x, x.writer.ints(shape)], shape)


def transpose(x: Value, perm: Sequence[int]) -> Value:
    if list(perm) == sorted(perm):
        return x
    return x.writer.node("Transpose", [x], [x.shape[p] for p in perm], perm=list(perm))


def inverse(perm: Sequence[int]) -> list[int]:
    """The permutation that undoes one."""
    return [list(perm).index(d) for d in range(len(perm))]


def cut(x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None) -> Value:
    """`x[starts:limits:strides]`."""
    steps = strides or (1,) * len(x.shape)
    spec = list(zip(starts, limits, steps, x.shape, strict=True))
    axes = [d for d, (a, b, s, n) in enumerate(spec) if (a, b, s) != (0, n, 1)]
    if not axes:
        return x
    ints = x.writer.ints
    columns = [ints([column[d] for d in axes]) for column in (starts, limits)]
    shape = [-(-(b - a) // s) for a, b, s, _ in spec]
    return x.writer.node("Slice", [x, *columns, ints(axes), ints([steps[d] for d in axes])], shape)


def along(x: Value, dim: int, start: int, limit: int, stride: int = 1) -> Value:
    """`x[..., start:limit:stride, ...]` along one dimension."""
    rank = len(x.shape)
    starts, strides = [0] * rank, [1] * rank
    limits = list(x.shape)
    starts[dim], limits[dim], strides[dim] = start, limit, stride
    return cut(x, starts, limits, strides)


def reverse(x: Value, dims: Sequence[int]) -> Value:
    if not dims:
        return x
    ints = x.writer.ints
    ends = [-(x.shape[d] + 1) for d in dims]
    places = [ints([-1] * len(dims)), ints(ends), ints(dims), ints([-1] * len(dims))]
    return x.writer.node("Slice", [x, *places], x.shape)


def concat(parts: Sequence[Value], dim: int) -> Value:
    """Parts one after the other; those without elements are left out, where there are others."""
    kept = [p for p in parts if p.shape[dim]] or [parts[0]]
    if len(kept) == 1:
        return kept[0]
    shape = list(kept[0].shape)
    shape[dim] = sum(p.shape[dim] for p in kept)
    return kept[0].writer.node("Concat", kept, shape, axis=dim)


def pad(x: Value, value: Value | float, low: Sequence[int], high: Sequence[int]) -> Value:
    """x with elements of `value` (rank 0) around it; what is negative is cut off. Raises nothing for an empty x: all
    elements of the result are `value` then."""
    w = x.writer
    fill = value if isinstance(value, Value) else w.number(value, x.dtype)
    before, behind = [max(n, 0) for n in low], [max(n, 0) for n in high]
    shape = [n + lo + hi for n, lo, hi in zip(x.shape, before, behind, strict=True)]
    if not size(x.shape):
        padded = w.expand(fill, shape)
    elif any(before) or any(behind):
        padded = w.node("Pad", [x, w.ints([*before, *behind]), fill], shape, mode="constant")
    else:
        padded = x
    starts = [max(-n, 0) for n in low]
    return cut(padded, starts, [n - max(-hi, 0) for n, hi in zip(shape, high, strict=True)])


def spread(x: Value, value: Value | float, dim: int, interior: int) -> Value:
    """x with so many elements of `value` between its elements along a dimension."""
    n = x.shape[dim]
    if not interior or n < 2:
        return x
    before, behind = x.shape[:dim], x.shape[dim + 1 :]
    apart = reshape(x, [*before, n, 1, *behind])
    none = [0] * len(apart.shape)
    room = [interior if d == dim + 1 else 0 for d in range(len(none))]
    joined = reshape(pad(apart, value, none, room), [*before, n * (interior + 1), *behind])
    return along(joined, dim, 0, n * (interior + 1) - interior)
