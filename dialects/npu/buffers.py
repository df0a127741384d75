"""What instructions work on: buffers, their slots, and views of device tensors. None of these ops costs anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, UnitAttr
from xdsl.interfaces import HasFolderInterface
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import EffectInstance, Pure

from ..base import FormattedOp
from ..dtypes import part, size
from ..effects import MemoryEffectInterface, allocates
from ..open_index import OpenIndexOp
from ..shapes import check_places
from .host_program import HostProgramOp, HostVisitor, R
from .types import BufferType, GmType


@irdl_op_definition
class AllocOp(FormattedOp, MemoryEffectInterface):
    """Reserves a buffer in its space; `address` (bytes from the start of the space) comes with npu-allocate. Buffers
    that are `shared` are views of one memory: what is written through one is read through others that have its
    bytes. In `scratch` instructions of the section work that need more memory than their operands
    (dialects/npu/scratch.py)."""

    name = "npu.alloc"
    address = opt_prop_def(IntegerAttr)
    shared = opt_prop_def(UnitAttr)
    scratch = opt_prop_def(UnitAttr)
    result = result_def()

    def effects(self) -> AbstractSet[EffectInstance]:
        return allocates(self.results)

    def verify_(self) -> None:
        if not isinstance(self.result.type, BufferType):
            raise self.error(f"gives a !npu.buffer, not {self.result.type}")
        if self.shared is not None and self.address is None:
            raise self.error("is a view of memory, and needs an address")


@irdl_op_definition
class SlotOp(FormattedOp, HasFolderInterface):
    """The slot of a multi-buffer that the counter `at [...]` selects, modulo the number of slots."""

    name = "npu.slot"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def()
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        return [self.source] if self.source.type == self.result.type else None

    def verify_(self) -> None:
        src, out = self.source.type, self.result.type
        if not isinstance(src, BufferType) or not isinstance(out, BufferType):
            raise self.error("needs buffers")
        if out != src.one_slot:
            raise self.error(f"gives one slot of {src}, not {out}")


@irdl_op_definition
class SizeOp(OpenIndexOp):
    """An index that is known only at run time, as how often a loop runs."""

    name = "npu.size"


def whole_buffer(value: SSAValue) -> SSAValue:
    """The buffer that a slot is of; any other value itself."""
    return value.owner.source if isinstance(value.owner, SlotOp) else value


def whole_tensor(value: SSAValue) -> SSAValue:
    """The tensor that a device value is a view of; any other value itself."""
    while isinstance(value.owner, ViewOp):
        value = value.owner.source
    return value


def buffer_users(alloc: SSAValue) -> Iterator[Operation]:
    """The ops that name a buffer or a slot of it, but for those that choose the slots."""
    for use in alloc.uses:
        if isinstance(use.operation, SlotOp):
            yield from buffer_users(use.operation.result)
        else:
            yield use.operation


@irdl_op_definition
class ViewOp(HostProgramOp, HasFolderInterface):
    """A strided view of a whole device tensor; moves nothing. A tensor of complex numbers, whole, may be seen as one of
    their parts, twice as many, and the other way round."""

    PASSIVE: ClassVar[bool] = True

    name = "npu.view"
    source = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def effects(self) -> AbstractSet[EffectInstance]:
        return frozenset()

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.view(self)

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        return [self.source] if self.source.type == self.result.type else None

    def verify_(self) -> None:
        src, out = self.source.type, self.result.type
        if not isinstance(src, GmType) or not isinstance(out, GmType):
            raise self.error("needs device tensors")
        check_view(self, src, out)


def check_scalar(op: FormattedOp, source: GmType, starts: int) -> None:
    """A place in a tensor of integers. Raises VerifyException."""
    if not isinstance(source.element, IntegerType):
        raise op.error(f"reads an integer, not one of {source}")
    check_places(op, starts, len(source.shape))


def check_indirect(op: FormattedOp, source: GmType, index: Attribute, sizes: Sequence[int]) -> None:
    """Boxes of a tensor at integers that are counted in its elements. Raises VerifyException."""
    if not isinstance(index, IntegerType):
        raise op.error(f"takes places that are integers, not {index}")
    if len(sizes) != len(source.shape):
        raise op.error(f"needs a size for each of {len(source.shape)} dimensions")


def check_view(op: FormattedOp, src: GmType, out: GmType) -> None:
    """A view must stay inside its dense source. Raises VerifyException."""
    if not src.dense:
        raise op.error(f"needs a dense source, got {src}")
    if src.element != out.element:
        if out.dense and src.bytes == out.bytes and part(src.element) == part(out.element):
            return
        raise op.error(f"cannot change the element type from {src.element} to {out.element}")
    if 0 in out.shape:
        return
    reach = [(n - 1) * s for n, s in zip(out.shape, out.strides, strict=True)]
    low = out.offset + sum(r for r in reach if r < 0)
    high = out.offset + sum(r for r in reach if r > 0)
    if low < 0 or high >= size(src.shape):
        raise op.error(f"reaches elements {low}..{high} of a source of {size(src.shape)}")
