"""What the cores of a kernel come to first in device memory."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import SSAValue

from ..base import to_ints
from .buffers import ViewOp
from .interface import NpuOp
from .structure import KernelOp, SectionOp
from .types import GmType


def beginnings(kernel: KernelOp) -> list[list[int]]:
    """For each kind of core the operands that its instructions read first, in order, up to the first instruction that
    writes one or reads a number. An operand may come more than once."""
    arguments = kernel.body.block.args
    operands: dict[SSAValue, int] = {a: i - len(to_ints(kernel.grid)) for i, a in enumerate(arguments)}
    for op in kernel.body.walk():
        if isinstance(op, ViewOp):
            operands[op.result] = operands[op.source]
    return [list(_read_first(section, operands)) for section in kernel.body.block.ops if isinstance(section, SectionOp)]


def _read_first(section: SectionOp, operands: dict[SSAValue, int]) -> Iterator[int]:
    for op in section.body.walk():
        if isinstance(op, NpuOp):
            if any(isinstance(v.type, GmType) for v in op.writes()):
                return
            yield from (operands[v] for v in op.reads() if isinstance(v.type, GmType))
