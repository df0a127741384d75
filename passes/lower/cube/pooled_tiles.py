"""Tiles of the rows of a product that is pooled: those of whole windows that are worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from operator import itemgetter

from ....dialects.dtypes import size
from ....kernels.product import CubeProblem, round_up
from .cube_loads import even


def tiles_of_rows(
    problem: CubeProblem, most: int, cores: int, exactly: bool = False
) -> Iterator[dict[int, int]]:
    """Extents along the m axes of tiles of at most `most` rows: the longest of which all tiles together have the fewest
    rows, and the longest with which the busiest of so many `cores` has the fewest. A tile of several places along axes
    that are not pooled has all windows. None where a window of one place has more rows. exactly: of tiles that have so
    many rows, in whole fractals."""
    pooled, extents = problem.pooled, problem.extents
    own, others = [a for a in problem.m if a in pooled], [a for a in problem.m if a not in pooled]
    numbers = [
        [(along.reach(n), -(-along.places // n)) for n in _numbers(along.places)]
        for along in map(pooled.__getitem__, own)
    ]
    elsewhere = size([extents[a] for a in others])
    found: list[tuple[int, int, int, dict[int, int]]] = []
    for chosen in product(*numbers):
        reached = size([n for n, _ in chosen])
        left, tiles = most // reached, size([count for _, count in chosen]) * elsewhere
        if not left:
            continue
        tile = dict.fromkeys(problem.m, 1) | {a: n for a, (n, _) in zip(own, chosen, strict=True)}
        for a in reversed(others) if tiles == elsewhere and problem.wide_m else ():
            tile[a] = even(extents[a], left)
            tiles = tiles // extents[a] * -(-extents[a] // tile[a])
            if tile[a] < extents[a]:
                break
            left //= tile[a]
        rows = round_up(size([*tile.values()]))
        if exactly and rows != round_up(most):
            continue
        found.append((rows * tiles, rows * -(-tiles // cores), -rows, tile))
    if not found:
        return
    least, busiest = min(found, key=itemgetter(0, 2, 1)), min(found, key=itemgetter(1, 2, 0))
    yield least[-1]
    if busiest[-1] != least[-1]:
        yield busiest[-1]


def _numbers(places: int) -> list[int]:
    """Windows of a tile along an axis that are worth trying: equal parts of all."""
    return sorted({-(-places // parts) for parts in range(1, places + 1)})
