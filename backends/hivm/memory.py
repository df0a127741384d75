"""Memory of a kernel in HIVM: buffers at our addresses, boxes of device tensors, and what both have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i32, i64
from xdsl.dialects.memref import ReinterpretCastOp, SubviewOp
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects.affine import Expr
from ...dialects.base import integer
from ...dialects.dtypes import dtype_name, itemsize
from ...dialects.hivm.structure import PointerCastOp
from ...dialects.hivm.upstream import MarkOp
from ...dialects.npu import (
    AllocOp,
    BufferType,
    GmType,
    SlotOp,
    TransferOp,
    buffer,
    buffer_users,
    gm,
    whole_buffer,
    whole_tensor,
)
from ...dialects.npu.types import FRACTAL_ROWS, ROW_BYTES, Fractals
from .building import made
from .emitter import FunctionEmitter, Number, element_in_memory, element_of, memref
from .errors import NotInHivm
from .layout import TileAxis, axes_of, merged

SPACES = {"ub": "ub", "l1": "cbuf", "l0a": "ca", "l0b": "cb", "l0c": "cc"}
"""The names that HIVM has for memories of a core."""


class FunctionMemory:
    """Where the buffers and tensors of a kernel are in a function.

    slotted: whether a slot of a multi-buffer is one of several addresses of one cast, among which the vendor's compiler
    chooses by the iteration, in place of an address that is computed.
    """

    def __init__(self, emitter: FunctionEmitter, tensors: dict[SSAValue, SSAValue], slotted: bool = False) -> None:
        self.emit = emitter
        self.tensors = tensors
        self.slotted = slotted

    # -- on chip -----------------------------------------------------------------------------------------------

    def counter(self, expr: Expr, modulus: int) -> Number:
        """A counter of surrounding loops modulo a number of slots."""
        low, _ = self.emit.span(expr)
        if low < 0:
            expr = expr + -(low // modulus) * modulus
        return self.emit.modulo(self.emit.linear(expr), modulus)

    def addresses(self, value: SSAValue, op: Operation) -> tuple[list[int], Number]:
        """The addresses of the slots of a buffer, in bytes, and the number of the one that a value names."""
        alloc = whole_buffer(value).owner
        assert isinstance(alloc, AllocOp)
        if alloc.address is None:
            raise NotInHivm(op, "uses a buffer without an address: run npu-allocate before")
        whole = buffer(alloc.result)
        found = [integer(alloc.address) + n * whole.slot_bytes for n in range(whole.slots)]
        if not isinstance(value.owner, SlotOp):
            return found[:1], 0
        return found, self.counter(value.owner.linear()[0], whole.slots)

    def cast(self, value: SSAValue, kind: MemRefType, op: Operation, beyond: Number = 0) -> SSAValue:
        """A buffer as memory of a type that begins at its address, or so many bytes behind it."""
        return self.emit.once(("cast", value, kind, beyond), lambda: self._cast(value, kind, op, beyond))

    def _cast(self, value: SSAValue, kind: MemRefType, op: Operation, beyond: Number) -> SSAValue:
        emit = self.emit
        found, slot = self.addresses(value, op)
        if isinstance(slot, int) and isinstance(beyond, int):
            return self.at(found[slot] + beyond, kind)
        if self.slotted and beyond == 0 and not isinstance(slot, int):
            several = [emit.constant(n, i64) for n in found]
            found_at = emit.value(made(PointerCastOp, [kind], addrs=several))
            mark = made(MarkOp, src=found_at)
            mark.attributes["hivm.multi_buffer"] = IntegerAttr(len(found), i32)
            emit.add(mark)
            return found_at
        apart = found[1] - found[0] if len(found) > 1 else 0
        at = emit.as_i64(emit.plus(emit.plus(emit.times(slot, apart), found[0]), beyond))
        return emit.value(made(PointerCastOp, [kind], addrs=[at]))

    def at(self, address: int, kind: MemRefType) -> SSAValue:
        """Memory of a type at an address."""

        def cast() -> SSAValue:
            start = self.emit.constant(address, i64)
            return self.emit.value(made(PointerCastOp, [kind], addrs=[start]))

        return self.emit.once(("at", address, kind), cast)

    def kind(self, value: SSAValue) -> BufferType:
        """The type of a buffer as HIVM has it: truths that transfers touch are bytes, all others bits."""
        kind = buffer(value)
        if kind.dtype() == "i1" and any(isinstance(u, TransferOp) for u in buffer_users(whole_buffer(value))):
            return BufferType.of(kind.shape, element_of("i8"), kind.space)
        return kind

    def matrix(self, value: SSAValue, whole: MemRefType, op: Operation, beyond: Number = 0) -> SSAValue:
        """A buffer as the fractals of a matrix, from so many bytes behind the first on. Raises NotInHivm where it has
        no room for whole ones."""
        kind = buffer(value)
        columns = FRACTAL_ROWS if kind.space == "l0c" else ROW_BYTES // itemsize(kind.element)
        if Fractals(FRACTAL_ROWS, columns).bytes_of(kind.shape, kind.element) > kind.slot_bytes:
            raise NotInHivm(op, f"has a matrix in {kind}, which has no room for whole fractals")
        return self.cast(value, whole, op, beyond)

    def tile(self, value: SSAValue, axes: Sequence[TileAxis], op: Operation) -> SSAValue:
        """A buffer as memory with these dimensions."""
        kind = self.kind(value)
        shape, strides = [a.count for a in axes], [a.stride for a in axes]
        return self.cast(value, memref(shape, element_of(kind.dtype()), SPACES[kind.space], strides), op)

    # -- in device memory --------------------------------------------------------------------------------------

    def tensor(self, value: SSAValue) -> SSAValue:
        """The argument that a device tensor, or a view of it, is in."""
        return self.tensors[whole_tensor(value)]

    def box(self, op: TransferOp, tile: Sequence[TileAxis] | None = None) -> MovedBox:
        """The parts of device tensor and tile that a transfer moves. tile: the dimensions of a tile whose rows are not
        padded to blocks."""
        return _matched(op, self.emit, self.kind(op.tile()), tile)

    def tensor_part(self, op: TransferOp, box: MovedBox, view: GmType, beyond: Number = 0) -> SSAValue:
        """The part of the device tensor, as memory, or so many elements behind it."""
        emit = self.emit
        source = self.tensor(op.main_operands()[op.DEVICE_OPERAND])
        strides = [axis.far for axis in box.axes]
        offset = emit.plus(beyond, view.offset)
        for position, stride in zip(box.starts, view.strides, strict=True):
            offset = emit.plus(offset, emit.times(position, stride))
        sizes = [axis.count for axis in box.axes]
        return _part(emit, source, offset, sizes, strides, view.element, "gm")

    def tile_part(self, op: TransferOp, box: MovedBox) -> SSAValue:
        """The part of the tile, as memory."""
        emit = self.emit
        value = op.tile()
        kind = self.kind(value)
        axes = [TileAxis(axis.whole, axis.near) for axis in box.axes]
        whole = self.tile(value, axes, op)
        if all(axis.count == axis.whole and axis.skipped == 0 for axis in box.axes):
            return whole
        offset: Number = 0
        for axis in box.axes:
            offset = emit.plus(offset, emit.times(axis.skipped, axis.near))
        sizes = [axis.count for axis in box.axes]
        known = [n if isinstance(n, int) else -1 for n in sizes]
        strides = [axis.near for axis in box.axes]
        result = memref(known, element_of(kind.dtype()), SPACES[kind.space], strides, offset)
        skipped = [axis.skipped for axis in box.axes]
        return emit.value(SubviewOp.get(whole, skipped, sizes, [1] * len(axes), result))


def _part(
    emit: FunctionEmitter,
    source: SSAValue,
    offset: Number,
    sizes: Sequence[Number],
    strides: Sequence[int],
    element: Attribute,
    space: str,
) -> SSAValue:
    known = [n if isinstance(n, int) else -1 for n in sizes]
    result = memref(known, element_in_memory(dtype_name(element)), space, strides, offset)
    return emit.value(ReinterpretCastOp.from_dynamic(source, [offset], list(sizes), list(strides), result))


@dataclass(frozen=True)
class BoxAxis:
    """A dimension of a transfer: how many elements move of the `whole` that the tile has along it, behind the `skipped`
    ones that lie before the tensor; elements between neighbours in the tensor (`far`) and in the tile (`near`)."""

    whole: int
    count: Number
    skipped: Number
    far: int
    near: int
    least: int
    """The least that `count` can be."""


@dataclass(frozen=True)
class MovedBox:
    """What a transfer moves. starts: the first position along each dimension of the view."""

    axes: tuple[BoxAxis, ...]
    starts: tuple[Number, ...]

    @property
    def is_clipped(self) -> bool:
        """Whether a part of the tile may lie outside the tensor."""
        return any(axis.count != axis.whole for axis in self.axes)


def _clips(op: TransferOp, emit: FunctionEmitter) -> list[bool]:
    found = []
    for offset, n, step, extent in zip(op.linear(), op.box_sizes, op.box_steps, op.view.shape, strict=True):
        low, high = emit.span(offset)
        found.append(low < 0 or high + (n - 1) * step >= extent)
    return found


@dataclass(frozen=True)
class _Along:
    """A dimension of a box in its tensor, of which `count` positions of `whole` move, at least `least`, behind the
    `skipped` ones: elements between neighbours, and whether any may lie outside."""

    whole: int
    far: int
    count: Number
    skipped: Number
    least: int
    clipped: bool


def _matched(op: TransferOp, emit: FunctionEmitter, kind: BufferType, axes: Sequence[TileAxis] | None) -> MovedBox:
    """The common dimensions of a box and its tile. Raises NotInHivm where a dimension that is clipped is cut in the
    tile."""
    view, tile = gm(op.main_operands()[op.DEVICE_OPERAND]), kind
    starts: list[Number] = []
    boxes: list[_Along] = []
    clips = _clips(op, emit)
    for d, (offset, n, step) in enumerate(zip(op.linear(), op.box_sizes, op.box_steps, strict=True)):
        stride, extent = view.strides[d] * step, view.shape[d]
        start = emit.linear(offset)
        count: Number = n
        skipped: Number = 0
        low, high = emit.span(offset)
        if clips[d]:
            if step < 1:
                raise NotInHivm(op, "reads elements backwards, and some outside of its tensor")
            if low < 0:
                skipped = _steps(emit, emit.largest(emit.minus(0, start), 0), step)
            inside = emit.minus(extent, start)
            if step != 1 and extent <= high:
                inside = emit.largest(inside, 0)
            room = emit.least(_steps(emit, inside, step), n)
            count = emit.largest(emit.minus(room, skipped), 0)
            start = emit.plus(start, emit.times(skipped, step))
        starts.append(start)
        if n != 1 or clips[d]:
            least = max(min(n, -(-(extent - high) // step)), 0) if low >= 0 else 0
            boxes.append(_Along(n, stride, count, skipped, least, clips[d]))
    whole = merged(axes_of(tile)) if axes is None else axes
    found = _common(op, boxes, [a for a in whole if a.count != 1], emit)
    return MovedBox(tuple(found) or (BoxAxis(1, 1, 0, 1, 1, 1),), tuple(starts))


def _steps(emit: FunctionEmitter, length: Number, step: int) -> Number:
    """How many elements lie on a length, which is not negative, where one of `step` is taken."""
    return length if step == 1 else emit.over(emit.plus(length, step - 1), step)


def _common(op: TransferOp, boxes: Sequence[_Along], tile: Sequence[TileAxis], emit: FunctionEmitter) -> list[BoxAxis]:
    """Dimensions that both box and tile have, those of the box cut where those of the tile are."""
    out: list[BoxAxis] = []
    left = list(tile)
    for box in reversed(boxes):
        if box.clipped:
            near = left.pop() if left and box.whole > 1 else TileAxis(1, 1)
            if near.count % box.whole:
                raise NotInHivm(op, "moves a box whose dimensions are cut otherwise in its tile")
            if near.count > box.whole:
                left.append(TileAxis(near.count // box.whole, near.stride * box.whole))
            out.append(BoxAxis(box.whole, box.count, box.skipped, box.far, near.stride, box.least))
            continue
        rest = box.whole
        while rest > 1:
            near = left.pop() if left else TileAxis(1, 1)
            part = min(rest, near.count)
            if part == 1 or rest % part or near.count % part:
                raise NotInHivm(op, "moves a box whose dimensions are cut otherwise in its tile")
            if near.count > part:
                left.append(TileAxis(near.count // part, near.stride * part))
            out.append(BoxAxis(part, part, 0, box.far * (box.whole // rest), near.stride, part))
            rest //= part
    out.reverse()
    return _joined(out, emit)


def _joined(axes: list[BoxAxis], emit: FunctionEmitter) -> list[BoxAxis]:
    """Neighbours as one where both tensor and tile have them one behind the other, and all of the inner one moves."""
    out: list[BoxAxis] = []
    for axis in axes:
        outer = out[-1] if out else None
        if (
            outer is not None
            and axis.count == axis.whole
            and outer.far == axis.far * axis.whole
            and outer.near == axis.near * axis.whole
        ):
            n = axis.whole
            count, skipped = emit.times(outer.count, n), emit.times(outer.skipped, n)
            out[-1] = BoxAxis(outer.whole * n, count, skipped, axis.far, axis.near, outer.least * n)
        else:
            out.append(axis)
    return out


__all__ = ["MovedBox", "BoxAxis", "FunctionMemory"]
