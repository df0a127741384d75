"""Transfers of boxes between device tensors and tiles, and inside tiles: slices and pads, no gathers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from jax import Array, lax

from .scope import Offset, known, traced
from .views import Axis, Plan, View, plan, realise


@dataclass(frozen=True)
class Cut:
    """The part of one base dimension that a box touches.

    The box wants `span` elements from `wanted` on. `width` elements from `start` on exist and are sliced; where the
    box may stick out, `low` and `high` elements of padding around them make room for the difference.
    """

    wanted: Any
    span: int
    start: Any
    width: int
    low: int = 0
    high: int = 0
    step: int = 1
    reverse: bool = False

    @property
    def padded(self) -> bool:
        return bool(self.low or self.high)

    @property
    def shift(self) -> Any:
        """Where the box begins, counted from `start` (at least -low)."""
        return self.wanted - self.start


def fixed_cut(position: int) -> Cut:
    return Cut(position, 1, position, 1)


def cut(axis: Axis, extent: int, offset: Offset, count: int, step: int) -> Cut:
    """The box of `count` elements with `step`, from `offset` on, of a view dimension of size `extent`."""
    stride = axis.step * step
    if count == 1 or stride == 0:
        stride, count = 1, 1
    at = offset.scaled(axis.step, axis.start)
    if stride < 0:
        at = at.scaled(1, (count - 1) * stride)
    span = (count - 1) * abs(stride) + 1
    ends = sorted((axis.start, axis.start + (extent - 1) * axis.step))
    first, last = ends[0], ends[1] + 1
    if at.low >= first and at.high + span <= last:
        return Cut(at.value, span, at.value, span, step=abs(stride), reverse=stride < 0)
    width = min(span, last - first)
    start = _clamp(at.value, first, last - width)
    low, high = max(0, first - at.low), max(span - width, at.high + span - last, 0)
    return Cut(at.value, span, start, width, low, high, abs(stride), stride < 0)


def _clamp(value: Any, low: int, high: int) -> Any:
    if known(value):
        return min(max(value, low), high)
    return lax.clamp(np.int32(low), value, np.int32(high))


def slice_at(x: Array, starts: Sequence[Any], sizes: Sequence[int]) -> Array:
    """`lax.slice` where all starts are known, `lax.dynamic_slice` elsewhere."""
    if tuple(sizes) == x.shape:
        return x
    if all(known(s) for s in starts):
        return lax.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    return lax.dynamic_slice(x, [traced(s) for s in starts], sizes, allow_negative_indices=False)


def update_at(x: Array, part: Array, starts: Sequence[Any]) -> Array:
    if part.shape == x.shape:
        return part
    return lax.dynamic_update_slice(x, part, [traced(s) for s in starts], allow_negative_indices=False)


def load(
    source: Array,
    view: View,
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
    fill: np.ndarray,
    shape: Sequence[int],
) -> Array:
    """A tile of `shape`: the box of `sizes` of a view of a dense source, `fill` (shape []) outside the view."""
    if prod(sizes) == 0:
        return lax.full(tuple(shape), fill)
    way = plan(source.shape, view)
    if way is None:
        source, view = realise(source, view), View.dense(view.shape)
        way = plan(source.shape, view)
        if way is None:  # an empty view: everything is outside
            return lax.full(tuple(shape), fill)
    cuts = [fixed_cut(p) for p in way.fixed]
    for d, axis in enumerate(way.axes):
        if axis is not None:
            cuts[axis.dim] = cut(axis, view.shape[d], offsets[d], sizes[d], steps[d])
    x = slice_at(way.rebase(source), [c.start for c in cuts], [c.width for c in cuts])
    if any(c.padded for c in cuts):
        x = lax.pad(x, fill, [(c.low, c.high, 0) for c in cuts])
        x = slice_at(x, [c.shift + c.low if c.padded else 0 for c in cuts], [c.span for c in cuts])
    if any(c.step > 1 for c in cuts):
        x = lax.slice(x, [0] * x.ndim, x.shape, [c.step for c in cuts])
    if reverse := [d for d, c in enumerate(cuts) if c.reverse]:
        x = lax.rev(x, reverse)
    x = _in_view_order(x, way)
    wanted = tuple(sizes)
    if x.shape != wanted:
        x = lax.broadcast_in_dim(x, wanted, range(x.ndim))
    for d, axis in enumerate(way.axes):
        if axis is None or steps[d] == 0:
            x = _mask_repeated(x, d, offsets[d], steps[d], view.shape[d], fill)
    return lax.reshape(x, tuple(shape))


def _in_view_order(x: Array, way: Plan) -> Array:
    """Base dimensions to view dimensions; where the view repeats, size 1."""
    named = [a.dim for a in way.axes if a is not None]
    others = [b for b in range(x.ndim) if b not in named]
    perm = [*named, *others]
    if perm != sorted(perm):
        x = lax.transpose(x, perm)
    sizes = iter(x.shape)
    return lax.reshape(x, [1 if a is None else next(sizes) for a in way.axes])


def _mask_repeated(x: Array, d: int, offset: Offset, step: int, extent: int, fill: np.ndarray) -> Array:
    """`fill` where a dimension that repeats one element leaves the view."""
    reach = (x.shape[d] - 1) * step
    if offset.low + min(0, reach) >= 0 and offset.high + max(0, reach) < extent:
        return x
    at = lax.broadcasted_iota(np.int32, x.shape, d) * np.int32(step) + traced(offset.value)
    inside = lax.bitwise_and(lax.ge(at, np.int32(0)), lax.lt(at, np.int32(extent)))
    return lax.select(inside, x, lax.full_like(x, fill))


def store(
    dest: Array,
    view: View,
    tile: Array,
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
) -> Array:
    """`dest` with the box of `sizes` of its view replaced by `tile`; elements outside the view are dropped.

    Raises ValueError for a view that is not a box of dest: nothing that writes makes one.
    """
    if prod(sizes) == 0 or 0 in view.shape:
        return dest
    way = plan(dest.shape, view)
    if way is None or way.skip or way.pad or None in way.axes:
        raise ValueError(f"cannot store through {view} of a tensor {list(dest.shape)}")
    cuts = [fixed_cut(p) for p in way.fixed]
    owner: list[int | None] = [None] * len(cuts)
    for d, axis in enumerate(way.axes):
        assert axis is not None
        cuts[axis.dim] = cut(axis, view.shape[d], offsets[d], sizes[d], steps[d])
        owner[axis.dim] = d
    x = lax.reshape(tile, tuple(sizes))
    order = [d for d in owner if d is not None]
    if order != sorted(order):
        x = lax.transpose(x, order)
    x = lax.reshape(x, [1 if d is None else sizes[d] for d in owner])
    if reverse := [d for d, c in enumerate(cuts) if c.reverse]:
        x = lax.rev(x, reverse)
    base = lax.reshape(dest, way.base)
    starts = [c.start for c in cuts]
    if any(c.padded or c.step > 1 for c in cuts):
        old = slice_at(base, starts, [c.width for c in cuts])
        x = lax.select(_written(cuts), _shifted(x, cuts), old)
    return lax.reshape(update_at(base, x, starts), dest.shape)


def _shifted(x: Array, cuts: Sequence[Cut]) -> Array:
    """The tile spread over its steps and moved to where it lies within the sliced part of the destination."""
    nothing = np.zeros((), x.dtype)
    if any(c.step > 1 for c in cuts):
        x = lax.pad(x, nothing, [(0, 0, c.step - 1) for c in cuts])
    if any(c.padded for c in cuts):
        x = lax.pad(x, nothing, [(c.high, c.low, 0) if c.padded else (0, 0, 0) for c in cuts])
        x = slice_at(x, [c.high - c.shift if c.padded else 0 for c in cuts], [c.width for c in cuts])
    return x


def _written(cuts: Sequence[Cut]) -> Array:
    """Which elements of the sliced part of the destination the tile replaces (i1, shape of widths)."""
    shape = tuple(c.width for c in cuts)
    mask = lax.full(shape, True)
    for d, c in enumerate(cuts):
        if not c.padded and c.step == 1:
            continue
        at = lax.broadcasted_iota(np.int32, shape, d) - traced(c.shift)
        if c.padded:
            inside = lax.bitwise_and(lax.ge(at, np.int32(0)), lax.lt(at, np.int32(c.span)))
            mask = lax.bitwise_and(mask, inside)
        if c.step > 1:
            mask = lax.bitwise_and(mask, lax.eq(lax.rem(at, np.int32(c.step)), np.int32(0)))
    return mask


# -- on-chip tiles -----------------------------------------------------------------------------------------


def extract(
    source: Array,
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
    window: Sequence[int] = (),
    window_steps: Sequence[int] = (),
) -> Array:
    """The box of a tile that starts at offsets, as [*sizes[:-1], *window, sizes[-1]] (window dims of 1 dropped).

    Element (p, w) is `source[offset_d + p_d * step_d + w_d * window_step_d]`.
    """
    rank = source.ndim
    window = tuple(window) + (1,) * (rank - len(window))
    window_steps = tuple(window_steps) + (1,) * (rank - len(window_steps))
    spec = list(zip(sizes, steps, window, window_steps, strict=True))
    low = [min(0, (n - 1) * s) for n, s, _, _ in spec]
    spans = [(n - 1) * abs(s) + 1 + (w - 1) * ws for n, s, w, ws in spec]
    x = slice_at(source, [o.scaled(1, lo).value for o, lo in zip(offsets, low, strict=True)], spans)
    extra = 0
    for d, (n, s, w, ws) in enumerate(spec):
        x = _windowed(x, d, n, s, w, ws)
        extra += w > 1
    if not extra:
        return x
    # dims: positions (rank), then one for each window dimension; the innermost position goes last
    return lax.transpose(x, [*range(rank - 1), *range(rank, rank + extra), rank - 1])


def _windowed(x: Array, d: int, n: int, step: int, window: int, window_step: int) -> Array:
    """Take every `step`-th of dimension d (backwards where negative); a window becomes a new last dimension."""
    if window > 1:
        positions = [
            _windowed(lax.slice_in_dim(x, w * window_step, x.shape[d], axis=d), d, n, step, 1, 1)
            for w in range(window)
        ]
        return lax.concatenate([lax.expand_dims(p, [p.ndim]) for p in positions], x.ndim)
    if step == 0:
        x = lax.slice_in_dim(x, 0, 1, axis=d)
        return lax.broadcast_in_dim(x, [n if i == d else s for i, s in enumerate(x.shape)], range(x.ndim))
    x = lax.slice_in_dim(x, 0, (n - 1) * abs(step) + 1, abs(step), axis=d)
    return lax.rev(x, [d]) if step < 0 else x


def gather_boxes(source: Array, view: View, index: Array, sizes: Sequence[int]) -> Array:
    """[index.size, *sizes]: for each flat element offset in `index`, the box of the view that starts there."""
    flat = lax.reshape(source, (source.size,))
    at = lax.convert_element_type(lax.reshape(index, (index.size, 1)), np.int32)
    run, lead, expected = 1, len(sizes), 1
    while lead and (sizes[lead - 1] == 1 or view.strides[lead - 1] == expected):
        lead -= 1
        run *= sizes[lead]
        expected = run
    outer = np.full(tuple(sizes[:lead]), view.offset, np.int32)
    for d in range(lead):
        step = np.arange(sizes[d], dtype=np.int32) * view.strides[d]
        outer = outer + step.reshape([-1 if i == d else 1 for i in range(lead)])
    shape = (index.size, outer.size)
    rows = lax.add(
        lax.broadcast_in_dim(at, shape, (0, 1)), lax.broadcast_in_dim(outer.reshape(-1), shape, (1,))
    )
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(), start_index_map=(0,))
    taken = lax.gather(flat, lax.reshape(rows, (rows.size, 1)), numbers, (run,), mode="clip")
    return lax.reshape(taken, (index.size, *sizes))
