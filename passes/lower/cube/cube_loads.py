"""Which part of k one load to l1 brings of each operand of a contraction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ....dialects.graph import CubeSchedule
from ....dialects.open_sizes import is_open
from ....kernels.product import FRACTAL, CubeProblem, Extents
from ....machine import Machine

L1_FRACTION = 0.9
LONGEST_LOAD = 8
"""StageGraph of the last k axis that one load covers, at most."""

LoadBytes = Callable[[Extents, Extents], tuple[int, int]]
"""Bytes in l1 of one load of lhs and of one of rhs with those tile extents."""


def even(extent: int, limit: int, multiple: int = 1) -> int:
    """The extent of equal parts not longer than `limit`, rounded up to `multiple` where the limit allows."""
    if extent <= limit:
        return extent
    length = -(-extent // -(-extent // limit))
    rounded = -(-length // multiple) * multiple
    return rounded if rounded <= limit else length


def extents_of(by_axis: dict[int, int]) -> tuple[int, ...]:
    """The extents that are known by axis, as a schedule lists them."""
    return tuple(by_axis.values())


def loads_of(
    problem: CubeProblem,
    machine: Machine,
    l0: dict[int, int],
    l1_bytes: LoadBytes,
    slots: int,
    pins: CubeSchedule,
) -> tuple[dict[int, int], dict[int, int], dict[int, int]] | None:
    """A mma step and the loads of both operands; None where one step does not fit l1. Pinned ones are not checked."""
    if pins.step_k_a or pins.step_k_b:
        lhs, rhs = (loaded(problem, l0, steps) for steps in (pins.step_k_a, pins.step_k_b))
        room = machine.spaces["l1"].bytes // slots
        steps = pins.step_k_a or pins.step_k_b or 1
        while lhs is None or rhs is None:  # One is pinned: the other as long as fits, in whole multiples.
            twice = loaded(problem, l0, steps * 2)
            own = lhs or rhs or l0
            fits = sum(l1_bytes(extents_of(lhs or twice or l0), extents_of(rhs or twice or l0))) <= room
            if not fits or twice == loaded(problem, l0, steps):
                longest = loaded(problem, l0, steps) or own
                return l0, lhs or longest, rhs or longest
            steps *= 2
        return l0, lhs, rhs
    pinned = bool(pins.step or pins.base_m or pins.base_n or pins.base_k)
    l1 = _grow_l1(problem, machine, l0, l1_bytes, slots, must_fit=not pinned)
    while l1 is None:  # Far apart windows: what lies between the rows of a tile is loaded too.
        free = [a for a in (*problem.m, *problem.windows) if a not in problem.pooled]
        wide = next((a for a in free if l0[a] > 1), None)
        if wide is None:
            return None
        half = even(problem.extents[wide], l0[wide] // 2, FRACTAL if wide == problem.m[-1] else 1)
        l0 = {**l0, wide: 1 if wide in problem.windows else half}
        l1 = _grow_l1(problem, machine, l0, l1_bytes, slots, must_fit=True)
    return l0, l1, l1


def loaded(problem: CubeProblem, l0: dict[int, int], steps: int | None) -> dict[int, int] | None:
    """The extents of a load that covers `steps` mma steps of the k axis along which it has several, no more than there
    are."""
    if steps is None or not problem.k:
        return None
    last = problem.long_k(l0)
    return {**l0, last: l0[last] * min(steps, -(-problem.extents[last] // l0[last]))}


def _grow_l1(
    problem: CubeProblem,
    machine: Machine,
    l0: dict[int, int],
    l1_bytes: LoadBytes,
    slots: int,
    must_fit: bool,
) -> dict[int, int] | None:
    """Lengthens the load along k: whole windows first (their halo is then loaded once), then more of the last k axis
    that a step has not all of, as long as `slots` loads fit l1. None where one step does not fit, if it must."""
    capacity = int(machine.spaces["l1"].bytes * L1_FRACTION) // slots
    l1 = dict(l0)
    if sum(l1_bytes(extents_of(l1), extents_of(l1))) > capacity:
        return None if must_fit else l1
    for a in reversed([a for a in problem.k if a in problem.windows - problem.singly]):
        trial = {**l1, a: problem.extents[a]}
        if sum(l1_bytes(extents_of(trial), extents_of(trial))) <= capacity:
            l1 = trial
    if problem.k and problem.cut_k[-1] not in problem.windows:
        last = problem.long_k(l0)
        steps = -(-problem.extents[last] // l0[last])
        best = 1
        for factor in range(2, min(steps, LONGEST_LOAD) + 1):
            trial = {**l1, last: l0[last] * factor}
            if steps % factor == 0 and sum(l1_bytes(extents_of(trial), extents_of(trial))) <= capacity:
                best = factor
        l1[last] = l0[last] * best
    return l1


def other_loads(
    schedule: CubeSchedule, problem: CubeProblem, l1_bytes: LoadBytes, room: int
) -> Iterator[CubeSchedule]:
    """The schedule with loads of other lengths along k, up to LONGEST_LOAD steps or all of k, of which neither could be
    longer in `room` bytes of l1."""
    step, slots = schedule.step, schedule.l1
    assert step is not None and slots is not None
    if not problem.k or problem.windows or any(is_open(problem.extents[a]) for a in problem.k):
        return
    k = problem.long_k(step)
    steps = -(-problem.extents[k] // step[k])
    lengths = [1 << i for i in range(LONGEST_LOAD.bit_length()) if 1 << i <= steps]
    lengths += [steps] if steps not in lengths else []

    def loads(pair: tuple[int, int]) -> tuple[Extents, Extents]:
        lhs, rhs = (tuple(step[k] * n if a == k else e for a, e in enumerate(step)) for n in pair)
        return lhs, rhs

    pairs = [(a, b) for a in lengths for b in lengths if not max(a, b) % min(a, b)]
    fit = [pair for pair in pairs if slots * sum(l1_bytes(*loads(pair))) <= room]
    for left, right in fit:
        if not any((a, b) != (left, right) and a >= left and b >= right for a, b in fit):
            lhs, rhs = loads((left, right))
            yield replace(schedule, lhs=lhs, rhs=rhs)
