"""Loads of a product that waits at a barrier for one of its operands, and has the other one before: all of that at
once.

A core has its columns of rhs in l1, all of k, before what they are multiplied by is there. It may go through them in
several tiles then: the epilogue of one is under way while the next one is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ....dialects.graph import CubeSchedule
from ....dialects.open_sizes import is_open
from ....kernels.product import FRACTAL, CubeProblem
from ....machine import Machine
from .cube_schedule import CubePlan, accumulators


def loads_ahead(
    schedule: CubeSchedule,
    side: int,
    problem: CubeProblem,
    machine: Machine,
    fits: Callable[[CubeSchedule], bool],
) -> list[CubeSchedule]:
    """Schedules, complete but for the tile of the epilogue, with one load of an operand (0: lhs, 1: rhs) that brings
    all of k, and loads of the other one as they are, or of half as many steps and so on, until that fits; also with
    tiles of half as many columns, where a core has one tile."""
    plan = CubePlan.of(schedule)
    if not problem.k or any(is_open(problem.extents[a]) for a in problem.k):
        return []
    whole, other = ((plan.lhs, plan.rhs), (plan.rhs, plan.lhs))[side]
    extents = {a: -(-problem.extents[a] // plan.l0[a]) * plan.l0[a] for a in problem.k}
    whole = tuple(extents.get(a, n) for a, n in enumerate(whole))
    last, able = problem.long_k(plan.l0), list[CubeSchedule]()
    while True:
        both = (whole, other) if side == 0 else (other, whole)
        found = replace(schedule, lhs=both[0], rhs=both[1])
        tried = [found, *(_halved(found, problem, machine) if side == 1 else ())]
        steps = other[last] // plan.l0[last]
        able += [each for each in tried if fits(each)]
        if found in able or steps % 2 or last in problem.windows:
            return able
        other = tuple(steps // 2 * plan.l0[a] if a == last else n for a, n in enumerate(other))


def _halved(schedule: CubeSchedule, problem: CubeProblem, machine: Machine) -> Iterator[CubeSchedule]:
    """The schedule with two tiles on each core, whose columns one load of rhs has, in steps as they are and twice as
    deep, as far as loads are whole steps; none where it has several tiles already, or one that cannot be halved."""
    plan = CubePlan.of(schedule)
    if len(problem.n) != 1 or problem.whole:
        return
    (n,) = problem.n
    columns, last = plan.l0[n] // 2, problem.long_k(plan.l0)
    if plan.tiles_of_core(n, problem) != 1 or plan.l0[n] % (2 * FRACTAL) or problem.extents[n] <= columns:
        return
    for deeper in (1, 2):
        if any(load[last] % (plan.l0[last] * deeper) for load in (plan.lhs, plan.rhs)):
            continue
        step = tuple(columns if a == n else e * deeper if a == last else e for a, e in enumerate(plan.l0))
        lhs = tuple(columns if a == n else e for a, e in enumerate(plan.lhs))
        slots = accumulators(problem, dict(enumerate(step)), machine)
        yield replace(schedule, step=step, lhs=lhs, l0c=slots, epilogue=None)
