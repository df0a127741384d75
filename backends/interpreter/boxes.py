"""Transfers of boxes between device tensors and tiles, and inside tiles.

A box that surely lies inside its tensor is a slice. One that may stick out, steps, or repeats over a window
is a gather of whole rows: XLA compiles that to straight copies, where a pad becomes a branch for each
element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .scope import Offset, known, traced
from .views import Axis, Plan, View, plan, realise


@dataclass(frozen=True)
class Span:
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

    @property
    def plain(self) -> bool:
        """Whether a slice takes exactly these positions, in some order."""
        return self.inside and self.window == 1 and abs(self.step) == 1

    def positions(self) -> Array:
        """All positions (i32, shape [count * window])."""
        p = lax.broadcasted_iota(np.int32, (self.count, self.window), 0) * np.int32(self.step)
        w = lax.broadcasted_iota(np.int32, (self.count, self.window), 1) * np.int32(self.window_step)
        return lax.reshape(p + w, (self.count * self.window,)) + traced(self.start.value)

    def clamped(self, positions: Array) -> Array:
        return lax.clamp(np.int32(self.first), positions, np.int32(self.last - 1))

    def exists(self, positions: Array) -> Array:
        return lax.bitwise_and(
            lax.ge(positions, np.int32(self.first)), lax.lt(positions, np.int32(self.last))
        )


def span_of(
    axis: Axis, extent: int, offset: Offset, count: int, step: int, window: int, window_step: int
) -> Span:
    """What a box takes of a view's dimension of size `extent`, in terms of the base."""
    ends = sorted((axis.start, axis.start + (extent - 1) * axis.step))
    return Span(
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
    way = plan(source.shape, view)
    if way is None:
        source, view = realise(source, view), View.dense(view.shape)
        way = plan(source.shape, view)
        assert way is not None
    spans = [Span(Offset.known(p), first=0, last=n) for p, n in zip(way.fixed, way.base, strict=True)]
    for d, axis in enumerate(way.axes):
        if axis is not None:
            spans[axis.dim] = span_of(
                axis, view.shape[d], offsets[d], sizes[d], steps[d], window[d], window_steps[d]
            )
    x = _in_view_order(_take_box(way.rebase(source), spans, fill), spans, way)
    # x: [*sizes, *window], with size 1 where the view repeats
    full = (*sizes, *window)
    if x.shape != full:
        x = lax.broadcast_in_dim(x, full, range(x.ndim))
    for d, axis in enumerate(way.axes):
        if axis is None:
            span = Span(offsets[d], sizes[d], steps[d], window[d], window_steps[d], last=view.shape[d])
            x = _mask_repeated(x, d, span, fill)
    if any(w > 1 for w in window):
        x = lax.transpose(x, [*range(rank - 1), *range(rank, 2 * rank), rank - 1])
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


def _take_box(base: Array, spans: Sequence[Span], fill: np.ndarray) -> Array:
    """[count * window of each span]: the positions of the base, `fill` where they do not exist."""
    if all(s.plain for s in spans):
        lows = [s.start.scaled(1, s.reach[0]).value for s in spans]
        x = slice_at(base, lows, [s.count for s in spans])
        reverse = [d for d, s in enumerate(spans) if s.step < 0]
        return lax.rev(x, reverse) if reverse else x
    x = _take_rows(base, spans)
    inside: Array | None = None
    for d, s in enumerate(spans):
        if not s.inside:
            here = lax.broadcast_in_dim(s.exists(s.positions()), x.shape, (d,))
            inside = here if inside is None else lax.bitwise_and(inside, here)
    return x if inside is None else lax.select(inside, x, lax.full_like(x, fill))


def _take_rows(base: Array, spans: Sequence[Span]) -> Array:
    """[count * window of each span]; anything where positions do not exist."""
    *outer, lane = spans
    width = base.shape[-1]
    if lane.window > 1 or lane.step != 1 or lane.count > width:
        return _take_each(base, spans)
    shape = [s.count * s.window for s in spans]
    if prod(shape) == lane.count and base.size == width and not lane.inside:
        chunk = _chunk(lane.count)
        if chunk < lane.count:
            # one long row: as rows of `chunk` elements, only the one across the end needs care
            rows = Span(lane.start, lane.count // chunk, chunk)
            return lax.reshape(_take_chunks(lax.reshape(base, (width,)), rows, chunk), shape)
    at: Any = traced(lane.start.value)
    for d, s in enumerate(outer):
        p = s.positions() if s.inside else s.clamped(s.positions())
        at = at + lax.broadcast_in_dim(p * np.int32(prod(base.shape[d + 1 :])), shape[:-1], (d,))
    flat = lax.reshape(base, (base.size,))
    at = lax.reshape(lax.broadcast(at, tuple(shape[:-1])) if np.ndim(at) == 0 else at, (prod(shape[:-1]),))
    x = _rows_at(flat, at, lane.count)
    if lane.start.low < 0:
        x = _replace_row(x, at, flat, traced(lane.start.value))
    if lane.start.high + lane.count > width:
        x = _replace_row(x, at, flat, traced(lane.start.value) + np.int32(base.size - width))
    return lax.reshape(x, shape)


def _chunk(count: int) -> int:
    """How many elements a piece of a long row has; `count` where it does not divide well."""
    return next((c for c in range(min(256, count), 15, -1) if count % c == 0), count)


def _take_chunks(row: Array, rows: Span, chunk: int) -> Array:
    """[rows.count, chunk]: consecutive pieces of a one-dimensional base from `rows.start` on."""
    at, start = rows.positions(), traced(rows.start.value)
    x = _rows_at(row, at, chunk)
    size = np.int32(chunk)
    if rows.start.low < 0:
        x = _replace_row(x, at, row, lax.rem(start, size))
    if rows.start.high + rows.count * chunk > row.size:
        left = lax.max(np.int32(row.size) - start, np.int32(0))
        x = _replace_row(x, at, row, start + lax.div(left, size) * size)
    return x


def _rows_at(flat: Array, at: Array, width: int) -> Array:
    """[at.size, width]: runs of a flat array; a run that would leave it is moved."""
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(), start_index_map=(0,))
    return lax.gather(flat, lax.reshape(at, (at.size, 1)), numbers, (width,), mode="clip")


def _replace_row(x: Array, at: Array, flat: Array, start: Array) -> Array:
    """x with each row that began at `start`, before or after which the array ends, taken element by
    element."""
    lanes = lax.clamp(np.int32(0), lax.iota(np.int32, x.shape[1]) + start, np.int32(flat.size - 1))
    row = lax.broadcast_in_dim(take(flat, lanes, 0), x.shape, (1,))
    return lax.select(lax.broadcast_in_dim(lax.eq(at, start), x.shape, (0,)), row, x)


def _take_each(base: Array, spans: Sequence[Span]) -> Array:
    """[count * window of each span], one dimension after the other; anything where positions do not exist."""
    for d, s in enumerate(spans):
        base = take(base, s.clamped(s.positions()), d)
    return base


def take(x: Array, index: Array | np.ndarray, d: int) -> Array:
    """x at these indices (i32, in bounds) of dimension d."""
    kept = tuple(i for i in range(x.ndim) if i != d)
    numbers = lax.GatherDimensionNumbers(offset_dims=kept, collapsed_slice_dims=(d,), start_index_map=(d,))
    sizes = [1 if i == d else s for i, s in enumerate(x.shape)]
    rows = lax.reshape(jnp.asarray(index), (index.size, 1))
    return lax.gather(x, rows, numbers, sizes, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _in_view_order(x: Array, spans: Sequence[Span], way: Plan) -> Array:
    """[count * window of each base dimension] to [*counts, *windows] of the view; 1 where the view
    repeats."""
    x = lax.reshape(x, [n for s in spans for n in (s.count, s.window)])
    named = [a.dim for a in way.axes if a is not None]
    others = [b for b in range(len(spans)) if b not in named]
    perm = [2 * b for b in named] + [2 * b + 1 for b in named] + [2 * b + i for b in others for i in (0, 1)]
    if perm != sorted(perm):
        x = lax.transpose(x, perm)
    counts = iter([spans[b].count for b in named] + [spans[b].window for b in named])
    return lax.reshape(x, [1 if a is None else next(counts) for _ in range(2) for a in way.axes])


def _mask_repeated(x: Array, d: int, span: Span, fill: np.ndarray) -> Array:
    """`fill` where dimension d of the view, which repeats one element, is left. x: [*counts, *windows]."""
    if span.inside:
        return x
    here = lax.reshape(span.exists(span.positions()), (span.count, span.window))
    here = lax.broadcast_in_dim(here, x.shape, (d, x.ndim // 2 + d))
    return lax.select(here, x, lax.full_like(x, fill))


def slice_at(x: Array, starts: Sequence[Any], sizes: Sequence[int]) -> Array:
    """`lax.slice` where all starts are known, `lax.dynamic_slice` elsewhere."""
    if tuple(sizes) == x.shape:
        return x
    if all(known(s) for s in starts):
        return lax.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    return lax.dynamic_slice(x, [traced(s) for s in starts], sizes, allow_negative_indices=False)


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
    way = plan(dest.shape, view)
    if way is None or way.skip or way.pad or None in way.axes:
        raise ValueError(f"cannot store through {view} of a tensor {list(dest.shape)}")
    spans = [Span(Offset.known(p), last=n) for p, n in zip(way.fixed, way.base, strict=True)]
    owner: list[int | None] = [None] * len(spans)
    for d, axis in enumerate(way.axes):
        assert axis is not None
        spans[axis.dim] = span_of(axis, view.shape[d], offsets[d], sizes[d], steps[d], 1, 1)
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
    starts, widths = [], []
    for s in spans:
        low, high = s.reach
        width = min(high - low + 1, s.last - s.first)
        wanted = s.start.scaled(1, low).value
        start = wanted if s.inside else _clamp(wanted, s.first, s.last - width)
        starts.append(start)
        widths.append(width)
    shifts = [s.start.scaled(1, s.reach[0]).value - at for s, at in zip(spans, starts, strict=True)]
    if not all(s.inside for s in spans):
        x = _moved(x, shifts, widths)
    mask = _written(spans, shifts, widths)
    if mask is not None:
        x = lax.select(mask, x, slice_at(base, starts, widths))
    if x.shape != base.shape:
        x = lax.dynamic_update_slice(base, x, [traced(s) for s in starts], allow_negative_indices=False)
    return lax.reshape(x, dest.shape)


def _clamp(value: Any, low: int, high: int) -> Any:
    if known(value):
        return min(max(value, low), high)
    return lax.clamp(np.int32(low), value, np.int32(high))


def _moved(x: Array, shifts: Sequence[Any], sizes: Sequence[int]) -> Array:
    """[sizes]: element i is element `i - shift` of x, or anything where x has none."""
    far = 1 << 30
    spans = []
    for shift, n, extent in zip(shifts, sizes, x.shape, strict=True):
        start = Offset.known(-shift) if known(shift) else Offset(-shift, -far, far)
        spans.append(Span(start, n, last=extent))
    return _take_rows(x, spans)


def _written(spans: Sequence[Span], shifts: Sequence[Any], shape: Sequence[int]) -> Array | None:
    """Which elements of the updated part of the destination the tile replaces (i1, `shape`); None for all."""
    mask: Array | None = None
    for d, (s, shift) in enumerate(zip(spans, shifts, strict=True)):
        step = abs(s.step) if s.count > 1 else 1
        if s.inside and step == 1:
            continue
        at = lax.iota(np.int32, shape[d]) - traced(shift)
        here = lax.bitwise_and(lax.ge(at, np.int32(0)), lax.lt(at, np.int32((s.count - 1) * step + 1)))
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
    return lax.reshape(_rows_at(flat, lax.reshape(rows, (rows.size,)), run), (index.size, *sizes))
