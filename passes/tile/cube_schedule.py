"""Tile sizes for contractions, in plain numbers: one mma step (l0), one load (l1), and the split over cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialects.dtypes import size
from ...machine import Machine
from ..pins import FREE, Schedule

FRACTAL = 16
"""Rows and columns of a cube fractal."""

L1_FRACTION = 0.9
SMALLEST_M, SMALLEST_N = 64, 128
"""Rows and columns below which a tile is not cut further to occupy more cores: each cut loads the other operand
once more."""


@dataclass(frozen=True)
class CubeSchedule:
    """l0: tile extents by axis of one mma step; lhs, rhs: of one device memory load of each operand; slots: buffers
    in flight by space."""

    l0: dict[int, int]
    lhs: dict[int, int]
    rhs: dict[int, int]
    slots: dict[str, int]

    @property
    def l1(self) -> dict[int, int]:
        """Extents of the longer load."""
        return {a: max(n, self.rhs[a]) for a, n in self.lhs.items()}

    @property
    def short(self) -> dict[int, int]:
        """Extents of the shorter load."""
        return {a: min(n, self.rhs[a]) for a, n in self.lhs.items()}


LoadBytes = Callable[[dict[int, int], dict[int, int]], int]
"""Bytes in l1 of one load of lhs and one of rhs with those tile extents."""


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
    problem: CubeProblem, machine: Machine, l1_bytes: LoadBytes, pins: Schedule = FREE
) -> CubeSchedule | None:
    """The schedule of a contraction, as pinned where it is; None where even the smallest load overflows l1."""
    base_m, base_n, base_k = base_sizes(machine, problem.itemsize)
    base_m, base_n, base_k = pins.base_m or base_m, pins.base_n or base_n, pins.base_k or base_k
    extents = problem.extents
    cores = min(machine.cube_cores, pins.cores or machine.cube_cores)
    if pins.split_m and pins.split_n:
        cores = pins.split_m * pins.split_n
    l0 = dict.fromkeys(range(len(extents)), 1)
    left = base_m
    for a in reversed(problem.m):
        l0[a] = _piece(extents[a], left, FRACTAL if a == problem.m[-1] else 1, pins.base_m is not None)
        left //= max(l0[a], 1)
        if l0[a] < extents[a] or not problem.wide_m:
            break
    if problem.n:
        last = problem.n[-1]
        rest = size([-(-extents[a] // l0[a]) for a in (*problem.batch, *problem.m, *problem.n[:-1])])
        parts = max(-(-extents[last] // base_n), min(-(-cores // rest), extents[last] // SMALLEST_N))
        wanted = min(base_n, -(-extents[last] // max(parts, 1) // FRACTAL) * FRACTAL)
        pinned = pins.base_n is not None
        l0[last] = _piece(extents[last], base_n if pinned else wanted, FRACTAL, pinned)
        left = base_n // l0[last] if pinned else 1
        for a in reversed(problem.n[:-1]):
            if l0[problem.n[-1]] < extents[last] or left <= 1:
                break
            l0[a] = _piece(extents[a], left, 1, True)
            left //= l0[a]
    tiles = size([-(-extents[a] // l0[a]) for a in (*problem.batch, *problem.m, *problem.n)])
    for a in problem.m if pins.base_m is None else ():
        while tiles * 2 <= cores and l0[a] >= 2 * SMALLEST_M and l0[a] % 2 == 0:
            l0[a] //= 2
            tiles = size([-(-extents[x] // l0[x]) for x in (*problem.batch, *problem.m, *problem.n)])
    left = base_k
    for a in reversed(problem.k):
        if a in problem.windows:
            l0[a] = extents[a] if extents[a] <= left else 1
        elif a == problem.k[-1]:
            l0[a] = _piece(extents[a], left, FRACTAL, pins.base_k is not None)
        if l0[a] < extents[a]:
            break
        left //= max(l0[a], 1)
    acc = _round(size([l0[a] for a in problem.m])) * _round(size([l0[a] for a in problem.n])) * 4
    slots = {"l1": 2, "l0a": 2, "l0b": 2, "l0c": 2 if acc * 2 <= machine.spaces["l0c"].bytes else 1, "ub": 2}
    slots = pins.slots(slots)
    if pins.step_k_a or pins.step_k_b:
        lhs, rhs = (_steps(problem, l0, steps) for steps in (pins.step_k_a, pins.step_k_b))
        room = machine.spaces["l1"].bytes // slots["l1"]
        steps = pins.step_k_a or pins.step_k_b or 1
        while lhs is None or rhs is None:  # One is pinned: the other as long as fits, in whole multiples.
            longer = _steps(problem, l0, steps * 2)
            own = lhs or rhs or l0
            fits = l1_bytes(lhs or longer or l0, rhs or longer or l0) <= room
            if not fits or longer == _steps(problem, l0, steps):
                longest = _steps(problem, l0, steps) or own
                return CubeSchedule(l0, lhs or longest, rhs or longest, slots)
            steps *= 2
        return CubeSchedule(l0, lhs, rhs, slots)
    pinned = bool(pins.base_m or pins.base_n or pins.base_k)
    l1 = _grow_l1(problem, machine, l0, l1_bytes, slots["l1"], must_fit=not pinned)
    while l1 is None:  # Far apart windows: what lies between the rows of a tile is loaded too.
        wide = next((a for a in problem.m if l0[a] > 1), None)
        if wide is None:
            return None
        l0[wide] = even(extents[wide], l0[wide] // 2, FRACTAL if wide == problem.m[-1] else 1)
        l1 = _grow_l1(problem, machine, l0, l1_bytes, slots["l1"], must_fit=True)
    return CubeSchedule(l0, l1, l1, slots)


def _piece(extent: int, limit: int, multiple: int, pinned: bool) -> int:
    """The length of the pieces an axis is cut into: equal ones, or as long as pinned."""
    if pinned:
        return min(limit, -(-extent // multiple) * multiple)
    return even(extent, max(limit, 1), multiple)


def _steps(problem: CubeProblem, l0: dict[int, int], steps: int | None) -> dict[int, int] | None:
    """The extents of a load that covers `steps` mma steps of the last k axis, no more than there are."""
    if steps is None or not problem.k:
        return None
    last = problem.k[-1]
    return {**l0, last: l0[last] * min(steps, -(-problem.extents[last] // l0[last]))}


def refusal(
    plan: CubeSchedule, problem: CubeProblem, machine: Machine, l1_bytes: LoadBytes, pins: Schedule
) -> str | None:
    """Why a pinned schedule cannot be obeyed, as the rest of a sentence; None where it can."""
    for name, axes in (("base_m", problem.m), ("base_n", problem.n), ("base_k", problem.k)):
        pinned = getattr(pins, name)
        if pinned and pinned % FRACTAL and any(problem.extents[a] > pinned for a in axes):
            return f"{name}={pinned} is not a multiple of the cube's {FRACTAL}"
    long, short = plan.l1, plan.short
    for a in problem.k:
        if long[a] % short[a]:
            return f"loads of {plan.lhs[a]} and {plan.rhs[a]} along k do not nest: one step_k must divide the other"
    m, n, k = (size([_round(plan.l0[a]) for a in axes[-1:]]) for axes in (problem.m, problem.n, problem.k))
    m, n = (
        m * size([plan.l0[a] for a in problem.m[:-1]]),
        n * size([plan.l0[a] for a in problem.n[:-1]]),
    )
    width = problem.itemsize
    needs = [
        ("l0c", m * n * 4, f"an accumulator of {m} x {n}"),
        ("l0a", m * k * width, f"a step of {m} x {k}"),
        ("l0b", k * n * width, f"a step of {k} x {n}"),
        ("l1", l1_bytes(plan.lhs, plan.rhs), "one load of both operands"),
    ]
    for space, need, what in needs:
        slots, room = plan.slots[space], machine.spaces[space].bytes
        if need * slots > room:
            times = f" x {slots} buffers" if slots > 1 else ""
            return f"{what} takes {need}{times} bytes of {space}, and {machine.name} has {room}"
    return None


def _round(n: int) -> int:
    return -(-n // FRACTAL) * FRACTAL


def _grow_l1(
    problem: CubeProblem,
    machine: Machine,
    l0: dict[int, int],
    l1_bytes: LoadBytes,
    slots: int,
    must_fit: bool,
) -> dict[int, int] | None:
    """Lengthens the load along k: whole windows first (their halo is then loaded once), then more of the last k
    axis, as long as `slots` loads fit l1. None where one step does not fit, if it must."""
    capacity = int(machine.spaces["l1"].bytes * L1_FRACTION) // slots
    l1 = dict(l0)
    if l1_bytes(l1, l1) > capacity:
        return None if must_fit else l1
    for a in reversed([a for a in problem.k if a in problem.windows]):
        trial = {**l1, a: problem.extents[a]}
        if l1_bytes(trial, trial) <= capacity:
            l1 = trial
    if problem.k and problem.k[-1] not in problem.windows:
        last = problem.k[-1]
        steps = -(-problem.extents[last] // l0[last])
        best = 1
        for factor in range(2, min(steps, 8) + 1):
            trial = {**l1, last: l0[last] * factor}
            if steps % factor == 0 and l1_bytes(trial, trial) <= capacity:
                best = factor
        l1[last] = l0[last] * best
    return l1
