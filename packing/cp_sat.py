"""A second opinion: OR-tools' CP-SAT on the same problem. It is optional, and nothing here needs it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .problem import PackingError, PackingProblem

SEED = 1


@dataclass(frozen=True)
class SecondOpinion:
    """What CP-SAT found. status: `optimal`, `feasible`, `infeasible` or `unknown`; bound: no offsets end lower, in
    bytes; offsets: i64 [n] in bytes, None where it found none."""

    status: str
    bound: int
    height: int | None
    offsets: np.ndarray | None


def second_opinion(problem: PackingProblem, capacity: int | None, seconds: float) -> SecondOpinion:
    """The lowest offsets that CP-SAT finds with one worker in some seconds, within `capacity` bytes if that is given.
    Raises PackingError where OR-tools is not installed."""
    try:
        from ortools.sat.python import cp_model  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise PackingError(
            "a second opinion needs OR-tools; install it with pip install 'tilewright[ortools]'"
        ) from None
    used = np.flatnonzero(problem.used).tolist()
    unit = math.gcd(*problem.sizes.tolist(), *(a for a in problem.alignments.tolist() if a > 1)) or 1
    most = int(problem.sizes.sum() + problem.alignments.sum()) // unit
    room = most if capacity is None else min(most, capacity // unit)
    model = cp_model.CpModel()
    end = model.new_int_var(0, room, "end")
    times, places, offsets = [], [], {}
    for i in used:
        b = problem.buffers[i]
        size, step = b.size // unit, max(b.alignment // unit, 1)
        if size > room:
            return SecondOpinion("infeasible", problem.bound, None, None)
        at = model.new_int_var(0, (room - size) // step, f"at{i}")
        offsets[i] = (at, step)
        times.append(model.new_fixed_size_interval_var(b.start, b.end - b.start, f"t{i}"))
        places.append(model.new_fixed_size_interval_var(step * at, size, f"p{i}"))
        model.add(step * at + size <= end)
    model.add_no_overlap_2d(times, places)
    model.add(end >= min(problem.bound // unit, room + 1))
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = SEED
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        word = "infeasible" if status == cp_model.INFEASIBLE else "unknown"
        return SecondOpinion(word, problem.bound, None, None)
    found = np.zeros(len(problem.buffers), np.int64)
    for i, (at, step) in offsets.items():
        found[i] = solver.value(at) * step * unit
    problem.check(found)
    best = math.ceil(solver.best_objective_bound) * unit
    word = "optimal" if status == cp_model.OPTIMAL else "feasible"
    return SecondOpinion(word, max(best, problem.bound), problem.height(found), found)
