"""What the sections of a kernel hand over to each other through workspaces, by the order in which each has its ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from ..base import integer, to_ints
from ..dtypes import size
from .buffers import whole_tensor
from .interface import gm
from .structure import KernelOp, SectionOp
from .transfers import LoadOp, TransferOp


@dataclass(frozen=True)
class Handed:
    """A workspace that one section writes and the other one reads: the stores and loads, in order."""

    writer: SectionOp
    reader: SectionOp
    stores: Sequence[TransferOp]
    loads: Sequence[TransferOp]

    @property
    def room(self) -> int:
        """The tiles of the workspace that a block of cores has room for."""
        store, kernel = self.stores[0], self.writer.parent_op()
        assert isinstance(kernel, KernelOp)
        whole = gm(whole_tensor(store.main_operands()[store.DEVICE_OPERAND]))
        tile = size(store.box_sizes) * integer(self.writer.units)
        return max(size(whole.shape) // (size(to_ints(kernel.grid)) * tile), 1)


def handed_over(kernel: KernelOp) -> tuple[list[Handed], list[Handed]]:
    """The workspaces that go from the first section of a kernel to the second one, and those that come back."""
    sections = [op for op in kernel.body.block.ops if isinstance(op, SectionOp)]
    if len(sections) != 2:
        return [], []
    return _handed(sections[0], sections[1]), _handed(sections[1], sections[0])


def _handed(writer: SectionOp, reader: SectionOp) -> list[Handed]:
    stores: dict[SSAValue, list[TransferOp]] = {}
    loads: dict[SSAValue, list[TransferOp]] = {}
    for section, is_load, found in ((writer, False, stores), (reader, True, loads)):
        for op in section.body.walk():
            if isinstance(op, TransferOp) and isinstance(op, LoadOp) is is_load:
                found.setdefault(whole_tensor(op.main_operands()[op.DEVICE_OPERAND]), []).append(op)
    return [Handed(writer, reader, stores[t], loads[t]) for t in stores if t in loads]
