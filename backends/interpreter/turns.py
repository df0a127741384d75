"""Which kernels have sections that wait for each other."""

from __future__ import annotations

from xdsl.ir import Operation

from ...dialects.npu import SetCrossOp, WaitCrossOp
from ...dialects.npu.structure import KernelOp, SectionOp


def takes_turns(kernel: KernelOp) -> bool:
    """Whether each of two sections waits for the other."""
    sections = [op for op in kernel.body.block.ops if isinstance(op, SectionOp)]
    return len(sections) == 2 and all(
        any(isinstance(op, WaitCrossOp) for op in section.walk()) for section in sections
    )


def crosses(op: Operation) -> bool:
    """Whether an op signals other cores, or waits for them, inside."""
    return any(isinstance(inner, SetCrossOp | WaitCrossOp) for inner in op.walk())
