"""What the sections of a kernel hand over to each other through workspaces, by the order in which each has its ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, Operation, SSAValue

from ..base import integer, to_ints
from ..dtypes import size
from ..open_sizes import certain
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
    def tile(self) -> int:
        """Elements of a tile: what the longest transfer moves on all units of its section."""
        moved = [_moved(op, self.writer) for op in self.stores]
        return max(*moved, *(_moved(op, self.reader) for op in self.loads))

    @property
    def room(self) -> int:
        """The tiles of the workspace that a block of cores has room for."""
        store, kernel = self.stores[0], self.writer.parent_op()
        assert isinstance(kernel, KernelOp)
        whole = gm(whole_tensor(store.main_operands()[store.DEVICE_OPERAND]))
        return max(size(whole.shape) // (size(to_ints(kernel.grid)) * self.tile), 1)

    @property
    def in_a_ring(self) -> bool:
        """Whether the same places are written in several iterations of a loop."""
        top = self.writer.body.block
        inside = ((store, block) for store in self.stores for block in blocks_around(store, top)[:-1])
        return any(
            isinstance(block.parent_op(), ForOp) and certain(moved_by(block, store), "==", 0) for store, block in inside
        )

    def of_tile(self, op: TransferOp) -> Operation:
        """What moves a whole tile: one of the transfers, or the loop around it that moves a tile piece by piece."""
        moved = _moved(op, self.writer if op in self.stores else self.reader)
        found: Operation = op
        while moved < self.tile and isinstance(loop := found.parent_op(), ForOp):
            bound = loop.ub.owner
            if not isinstance(bound, ConstantOp) or not isinstance(bound.value, IntegerAttr):
                break
            moved, found = moved * bound.value.value.data, loop
        return found


def _moved(op: TransferOp, section: SectionOp) -> int:
    """Elements that a transfer moves on all units of its section."""
    return size(op.box_sizes) * integer(section.units)


def handed_over(kernel: KernelOp) -> tuple[list[Handed], list[Handed]]:
    """The workspaces that go from the first section of a kernel to the second one, and those that come back."""
    sections = [op for op in kernel.body.block.ops if isinstance(op, SectionOp)]
    if len(sections) != 2:
        return [], []
    return _handed(sections[0], sections[1]), _handed(sections[1], sections[0])


def takes_turns(kernel: KernelOp) -> bool:
    """Whether two sections wait for each other: see `in_turns`."""
    return in_turns(*handed_over(kernel))


def in_turns(forth: Sequence[Handed], back: Sequence[Handed]) -> bool:
    """Whether sections with these workspaces wait for each other: each hands tiles to the other, or one of them writes
    a workspace again that has room for few."""
    return bool(forth and back) or any(each.in_a_ring for each in (*forth, *back))


def blocks_around(op: Operation, top: Block) -> list[Block]:
    """Blocks around `op`, innermost first, up to `top`."""
    found = []
    block = op.parent
    while block is not None:
        found.append(block)
        if block is top:
            break
        parent = block.parent_op()
        block = parent.parent if parent is not None else None
    return found


def moved_by(body: Block, op: TransferOp) -> int:
    """Elements of a tensor that an iteration of the loop with this body moves a transfer on."""
    return sum(
        c * stride
        for offset, stride in zip(op.linear(), op.view.strides, strict=True)
        for v, c in offset.terms
        if v is body.args[0]
    )


def _handed(writer: SectionOp, reader: SectionOp) -> list[Handed]:
    stores: dict[SSAValue, list[TransferOp]] = {}
    loads: dict[SSAValue, list[TransferOp]] = {}
    for section, is_load, found in ((writer, False, stores), (reader, True, loads)):
        for op in section.body.walk():
            if isinstance(op, TransferOp) and isinstance(op, LoadOp) is is_load:
                found.setdefault(whole_tensor(op.main_operands()[op.DEVICE_OPERAND]), []).append(op)
    return [Handed(writer, reader, stores[t], loads[t]) for t in stores if t in loads]
