"""The tiles of batched iterations as one larger tile.

If iterations load and store adjacent boxes, and the ops in between are elementwise or reduce along dimensions without
tiles, the array need not be cut: it keeps the layout of device memory. All other ops work on the tiles one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from jax import Array, lax

from ...dialects.npu.interface import NpuOp
from ..functions.scope import Scope
from ..functions.specs import Spec
from .boxes import transposed
from .instructions import ALONG, RULES

Parts = tuple[tuple[int, ...], ...]
"""For each dimension of a tile, the batched dimensions whose iterations lie side by side along it, outermost first."""


@dataclass(frozen=True)
class Wide:
    """The tiles of `shape` of all batched iterations: dimension d of `x` has the tiles of `parts[d]` side by side. It
    has size 1 where all elements along it are one number, whatever the iteration. No batched dimension is in two of the
    parts: such tiles lie along a diagonal."""

    x: Array
    shape: tuple[int, ...]
    parts: Parts

    def tiles(self, counts: Sequence[int]) -> Array:
        """[*leading, *shape], with the `counts` of the batched dimensions, or 1 where the tiles do not differ."""
        rank = len(counts)
        inner = tuple(min(n, extent) for n, extent in zip(self.shape, self.x.shape, strict=True))
        seen, order = list[int](), list[int]()
        for n, part in zip(inner, self.parts, strict=True):
            seen += [*(counts[p] for p in part), n]
            order += [*part, rank]
        x = leading(self.x, seen, order, rank, inner)
        return (
            x
            if inner == self.shape
            else lax.broadcast_in_dim(x, (*x.shape[:rank], *self.shape), range(x.ndim))
        )


def leading(x: Array, seen: Sequence[int], order: Sequence[int], rank: int, shape: Sequence[int]) -> Array:
    """`x`, seen as of shape `seen`, as [*leading, *shape]: dimension i of it is batched dimension `order[i]`, or where
    that is `rank` of the tile. Absent ones of the `rank` batched dimensions have size 1."""
    counts = [1] * rank
    for n, part in zip(seen, order, strict=True):
        if part < rank:
            counts[part] = n
    return transposed(x, sorted(range(len(order)), key=order.__getitem__), (*counts, *shape), seen)


def together(tiles: Array, shape: Sequence[int], parts: Parts, counts: Sequence[int]) -> Wide:
    """The inverse of `apart`: [*leading, *shape] with the tiles of `parts` side by side. Those of other batched
    dimensions do not differ."""
    rank, named = len(counts), [p for part in parts for p in part]
    rest = [p for p in range(rank) if p not in named]
    for p in rest:
        if tiles.shape[p] > 1:
            tiles = lax.slice_in_dim(tiles, 0, 1, axis=p)
    full = (*(counts[p] if p in named else 1 for p in range(rank)), *shape)
    if full != tiles.shape:
        tiles = lax.broadcast_in_dim(tiles, full, range(tiles.ndim))
    order = [i for d, part in enumerate(parts) for i in (*part, rank + d)]
    return Wide(transposed(tiles, [*rest, *order], extents(shape, parts, counts)), tuple(shape), parts)


def mapped(function: Callable[[Array], Array], x: Array | Wide) -> Array | Wide:
    """A function of each element."""
    return replace(x, x=function(x.x)) if isinstance(x, Wide) else function(x)


def apart(x: Array | Wide, counts: Sequence[int]) -> Array:
    """The tiles one by one, [*leading, *shape]."""
    return x.tiles(counts) if isinstance(x, Wide) else x


def grouped(sizes: Sequence[int], parts: Parts, shape: Sequence[int]) -> Parts | None:
    """The parts of a tile of `shape` whose elements are those of a box of `sizes`, given the parts of the box; None
    where tiles side by side along the one do not lie so along the other."""
    if tuple(sizes) == tuple(shape):
        return parts
    out: list[tuple[int, ...]] = []
    left = list(zip(sizes, parts, strict=True))
    for d, n in enumerate(shape):
        count, found = 1, tuple[int, ...]()
        last = d == len(shape) - 1
        while left and (count < n or last):
            size, more = left.pop(0)
            if more and count > 1:
                return None
            count, found = count * size, found + more
        if count != n:
            return None
        out.append(found)
    return None if left else tuple(out)


def extents(shape: Sequence[int], parts: Parts, counts: Sequence[int]) -> tuple[int, ...]:
    """The size of tiles side by side."""
    return tuple(n * prod(counts[p] for p in part) for n, part in zip(shape, parts, strict=True))


def boxed(wide: Wide, sizes: Sequence[int], parts: Parts, counts: Sequence[int]) -> Array | None:
    """The elements of tiles as those of boxes side by side, of these sizes and parts; None where they lie otherwise."""
    expected = grouped(sizes, parts, wide.shape)
    if expected is None:
        return None
    whole = extents(wide.shape, expected, counts)
    for extent, n, here, there in zip(wide.x.shape, whole, wide.parts, expected, strict=True):
        if extent > 1 and (here != there or extent != n):
            return None
    x = wide.x if wide.x.shape == whole else lax.broadcast_in_dim(wide.x, whole, range(len(whole)))
    return lax.reshape(x, extents(sizes, parts, counts))


def compute(op: NpuOp, scope: Scope, sources: Sequence[Wide], out: Sequence[Spec]) -> list[Wide] | None:
    """What an instruction of `LEADING` or `ALONG` gives; None where its operands do not lie alike, or tiles lie side by
    side along a dimension along which it combines elements."""
    along = ALONG.of(type(op))
    dims = set[int]() if along is None else set(along(op))
    shape = sources[0].shape if dims else out[0].shape
    rank = len(shape)
    if 0 in shape:
        return None
    alike = [x for s in sources if (x := _as_shape(s, shape)) is not None]
    if len(alike) < len(sources):
        return None
    parts: list[tuple[int, ...]] = []
    whole: list[int] = []
    for d in range(rank):
        found = {(s.parts[d], s.x.shape[d]) for s in alike if s.x.shape[d] > 1}
        if len(found) > 1:
            return None
        part, n = found.pop() if found else ((), 1)
        if any(p in other for p in part for other in parts) or (part and d in dims):
            return None
        parts.append(part)
        whole.append(shape[d] if d in dims else n)
    lanes = [
        s.x if s.x.shape == tuple(whole) else lax.broadcast_in_dim(s.x, whole, range(rank)) for s in alike
    ]
    kept = [tuple(result.shape[d] if d in dims else n for d, n in enumerate(whole)) for result in out]
    specs = [Spec(n, result.dtype) for n, result in zip(kept, out, strict=True)]
    results = RULES[type(op)](op, scope, lanes, specs)
    return [Wide(y, result.shape, tuple(parts)) for y, result in zip(results, out, strict=True)]


def _as_shape(source: Wide, shape: tuple[int, ...]) -> Wide | None:
    """A tile repeated along its dimensions of size 1, or one element of it everywhere; None where these differ from
    iteration to iteration."""
    if source.shape == shape:
        return source
    if source.x.size == 1:
        return Wide(lax.reshape(source.x, (1,) * len(shape)), shape, ((),) * len(shape))
    if len(source.shape) != len(shape):
        return None
    for n, m, extent in zip(source.shape, shape, source.x.shape, strict=True):
        if n != m and extent > 1:
            return None
    return replace(source, shape=shape)
