"""How long a kernel keeps its cores busy, by the instructions of one of them: what a launch is worth beside others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod

from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, Operation

from ...dialects.base import to_ints
from ...dialects.npu.interface import NpuOp
from ...dialects.npu.occupancy import blocks_at_once
from ...dialects.npu.structure import KernelOp
from ...dialects.npu.synchronization import OrderOp
from ...dialects.open_sizes import any_open, choosing
from ...machine import Machine
from .loops import trip_count


@choosing()
def busy_microseconds(kernel: KernelOp, machine: Machine) -> float:
    """Microseconds in which the busiest pipe of a core works, all that it reads coming from HBM at the rate of a core
    alone; 0 where its grid or its loops are open, or the machine cannot run it, which is for npu-check to say."""
    loops = [trip_count(op) for op in kernel.walk() if isinstance(op, ForOp)]
    if any_open([*to_ints(kernel.grid), *loops]):
        return 0.0
    turns = -(-prod(to_ints(kernel.grid)) // blocks_at_once(kernel, machine))
    most = 0.0
    for section in kernel.sections():
        pipes: Counter[str] = Counter()
        for op, times in _instructions(section.body.block, 1):
            try:
                cost = op.cost(machine, [0] * len(op.index_operands()))
            except KeyError:
                return 0.0
            cycles = cost.cycles if cost.write else max(cost.cycles, cost.missed_cycles)
            pipes[op.PIPE] += round(cycles * times)
        most = max(most, *pipes.values(), 0)
    return machine.cycles_to_microseconds(most * turns)


def work_microseconds(kernel: KernelOp, machine: Machine) -> float:
    """Microseconds that a core works on a kernel without open sizes: on what stands in no loop one instruction after
    the other, reading from L2; in each loop as long as its busiest pipe, reading from HBM. Raises KeyError for what the
    machine does not have."""
    cycles = 0.0
    for section in kernel.sections():
        for op in section.body.block.ops:
            pipes: Counter[str] = Counter()
            for each, times in _instructions_of(op, 1):
                cost = each.cost(machine, [0] * len(each.index_operands()))
                missed = cost.missed_cycles if op is not each and not cost.write else 0.0
                pipes[each.PIPE] += round(max(cost.cycles, missed) * times)
            cycles += max(pipes.values(), default=0)
    return machine.cycles_to_microseconds(cycles)


def _instructions(block: Block, times: int) -> Iterator[tuple[NpuOp, int]]:
    """Each instruction of a block, and how often it runs."""
    for op in block.ops:
        yield from _instructions_of(op, times)


def _instructions_of(op: Operation, times: int) -> Iterator[tuple[NpuOp, int]]:
    """The same of an op, or of a loop."""
    if isinstance(op, NpuOp) and not isinstance(op, OrderOp):
        yield op, times
    elif isinstance(op, ForOp):
        yield from _instructions(op.body.block, times * trip_count(op))
