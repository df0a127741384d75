"""npu-join-launches: lets neighbouring launches run as stages of one, with barriers between them.

Before:  npu.launch @k %x, %y {..., stream = "compute"}
         npu.launch @l %y, %z {..., stream = "compute"}
After:   npu.launch @k %x, %y {..., stream = "compute"}
         npu.launch @l %y, %z {joined, ..., stream = "compute"}

launch_groups.py says which take least together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from ...dialects.base import text
from ...dialects.npu.structure import KernelOp, LaunchOp, joinable_before
from ...dialects.npu.waking import woken_by
from ...dialects.open_sizes import choosing
from ...machine import Machine
from ..base import TargetPass
from ..launch_groups import Groups, Neighbour, Way


@dataclass(frozen=True)
class NpuJoinLaunchesPass(TargetPass):
    """Marks launches that run in the one before them, where a barrier costs less than a launch."""

    name = "npu-join-launches"

    @choosing()
    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        kernels = {
            text(k.sym_name): (Way(woken_by(k, machine)),) for k in module.ops if isinstance(k, KernelOp)
        }
        blocks = [
            block
            for func in module.ops
            if isinstance(func, FuncOp)
            for op in func.walk()
            for region in op.regions
            for block in region.blocks
        ]
        for run in (run for block in blocks for run in runs(block, kernels)):
            neighbours = [Neighbour(kernels[_callee(op)], bool(op.at_issue())) for op in run]
            for op, joined in zip(run, joins(neighbours, machine), strict=True):
                if joined:
                    op.properties["joined"] = UnitAttr()


def runs(block: Block, kernels: Mapping[str, tuple[Way, ...]]) -> Iterator[list[LaunchOp]]:
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
    _, members = Groups(machine, launches).least()
    return [member.joined for member in members]


def _callee(op: LaunchOp) -> str:
    return op.callee.root_reference.data
