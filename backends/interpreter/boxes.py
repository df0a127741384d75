"""Transfers of boxes between device tensors and tiles, and inside tiles.

A box is a slice. For a box that may reach outside its tensor, the part that surely exists is sliced and then moved into
place. For a box that repeats over a window, rows of the slice are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..functions.scope import Offset, is_static_index, traced
from .views import Plan, View, ViewAxis, plan_view, realise

LARGE = 1 << 13
"""So many elements take XLA longer to shift than to ask whether they must be."""

MOSTLY = 0.5
"""The share of boxes inside from which it pays to ask."""


def transposed(x: Array, order: Sequence[int], shape: Sequence[int], seen: Sequence[int] | None = None) -> Array:
    """`x`, seen as of shape `seen`, with its dimensions in another order, reshaped to `shape`. Those of one element
    take no part: so XLA sees it where one of these undoes another."""
    sizes = x.shape if seen is None else seen
    wide = [d for d, n in enumerate(sizes) if n != 1]
    moved = [wide.index(d) for d in order if sizes[d] != 1]
    if moved != sorted(moved):
        x = lax.transpose(lax.reshape(x, [sizes[d] for d in wide]), moved)
    return lax.reshape(x, tuple(shape))


@dataclass(frozen=True)
class DimensionSpan:
    """What a box takes along one dimension of a dense base: `start + p * step + w * window_step` for p <
    count and w < window, of which positions in [first, last) exist."""

    start: Offset
    count: int = 1
    step: int = 1
    window: int = 1
    window_step: int = 1
    first: int = 0
    last: int = 1

    @property
    def reach(self) -> tuple[int, int]:
        """The lowest and highest position, counted from `start`."""
        p, w = (self.count - 1) * self.step, (self.window - 1) * self.window_step
        return min(p, 0) + min(w, 0), max(p, 0) + max(w, 0)

    @property
    def inside(self) -> bool:
        """Whether all positions exist, whatever the indices are."""
        low, high = self.reach
        return self.start.low + low >= self.first and self.start.high + high < self.last

    def positions(self) -> Array:
        """All positions (i32, shape [count * window])."""
        p = lax.broadcasted_iota(np.int32, (self.count, self.window), 0) * np.int32(self.step)
        w = lax.broadcasted_iota(np.int32, (self.count, self.window), 1) * np.int32(self.window_step)
        return lax.reshape(p + w, (self.count * self.window,)) + traced(self.start.value)

    def exists(self, positions: Array) -> Array:
        return lax.bitwise_and(
            lax.ge(positions, np.int32(self.first)), lax.lt(positions, np.int32(self.last))
        )


def dimension_span(
    axis: ViewAxis, extent: int, offset: Offset, count: int, step: int, window: int, window_step: int
) -> DimensionSpan:
    """What a box takes of a view's dimension of size `extent`, in terms of the base."""
    ends = sorted((axis.start, axis.start + (extent - 1) * axis.step))
    return DimensionSpan(
        offset.scaled(axis.step, axis.start),
        count,
        step * axis.step if count > 1 else 1,
        window,
        window_step * axis.step if window > 1 else 1,
        ends[0],
        ends[1] + 1,
    )


def load(
    source: Array,
    view: View,
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
    fill: np.ndarray,
    shape: Sequence[int],
    window: Sequence[int] = (),
    window_steps: Sequence[int] = (),
) -> Array:
    """A tile of `shape`: the box of `sizes` of a view of a dense source, `fill` (shape []) outside the view.

    Element (p, w) is `view[offset_d + p_d * step_d + w_d * window_step_d]`; the elements of the tile,
    row-major, are those of [*sizes[:-1], *window, sizes[-1]].
    """
    rank = len(sizes)
    window = tuple(window) + (1,) * (rank - len(window))
    window_steps = tuple(window_steps) + (1,) * (rank - len(window_steps))
    if prod(shape) == 0 or 0 in view.shape:
        return lax.full(tuple(shape), fill)
    way = plan_view(source.shape, view)
    if way is None:
        source, view = realise(source, view), View.dense(view.shape)
        way = plan_view(source.shape, view)
        assert way is not None
    spans = [
        DimensionSpan(Offset.known(p), first=0, last=n) for p, n in zip(way.fixed, way.base, strict=True)
    ]
    for d, axis in enumerate(way.axes):
        if axis is not None:
            spans[axis.dim] = dimension_span(
                axis, view.shape[d], offsets[d], sizes[d], steps[d], window[d], window_steps[d]
            )
    x = _take_box(way.rebase(source), spans, fill)
    if None not in way.axes:
        return _in_view_order(x, spans, way, shape)
    repeats = [1 if axis is None else n for axis, n in zip(way.axes, sizes, strict=True)]
    windows = [1 if axis is None else n for axis, n in zip(way.axes, window, strict=True)]
    between = (*sizes[:-1], *window, sizes[-1])
    x = _in_view_order(x, spans, way, (*repeats[:-1], *windows, repeats[-1]))
    x = lax.broadcast_in_dim(x, between, range(x.ndim))
    for d, axis in enumerate(way.axes):
        if axis is None:
            span = DimensionSpan(
                offsets[d], sizes[d], steps[d], window[d], window_steps[d], last=view.shape[d]
            )
            x = _mask_repeated(x, (d if d < rank - 1 else 2 * rank - 1, rank - 1 + d), span, fill)
    return lax.reshape(x, tuple(shape))


def extract(
    source: Array,
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
    shape: Sequence[int],
    window: Sequence[int] = (),
    window_steps: Sequence[int] = (),
) -> Array:
    """A tile of `shape` from a box of another tile; as `load` does it."""
    nothing = np.zeros((), source.dtype)
    return load(source, View.dense(source.shape), offsets, sizes, steps, nothing, shape, window, window_steps)


def _take_box(base: Array, spans: Sequence[DimensionSpan], fill: np.ndarray) -> Array:
    """[count * window of each span]: the positions of the base, `fill` where they do not exist."""
    places = [_Place.of(s) for s in spans]
    repeated = any(s.window > 1 or not s.step for s in spans)
    strides = [1 if repeated else abs(s.step) for s in spans]
    early = [n if s.inside else 1 for n, s in zip(strides, spans, strict=True)]
    x = slice_at(base, [p.start for p in places], [p.width for p in places], early)
    if not all(s.inside for s in spans):
        counts = [-(-p.count // n) for p, n in zip(places, early, strict=True)]
        shifts = [p.shift for p in places]
        move = _shifted_at_edges if _at_edges(spans, x.size) else _shifted
        x = move(x, shifts, counts, fill)
    if repeated:
        return _take_repeated(x, spans)
    x = _thinned(x, [n if e == 1 else 1 for n, e in zip(strides, early, strict=True)])
    reverse = [d for d, s in enumerate(spans) if s.step < 0]
    return lax.rev(x, reverse) if reverse else x


@dataclass(frozen=True)
class _Place:
    """Where a span is in its base: `width` positions from `start` on, which exist, hold all of its `count` consecutive
    positions that do. The first of these is `shift` behind `start`."""

    count: int
    width: int
    start: Any
    shift: Offset

    @staticmethod
    def of(s: DimensionSpan) -> _Place:
        low, high = s.reach
        count, wanted = high - low + 1, s.start.scaled(1, low)
        if s.inside:
            return _Place(count, count, wanted.value, Offset.known(0))
        width = min(count, s.last - s.first)
        start = s.first if width == s.last - s.first else _clamp(wanted.value, s.first, s.last - width)
        if is_static_index(wanted.value):
            return _Place(count, width, start, Offset.known(wanted.value - start))
        away = wanted.value if is_static_index(start) and not start else lax.sub(wanted.value, traced(start))
        lowest, highest = min(wanted.low - s.first, 0), max(wanted.high - (s.last - width), 0)
        return _Place(count, width, start, Offset(away, lowest, highest))


def _thinned(x: Array, strides: Sequence[int]) -> Array:
    """Every so many elements of each dimension."""
    return lax.slice(x, [0] * x.ndim, x.shape, strides) if any(n > 1 for n in strides) else x


def _at_edges(spans: Sequence[DimensionSpan], size: int) -> bool:
    """Whether it pays to ask if a box of `size` elements sticks out: loops take many of them, and most lie inside."""
    if size < LARGE or all(s.start.still for s in spans):
        return False
    inside = 1.0
    for s in spans:
        low, high = s.reach
        first, last = max(s.start.low, s.first - low), min(s.start.high, s.last - 1 - high)
        inside *= max(last - first + 1, 0) / (s.start.high - s.start.low + 1)
    return inside > MOSTLY


def _shifted_at_edges(x: Array, shifts: Sequence[Offset], sizes: Sequence[int], fill: np.ndarray) -> Array:
    """As `_shifted`, but a box that lies inside stays as it is."""
    away = reduce(
        lax.bitwise_or, [lax.ne(s.value, np.int32(0)) for s in shifts if not is_static_index(s.value)]
    )
    return lax.cond(away, lambda x: _shifted(x, shifts, sizes, fill), lambda x: x, x)


def _shifted(x: Array, shifts: Sequence[Offset], sizes: Sequence[int], fill: np.ndarray) -> Array:
    """[sizes]: element i of a dimension is element `i + shift` of x, `fill` where x has none.

    A slice of x with room around it: XLA makes one loop of that, and copies runs of it.
    """
    room, starts = [], []
    # from further away nothing of x is seen
    reaches = [
        [min(max(end, -n), extent) for end in (shift.low, shift.high)]
        for shift, n, extent in zip(shifts, sizes, x.shape, strict=True)
    ]
    if all(is_static_index(s.value) for s in shifts):
        ends = [(-at, n + at - extent) for (at, _), n, extent in zip(reaches, sizes, x.shape, strict=True)]
        if all(low <= 0 and high <= 0 for low, high in ends):
            return slice_at(x, [-low for low, _ in ends], sizes)
        return lax.pad(x, np.asarray(fill, x.dtype), [(*end, 0) for end in ends])
    for shift, (low, high), n, extent in zip(shifts, reaches, sizes, x.shape, strict=True):
        before, after = max(-low, 0), max(high + n - extent, 0)
        room.append((before, after, 0))
        value = shift.value if (low, high) == (shift.low, shift.high) else _clamp(shift.value, low, high)
        starts.append(
            value + before
            if is_static_index(value)
            else lax.add(value, np.int32(before))
            if before
            else value
        )
    return slice_at(lax.pad(x, np.asarray(fill, x.dtype), room), starts, sizes)


def _take_repeated(x: Array, spans: Sequence[DimensionSpan]) -> Array:
    """[count * window of each span] of a box that begins at the lowest position of each, some of them repeatedly."""
    spans = [replace(s, start=Offset.known(-s.reach[0])) for s in spans]
    *outer, lane = spans
    if lane.window > 1 or lane.step != 1:
        for d, s in enumerate(spans):
            x = take(x, s.positions(), d)
        return x
    shape = [s.count * s.window for s in spans]
    at: Any = np.int32(0)
    for d, s in enumerate(outer):
        step = np.int32(prod(x.shape[d + 1 :]))
        at = at + lax.broadcast_in_dim(s.positions() * step, shape[:-1], (d,))
    at = lax.reshape(at, (prod(shape[:-1]),))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.reshape(_rows_at(lax.reshape(x, (x.size,)), at, lane.count, mode), shape)


def _rows_at(flat: Array, at: Array, width: int, mode: lax.GatherScatterMode) -> Array:
    """[at.size, width]: runs of a flat array."""
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(), start_index_map=(0,))
    return lax.gather(flat, lax.reshape(at, (at.size, 1)), numbers, (width,), mode=mode)


def take(x: Array, index: Array | np.ndarray, d: int) -> Array:
    """x at these indices (i32, in bounds) of dimension d."""
    kept = tuple(i for i in range(x.ndim) if i != d)
    numbers = lax.GatherDimensionNumbers(offset_dims=kept, collapsed_slice_dims=(d,), start_index_map=(d,))
    sizes = [1 if i == d else s for i, s in enumerate(x.shape)]
    rows = lax.reshape(jnp.asarray(index), (index.size, 1))
    return lax.gather(x, rows, numbers, sizes, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _in_view_order(x: Array, spans: Sequence[DimensionSpan], way: Plan, shape: Sequence[int]) -> Array:
    """[count * window of each base dimension] to [*counts[:-1], *windows, counts[-1]] of the view, without dimensions
    that it repeats, reshaped to `shape`."""
    named = [a.dim for a in way.axes if a is not None]
    others = [b for b in range(len(spans)) if b not in named]
    lane = named[-1:] if way.axes and way.axes[-1] is not None else []
    outer = named[: len(named) - len(lane)]
    order = [*(2 * b for b in outer), *(2 * b + 1 for b in named), *(2 * b for b in lane)]
    order += [2 * b + i for b in others for i in (0, 1)]
    return transposed(x, order, shape, [n for s in spans for n in (s.count, s.window)])


def _mask_repeated(x: Array, dims: tuple[int, int], span: DimensionSpan, fill: np.ndarray) -> Array:
    """`fill` where a dimension of the view, which repeats one element, is left. `dims` of x: its count, its window."""
    if span.inside:
        return x
    here = lax.reshape(span.exists(span.positions()), (span.count, span.window))
    here = lax.broadcast_in_dim(here if dims[0] < dims[1] else here.T, x.shape, sorted(dims))
    return lax.select(here, x, lax.full_like(x, fill))


def slice_at(x: Array, starts: Sequence[Any], sizes: Sequence[int], strides: Sequence[int] = ()) -> Array:
    """A slice of these sizes, of which every so many elements: `lax.slice` where all starts are known."""
    if tuple(sizes) == x.shape:
        return _thinned(x, strides)
    if all(is_static_index(s) for s in starts):
        return lax.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)], strides or None)
    return _thinned(
        lax.dynamic_slice(x, [traced(s) for s in starts], sizes, allow_negative_indices=False), strides
    )


# -- stores ------------------------------------------------------------------------------------------------


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
    way = plan_view(dest.shape, view)
    if way is None or way.skip or way.pad or None in way.axes:
        raise ValueError(f"cannot store through {view} of a tensor {list(dest.shape)}")
    spans = [DimensionSpan(Offset.known(p), last=n) for p, n in zip(way.fixed, way.base, strict=True)]
    owner: list[int | None] = [None] * len(spans)
    for d, axis in enumerate(way.axes):
        assert axis is not None
        spans[axis.dim] = dimension_span(axis, view.shape[d], offsets[d], sizes[d], steps[d], 1, 1)
        owner[axis.dim] = d
    x = lax.reshape(tile, tuple(sizes))
    order = [d for d in owner if d is not None]
    if order != sorted(order):
        x = lax.transpose(x, order)
    x = lax.reshape(x, [s.count for s in spans])
    if reverse := [d for d, s in enumerate(spans) if s.step < 0]:
        x = lax.rev(x, reverse)
    if any(abs(s.step) > 1 for s in spans):
        x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, abs(s.step) - 1 if s.count > 1 else 0) for s in spans])
    base = lax.reshape(dest, way.base)
    places = [_Place.of(s) for s in spans]
    starts, widths = [p.start for p in places], [p.width for p in places]
    if not all(s.inside for s in spans):
        x = _shifted(x, [p.shift.scaled(-1, 0) for p in places], widths, np.zeros((), x.dtype))
    shifts = [p.shift.value for p in places]
    mask = _written(spans, shifts, widths)
    if mask is not None:
        x = lax.select(mask, x, slice_at(base, starts, widths))
    if x.shape != base.shape:
        x = lax.dynamic_update_slice(base, x, [traced(s) for s in starts], allow_negative_indices=False)
    return lax.reshape(x, dest.shape)


def _clamp(value: Any, low: int, high: int) -> Any:
    if is_static_index(value):
        return min(max(value, low), high)
    return lax.clamp(np.int32(low), value, np.int32(high))


def _written(spans: Sequence[DimensionSpan], shifts: Sequence[Any], shape: Sequence[int]) -> Array | None:
    """Which elements of the updated part of the destination the tile replaces (i1, `shape`); None for all."""
    mask: Array | None = None
    for d, (s, shift) in enumerate(zip(spans, shifts, strict=True)):
        step = abs(s.step) if s.count > 1 else 1
        if s.inside and step == 1:
            continue
        low, high = 0, (s.count - 1) * step
        if step == 1 and is_static_index(shift) and low <= -shift and shape[d] - 1 - shift <= high:
            continue
        at = lax.iota(np.int32, shape[d]) - traced(shift)
        here = lax.bitwise_and(lax.ge(at, np.int32(low)), lax.le(at, np.int32(high)))
        if step > 1:
            here = lax.bitwise_and(here, lax.eq(lax.rem(at, np.int32(step)), np.int32(0)))
        here = lax.broadcast_in_dim(here, tuple(shape), (d,))
        mask = here if mask is None else lax.bitwise_and(mask, here)
    return mask


# -- indirect loads ----------------------------------------------------------------------------------------


def gather_boxes(source: Array, view: View, index: Array, sizes: Sequence[int]) -> Array:
    """[index.size, *sizes]: for each flat element offset in `index`, the box of the view that starts
    there."""
    flat = lax.reshape(source, (source.size,))
    run, lead, expected = 1, len(sizes), 1
    while lead and (sizes[lead - 1] == 1 or view.strides[lead - 1] == expected):
        lead -= 1
        run *= sizes[lead]
        expected = run
    outer = np.full(tuple(sizes[:lead]), view.offset, np.int32)
    for d in range(lead):
        step = np.arange(sizes[d], dtype=np.int32) * view.strides[d]
        outer = outer + step.reshape([-1 if i == d else 1 for i in range(lead)])
    at = lax.convert_element_type(lax.reshape(index, (index.size,)), np.int32)
    shape = (index.size, outer.size)
    rows = lax.add(
        lax.broadcast_in_dim(at, shape, (0,)), lax.broadcast_in_dim(outer.reshape(-1), shape, (1,))
    )
    x = _rows_at(flat, lax.reshape(rows, (rows.size,)), run, lax.GatherScatterMode.CLIP)
    return lax.reshape(x, (index.size, *sizes))
