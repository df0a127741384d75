"""Tile sizes for contractions, in plain numbers: one mma step (l0), one load (l1), and the split over cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialects.dtypes import size
from ...machine import Machine

FRACTAL = 16
"""Rows and columns of a cube fractal."""

L1_FRACTION = 0.9
SMALLEST_M, SMALLEST_N = 64, 128
"""Rows and columns below which a tile is not cut further to occupy more cores: each cut loads the other operand
once more."""


@dataclass(frozen=True)
class CubeSchedule:
    """l0, l1: tile extents by axis of one mma step and of one device memory load; slots: buffers in flight."""

    l0: dict[int, int]
    l1: dict[int, int]
    slots: dict[str, int]


@dataclass(frozen=True)
class CubeProblem:
    """A contraction's axes: their extents and roles; itemsize of the inputs, in bytes."""

    extents: Sequence[int]
    batch: Sequence[int]
    m: Sequence[int]
    n: Sequence[int]
    k: Sequence[int]
    itemsize: int
    wide_m: bool = True
    """Whether a tile's rows may span several m axes (not where m is the innermost axis of lhs)."""
    windows: frozenset[int] = frozenset()
    """k axes that slide over an m axis (image to column): taken whole or one by one."""


def even(extent: int, limit: int, multiple: int = 1) -> int:
    """The extent of equal parts not longer than `limit`, rounded up to `multiple` where the limit allows."""
    if extent <= limit:
        return extent
    length = -(-extent // -(-extent // limit))
    rounded = -(-length // multiple) * multiple
    return rounded if rounded <= limit else length


def base_sizes(machine: Machine, itemsize: int) -> tuple[int, int, int]:
    """(m, n, k) of a square mma step with l0a, l0b and l0c each double-buffered."""
    m = n = 128
    l0 = min(machine.spaces["l0a"].bytes, machine.spaces["l0b"].bytes)
    while m * n * 4 * 2 > machine.spaces["l0c"].bytes:
        n //= 2
    k = l0 // 2 // itemsize // max(m, n)
    return m, n, max(k // FRACTAL * FRACTAL, FRACTAL)


def choose_cube(
    problem: CubeProblem, machine: Machine, l1_bytes: Callable[[dict[int, int]], int]
) -> CubeSchedule | None:
    """The schedule of a contraction; None where even the smallest load overflows l1.

    `l1_bytes(l1)` gives the bytes of one load of both operands with those tile extents.
    """
    base_m, base_n, base_k = base_sizes(machine, problem.itemsize)
    extents = problem.extents
    l0 = dict.fromkeys(range(len(extents)), 1)
    left = base_m
    for a in reversed(problem.m):
        l0[a] = even(extents[a], max(left, 1), FRACTAL if a == problem.m[-1] else 1)
        left //= max(l0[a], 1)
        if l0[a] < extents[a] or not problem.wide_m:
            break
    if problem.n:
        last = problem.n[-1]
        rest = size([-(-extents[a] // l0[a]) for a in (*problem.batch, *problem.m, *problem.n[:-1])])
        parts = max(
            -(-extents[last] // base_n), min(-(-machine.cube_cores // rest), extents[last] // SMALLEST_N)
        )
        l0[last] = even(
            extents[last], min(base_n, -(-extents[last] // max(parts, 1) // FRACTAL) * FRACTAL), FRACTAL
        )
    tiles = size([-(-extents[a] // l0[a]) for a in (*problem.batch, *problem.m, *problem.n)])
    for a in problem.m:
        while tiles * 2 <= machine.cube_cores and l0[a] >= 2 * SMALLEST_M and l0[a] % 2 == 0:
            l0[a] //= 2
            tiles = size([-(-extents[x] // l0[x]) for x in (*problem.batch, *problem.m, *problem.n)])
    left = base_k
    for a in reversed(problem.k):
        if a in problem.windows:
            l0[a] = extents[a] if extents[a] <= left else 1
        elif a == problem.k[-1]:
            l0[a] = even(extents[a], max(left, 1), FRACTAL)
        if l0[a] < extents[a]:
            break
        left //= max(l0[a], 1)
    l1 = _grow_l1(problem, machine, l0, l1_bytes)
    if l1 is None:
        return None
    acc = _round(size([l0[a] for a in problem.m])) * _round(size([l0[a] for a in problem.n])) * 4
    slots = {"l1": 2, "l0a": 2, "l0b": 2, "l0c": 2 if acc * 2 <= machine.spaces["l0c"].bytes else 1, "ub": 2}
    return CubeSchedule(l0, l1, slots)


def _round(n: int) -> int:
    return -(-n // FRACTAL) * FRACTAL


def _grow_l1(
    problem: CubeProblem,
    machine: Machine,
    l0: dict[int, int],
    l1_bytes: Callable[[dict[int, int]], int],
) -> dict[int, int] | None:
    """Lengthens the load along k: whole windows first (their halo is then loaded once), then more of the last k
    axis, as long as two loads fit l1."""
    capacity = int(machine.spaces["l1"].bytes * L1_FRACTION) // 2
    l1 = dict(l0)
    if l1_bytes(l1) > capacity:
        return None
    for a in reversed([a for a in problem.k if a in problem.windows]):
        trial = {**l1, a: problem.extents[a]}
        if l1_bytes(trial) <= capacity:
            l1 = trial
    if problem.k and problem.k[-1] not in problem.windows:
        last = problem.k[-1]
        steps = -(-problem.extents[last] // l0[last])
        best = 1
        for factor in range(2, min(steps, 8) + 1):
            if steps % factor == 0 and l1_bytes({**l1, last: l0[last] * factor}) <= capacity:
                best = factor
        l1[last] = l0[last] * best
    return l1
