"""Why a schedule of a contraction cannot be obeyed: what does not fit its axes, the chip, or what is pinned."""

from __future__ import annotations

from ....dialects.dtypes import size
from ....dialects.graph import CubeSchedule
from ....dialects.npu.types import ROW_BYTES
from ....dialects.open_sizes import certain, is_open
from ....kernels.product import FRACTAL, CubeProblem, round_up
from ....machine import Machine
from ..schedule import share
from .cube_loads import LoadBytes
from .cube_schedule import CubePlan


def refusal(
    plan: CubePlan, problem: CubeProblem, machine: Machine, l1_bytes: LoadBytes, pins: CubeSchedule
) -> str | None:
    """Why a complete schedule, or what is pinned of it, cannot be obeyed, as the rest of a sentence; None where it
    can."""
    wrong = _misshapen(plan, problem, machine) or _beyond(plan, problem, machine, pins)
    if wrong is not None:
        return wrong
    step, lhs, rhs = plan.l0, plan.lhs, plan.rhs
    for name, axes in (("base_n", problem.n), ("base_k", problem.k)):  # rows are filled up
        pinned = getattr(pins, name)
        if pinned and pinned % FRACTAL and any(problem.extents[a] > pinned for a in axes):
            return f"{name}={pinned} is not a multiple of the cube's {FRACTAL}"
    for a in problem.k:
        if max(lhs[a], rhs[a]) % min(lhs[a], rhs[a]):
            return f"loads of {lhs[a]} and {rhs[a]} along k do not nest: one step_k must divide the other"
    if {tuple(lhs), tuple(rhs)} != {plan.l1, plan.short}:
        return "the load of one operand must be the longer one along every axis"
    m, n, k = (round_up(size([step[a] for a in axes])) for axes in (problem.m, problem.n, problem.k))
    width = problem.itemsize
    k = -(-k * width // ROW_BYTES) * ROW_BYTES // width  # fractals of narrow types are longer than they have rows
    deep = (
        k if not problem.sparse else sum(-(-k // each // ROW_BYTES) * ROW_BYTES for each in problem.rhs_parts)
    )
    needs = [
        ("l0c", m * n * 4, f"an accumulator of {m} x {n}"),
        ("l0a", m * k * width, f"a step of {m} x {k}"),
        ("l0b", deep * n * width, f"a step of {k} x {n}"),
    ]
    for space, need, what in needs:
        why = _too_much(space, need, plan.slots[space], what, machine)
        if why is not None:
            return why
    each, slots = l1_bytes(lhs, rhs), plan.l1_slots(problem)
    if slots[0] == slots[1]:
        return _too_much("l1", sum(each), slots[0], "one load of both operands", machine)
    left, right = (f"{n} x {s} buffers" if s > 1 else f"{n}" for n, s in zip(each, slots, strict=True))
    need, room = sum(n * s for n, s in zip(each, slots, strict=True)), machine.spaces["l1"].bytes
    if need > room:
        return f"loads of the operands take {left} and {right} bytes of l1, and {machine.name} has {room}"
    return None


def _too_much(space: str, need: int, slots: int, what: str, machine: Machine) -> str | None:
    """Why there is no room for so many buffers of `need` bytes, as the rest of a sentence; None where there is."""
    room = machine.spaces[space].bytes
    if need * slots <= room:
        return None
    times = f" x {slots} buffers" if slots > 1 else ""
    return f"{what} takes {need}{times} bytes of {space}, and {machine.name} has {room}"


def _misshapen(plan: CubePlan, problem: CubeProblem, machine: Machine) -> str | None:
    """What of a complete schedule does not fit the contraction's axes, as the rest of a sentence."""
    rank = len(problem.extents)
    lists = {"step": plan.l0, "lhs": plan.lhs, "rhs": plan.rhs, "grid": plan.grid}
    for name, given in lists.items():
        if len(given) != rank:
            return f"the contraction has {rank} axes, and {name} {len(given)}"
    for a, extent in enumerate(problem.extents):
        step, most = lists["step"][a], round_up(extent)
        along = problem.pooled.get(a)
        if along is not None:
            if not along.holds(step):
                return f"a step of {step} along axis {a} is not as long as windows of {along.window} are together"
        elif (a in problem.windows or not is_open(extent)) and step > most:
            return f"a step of {step} along axis {a}, which has {extent}"
        if a in problem.singly and max(step, lists["lhs"][a], lists["rhs"][a]) > 1:
            return f"a step of {step} along axis {a}, whose places are loaded one by one"
        if a in problem.k:
            uneven = next((n for n in ("lhs", "rhs") if lists[n][a] % step and lists[n][a] < extent), None)
            whole = problem.rhs_parts[-1]
            if a == problem.k[-1] and step % whole and step < extent:
                return f"a step of {step} along axis {a}, of which {whole} elements have their positions in one byte"
            if uneven is not None:
                return f"{uneven} loads {lists[uneven][a]} along axis {a}, which is no multiple of the step's {step}"
            if lists["grid"][a] != 1:
                return f"axis {a} cannot be split over {lists['grid'][a]} cores, as it is summed over"
            continue
        if lists["lhs"][a] != step or (lists["rhs"][a] != step and not _has_all(plan, a, problem)):
            return f"loads and steps differ along axis {a} of the result"
        tiles, cores = problem.tiles(a, step), lists["grid"][a]
        if a in problem.whole and cores != 1:
            return f"axis {a} cannot be split over {cores} cores, as rows along it are reduced"
        if a in problem.whole and machine.fused and tiles > 1:
            return f"a step of {step} along axis {a}: its rows of {extent} are reduced where a step leaves its sums"
        if not is_open(tiles) and share(tiles, cores)[0] != cores:
            return f"axis {a} cannot be split over {cores} cores, as it has {tiles} tiles"
        if a in problem.even and not certain(tiles % cores, "==", 0):
            return f"axis {a} has {tiles} products that begin at places of their own, which {cores} cores cannot share"
    if problem.whole and plan.inner != "n":
        return f"rows are reduced once all their columns are there: the inner loop must be n, not {plan.inner}"
    counts = [1 if a in problem.whole else n for a, n in zip(problem.out, problem.counts(plan.l0), strict=True)]
    points, cores = size(lists["grid"]), machine.cube_cores
    if points > cores and points != size(counts):
        return f"a grid of {points} is more than the {cores} cube cores of {machine.name}"
    return None


def _has_all(plan: CubePlan, axis: int, problem: CubeProblem) -> bool:
    """Whether one load of rhs has what all tiles of a core along an axis are made of, and is loaded once."""
    of_core = plan.tiles_of_core(axis, problem)
    if axis not in problem.n or is_open(of_core) or problem.pooled or problem.whole:
        return False
    return plan.rhs[axis] == of_core * plan.l0[axis] and plan.l1_slots(problem)[1] == 1


def _beyond(plan: CubePlan, problem: CubeProblem, machine: Machine, pins: CubeSchedule) -> str | None:
    """Which pin asks for more than the product or the chip has, as the rest of a sentence; None where none does."""
    if pins.cores and pins.cores > machine.cube_cores:
        return f"cores={pins.cores} is more than the {machine.cube_cores} cube cores of {machine.name}"
    own = plan.l0
    rows = problem.m if problem.wide_m else problem.m[-1:]
    for name, axes, what in (
        ("base_m", rows, "rows"),
        ("base_n", problem.n, "columns"),
        ("base_k", problem.k, "of k"),
    ):
        pinned, extents = getattr(pins, name), [problem.extents[a] for a in axes]
        whole = size(extents[:-1]) * round_up(extents[-1]) if extents else FRACTAL
        if pinned and pinned > whole:
            return f"{name}={pinned} is more than the {size(extents)} {what} that there are"
        step = size([own[a] for a in axes[:-1]]) * round_up(own[axes[-1]]) if axes else FRACTAL
        if problem.pooled and name == "base_m":
            step = round_up(size([own[a] for a in axes]))
        if pinned and name != "base_k" and step != round_up(pinned):
            return f"{name}={pinned}: the axes {extents} can be cut into steps of {step}"
    last = problem.long_k(own) if problem.k else None
    for name in ("step_k_a", "step_k_b"):
        steps = 1 if last is None else -(-problem.extents[last] // own[last])
        if (getattr(pins, name) or 0) > steps:
            return (
                f"{name}={getattr(pins, name)} is more than the {steps} mma step{'s' * (steps != 1)} along k"
            )
    return None
