"""Strided views of dense tensors, as reshapes, slices and transposes instead of gathers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax import Array, lax

from ...dialects.npu import GmType
from ...dialects.npu.types import row_strides
from ...dialects.open_sizes import any_open


@dataclass(frozen=True)
class View:
    """Element `i` of the view is element `offset + sum(i[d] * strides[d])` of its dense, flat source."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def of(type_: GmType) -> View:
        return View(type_.shape, type_.strides, type_.offset)

    @staticmethod
    def dense(shape: Sequence[int]) -> View:
        return View(tuple(shape), row_strides(shape))

    @property
    def is_open(self) -> bool:
        """Whether some of its numbers are known only at run time."""
        return any_open((*self.shape, *self.strides, self.offset))

    def source_dim(self, d: int, source: Sequence[int]) -> int | None:
        """The dimension of a dense source, of this shape, that dimension d of the view is; None if it is none."""
        places = enumerate(zip(source, row_strides(source), strict=True))
        return next((i for i, at in places if at == (self.shape[d], self.strides[d]) and at[0] > 1), None)

    def of_part(self, source: Sequence[int], d: int, length: int) -> View | None:
        """The view of a dense source, of this shape but for dimension d, which is `length` long; None where another
        dimension of the view reaches into that one."""
        count, stride = source[d], row_strides(source)[d]
        shape, strides = list(self.shape), list(self.strides)
        for i, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)):
            if (n, s) == (count, stride):
                shape[i] = length
            elif n > 1 and s % (count * stride) == 0:
                strides[i] = s // count * length
            elif n > 1 and abs(s) * (n - 1) >= stride:
                return None
        return None if self.offset else View(tuple(shape), tuple(strides))

    @property
    def origin(self) -> int:
        """The lowest element that the view reaches."""
        return self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s < 0)

    def levels(self) -> list[tuple[int, int, int]]:
        """(distance between neighbours, size, dimension) of each dimension that moves, the widest first."""
        moving = enumerate(zip(self.shape, self.strides, strict=True))
        return sorted(((abs(s), n, d) for d, (n, s) in moving if n > 1 and s), reverse=True)


@dataclass(frozen=True)
class ViewAxis:
    """Element i of a view's dimension is at `start + i * step` of dimension `dim` of the base."""

    dim: int
    start: int
    step: int


@dataclass(frozen=True)
class Plan:
    """A view as a box of a dense `base`: the source's elements from `skip` on, `pad` zeros after them.

    `axes[d]` is None where the view repeats along d. Base dimensions that no axis names stay at `fixed`.
    """

    base: tuple[int, ...]
    fixed: tuple[int, ...]
    axes: tuple[ViewAxis | None, ...]
    skip: int = 0
    pad: int = 0

    def rebase(self, source: Array) -> Array:
        """The source's elements in the shape of the base."""
        if self.skip or self.pad:
            flat = lax.reshape(source, (source.size,))
            source = lax.pad(flat, np.zeros((), flat.dtype), [(-self.skip, self.pad, 0)])
        return lax.reshape(source, self.base)


@functools.lru_cache(maxsize=4096)
def plan_view(source: tuple[int, ...], view: View) -> Plan | None:
    """The view of a dense tensor of shape `source` as a box of a base; None where strides do not nest
    evenly."""
    if math.prod(source) == 0 or 0 in view.shape:
        return None
    squeezed = tuple(n for n in source if n != 1)
    return _plan_in(squeezed, view) or _plan_by_strides(math.prod(source), view)


def _plan_in(source: tuple[int, ...], view: View) -> Plan | None:
    """The view as a box of the source in its own shape."""
    weights = row_strides(source)
    position, rest = [], view.origin
    for w in weights:
        position.append(rest // w)
        rest %= w
    free = [d for d, n in enumerate(source) if n > 1]
    moved: dict[int, ViewAxis] = {}
    for distance, n, d in view.levels():
        for b in free:
            step, odd = divmod(distance, weights[b])
            if not odd and step and position[b] + (n - 1) * step < source[b]:
                moved[d] = _axis(b, position[b], step, n, view.strides[d])
                free.remove(b)
                break
        else:
            return None
    return _with_units(source, position, moved, view)


def _plan_by_strides(count: int, view: View) -> Plan | None:
    """The view as a box of a base whose dimensions are the view's own strides."""
    levels = view.levels()
    distances = [s for s, _, _ in levels] or [1]
    if any(a % b or a == b for a, b in itertools.pairwise(distances)):
        return None
    inner = [a // b for a, b in itertools.pairwise(distances)] + [distances[-1]]
    for skip in (0, view.origin):
        position, rest = [], view.origin - skip
        for w in distances:
            position.append(rest // w)
            rest %= w
        position.append(rest)
        rows = max(-(-(count - skip) // distances[0]), 1)
        base = [rows, *inner]
        ends = [p + n - 1 for p, (_, n, _) in zip(position, levels, strict=False)]
        if all(e < b for e, b in zip(ends, base, strict=False)):
            moved = {d: _axis(i, position[i], 1, n, view.strides[d]) for i, (_, n, d) in enumerate(levels)}
            return _with_units(base, position, moved, view, skip, rows * distances[0] - (count - skip))
    return None


def _axis(dim: int, low: int, step: int, n: int, stride: int) -> ViewAxis:
    return ViewAxis(dim, low, step) if stride > 0 else ViewAxis(dim, low + (n - 1) * step, -step)


def _with_units(
    base: Sequence[int], fixed: Sequence[int], moved: dict[int, ViewAxis], view: View, skip: int = 0, pad: int = 0
) -> Plan:
    """Put a base dimension of size 1 for each view dimension of size 1 before the others."""
    units = view.shape.count(1)
    axes: list[ViewAxis | None] = []
    for d, n in enumerate(view.shape):
        if n == 1:
            axes.append(ViewAxis(sum(a is not None and a.dim < units for a in axes), 0, 1))
        elif d in moved:
            axes.append(replace(moved[d], dim=moved[d].dim + units))
        else:
            axes.append(None)
    return Plan((1,) * units + tuple(base), (0,) * units + tuple(fixed), tuple(axes), skip, pad)


def realise(source: Array, view: View) -> Array:
    """The view as a dense array. source: any shape, taken as flat; result: shape `view.shape`, same dtype."""
    if View.dense(source.shape) == view:
        return source
    if 0 in view.shape:
        return lax.full(view.shape, np.zeros((), source.dtype))
    levels = view.levels()
    for i, (distance, _, _) in enumerate(levels):
        if sum((n - 1) * s for s, n, _ in levels[i + 1 :]) >= distance:
            return _gathered(source, view)
    flat = lax.reshape(source, (source.size,))
    x = _window(lax.slice(flat, [view.origin], [source.size]), [(s, n) for s, n, _ in levels])
    order = [d for _, _, d in levels]
    x = lax.transpose(x, np.argsort(order))
    kept = sorted(order)
    flipped = [i for i, d in enumerate(kept) if view.strides[d] < 0]
    x = lax.rev(x, flipped) if flipped else x
    return lax.broadcast_in_dim(x, view.shape, kept)


def _window(x: Array, levels: Sequence[tuple[int, int]]) -> Array:
    """Split the last dimension of x by each (distance, size) in turn, the widest first."""
    lead = x.shape[:-1]
    if not levels:
        return lax.reshape(lax.slice_in_dim(x, 0, 1, axis=len(lead)), lead)
    distance, n = levels[0]
    missing = n * distance - x.shape[-1]
    if missing:
        x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * len(lead) + [(0, missing, 0)])
    x = lax.reshape(x, (*lead, n, distance))
    reach = sum((m - 1) * s for s, m in levels[1:]) + 1
    return _window(lax.slice_in_dim(x, 0, reach, axis=len(lead) + 1), levels[1:])


def _gathered(source: Array, view: View) -> Array:
    """A view whose windows overlap, element by element."""
    flat = lax.reshape(source, (source.size,))
    position = np.full(view.shape, view.offset, np.int32)
    for d, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)):
        position += (np.arange(n, dtype=np.int32) * s).reshape(
            [-1 if i == d else 1 for i in range(position.ndim)]
        )
    return flat.at[position].get(mode="promise_in_bounds")
