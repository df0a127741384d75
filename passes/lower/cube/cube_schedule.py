"""Schedules of contractions, by plain arithmetic: one mma step (l0), one load (l1), and the split over cores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product

from ....dialects.dtypes import size
from ....dialects.graph import CubeSchedule
from ....dialects.graph.schedules import SPACES
from ....dialects.npu.types import ROW_BYTES
from ....dialects.open_sizes import is_open
from ....kernels.builder import divide_grid, may_repeat
from ....kernels.product import FRACTAL, CubeProblem, Extents, grids, round_up, sides
from ....machine import Machine
from ..schedule import share
from .cube_loads import LoadBytes, even, extents_of, loads_of
from .pooled_tiles import tiles_of_rows

ROWS, COLUMNS = (128, 256, 64), (256, 128, 64)
"""Rows and columns of a mma step that are tried; among equals the first, as rows of rhs are runs in memory.
Fewer than the last make steps of few cycles each, and rounding that depends on the tile where the interpreter runs
them (docs/numerics.md)."""
ROWS_BETWEEN = (192, 96)
"""Rows that are tried as well where the vector unit works on the sums in the cube's own core: what it needs for each of
them leaves room in ub for so many."""
ROWS_WHOLE, COLUMNS_WHOLE = (128, 64, 32, 16), (256, 128)
"""Those that are tried where a core has all columns of its rows: no more cores work than there are blocks of rows."""
POOLED_ROWS = (512, 384, 192, 96)
"""Rows that are tried as well where they are pooled, as far as an accumulator of them fits: of a larger tile fewer are
those of windows of others, too."""
SLACK = 1.25
"""How many more tiles the busiest core may have than with the best division of the grid, where others are tried."""


@dataclass(frozen=True)
class CubePlan:
    """A complete schedule as kernels are built from it: l0, lhs and rhs are extents by axis of a mma step and of a load
    of each operand."""

    l0: Extents
    lhs: Extents
    rhs: Extents
    grid: Extents
    inner: str
    slots: dict[str, int]
    epilogue: Extents | None

    @staticmethod
    def of(schedule: CubeSchedule) -> CubePlan:
        step, lhs, rhs, grid, inner = schedule.step, schedule.lhs, schedule.rhs, schedule.grid, schedule.inner
        assert (
            step is not None
            and lhs is not None
            and rhs is not None
            and grid is not None
            and inner is not None
        )
        slots = {space: getattr(schedule, space) for space in SPACES}
        return CubePlan(step, lhs, rhs, grid, inner, slots, schedule.epilogue)

    def l1_slots(self, problem: CubeProblem) -> tuple[int, int]:
        """Buffers in l1 of the loads of lhs and of rhs: one of what a core loads once."""
        looped = {a for a in problem.out if may_repeat(self.tiles_of_core(a, problem))}
        left, right = (1 if self.shares(side, looped, problem) else self.slots["l1"] for side in (0, 1))
        return left, right

    def shares(self, side: int, axes: Set[int], problem: CubeProblem) -> bool:
        """Whether one load of an operand (0: lhs, 1: rhs) has all that the tiles of a core along these axes take of
        it."""
        load, others = (self.lhs, {*problem.n}) if side == 0 else (self.rhs, {*problem.m, *self.resident(problem)})
        return axes <= others and all(problem.extents[a] <= load[a] for a in problem.k)

    def tiles_of_core(self, axis: int, problem: CubeProblem) -> int:
        """The tiles along an axis of the result that a core has, at most."""
        return self.shared(axis, problem)[1]

    def shared(self, axis: int, problem: CubeProblem) -> tuple[int, int]:
        """The cores along an axis of the result, and the tiles that each has, at most."""
        return share(problem.tiles(axis, self.l0[axis]), self.grid[axis])

    def resident(self, problem: CubeProblem) -> frozenset[int]:
        """The axes of rhs along which one load of it has what all tiles of a core are made of."""
        return frozenset(a for a in problem.n if self.rhs[a] != self.l0[a])

    @property
    def l1(self) -> Extents:
        """Extents of the longer load."""
        return tuple(max(pair) for pair in zip(self.lhs, self.rhs, strict=True))

    @property
    def short(self) -> Extents:
        """Extents of the shorter load."""
        return tuple(min(pair) for pair in zip(self.lhs, self.rhs, strict=True))


def _depth(problem: CubeProblem, l0: dict[int, int], machine: Machine) -> int:
    """The longest k of a mma step that l0a and l0b hold twice."""
    room = min(machine.spaces["l0a"].bytes, machine.spaces["l0b"].bytes) // 2
    rows, columns = (n * problem.itemsize for n in sides(problem, extents_of(l0)))
    row = -(-columns // ROW_BYTES) * ROW_BYTES  # in l0b a k has whole blocks
    block = max(FRACTAL, ROW_BYTES // problem.itemsize)  # and so has a row in l0a
    return max(room // max(rows, row) // block * block, block)


class Refused(Exception):
    """A pin that cannot be obeyed, with the reason as the rest of a sentence."""


def cube_schedules(
    problem: CubeProblem,
    axes: tuple[tuple[int, ...], ...],
    machine: Machine,
    l1_bytes: LoadBytes,
    pins: CubeSchedule,
    inner: Sequence[str] = ("m",),
) -> Iterator[CubeSchedule]:
    """The schedules of a contraction over these `axes` that are worth judging, as pinned where they are; none where
    even the smallest load overflows l1. `inner`: the inner loops over tiles that are tried. Raises Refused for a split
    that leaves cores without work."""
    free = is_free(pins)
    for l0 in _steps_tried(problem, machine, pins):
        buffers = {"l1": 2, "l0a": 2, "l0b": 2, "l0c": accumulators(problem, l0, machine), "ub": 2}
        slots = pins.slots(buffers)
        found = loads_of(problem, machine, l0, l1_bytes, slots["l1"], pins)
        if found is None or (free and machine.fused and any(l0[a] < problem.extents[a] for a in problem.whole)):
            continue
        step, lhs, rhs = (tuple(extents.values()) for extents in found)
        choices = product(_grids(problem, step, machine, pins), (pins.inner,) if pins.inner else inner)
        for grid, loop in choices:
            yield CubeSchedule(
                axes=axes,
                step=step,
                lhs=pins.lhs or lhs,
                rhs=pins.rhs or rhs,
                grid=grid,
                inner=loop,
                l1=slots["l1"],
                l0a=slots["l0a"],
                l0b=slots["l0b"],
                l0c=slots["l0c"],
                ub=slots["ub"],
                epilogue=pins.epilogue,
            )


def is_free(pins: CubeSchedule) -> bool:
    """Whether nothing is pinned but what the axes are, how many cores may work, and what the kernel does."""
    return not pins.chosen().keys() - {"axes", "cores", "tail"}


def _grids(
    problem: CubeProblem, step: Extents, machine: Machine, pins: CubeSchedule
) -> Iterator[tuple[int, ...]]:
    """Grid points along each axis, 1 along those that are summed over. Raises Refused."""
    if pins.grid:
        yield pins.grid
        return
    counts = dict(zip(problem.out, problem.counts(step), strict=True))
    counts |= dict.fromkeys(problem.whole, 1)
    available = machine.cube_cores
    cores = min(available, pins.cores or available)
    if pins.deal:
        working = min(available, size(list(counts.values())))
        if pins.cores is not None and pins.cores < working:
            raise Refused(f"deal=1 gives tiles to {working} cores, not to {pins.cores}")
        yield _on_axes(problem, counts)
    elif pins.split_m or pins.split_n:
        yield _on_axes(problem, _split(problem, counts, cores, pins))
    else:
        even = [a in problem.even for a in counts]
        tried = [tuple(found) for found in grids(list(counts.values()), cores, even)]
        if pins.cores:
            tried = tried[:1]
        elif is_free(pins):
            tried += _divisions(tuple(counts.values()), cores, even)
        for found in dict.fromkeys(tried):
            yield _on_axes(problem, dict(zip(counts, found, strict=True)))


def _divisions(counts: tuple[int, ...], cores: int, even: Sequence[bool]) -> list[tuple[int, ...]]:
    """Other divisions of so many tiles along each axis over at most `cores`, with little more for the busiest core:
    which cores are side by side is what they read alike. even: axes of which all cores have as many tiles."""
    if any(is_open(n) for n in counts):
        return []
    found: dict[tuple[int, ...], int] = {(): 1}
    for n, evenly in zip(counts, even, strict=True):
        found = {
            (*before, used): tiles * -(-n // used)
            for before, tiles in found.items()
            for used in range(1, min(n, cores // size(before)) + 1)
            if share(n, used)[0] == used and not (evenly and n % used)
        }
    best = min(found.values())
    return [division for division, tiles in found.items() if tiles <= best * SLACK]


def _on_axes(problem: CubeProblem, cores: dict[int, int]) -> tuple[int, ...]:
    return tuple(cores.get(a, 1) for a in range(len(problem.extents)))


def _split(problem: CubeProblem, counts: dict[int, int], cores: int, pins: CubeSchedule) -> dict[int, int]:
    """Cores along each axis of the result as pinned, the rest divided. Raises Refused."""
    pinned: dict[int, int] = {}
    there = cores
    for field, own, wanted in (("split_m", problem.m, pins.split_m), ("split_n", problem.n, pins.split_n)):
        if wanted is None:
            continue
        axis = max(own, key=lambda a: counts[a], default=None)
        tiles = counts[axis] if axis is not None else 1
        if -(-tiles // -(-tiles // wanted)) != wanted:
            raise Refused(f"{field}={wanted} leaves cores without work, as the axis has {tiles} tiles")
        if axis is not None:
            pinned[axis] = wanted
        cores //= wanted
    if cores < 1:
        wanted = f"split_m={pins.split_m or 1} x split_n={pins.split_n or 1}"
        raise Refused(f"{wanted} needs more than the {there} cores there are")
    free = [a for a in counts if a not in pinned]
    divided = divide_grid([counts[a] for a in free], cores, [a in problem.even for a in free])
    return {**pinned, **{a: used for a, (used, _) in zip(free, divided, strict=True)}}


def _steps_tried(problem: CubeProblem, machine: Machine, pins: CubeSchedule) -> Iterator[dict[int, int]]:
    """Different tiles of a mma step; one that does not fit only where what is not pinned is as small as it gets."""
    if pins.step:
        yield dict(enumerate(pins.step))
        return
    seen: set[tuple[int, ...]] = set()
    for m, n in _sides_tried(problem, machine, pins):
        rows, cols = (m, n) if pins.base_m or pins.base_n else _fitting(m, n, machine)
        several = is_free(pins) and len(problem.n) > 1
        wides = (False, True) if several else (False,)
        for along_m, wide, short in product(_rows_tried(problem, rows, cols, machine, pins), wides, (False, True)):
            l0 = _tile(problem, along_m, cols, 1, pins, wide)
            depth = pins.base_k or _depth(problem, l0, machine)
            if short:  # loads of powers of two begin at lines
                if not is_free(pins) or is_open(depth) or depth.bit_count() == 1:
                    continue
                depth = 1 << depth.bit_length() - 1
            l0 = _tile(problem, along_m, cols, depth, pins, wide)
            key = tuple(l0.values())
            least = (pins.base_m or rows <= ROWS[-1]) and (pins.base_n or cols <= COLUMNS[-1])
            least = least and not problem.pooled
            if not least and not _fits(problem, l0, machine, pins):
                continue
            if key not in seen:
                seen.add(key)
                yield l0


def _rows_tried(
    problem: CubeProblem, rows: int, cols: int, machine: Machine, pins: CubeSchedule
) -> list[dict[int, int]]:
    """Extents along the m axes of tiles of at most so many rows, or as many as pinned: one, or several where they are
    pooled."""
    if not problem.pooled:
        return [_along_m(problem, rows, pins)]
    columns = size([problem.extents[a] for a in problem.n])
    cores = max(machine.cube_cores // max(-(-columns // cols), 1), 1)
    return list(tiles_of_rows(problem, rows, cores, pins.base_m is not None))


def _sides_tried(problem: CubeProblem, machine: Machine, pins: CubeSchedule) -> Iterator[tuple[int, int]]:
    """Rows and columns of a mma step that are tried, at most."""
    cores = min(machine.cube_cores, pins.cores or machine.cube_cores)
    if pins.split_m or pins.split_n:
        cores = min(cores, (pins.split_m or cores) * (pins.split_n or cores))
    extents, last = problem.extents, problem.n[-1] if problem.n else None
    rows_tried = (*ROWS, *ROWS_BETWEEN) if machine.fused else ROWS
    rows_tried = ROWS_WHOLE if problem.whole else rows_tried
    rows_tried = (*ROWS, *POOLED_ROWS) if problem.pooled else rows_tried
    wide = round_up(size([extents[a] for a in problem.whole])) if problem.whole and machine.fused else 0
    for m in (pins.base_m,) if pins.base_m else rows_tried:
        columns = [pins.base_n] if pins.base_n else [*(COLUMNS_WHOLE if problem.whole else COLUMNS)]
        if last is not None and not pins.base_n and last not in problem.whole:  # as give each core a tile
            along_m = next(iter(_rows_tried(problem, m, COLUMNS[0], machine, pins)), None)
            if along_m is None:
                continue
            tile = _tile(problem, along_m, 1, FRACTAL, pins)
            parts = max(cores // max(size([problem.tiles(a, tile[a]) for a in problem.out if a != last]), 1), 1)
            fair = round_up(-(-extents[last] // parts))
            columns += [fair] if COLUMNS[-1] < fair < COLUMNS[0] else []
        if wide and not pins.base_n:
            columns = [wide]
        yield from ((m, n) for n in columns)
    if not is_free(pins) or problem.pooled:
        return
    square = math.isqrt(machine.spaces["l0c"].bytes // 4) // FRACTAL * FRACTAL
    if square not in ROWS and not problem.whole:
        yield square, square
    if problem.m and not is_open(extents[problem.m[-1]]):
        pairs = ((ROWS[0], COLUMNS[0]), (square, square))
        if problem.whole:
            pairs = ((ROWS_WHOLE[0], wide or COLUMNS_WHOLE[0]),)
        for most, columns in pairs:
            yield from ((rows, columns) for rows in _fair_rows(extents[problem.m[-1]], most, cores))


def _fair_rows(extent: int, most: int, cores: int) -> list[int]:
    """Rows of a step, little less than `most`, with which equal groups of cores have equal tiles."""
    found: dict[int, None] = {}
    for groups in (n for n in range(1, cores + 1) if cores % n == 0):
        each = -(-extent // (groups * -(-extent // (groups * most))))
        if most * 3 // 4 <= each < most:
            found[each] = None
    return [*found]


def _fits(problem: CubeProblem, l0: dict[int, int], machine: Machine, pins: CubeSchedule) -> bool:
    """Whether the accumulator of a mma step, and a pinned base_k's share of both sides, have room."""
    rows, columns = sides(problem, extents_of(l0))
    if rows * columns * 4 > machine.spaces["l0c"].bytes:
        return False
    depth = size([round_up(l0[a]) if a == problem.cut_k[-1] else l0[a] for a in problem.k]) * problem.itemsize
    wanted = ((rows, "l0a", pins.l0a), (columns, "l0b", pins.l0b))
    return not pins.base_k or all(
        n * depth * (slots or 2) <= machine.spaces[space].bytes for n, space, slots in wanted
    )


def _fitting(rows: int, columns: int, machine: Machine) -> tuple[int, int]:
    """The longer side halved until an accumulator of f32 of so many rows and columns fits l0c."""
    while rows * columns * 4 > machine.spaces["l0c"].bytes:
        rows, columns = (rows // 2, columns) if rows > columns else (rows, columns // 2)
    return rows, columns


def _along_m(problem: CubeProblem, rows: int, pins: CubeSchedule) -> dict[int, int]:
    """Extents along the m axes of a mma step of at most so many rows, in even parts unless they are pinned."""
    extents, l0, left = problem.extents, dict.fromkeys(problem.m, 1), rows
    for a in reversed(problem.m):
        if a in problem.singly:
            continue
        l0[a] = _piece(extents[a], left, FRACTAL if a == problem.m[-1] else 1, pins.base_m is not None)
        left //= max(l0[a], 1)
        if l0[a] < extents[a] or not problem.wide_m:
            break
    return l0


def _tile(
    problem: CubeProblem, rows: Mapping[int, int], columns: int, depth: int, pins: CubeSchedule, wide: bool = False
) -> dict[int, int]:
    """Extents of a mma step with these along the m axes, and at most so many columns and k, in even parts unless they
    are pinned; `wide`: whether its columns may span several n axes, which pinned ones do."""
    extents = problem.extents
    l0 = {**dict.fromkeys(range(len(extents)), 1), **rows}
    left, pinned = columns, pins.base_n is not None
    for a in reversed(problem.n):
        if a in problem.singly:
            continue
        l0[a] = _piece(extents[a], left, FRACTAL if a == problem.n[-1] else 1, pinned)
        left //= max(l0[a], 1)
        if l0[a] < extents[a] or left <= 1 or not (pinned or wide):
            break
    left = depth
    for a in reversed(problem.k):
        if a in problem.singly:
            continue
        if a in problem.windows:
            l0[a] = extents[a] if extents[a] <= left else 1
        elif a == problem.cut_k[-1]:
            l0[a] = _piece(extents[a], left, FRACTAL, pins.base_k is not None)
        elif a == problem.long_k(l0):
            l0[a] = _piece(extents[a], max(left, 1), 1, pins.base_k is not None)
        if l0[a] < extents[a]:
            break
        left //= max(l0[a], 1)
    return l0


def tile_of(problem: CubeProblem, rows: int | Extents, columns: int, depth: int) -> Extents:
    """The extents of a step of at most so many rows, columns and k, in even parts; or with these along the m axes."""
    free = CubeSchedule()
    along_m = _along_m(problem, rows, free) if isinstance(rows, int) else dict(zip(problem.m, rows, strict=True))
    return extents_of(_tile(problem, along_m, columns, depth, free, wide=True))


def accumulators(problem: CubeProblem, l0: dict[int, int], machine: Machine) -> int:
    """How many of a tile's accumulators, up to two, fit l0c."""
    rows, columns = sides(problem, extents_of(l0))
    return 2 if rows * columns * 4 * 2 <= machine.spaces["l0c"].bytes else 1


def _piece(extent: int, limit: int, multiple: int, pinned: bool) -> int:
    """The length of the pieces an axis is cut into: equal ones, or as long as pinned."""
    if pinned:
        return min(limit, -(-extent // multiple) * multiple)
    return even(extent, max(limit, 1), multiple)
