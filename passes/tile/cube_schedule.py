"""Tile sizes for contractions, by plain arithmetic: one mma step (l0), one load (l1), and the split over cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...dialects.dtypes import size
from ...dialects.npu.types import ROW_BYTES
from ...machine import Machine
from ..pins import FREE, Schedule
from .cube_cost import FRACTAL, CubeCost, CubeProblem, Loads, round_up, sides

L1_FRACTION = 0.9
LONGEST_LOAD = 8
"""Steps of the last k axis that one load covers, at most."""
ROWS, COLUMNS = (128, 256, 64), (256, 128, 64)
"""Rows and columns of a mma step that are tried; among equals the first, as rows of rhs are runs in memory.
Fewer than the last make steps of few cycles each, and rounding that depends on the tile where the interpreter runs
them (docs/numerics.md)."""


@dataclass(frozen=True)
class CubeSchedule:
    """l0: tile extents by axis of one mma step; lhs, rhs: of one device memory load of each operand; slots: buffers
    in flight by space; cores: on how many at most."""

    l0: dict[int, int]
    lhs: dict[int, int]
    rhs: dict[int, int]
    slots: dict[str, int]
    cores: int

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


def even(extent: int, limit: int, multiple: int = 1) -> int:
    """The extent of equal parts not longer than `limit`, rounded up to `multiple` where the limit allows."""
    if extent <= limit:
        return extent
    length = -(-extent // -(-extent // limit))
    rounded = -(-length // multiple) * multiple
    return rounded if rounded <= limit else length


def _depth(problem: CubeProblem, l0: dict[int, int], machine: Machine) -> int:
    """The longest k of a mma step that l0a and l0b hold twice."""
    room = min(machine.spaces["l0a"].bytes, machine.spaces["l0b"].bytes) // 2
    rows, columns = (n * problem.itemsize for n in sides(problem, l0))
    row = -(-columns // ROW_BYTES) * ROW_BYTES  # in l0b a k has whole blocks
    return max(room // max(rows, row) // FRACTAL * FRACTAL, FRACTAL)


def choose_cube(
    problem: CubeProblem, machine: Machine, l1_bytes: LoadBytes, loads: Loads, pins: Schedule = FREE
) -> CubeSchedule | None:
    """The schedule of a contraction, as pinned where it is, and otherwise the one that is estimated to end first;
    None where even the smallest load overflows l1."""
    most = min(machine.cube_cores, pins.cores or machine.cube_cores)
    if pins.split_m or pins.split_n:
        most = min(most, (pins.split_m or most) * (pins.split_n or most))
    best: tuple[float, int, dict[int, int]] | None = None
    _, whole = loads(dict(enumerate(problem.extents)))
    for l0 in _candidates(problem, machine, most, pins):
        box = _grow_l1(problem, machine, l0, l1_bytes, 2, must_fit=False)
        assert box is not None
        cost = CubeCost.of(problem, l0, box, machine, loads, whole)
        us, used = cost.best(problem.counts(l0), most, _accumulators(problem, l0, machine) > 1, machine)
        if best is None or us < best[0]:
            best = (us, used, l0)
    assert best is not None
    _, used, l0 = best
    cores = most if pins.cores or pins.split_m or pins.split_n else used
    slots = {"l1": 2, "l0a": 2, "l0b": 2, "l0c": _accumulators(problem, l0, machine), "ub": 2}
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
                return CubeSchedule(l0, lhs or longest, rhs or longest, slots, cores)
            steps *= 2
        return CubeSchedule(l0, lhs, rhs, slots, cores)
    pinned = bool(pins.base_m or pins.base_n or pins.base_k)
    l1 = _grow_l1(problem, machine, l0, l1_bytes, slots["l1"], must_fit=not pinned)
    while l1 is None:  # Far apart windows: what lies between the rows of a tile is loaded too.
        wide = next((a for a in (*problem.m, *problem.windows) if l0[a] > 1), None)
        if wide is None:
            return None
        half = even(problem.extents[wide], l0[wide] // 2, FRACTAL if wide == problem.m[-1] else 1)
        l0[wide] = 1 if wide in problem.windows else half
        cores = most
        l1 = _grow_l1(problem, machine, l0, l1_bytes, slots["l1"], must_fit=True)
    return CubeSchedule(l0, l1, l1, slots, cores)


def _candidates(
    problem: CubeProblem, machine: Machine, cores: int, pins: Schedule
) -> Iterator[dict[int, int]]:
    """Different tiles of a mma step; one that does not fit only where what is not pinned is as small as it gets."""
    seen: set[tuple[int, ...]] = set()
    extents, last = problem.extents, problem.n[-1] if problem.n else None
    for m in (pins.base_m,) if pins.base_m else ROWS:
        columns = [pins.base_n] if pins.base_n else [*COLUMNS]
        if last is not None and not pins.base_n:  # as many columns as give each core a tile
            tile = _tile(problem, m, 1, FRACTAL, pins)
            parts = max(
                cores // max(size([-(-extents[a] // tile[a]) for a in problem.out if a != last]), 1), 1
            )
            fair = round_up(-(-extents[last] // parts))
            columns += [fair] if COLUMNS[-1] < fair < COLUMNS[0] else []
        for n in columns:
            rows, cols = (m, n) if pins.base_m or pins.base_n else _fitting(m, n, machine)
            l0 = _tile(problem, rows, cols, 1, pins)
            l0 = _tile(problem, rows, cols, pins.base_k or _depth(problem, l0, machine), pins)
            key = tuple(l0.values())
            least = (pins.base_m or rows <= ROWS[-1]) and (pins.base_n or cols <= COLUMNS[-1])
            if not least and not _fits(problem, l0, machine, pins):
                continue
            if key not in seen:
                seen.add(key)
                yield l0


def _fits(problem: CubeProblem, l0: dict[int, int], machine: Machine, pins: Schedule) -> bool:
    """Whether the accumulator of a mma step, and a pinned base_k's share of both sides, have room."""
    rows, columns = sides(problem, l0)
    if rows * columns * 4 > machine.spaces["l0c"].bytes:
        return False
    depth = size([round_up(l0[a]) if a == problem.k[-1] else l0[a] for a in problem.k]) * problem.itemsize
    wanted = ((rows, "l0a", pins.l0a), (columns, "l0b", pins.l0b))
    return not pins.base_k or all(
        n * depth * (slots or 2) <= machine.spaces[space].bytes for n, space, slots in wanted
    )


def _fitting(rows: int, columns: int, machine: Machine) -> tuple[int, int]:
    """The longer side halved until an accumulator of f32 of so many rows and columns fits l0c."""
    while rows * columns * 4 > machine.spaces["l0c"].bytes:
        rows, columns = (rows // 2, columns) if rows > columns else (rows, columns // 2)
    return rows, columns


def _tile(problem: CubeProblem, rows: int, columns: int, depth: int, pins: Schedule) -> dict[int, int]:
    """Extents of a mma step of at most so many rows, columns and k, in even parts unless they are pinned."""
    extents = problem.extents
    l0 = dict.fromkeys(range(len(extents)), 1)
    left = rows
    for a in reversed(problem.m):
        l0[a] = _piece(extents[a], left, FRACTAL if a == problem.m[-1] else 1, pins.base_m is not None)
        left //= max(l0[a], 1)
        if l0[a] < extents[a] or not problem.wide_m:
            break
    left, pinned = columns, pins.base_n is not None
    for a in reversed(problem.n):
        l0[a] = _piece(extents[a], left, FRACTAL if a == problem.n[-1] else 1, pinned)
        left //= max(l0[a], 1)
        if l0[a] < extents[a] or left <= 1 or not pinned:
            break
    left = depth
    for a in reversed(problem.k):
        if a in problem.windows:
            l0[a] = extents[a] if extents[a] <= left else 1
        elif a == problem.k[-1]:
            l0[a] = _piece(extents[a], left, FRACTAL, pins.base_k is not None)
        if l0[a] < extents[a]:
            break
        left //= max(l0[a], 1)
    return l0


def _accumulators(problem: CubeProblem, l0: dict[int, int], machine: Machine) -> int:
    """How many of a tile's accumulators, up to two, fit l0c."""
    rows, columns = sides(problem, l0)
    return 2 if rows * columns * 4 * 2 <= machine.spaces["l0c"].bytes else 1


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
    beyond = _beyond(plan, problem, machine, pins)
    if beyond is not None:
        return beyond
    for name, axes in (("base_m", problem.m), ("base_n", problem.n), ("base_k", problem.k)):
        pinned = getattr(pins, name)
        if pinned and pinned % FRACTAL and any(problem.extents[a] > pinned for a in axes):
            return f"{name}={pinned} is not a multiple of the cube's {FRACTAL}"
    long, short = plan.l1, plan.short
    for a in problem.k:
        if long[a] % short[a]:
            return f"loads of {plan.lhs[a]} and {plan.rhs[a]} along k do not nest: one step_k must divide the other"
    m, n, k = (size([round_up(plan.l0[a]) for a in axes[-1:]]) for axes in (problem.m, problem.n, problem.k))
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


def _beyond(plan: CubeSchedule, problem: CubeProblem, machine: Machine, pins: Schedule) -> str | None:
    """Which pin asks for more than the product or the chip has, as the rest of a sentence; None where none does."""
    if pins.cores and pins.cores > machine.cube_cores:
        return f"cores={pins.cores} is more than the {machine.cube_cores} cube cores of {machine.name}"
    rows = problem.m if problem.wide_m else problem.m[-1:]
    for name, axes, what in (("base_m", rows, "rows"), ("base_n", problem.n, "columns"), ("base_k", problem.k, "of k")):
        pinned, extents = getattr(pins, name), [problem.extents[a] for a in axes]
        whole = size(extents[:-1]) * round_up(extents[-1]) if extents else FRACTAL
        if pinned and pinned > whole:
            return f"{name}={pinned} is more than the {size(extents)} {what} that there are"
        step = size([plan.l0[a] for a in axes[:-1]]) * round_up(plan.l0[axes[-1]]) if axes else FRACTAL
        if pinned and name != "base_k" and step != round_up(pinned):
            return f"{name}={pinned}: the axes {extents} can be cut into steps of {step}"
    last = problem.k[-1] if problem.k else None
    for name in ("step_k_a", "step_k_b"):
        steps = 1 if last is None else -(-problem.extents[last] // plan.l0[last])
        if (getattr(pins, name) or 0) > steps:
            return f"{name}={getattr(pins, name)} is more than the {steps} mma step{'s' * (steps != 1)} along k"
    return None


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
        for factor in range(2, min(steps, LONGEST_LOAD) + 1):
            trial = {**l1, last: l0[last] * factor}
            if steps % factor == 0 and l1_bytes(trial, trial) <= capacity:
                best = factor
        l1[last] = l0[last] * best
    return l1
