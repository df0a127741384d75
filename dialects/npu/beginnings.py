"""What the cores of a kernel come to first in device memory."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import BlockArgument

from ..base import to_ints
from .buffers import whole_tensor
from .interface import NpuOp
from .structure import KernelOp, SectionOp
from .types import GmType


def beginnings(kernel: KernelOp) -> list[list[int]]:
    """For each kind of core the operands that its instructions read, in the order in which it comes to them, up to the
    first instruction that writes one."""
    before = len(to_ints(kernel.grid))
    sections = (op for op in kernel.body.block.ops if isinstance(op, SectionOp))
    return [[argument - before for argument in dict.fromkeys(_read_first(section))] for section in sections]


def _read_first(section: SectionOp) -> Iterator[int]:
    """The kernel's arguments."""
    for op in section.body.walk():
        if isinstance(op, NpuOp):
            if any(isinstance(v.type, GmType) for v in op.writes()):
                return
            for tensor in (whole_tensor(v) for v in op.reads() if isinstance(v.type, GmType)):
                assert isinstance(tensor, BlockArgument)
                yield tensor.index
