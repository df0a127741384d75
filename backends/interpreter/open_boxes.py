"""Transfers of boxes between tiles and device tensors whose shapes, strides or offsets are known only at run time.

An array holds such a tensor with room for the largest sizes; what counts are its first elements, dense, as they lie in
device memory. Where only the shape of a view is open, its boxes are those of the view with the largest shape, without
what lies behind the end. Else each element's place is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from jax import Array, lax

from ...dialects.open_sizes import any_open, is_open, size_of
from ..functions.scope import Offset, RunTimeSizes, most, traced
from . import boxes
from .views import View


def room(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the array that holds a tensor. Raises SizeError where it has no bound."""
    return tuple(map(most, shape)) if any_open(shape) else tuple(shape)


def refit(x: Array, shape: Sequence[int]) -> Array:
    """The first elements of an array, in an array of another shape; zeros where it is larger."""
    count = prod(shape)
    if x.size != count:
        x = lax.reshape(x, (x.size,))
        x = lax.slice(x, [0], [count]) if x.size > count else _filled_up(x, count)
    return lax.reshape(x, tuple(shape))


def _filled_up(x: Array, count: int) -> Array:
    return lax.pad(x, np.zeros((), x.dtype), [(0, count - x.size, 0)])


def load(
    source: Array,
    view: View,
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
    fill: np.ndarray,
    shape: Sequence[int],
    at: RunTimeSizes,
) -> Array:
    """A tile of `shape`: the box of `sizes` of a view of a dense source, `fill` (shape []) outside the view. at: the
    sizes."""
    if prod(shape) == 0 or not source.size:
        return lax.full(tuple(shape), fill)
    positions = _positions(offsets, sizes, steps)
    largest = _largest(view, source.size)
    if largest is not None:
        x = boxes.load(source, largest, offsets, sizes, steps, fill, sizes)
        ends = [(d, n) for d, n in enumerate(view.shape) if is_open(n)]
    else:
        flat = lax.reshape(source, (source.size,))
        place = _places(view, positions, sizes, at)
        numbers = lax.GatherDimensionNumbers((), (0,), (0,))
        index = lax.reshape(place, (*place.shape, 1))
        x = lax.gather(flat, index, numbers, (1,), mode=lax.GatherScatterMode.CLIP)
        ends = list(enumerate(view.shape))
    inside = _inside(positions, sizes, ends, at)
    x = x if inside is None else lax.select(inside, x, lax.full(tuple(sizes), fill, x.dtype))
    return lax.reshape(x, tuple(shape))


def _largest(view: View, count: int) -> View | None:
    """The view with its largest shape, as a view of a source of so many elements; None where it reaches beyond that, or
    where its strides are open."""
    if any_open((*view.strides, view.offset)):
        return None
    whole = View(room(view.shape), view.strides, view.offset)
    ends = [(n - 1) * s for n, s in zip(whole.shape, whole.strides, strict=True)]
    first, last = whole.origin, whole.offset + sum(e for e in ends if e > 0)
    return whole if 0 not in whole.shape and first >= 0 and last < count else None


def _positions(offsets: Sequence[Offset], sizes: Sequence[int], steps: Sequence[int]) -> list[Array]:
    """The places of a box along each dimension (i32, as many as it takes there)."""
    return [
        lax.iota(np.int32, n) * np.int32(step) + traced(offset.value)
        for offset, n, step in zip(offsets, sizes, steps, strict=True)
    ]


def _spread(x: Array, d: int, shape: Sequence[int]) -> Array:
    return lax.broadcast_in_dim(x, tuple(shape), (d,))


def _places(view: View, positions: Sequence[Array], sizes: Sequence[int], at: RunTimeSizes) -> Array:
    """Where in the flat source the elements of a box are (i32, [*sizes])."""
    moved = [
        _spread(lax.mul(p, lax.broadcast(traced(at.value(s)), p.shape)), d, sizes)
        for d, (p, s) in enumerate(zip(positions, view.strides, strict=True))
    ]
    first = lax.broadcast(traced(at.value(view.offset)), tuple(sizes))
    return reduce(lax.add, moved, first)


def _inside(
    positions: Sequence[Array], sizes: Sequence[int], ends: Sequence[tuple[int, int]], at: RunTimeSizes
) -> Array | None:
    """Which elements of a box lie within the given dimensions of its view, [*sizes]."""
    here: Array | None = None
    for d, n in ends:
        p = positions[d]
        end = lax.broadcast(traced(at.value(n)), p.shape)
        along = lax.bitwise_and(lax.ge(p, lax.full_like(p, 0)), lax.lt(p, end))
        along = _spread(along, d, sizes)
        here = along if here is None else lax.bitwise_and(here, along)
    return here


def store(
    dest: Array,
    view: View,
    tile: Array,
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
    at: RunTimeSizes,
) -> Array:
    """`dest` with the box of `sizes` of its view replaced by `tile`; elements outside the view are dropped."""
    if prod(sizes) == 0 or not dest.size:
        return dest
    tile = lax.reshape(tile, tuple(sizes))
    positions = _positions(offsets, sizes, steps)
    largest = _largest(view, dest.size)
    if largest is None:
        return _store_rows(dest, view, tile, positions, offsets, sizes, steps, at)
    inside = _inside(positions, sizes, [(d, n) for d, n in enumerate(view.shape) if is_open(n)], at)
    if inside is not None:
        old = boxes.load(dest, largest, offsets, sizes, steps, np.zeros((), dest.dtype), sizes)
        tile = lax.select(inside, tile, old)
    return boxes.store(dest, largest, tile, offsets, sizes, steps)


def _store_rows(
    dest: Array,
    view: View,
    tile: Array,
    positions: Sequence[Array],
    offsets: Sequence[Offset],
    sizes: Sequence[int],
    steps: Sequence[int],
    at: RunTimeSizes,
) -> Array:
    """`store`, one run of neighbours after the other."""
    rank = len(sizes)
    neighbours = [
        d for d in range(rank) if type(view.strides[d]) is int and view.strides[d] == 1 and steps[d] == 1
    ]
    lane = max(neighbours, key=lambda d: sizes[d]) if neighbours else None
    others = [d for d in range(rank) if d != lane]
    outer, width = [sizes[d] for d in others], 1 if lane is None else sizes[lane]
    rows = lax.reshape(lax.transpose(tile, [*others, *([] if lane is None else [lane])]), (prod(outer), width))
    part = View(
        tuple(view.shape[d] for d in others), tuple(view.strides[d] for d in others), view.offset
    )
    along = [positions[d] for d in others]
    starts = lax.reshape(_places(part, along, outer, at), (prod(outer),))
    exists = _inside(along, outer, list(enumerate(part.shape)), at)
    exists = lax.full((prod(outer),), True) if exists is None else lax.reshape(exists, (prod(outer),))
    first = np.int32(0) if lane is None else traced(offsets[lane].value)
    end = np.int32(1) if lane is None else traced(at.value(view.shape[lane]))
    lanes = (lax.neg(first), lax.sub(end, first))
    return write_rows(dest, rows, lax.add(starts, lax.broadcast(first, starts.shape)), exists, lanes)


def write_rows(dest: Array, rows: Array, starts: Array, exists: Array, lanes: tuple[Any, Any]) -> Array:
    """`dest` with row r [rows, width] written from place `starts[r]` of its elements on, where `exists[r]`: those
    elements of it whose number is one of `lanes`, from the first to before the second."""
    count, width = rows.shape
    flat = lax.reshape(dest, (dest.size,))
    if width > dest.size:
        flat = _filled_up(flat, width)
    last = np.int32(flat.size - width)
    numbers = lax.iota(np.int32, width)

    def write(r: Any, flat: Array) -> Array:
        start = lax.dynamic_index_in_dim(starts, r, keepdims=False)
        begin = lax.clamp(np.int32(0), start, last)
        # what does not lie wholly in the tensor is moved, so that each element has its place
        number = lax.add(numbers, lax.broadcast(lax.sub(begin, start), (width,)))
        row = lax.dynamic_index_in_dim(rows, r, keepdims=False)
        picked = boxes.take(row, lax.clamp(np.int32(0), number, np.int32(width - 1)), 0)
        low = lax.broadcast(lax.max(lanes[0], np.int32(0)), (width,))
        high = lax.broadcast(lax.min(lanes[1], np.int32(width)), (width,))
        here = lax.bitwise_and(lax.ge(number, low), lax.lt(number, high))
        here = lax.bitwise_and(
            here, lax.broadcast(lax.dynamic_index_in_dim(exists, r, keepdims=False), (width,))
        )
        old = lax.dynamic_slice(flat, [begin], [width], allow_negative_indices=False)
        return lax.dynamic_update_slice(
            flat, lax.select(here, picked, old), [begin], allow_negative_indices=False
        )

    flat = lax.fori_loop(0, np.int32(count), write, flat) if count > 1 else write(np.int32(0), flat)
    return refit(flat, dest.shape)


def gather_boxes(source: Array, view: View, index: Array, sizes: Sequence[int], at: RunTimeSizes) -> Array:
    """[index.size, *sizes]: for each flat element offset in `index`, the box of the view that starts there."""
    flat = lax.reshape(source, (source.size,))
    still = [Offset.known(0)] * len(sizes)
    inner = _places(view, _positions(still, sizes, [1] * len(sizes)), sizes, at)
    shape = (index.size, *sizes)
    place = lax.add(
        lax.broadcast_in_dim(
            lax.convert_element_type(lax.reshape(index, (index.size,)), np.int32), shape, (0,)
        ),
        lax.broadcast_in_dim(inner, shape, range(1, len(shape))),
    )
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    return lax.gather(
        flat, lax.reshape(place, (*shape, 1)), numbers, (1,), mode=lax.GatherScatterMode.CLIP
    )


# -- whole views -------------------------------------------------------------------------------------------


def _is_dense(view: View) -> bool:
    """Whether a view is a whole tensor as it lies, for all sizes."""
    dense = View.dense(view.shape)
    pairs = zip((*view.strides, view.offset), (*dense.strides, dense.offset), strict=True)
    return all(size_of(a) == size_of(b) for a, b in pairs)


def read(source: Array, view: View, at: RunTimeSizes) -> Array:
    """What a view shows of a dense source: in an array with room for it, dense from its first element on."""
    shape = room(view.shape)
    if _is_dense(view):
        return refit(source, shape)
    flat = lax.reshape(source, (source.size,))
    place, rest = traced(at.value(view.offset)), lax.iota(np.int32, prod(shape))
    place = lax.broadcast(place, rest.shape)
    for n, stride in reversed(list(zip(view.shape, view.strides, strict=True))):
        count, step = (lax.broadcast(traced(at.value(x)), rest.shape) for x in (n, stride))
        place = lax.add(place, lax.mul(lax.rem(rest, count), step))
        rest = lax.div(rest, count)
    return lax.reshape(boxes.take(flat, lax.clamp(np.int32(0), place, np.int32(flat.size - 1)), 0), shape)


def write(dest: Array, view: View, x: Array, at: RunTimeSizes) -> Array:
    """A dense `dest` in which what the view shows is `x`, which `read` gives."""
    if _is_dense(view) and dest.shape == room(view.shape):
        return refit(x, dest.shape)
    still = [Offset.known(0)] * len(view.shape)
    whole = room(view.shape)
    # the elements of x lie as those of a dense view of it: as a box, each dimension has room behind its end
    box = load(x, View.dense(view.shape), still, whole, [1] * len(whole), np.zeros((), x.dtype), whole, at)
    return store(dest, view, box, still, whole, [1] * len(whole), at)
