"""Transfers between device memory and a core: boxes, clipped where they reach outside of a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, MemRefType
from xdsl.dialects.memref import LoadOp as MemrefLoadOp
from xdsl.dialects.memref import ReinterpretCastOp, SubviewOp
from xdsl.ir import Operation, SSAValue

from ...dialects import npu
from ...dialects.base import integer, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size
from ...dialects.hivm import attributes as attrs
from ...dialects.hivm import transfers as hivm
from ...dialects.hivm.synchronization import SetAtomicOp, SetFlagOp, WaitFlagOp
from ...dialects.hivm.vector import VbrcOp
from ...dialects.npu import GmType, NpuOp, buffer, buffer_users, gm, whole_buffer
from ...dialects.npu.interface import fill_value
from .building import made
from .emitter import INDEX, FunctionEmitter, Number, element_in_memory, element_of, memref
from .errors import NotInHivm
from .flags import pipe
from .layout import TileAxis, axes_of, merged, rows_and_columns
from .memory import BoxAxis, FunctionMemory, MovedBox

QUANTIZED = {("f32", "f16"): "F322F16", ("f32", "bf16"): "F322BF16"}
FRACTAL_BYTES, FRACTAL_ROWS = 32, 16
MOST_PIECES = 32
"""Matrices of one transfer that are written out, at most; more are a loop."""

CLEARED = ("i8", "f16", "bf16", "f32")
"""Types of elements that the library fills l1 with."""


@dataclass(frozen=True)
class _Piece:
    """A part of a matrix: its box, where it begins in the matrix, and how far behind the first one in the tensor;
    column_steps: what its column is a sum of multiples of."""

    box: MovedBox
    row: Number
    column: Number
    beyond: Number
    column_steps: tuple[int, ...]


@dataclass(frozen=True)
class _Matrices:
    """A box as matrices: their rows and columns, the dimensions along which there are several, where it starts in the
    view, and how far apart rows are counted in the tile."""

    lines: BoxAxis
    lanes: BoxAxis
    outer: tuple[BoxAxis, ...]
    starts: tuple[Number, ...]
    apart: int

    @property
    def is_clipped(self) -> bool:
        return any(axis.count != axis.whole for axis in (self.lines, self.lanes, *self.outer))

    @property
    def leaves_holes(self) -> bool:
        """Whether what lies outside may be before or between what is inside, and not only behind it."""
        return self.lines.skipped != 0 or (bool(self.outer) and self.is_clipped)


class MoveRules:
    """Adds what moves data to a function."""

    def __init__(self, emit: FunctionEmitter, memory: FunctionMemory) -> None:
        self.emit, self.memory = emit, memory
        self.valid: dict[SSAValue, tuple[tuple[Number, int], tuple[Number, int]]] = {}
        """Rows and columns of matrices in l1 that lie inside their tensors, each with the least that it can be."""
        self.filled: set[SSAValue] = set()
        """Matrices in l1 that are filled before what a load brings of them."""

    def __call__(self, op: Operation) -> None:
        """Raises NotInHivm for a transfer that HIVM has not."""
        if isinstance(op, npu.LoadNdOp):
            self.load(op)
        elif isinstance(op, npu.StoreNdOp):
            self.store(op)
        elif isinstance(op, npu.LoadNd2NzOp):
            self.to_fractals(op)
        elif isinstance(op, npu.FillL1Op):
            self.fill(op)
        elif isinstance(op, npu.FixpipeOp):
            self.drain(op)
        elif isinstance(op, npu.LoadScalarOp):
            self.scalar(op)
        elif isinstance(op, npu.LoadIndirectOp):
            self.indirect(op)
        else:
            raise NotInHivm(op, "has no counterpart in HIVM")

    def _sides(self, op: npu.TransferOp) -> tuple[Any, Any, MovedBox]:
        """The parts of tensor and tile that a transfer moves."""
        if any(s == 0 and n > 1 for s, n in zip(op.view.strides, op.box_sizes, strict=True)):
            raise NotInHivm(op, "reads elements of a tensor more than once")
        box = self.memory.box(op)
        return self.memory.tensor_part(op, box, op.view), self.memory.tile_part(op, box), box

    def load(self, op: npu.LoadNdOp) -> None:
        """gm to ub, or a row to l1."""
        source, dest, box = self._sides(op)
        mode = pad = None
        if box.axes[-1].count != box.axes[-1].whole:
            mode = attrs.PadMode("PadValue")
            pad = self.emit.constant(fill_value(op.fill), element_in_memory(dtype_name(op.view.element)))
        self.emit.add(made(hivm.LoadOp, src=source, dst=dest, pad_mode=mode, pad_value=pad))

    def store(self, op: npu.StoreNdOp) -> None:
        """ub to gm."""
        dest, source, _ = self._sides(op)
        kind = op.accumulates()
        atomic = attrs.AtomicKind(kind) if kind else None
        self.emit.add(made(hivm.StoreOp, src=source, dst=dest, atomic_kind=atomic))

    def _combine(self, op: npu.FixpipeOp, kind: str) -> None:
        """How what is stored from here on is combined with what is there: a drain does not say that itself."""
        if op.accumulates():
            self.emit.add(made(SetAtomicOp, kind=attrs.AtomicKind(kind), type=op.view.element))

    def to_fractals(self, op: npu.LoadNd2NzOp) -> None:
        """gm to l1, in fractals."""
        kind = buffer(op.dest)
        shape = rows_and_columns(kind.shape)
        whole = fractals(shape, kind.dtype(), "cbuf")
        init = IntegerAttr.from_bool(False)
        box = self._matrices(op, shape)
        if fill_value(op.fill) and box.is_clipped:
            raise NotInHivm(op, "fills what lies outside of its tensor with other numbers than 0")
        if box.leaves_holes and op.dest not in self.filled:
            raise NotInHivm(op, "leaves out rows before or between others: compile with hivm=True")
        for piece in self._pieces(op, shape, box):
            dest = self._place(op, op.dest, piece, whole, kind)
            # what lies outside stays as it was: a product leaves it out (the library has no such load that fills)
            source = self.memory.tensor_part(op, piece.box, op.view, piece.beyond)
            self.emit.add(made(hivm.Nd2nzOp, src=source, dst=dest, dst_continuous=True, init_out_buffer=init))
        if box.outer:
            self.valid[op.dest] = ((shape[0], shape[0]), (shape[1], shape[1]))
        else:
            rows, columns = box.lines, box.lanes
            self.valid[op.dest] = ((rows.count, rows.least), (columns.count, columns.least))

    def fill(self, op: npu.FillL1Op) -> None:
        """A number in all of a matrix in l1, by the pipe that loads it."""
        kind = buffer(op.dest)
        if kind.dtype() not in CLEARED:
            raise NotInHivm(op, f"fills l1 with numbers of {kind.dtype()}, which HIVM does not")
        if fill_value(op.value) and kind.dtype() == "f32":
            raise NotInHivm(op, "fills l1 with f32 numbers, of which the library keeps the half of f16")
        whole = fractals(rows_and_columns(kind.shape), kind.dtype(), "cbuf")
        row = memref([size(whole.get_shape())], whole.element_type, "cbuf")
        value = self.emit.constant(fill_value(op.value), whole.element_type)
        self.emit.add(made(VbrcOp, src=value, dst=self.memory.matrix(op.dest, row, op)))
        self.filled.add(op.dest)

    def drain(self, op: npu.FixpipeOp) -> None:
        """l0c to gm."""
        if op.factor is not None or op.zero is not None or op.scales is not None:
            raise NotInHivm(op, "scales what it drains, which HIVM 1.2 does not")
        if op.unit_flag is not None:
            raise NotInHivm(op, "has a unit flag: compile with hivm=True, which has none")
        kind, stored = buffer(op.source), dtype_name(op.view.element)
        quant = None if stored == kind.dtype() else attrs.PreQuant(QUANTIZED[kind.dtype(), stored])
        relu = None if op.relu is None else attrs.PreRelu("NORMAL_RELU")
        mode = attrs.DmaMode("nz2nd")
        shape = rows_and_columns(kind.shape)
        whole = fractals(shape, kind.dtype(), "cc")
        self._combine(op, op.accumulates())
        for piece in self._pieces(op, shape, self._matrices(op, shape)):
            source = self._place(op, op.source, piece, whole, kind)
            dest = self.memory.tensor_part(op, piece.box, op.view, piece.beyond)
            self.emit.add(
                made(hivm.FixpipeOp, src=source, dst=dest, dma_mode=mode, pre_quant=quant, pre_relu=relu)
            )
        self._combine(op, "none")

    def _place(self, op: Any, value: SSAValue, piece: _Piece, whole: Any, kind: Any) -> SSAValue:
        """The fractals of a matrix from those on that a piece begins with. Its rows may begin anywhere in them, its
        columns at a block."""
        emit = self.emit
        block, rows = whole.get_shape()[3], whole.get_shape()[1] * FRACTAL_ROWS
        if any(n % block for n in piece.column_steps):
            raise NotInHivm(op, "moves columns of a matrix that begin within a block of its fractals")
        offset = emit.plus(emit.times(piece.row, block), emit.times(piece.column, rows))
        return self.memory.matrix(value, whole, op, emit.times(offset, itemsize(kind.element)))

    def _matrices(self, op: npu.TransferOp, shape: tuple[int, int]) -> _Matrices:
        """The matrices that a transfer moves: rows that are apart alike, of columns side by side."""
        rows, columns = shape
        apart = 2 * columns  # so that no row continues the one before
        box = self.memory.box(op, [TileAxis(rows, apart), TileAxis(columns, 1)])
        lanes = BoxAxis(1, 1, 0, 1, 1, 1)
        lines = BoxAxis(1, 1, 0, columns, apart, 1)
        outer: list[BoxAxis] = []
        for axis in reversed(box.axes):
            if axis.near == 1 and axis.whole > 1:
                lanes = axis
            elif axis.near == apart and lines.whole == 1 and axis.whole > 1:
                lines = axis
            elif axis.whole > 1 or axis.count != 1:
                outer.insert(0, axis)
        if lanes.far != 1:
            raise NotInHivm(op, "moves a matrix whose columns are not side by side in the tensor")
        if lanes.skipped != 0:
            raise NotInHivm(op, "moves columns of a matrix that may begin before the tensor")
        return _Matrices(lines, lanes, tuple(outer), box.starts, apart)

    def _pieces(self, op: npu.TransferOp, shape: tuple[int, int], box: _Matrices) -> Iterator[_Piece]:
        """The matrices one after the other: written out where there are few and all are there, else in loops that are
        open while the piece is used."""
        emit, apart = self.emit, box.apart
        written_out = all(axis.count == axis.whole for axis in box.outer)
        written_out = written_out and size([axis.whole for axis in box.outer]) <= MOST_PIECES
        with ExitStack() as loops:
            if written_out:
                places: Iterable[Sequence[Number]] = product(*(range(axis.whole) for axis in box.outer))
            else:
                places = [[loops.enter_context(emit.counted(axis.count)) for axis in box.outer]]
            for at in places:
                row, column, beyond = box.lines.skipped, 0, 0
                steps: list[int] = []
                for i, axis in zip(at, box.outer, strict=True):
                    if axis.whole == 1:  # it is there, or not
                        continue
                    beyond = emit.plus(beyond, emit.times(i, axis.far))
                    where = emit.plus(i, axis.skipped)
                    if axis.near % apart:
                        column = emit.plus(column, emit.times(where, axis.near))
                        steps.append(axis.near)
                    else:
                        row = emit.plus(row, emit.times(where, axis.near // apart))
                moved = MovedBox((box.lines, box.lanes), box.starts)
                yield _Piece(moved, row, column, beyond, tuple(steps))

    def scalar(self, op: npu.LoadScalarOp) -> None:
        """A number of a tensor as an index."""
        view: GmType = gm(op.source)
        emit = self.emit
        place: Number = view.offset
        for at, stride in zip(op.linear(), view.strides, strict=True):
            place = emit.plus(place, emit.times(emit.linear(at), stride))
        dtype = dtype_name(view.element)
        base = self.memory.tensor(op.source)
        assert isinstance(base.type, MemRefType)
        count = size(base.type.get_shape())
        row = emit.value(
            ReinterpretCastOp.from_dynamic(base, [0], [count], [1], memref([count], element_of(dtype), "gm"))
        )
        number = emit.value(MemrefLoadOp.get(row, [emit.index(place)]))
        index = emit.value(arith.IndexCastOp(number, INDEX))
        low, high = integer(op.low), integer(op.high)
        emit.indices[op.result] = emit.least(emit.largest(index, low), high)
        emit.ranges[op.result] = (low, high)

    def indirect(self, op: npu.LoadIndirectOp) -> None:
        """Boxes of a tensor at numbers that are in ub: a loop in which the scalar unit reads one and starts a load."""
        emit, view = self.emit, gm(op.source)
        index, dest, sizes = buffer(op.index), buffer(op.dest), to_ints(op.sizes)
        places, rows = merged(axes_of(index)), size(index.shape)
        if rows == 1:
            places = [TileAxis(1, 1)]
        outer = next((d for d in range(len(dest.shape) + 1) if size(dest.shape[:d]) == rows), None)
        lines = merged([*axes_of(dest)[:outer], TileAxis(1, 1)])[:-1] or [TileAxis(1, 1)]
        if len([a for a in places if a.count > 1]) > 1 or outer is None or len(lines) > 1:
            raise NotInHivm(op, "loads boxes whose numbers or rows are not apart alike")
        if any(n > extent for n, extent in zip(sizes, view.shape, strict=True)):
            raise NotInHivm(op, "loads boxes that reach outside of their tensor")
        place = next((a for a in places if a.count > 1), places[-1])
        for pipe_name in self._writers(op.index):  # the scalar unit reads what this pipe has written
            pipes = {
                "set_pipe": pipe(pipe_name),
                "wait_pipe": pipe("S"),
                "static_event_id": attrs.Event("EVENT_ID0"),
            }
            emit.add(made(SetFlagOp, **pipes))
            emit.add(made(WaitFlagOp, **pipes))
        tile = self.memory.tile(op.index, [TileAxis(rows, place.stride)], op)
        inner = [a for a in axes_of(dest)[outer:] if a.count > 1] or [TileAxis(1, 1)]
        box = [TileAxis(n, s) for n, s in zip(sizes, view.strides, strict=True) if n > 1] or [TileAxis(1, 1)]
        if [a.count for a in merged(box)] != [a.count for a in merged(inner)]:
            if [a.count for a in box] != [a.count for a in inner]:
                raise NotInHivm(op, "loads boxes whose dimensions are cut otherwise in their tile")
        else:
            box, inner = merged(box), merged(inner)
        element = element_in_memory(dtype_name(view.element))
        with emit.counted(rows) as row:
            number = emit.value(MemrefLoadOp.get(tile, [row]))
            start = emit.plus(emit.value(arith.IndexCastOp(number, INDEX)), view.offset)
            whole = self.memory.tile(op.dest, [TileAxis(rows, lines[0].stride), *inner], op)
            result = memref(
                [1, *(a.count for a in inner)],
                element,
                "ub",
                [lines[0].stride, *(a.stride for a in inner)],
                row,
            )
            ones = [1] * (len(inner) + 1)
            target = emit.value(
                SubviewOp.get(whole, [row, *[0] * len(inner)], [1, *(a.count for a in inner)], ones, result)
            )
            source = memref([1, *(a.count for a in box)], element, "gm", [1, *(a.stride for a in box)], start)
            part = emit.value(
                ReinterpretCastOp.from_dynamic(
                    self.memory.tensor(op.source),
                    [start],
                    [1, *(a.count for a in box)],
                    [1, *(a.stride for a in box)],
                    source,
                )
            )
            emit.add(made(hivm.LoadOp, src=part, dst=target))

    def _writers(self, value: SSAValue) -> list[str]:
        """The pipes that write a buffer."""
        whole = whole_buffer(value)
        found = [
            str(user.PIPE)
            for user in buffer_users(whole)
            if isinstance(user, NpuOp) and any(whole_buffer(v) is whole for v in user.writes())
        ]
        return list(dict.fromkeys(found))


def fractals(shape: tuple[int, ...], dtype: str, space: str) -> Any:
    """The type of a matrix in fractals: columns of blocks, rows of blocks, rows, bytes of a block."""
    element = element_of(dtype)
    inner = 16 if space == "cc" else FRACTAL_BYTES // itemsize(element)
    rows, columns = shape
    return memref([-(-columns // inner), -(-rows // 16), 16, inner], element, space)


__all__ = ["TileAxis", "MoveRules", "fractals"]
