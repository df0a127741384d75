"""npu-join-launches: lets neighbouring launches run as stages of one, with barriers between them.

Before:  npu.launch @k %x, %y {..., stream = "compute"}
         npu.launch @l %y, %z {..., stream = "compute"}
After:   npu.launch @k %x, %y {..., stream = "compute"}
         npu.launch @l %y, %z {joined, ..., stream = "compute"}

A *group* is a launch and those that are joined to it. Its launch wakes the most cores that any of its kernels wakes, of
all their kinds, and each kernel but the first waits at a barrier over them. So it depends on the neighbours whether
that is less than a launch: a kernel on one core alone starts quickly, but in a group of a large kernel it waits for all
cores. Dynamic programming finds the groups that take least in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from ...dialects.base import describe, text
from ...dialects.npu.structure import KernelOp, LaunchOp, joinable_before, splits_nothing
from ...dialects.npu.waking import Woken, woken_by
from ...dialects.open_sizes import choosing
from ...machine import Machine
from ..base import TargetPass
from ..reasons import Reason, asked_reasons

MOST = 64
"""Launches in a group, at most: so the time that the pass takes is linear in the launches of a program."""

PER_MICROSECOND = 10**6
"""Picoseconds, in which costs are counted: sums of whole numbers are exact, so equal costs are equal."""


class Neighbour(NamedTuple):
    """A launch among those that could be one: what it wakes, and whether it may only begin a group."""

    woken: Woken
    first: bool = False


@dataclass(frozen=True)
class NpuJoinLaunchesPass(TargetPass):
    """Marks launches that run in the one before them, where a barrier costs less than a launch."""

    name = "npu-join-launches"

    @choosing()
    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        kernels = {text(k.sym_name): woken_by(k, machine) for k in module.ops if isinstance(k, KernelOp)}
        blocks = [
            block
            for func in module.ops
            if isinstance(func, FuncOp)
            for op in func.walk()
            for region in op.regions
            for block in region.blocks
        ]
        reasons = asked_reasons()
        for block in blocks:
            before: list[LaunchOp] = []
            for run in runs(block, kernels):
                neighbours = [Neighbour(kernels[_callee(op)], bool(op.at_issue())) for op in run]
                found = joins(neighbours, machine)
                for op, joined in zip(run, found, strict=True):
                    if joined:
                        op.properties["joined"] = UnitAttr()
                if reasons is not None:
                    if before:
                        reasons.append(
                            Reason("not joined", (run[0], before[-1]), _between(before[-1], run[0]))
                        )
                    for i in (i for i, joined in enumerate(found) if i and not joined):
                        why = _dearer(neighbours, found, i, machine)
                        reasons.append(Reason("not joined", (run[i], run[i - 1]), why))
                before = run


def runs(block: Block, kernels: Mapping[str, Woken]) -> Iterator[list[LaunchOp]]:
    """The launches of a block as lists, as long as can be, of those that could be one launch. None of them is
    joined any more. What launches none of `kernels` is left out."""
    run: list[LaunchOp] = []
    for op in block.ops:
        if not isinstance(op, LaunchOp):
            continue
        op.properties.pop("joined", None)
        known = _callee(op) in kernels
        if run and not (known and joinable_before(op) is run[-1]):
            yield run
            run = []
        if known:
            run.append(op)
    if run:
        yield run


def joins(launches: Sequence[Neighbour], machine: Machine) -> list[bool]:
    """Which of some neighbouring launches run in the one before them: those with which all of them take least, of
    several such ways the one with the fewest joins."""
    price = lru_cache(maxsize=None)(lambda woken: _price(woken, machine))
    best: list[tuple[int, int]] = [(0, 0)]  # of the launches before each: picoseconds and joins
    starts: list[int] = []  # of the last group of those up to each
    for end in range(len(launches)):
        ways: list[tuple[int, int, int]] = []
        woken = launches[end].woken
        for start in range(end, max(end - MOST, -1), -1):
            woken |= launches[start].woken
            launch, barrier = price(woken)
            cost, joined = best[start]
            ways.append((cost + launch + (end - start) * barrier, joined + end - start, start))
            if launches[start].first:
                break
        *least, start = min(ways)
        best.append((least[0], least[1]))
        starts.append(start)
    found, end = [True] * len(launches), len(launches)
    while end:
        end = starts[end - 1]
        found[end] = False
    return found


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
        return "it takes a number that the program knows only then, with which a launch begins"
    start = max(i for i in range(at) if not joined[i])
    end = next((i for i in range(at + 1, len(launches)) if not joined[i]), len(launches))
    if end - start > MOST:
        return f"one launch has at most {MOST} kernels"

    def cost(group: Sequence[Neighbour]) -> float:
        launch, barrier = _price(reduce(or_, (each.woken for each in group)), machine)
        return (launch + (len(group) - 1) * barrier) / PER_MICROSECOND

    apart, together = cost(launches[start:at]) + cost(launches[at:end]), cost(launches[start:end])
    return (
        f"to start all {end - start} kernels in one launch, with barriers over the cores of the largest, would take "
        f"{together:.2f} us, and in two launches it takes {apart:.2f} us"
    )


def _price(woken: Woken, machine: Machine) -> tuple[int, int]:
    """What a launch and what a barrier costs, in picoseconds."""
    launch, barrier = woken.launch_microseconds(machine), woken.barrier_microseconds(machine)
    return round(launch * PER_MICROSECOND), round(barrier * PER_MICROSECOND)


def _callee(op: LaunchOp) -> str:
    return op.callee.root_reference.data
