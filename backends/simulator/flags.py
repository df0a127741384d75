"""What flags cost in time."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import Operation

from ...dialects.base import to_ints
from ...dialects.npu import structure
from ...machine import Machine
from .kernel import TimedKernel


def cycles_without(kernel: structure.KernelOp, gone: Collection[Operation], machine: Machine) -> int:
    """Cycles of one launch of `kernel` if the ops `gone` were not in it, all tensors in L2. Raises SimulationError
    where that cannot run."""
    numbers = {i for i, op in enumerate(kernel.walk()) if op in gone}
    copy = kernel.clone()
    for op in [op for i, op in enumerate(copy.walk()) if i in numbers]:
        op.detach()
        op.erase()
    tensors = len(copy.body.block.args) - len(to_ints(copy.grid))
    return TimedKernel(copy, machine).run((0.0,) * tensors).cycles
