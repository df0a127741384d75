"""npu-join-launches: lets neighbouring launches run as stages of one, with barriers between them.

Before:  npu.launch @k %x, %y {..., stream = "compute"}
         npu.launch @l %y, %z {..., stream = "compute"}
After:   npu.launch @k %x, %y {..., stream = "compute"}
         npu.launch @l %y, %z {joined, ..., stream = "compute"}

launch_groups.py says which take least together. A launch that needs nothing of those before it, and writes nothing that
they use, waits for no barrier: `joined, nowait`; it is beside them where its group has cores left: `first_core`. One
that begins with a load of what those since the last barrier do not write, as a product does with its weights, loads
that before it waits: `ahead`. Cores for which the stages before have no work, as the cube in a norm, do so ahead of the
barriers of these, too: `barriers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import takewhile
from operator import or_

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, SSAValue

from ...dialects.base import describe, integer_attr, ints, text, to_ints
from ...dialects.npu.beginnings import beginnings
from ...dialects.npu.host_program import ControlOp
from ...dialects.npu.occupancy import Occupancy, occupancy_of
from ...dialects.npu.structure import (
    AS_A_STAGE,
    KernelOp,
    LaunchOp,
    ScalarsOp,
    joinable_before,
    splits_nothing,
)
from ...dialects.open_sizes import any_open, choosing
from ...machine import Machine
from ..alternatives import PREFETCH
from ..base import ChoosingPass
from ..calls import callers_first
from ..launch_groups import GroupMember, Groups, LaunchPoint, Neighbour, Together, first_cores
from ..reasons import Reason, asked_reasons
from .busy import busy_microseconds
from .check.order import Place, TensorPlaces, frames_of


@dataclass(frozen=True)
class NpuJoinLaunchesPass(ChoosingPass):
    """Marks launches that run in the one before them, where a barrier costs less than a launch."""

    name = "npu-join-launches"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        kernels = {text(k.sym_name): StagedKernel(k, machine) for k in module.ops if isinstance(k, KernelOp)}
        functions = callers_first(module)
        frames = frames_of(functions)
        reasons = asked_reasons()
        for func in functions:
            memory = TensorPlaces(func, frames)
            for block in (block for op in func.walk() for region in op.regions for block in region.blocks):
                before: list[LaunchOp] = []
                for run in runs(block, kernels):
                    neighbours = join(run, kernels, memory, machine, self.may(PREFETCH))
                    if reasons is not None:
                        reasons += _apart(before, run, neighbours, machine)
                    before = run


class StagedKernel:
    """A kernel as a stage: what it occupies, and the operands that its cores come to first."""

    def __init__(self, op: KernelOp, machine: Machine) -> None:
        self.op, self.machine = op, machine
        self.occupancy, self.beginnings = occupancy_of(op, machine), beginnings(op)
        self.kinds = [text(section.core) for section in op.sections()]

    @cached_property
    def point(self) -> tuple[LaunchPoint, ...]:
        """How it is run, whatever it takes: that matters only beside others."""
        return (LaunchPoint(self.occupancy),)

    @cached_property
    def timed(self) -> tuple[LaunchPoint, ...]:
        """The same, and how long its cores are busy."""
        return (LaunchPoint(self.occupancy, busy_microseconds(self.op, self.machine)),)


def join(
    run: Sequence[LaunchOp],
    kernels: Mapping[str, StagedKernel],
    memory: TensorPlaces,
    machine: Machine,
    ahead: bool,
) -> list[Neighbour]:
    """Marks those of some launches that could be one which run in the one before them, and which of these wait for no
    barrier; what is known of each. ahead: whether they may load before they wait."""
    staged = [kernels[_callee(op)] for op in run]
    before = independent(run, [kernel.beginnings for kernel in staged], memory)
    beside = any(free for free, _ in before)
    neighbours = [
        Neighbour(kernel.timed if beside else kernel.point, late, free)
        for late, kernel, (free, _) in zip(late_numbers(run), staged, before, strict=True)
    ]
    members = groups(neighbours, machine)
    for op, member, (free, early) in zip(run, members, before, strict=True):
        if member.joined:
            op.properties["joined"] = UnitAttr()
            if free:
                op.properties["nowait"] = UnitAttr()
            if early and ahead and op.stages_before():
                op.properties["ahead"] = ints(early)
                if (barriers := _barriers_passed(op, kernels, memory)) > 1:
                    op.properties["barriers"] = integer_attr(barriers)
    _place(run, [kernel.occupancy for kernel in staged], members)
    return neighbours


def _barriers_passed(op: LaunchOp, kernels: Mapping[str, StagedKernel], memory: TensorPlaces) -> int:
    """Ahead of how many barriers a launch reads what it reads ahead: of those of the stages before in which one of its
    kinds of cores has no work, as far as these do not write it."""
    ahead = {*memory.places(op.operands[i] for i in to_ints(op.ahead))}
    kernel = kernels[_callee(op)]
    idle = {
        kind
        for kind, begins in zip(kernel.kinds, kernel.beginnings, strict=True)
        if begins and begins[0] in to_ints(op.ahead)
    }
    passed = 0
    for stage in op.sets_before():
        if any(ahead & memory.near(memory.uses(each)[1]) for each in stage):
            break
        passed += 1
        idle.difference_update(*(kernels[_callee(each)].kinds for each in stage))
        if not idle:
            break
    return passed


def _place(run: Sequence[LaunchOp], occupancies: Sequence[Occupancy], members: Sequence[GroupMember]) -> None:
    """Puts launches that no barrier parts on cores of their own, as far as their group has some, unless it depends on
    open sizes how many they take."""
    start = 0
    while start < len(run):
        together = run[start].without_barrier()
        cores, room = occupancies[start : start + len(together)], members[start].group.cores
        if len(together) > 1 and not any_open([room, *(each.cores for each in cores)]):
            for op, first in zip(together, first_cores(cores, room), strict=True):
                if first:
                    op.properties["first_core"] = integer_attr(first)
        start += len(together)


def late_numbers(run: Sequence[LaunchOp]) -> Iterator[bool]:
    """For each of some neighbouring launches whether the program may have to wait for a number that it takes. It waits
    for none that it computes itself, nor for one that a launch before has waited for."""
    known: set[SSAValue] = set()
    for op in run:
        numbers = op.at_issue()
        yield any(v not in known and not isinstance(v.owner, ScalarsOp | ControlOp | Block) for v in numbers)
        known.update(numbers)


def independent(
    run: Sequence[LaunchOp], beginnings: Sequence[Sequence[Sequence[int]]], memory: TensorPlaces
) -> list[tuple[bool, list[int]]]:
    """For each of some launches whether it shares no bytes that are written with those before it, back to the last one
    that shares some with its own; and of the operands that its cores begin with those that no launch writes which may
    still run ahead of the barrier behind which it is."""
    together = Together(memory.near)
    found: list[tuple[bool, list[int]]] = []
    for op, begins in zip(run, beginnings, strict=True):
        inputs = memory.places(op.inputs())

        free = together.joined_by(*memory.uses(op))

        def kept(i: int, inputs: Sequence[Place] = inputs) -> bool:
            return i < len(inputs) and together.before.isdisjoint(memory.near({inputs[i]}))

        found.append((free, sorted({i for begin in begins for i in takewhile(kept, begin)})))
    return found


def runs(block: Block, kernels: Mapping[str, StagedKernel]) -> Iterator[list[LaunchOp]]:
    """The launches of a block as lists, as long as can be, of those that could be one launch. None of them is
    joined any more. What launches none of `kernels` is left out."""
    run: list[LaunchOp] = []
    for op in block.ops:
        if not isinstance(op, LaunchOp):
            continue
        for name in AS_A_STAGE:
            op.properties.pop(name, None)
        known = _callee(op) in kernels
        if run and not (known and joinable_before(op) is run[-1]):
            yield run
            run = []
        if known:
            run.append(op)
    if run:
        yield run


@choosing()
def groups(launches: Sequence[Neighbour], machine: Machine) -> list[GroupMember]:
    """What becomes of some neighbouring launches so that all of them take least; of several such ways the one with the
    fewest joins. Open sizes are those of the example."""
    return Groups(machine, launches).least()[1]


def _apart(
    before: Sequence[LaunchOp], run: Sequence[LaunchOp], neighbours: Sequence[Neighbour], machine: Machine
) -> Iterator[Reason]:
    """Why launches of a run begin groups of their own; `before`: the run before it."""
    if before:
        yield Reason("not joined", (run[0], before[-1]), _between(before[-1], run[0]))
    joined = [op.joined is not None for op in run]
    for i in (i for i, there in enumerate(joined) if i and not there):
        yield Reason("not joined", (run[i], run[i - 1]), _dearer(neighbours, joined, i, machine))


def _between(before: LaunchOp, launch: LaunchOp) -> str:
    """Why the first launch of a run is not of one group with the last one of the run before."""
    if before.queue != launch.queue:
        return f"they are on two streams, {before.queue} and {launch.queue}"
    op = before.next_op
    while op is not None and splits_nothing(op):
        op = op.next_op
    return (
        f"{describe(op)} is between them" if op is not None and op is not launch else "they are no neighbours"
    )


def _dearer(launches: Sequence[Neighbour], joined: Sequence[bool], at: int, machine: Machine) -> str:
    """Why the group that begins with a launch is not one with the group before it."""
    if launches[at].first:
        return "it takes a number for which the program may have to wait, and no launch begins without its numbers"
    start = max(i for i in range(at) if not joined[i])
    end = next((i for i in range(at + 1, len(launches)) if not joined[i]), len(launches))

    def cost(group: Sequence[Neighbour]) -> float:
        occupancy = reduce(or_, (each.points[0].occupancy for each in group))
        barriers = sum(not each.free for each in group[1:])
        return occupancy.launch_microseconds(machine) + barriers * occupancy.barrier_microseconds(machine)

    apart, together = cost(launches[start:at]) + cost(launches[at:end]), cost(launches[start:end])
    return (
        f"to start all {end - start} kernels in one launch, with barriers over the cores of the largest, would take "
        f"{together:.2f} us, and in two launches it takes {apart:.2f} us"
    )


def _callee(op: LaunchOp) -> str:
    return op.callee.root_reference.data
