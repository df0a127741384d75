"""Tiles of the rows of a product that is pooled: those of whole windows that are worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from operator import itemgetter

from ....dialects.dtypes import size
from ....kernels.product import CubeProblem, Extents, round_up
from ....kernels.space import parts_of
from .cube_loads import even


def tiles_of_rows(
    problem: CubeProblem, most: int, cores: int, exactly: bool = False
) -> Iterator[dict[int, int]]:
    """Extents along the m axes of tiles of at most `most` rows: the longest of which all tiles together have the fewest
    rows, and the longest with which the busiest of so many `cores` has the fewest. A tile of several places along axes
    that are not pooled has all windows. None where a window of one place has more rows. exactly: of tiles that have so
    many rows, in whole fractals."""
    extents, others = problem.extents, [a for a in problem.m if a not in problem.pooled]
    elsewhere = size([extents[a] for a in others])
    found: list[tuple[int, int, int, dict[int, int]]] = []
    for tile, counted in _of_one_place(problem, most):
        left, tiles = most // size([*tile.values()]), counted * elsewhere
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


def all_tiles_of_rows(problem: CubeProblem, most: int) -> list[Extents]:
    """Extents along the m axes of all tiles of whole windows of at most `most` rows, or of the fewest there are, in
    equal parts, those of fewest rows first."""
    others = [a for a in reversed(problem.m) if a not in problem.pooled]
    fewest = size([problem.pooled[a].reach(1) if a in problem.pooled else 1 for a in problem.m])
    found: set[Extents] = set()
    for tile, tiles in _of_one_place(problem, max(most, fewest)):
        found.add(tuple(tile.values()))
        for a in others if tiles == 1 and problem.wide_m else ():
            whole = problem.extents[a]
            found |= {tuple((tile | {a: n}).values()) for n in parts_of(whole)}
            tile[a] = whole
    fitting = (tile for tile in found if size(tile) <= max(most, fewest))
    return sorted(fitting, key=lambda tile: (round_up(size(tile)), tile))


def _of_one_place(problem: CubeProblem, most: int) -> Iterator[tuple[dict[int, int], int]]:
    """Extents along the m axes of tiles of whole windows of at most `most` rows, with one place along axes that are not
    pooled; and how many of these have all windows of a place."""
    own = {a: problem.pooled[a] for a in problem.m if a in problem.pooled}
    for chosen in product(*(_numbers(along.places) for along in own.values())):
        tile = dict.fromkeys(problem.m, 1)
        tile |= {a: along.reach(n) for (a, along), n in zip(own.items(), chosen, strict=True)}
        if size([*tile.values()]) <= most:
            yield tile, size([-(-along.places // n) for along, n in zip(own.values(), chosen, strict=True)])


def _numbers(places: int) -> list[int]:
    """Windows of a tile along an axis that are worth trying: equal parts of all."""
    return sorted({-(-places // parts) for parts in range(1, places + 1)})
