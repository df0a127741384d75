"""Tile sizes for vector kernels, by plain arithmetic: tiles fit the buffers, use all cores and keep copies long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dialects.dtypes import size
from ...dialects.open_sizes import certain, is_open
from ...kernels.vector_cost import COPY_BYTES


def choose_tile(
    domain: Sequence[int],
    rows: frozenset[int],
    fits: Callable[[Sequence[int]], bool],
    itemsize: int,
    cores: int,
) -> tuple[int, ...] | None:
    """The largest tile that fits, cut for so many cores. None where not even single rows fit."""
    tile = largest_tile(domain, rows, fits)
    return None if tile is None else cut_tile(tile, domain, rows, itemsize, cores)


def largest_tile(
    domain: Sequence[int], rows: frozenset[int], fits: Callable[[Sequence[int]], bool]
) -> tuple[int, ...] | None:
    """Tile extents: `rows` axes whole, the others as long as `fits` allows from the innermost outwards. None where
    not even single rows fit."""
    tile = [n if a in rows else 1 for a, n in enumerate(domain)]
    if not fits(tile):
        return None
    free = [a for a in reversed(range(len(domain))) if a not in rows]
    for a in free:
        tile[a] = _longest(domain[a], lambda n, a=a: fits([*tile[:a], n, *tile[a + 1 :]]))
        tile[a] = _even(domain[a], tile[a])
        if tile[a] < domain[a]:
            break
    return tuple(tile)


def cut_tile(
    largest: Sequence[int],
    domain: Sequence[int],
    rows: frozenset[int],
    itemsize: int,
    cores: int,
    pieces: int = 0,
) -> tuple[int, ...]:
    """A tile cut from the outermost axis inwards until each core has work. Copies stay >= COPY_BYTES / 2, unless so
    many `pieces` each take as long as such a copy."""
    tile = list(largest)
    wanted = min(cores, max(1, pieces, size(domain) * itemsize * 2 // COPY_BYTES))
    for a in (a for a in range(len(domain)) if a not in rows):
        have = size([-(-n // t) for n, t in zip(domain, tile, strict=True)])
        if have >= wanted:
            break
        inner = a == len(domain) - 1
        parts = min(-(-wanted * -(-domain[a] // tile[a]) // have), domain[a])
        length = -(-domain[a] // parts)
        tile[a] = min(tile[a], -(-length // 8) * 8 if inner else length)
    return tuple(tile)


def _longest(extent: int, fits: Callable[[int], bool]) -> int:
    low, high = 1, extent
    if fits(high):
        return high
    while high - low > 1:
        mid = (low + high) // 2
        if fits(mid):
            low = mid
        else:
            high = mid
    return low


def _even(extent: int, tile: int) -> int:
    """The tile that cuts `extent` into as many, but even, parts; a multiple of 8 where that is possible."""
    parts = -(-extent // tile)
    length = -(-extent // parts)
    rounded = -(-length // 8) * 8
    return rounded if rounded <= tile and parts > 1 else length


def divisor(extent: int, limit: int) -> int:
    """The longest tile of at most `limit` that cuts an axis into equal parts, whatever its open sizes are."""
    longest = int(limit) if is_open(extent) else min(limit, extent)
    return next(n for n in range(longest, 0, -1) if certain(extent % n, "==", 0))


def reaches_over(extent: int, piece: int) -> bool:
    """Whether the last of several pieces may reach over the end of an axis."""
    return not certain(extent % piece, "==", 0)


def equal_piece(extent: int, limit: int, unit: int) -> int | None:
    """The longest piece of at most `limit`, and more than half of that, that cuts an axis into equal ones, each a
    multiple of `unit`; None where there is none, or sizes are open."""
    if is_open(extent) or is_open(limit):
        return None
    most = min(limit, extent) // unit * unit
    return next((n for n in range(most, limit // 2, -unit) if extent % n == 0), None)


def merge_axes(
    domain: Sequence[int],
    strides: Sequence[dict[int, int]],
    presence: Sequence[frozenset[int]],
    fixed: set[int],
) -> list[list[int]]:
    """Groups of neighbouring axes that can be walked as one: every access steps through them as if they were one
    dimension, and every value has all or none of them. Axes of extent 1 are left out; `fixed` ones stay alone."""
    wide = [a for a, n in enumerate(domain) if n != 1]
    groups: list[list[int]] = []
    for a in wide:
        if groups:
            b = groups[-1][-1]
            joined = a not in fixed and b not in fixed
            joined = joined and all((a in p) == (b in p) for p in presence)
            joined = joined and all(certain(s.get(b, 0), "==", s.get(a, 0) * domain[a]) for s in strides)
            if joined:
                groups[-1].append(a)
                continue
        groups.append([a])
    return groups


def share(tiles: int, cores: int) -> tuple[int, int]:
    """For an axis of so many tiles, of which `cores` take equal shares: (cores with work, tiles of each)."""
    each = -(-tiles // cores)
    if not is_open(tiles) and not each:
        return cores, 0
    return -(-tiles // each), each


def even_parts(extent: int, most: int) -> int | None:
    """The largest number of equal parts, if that is more than half of `most`."""
    return next((p for p in range(min(most, extent), most // 2, -1) if extent % p == 0), None)
