"""Transfers between device memory and a core: boxes, clipped where they reach outside of a tensor."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.memref import LoadOp as MemrefLoadOp
from xdsl.dialects.memref import ReinterpretCastOp
from xdsl.ir import Operation, SSAValue

from ...dialects import npu
from ...dialects.base import integer
from ...dialects.dtypes import dtype_name, size
from ...dialects.hivm import attributes as attrs
from ...dialects.hivm import transfers as hivm
from ...dialects.npu import GmType, buffer, gm
from ...dialects.npu.interface import fill_value
from .building import made
from .emitter import INDEX, Emitter, Number, element_of, memref
from .errors import NotInHivm
from .layout import Axis, rows_and_columns
from .memory import Box, BoxAxis, Memory

QUANTIZED = {("f32", "f16"): "F322F16", ("f32", "bf16"): "F322BF16"}
FRACTAL_BYTES = 32


class MoveRules:
    """Adds what moves data to a function."""

    def __init__(self, emit: Emitter, memory: Memory) -> None:
        self.emit, self.memory = emit, memory
        self.valid: dict[SSAValue, tuple[tuple[Number, int], tuple[Number, int]]] = {}
        """Rows and columns of matrices in l1 that lie inside their tensors, each with the least that it can be."""

    def __call__(self, op: Operation) -> None:
        """Raises NotInHivm for a transfer that HIVM has not."""
        if isinstance(op, npu.LoadNdOp):
            self.load(op)
        elif isinstance(op, npu.StoreNdOp):
            self.store(op)
        elif isinstance(op, npu.LoadNd2NzOp):
            self.to_fractals(op)
        elif isinstance(op, npu.FixpipeOp):
            self.drain(op)
        elif isinstance(op, npu.LoadScalarOp):
            self.scalar(op)
        else:
            raise NotInHivm(op, "has no counterpart in HIVM")

    def _sides(self, op: npu.TransferOp) -> tuple[Any, Any, Box]:
        """The parts of tensor and tile that a transfer moves."""
        if dtype_name(op.view.element) == "i1":
            raise NotInHivm(op, "moves i1, which is a byte in device memory and a bit in HIVM's buffers")
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
            pad = self.emit.constant(fill_value(op.fill), element_of(dtype_name(op.view.element)))
        self.emit.add(made(hivm.LoadOp, src=source, dst=dest, pad_mode=mode, pad_value=pad))

    def store(self, op: npu.StoreNdOp) -> None:
        """ub to gm."""
        dest, source, _ = self._sides(op)
        self.emit.add(made(hivm.StoreOp, src=source, dst=dest))

    def to_fractals(self, op: npu.LoadNd2NzOp) -> None:
        """gm to l1, in fractals."""
        rows, columns = self._matrix(op)
        kind = buffer(op.dest)
        shape = rows_and_columns(kind.shape)
        dest = self.memory.cast(op.dest, fractals(shape, kind.dtype(), "cbuf"), op)
        source = self._matrix_part(op, rows, columns)
        if fill_value(op.fill) and (rows.count != rows.whole or columns.count != columns.whole):
            raise NotInHivm(op, "fills what lies outside of its tensor with other numbers than 0")
        self.valid[op.dest] = ((rows.count, rows.least), (columns.count, columns.least))
        # what lies outside stays as it was: a product leaves it out (the vendor's library has no such load that fills)
        init = IntegerAttr.from_bool(False)
        self.emit.add(made(hivm.Nd2nzOp, src=source, dst=dest, dst_continuous=True, init_out_buffer=init))

    def drain(self, op: npu.FixpipeOp) -> None:
        """l0c to gm."""
        if op.factor is not None or op.zero is not None or op.scales is not None:
            raise NotInHivm(op, "scales what it drains, which HIVM 1.2 does not")
        kind, stored = buffer(op.source), dtype_name(op.view.element)
        rows, columns = self._matrix(op)
        quant = None if stored == kind.dtype() else attrs.PreQuant(QUANTIZED[kind.dtype(), stored])
        relu = None if op.relu is None else attrs.PreRelu("NORMAL_RELU")
        if op.unit_flag is not None:
            raise NotInHivm(op, "has a unit flag: compile with hivm=True, which has none")
        source = self.memory.cast(op.source, fractals(kind.shape, kind.dtype(), "cc"), op)
        dest = self._matrix_part(op, rows, columns)
        mode = attrs.DmaMode("nz2nd")
        self.emit.add(
            made(hivm.FixpipeOp, src=source, dst=dest, dma_mode=mode, pre_quant=quant, pre_relu=relu)
        )

    def _matrix(self, op: npu.TransferOp) -> tuple[BoxAxis, BoxAxis]:
        """Rows and columns of the matrix that a transfer moves."""
        tile = buffer(op.tile())
        rows, columns = rows_and_columns(tile.shape)
        box = self.memory.box(op)
        axes = list(box.axes)
        if size(tile.shape) == 1 or (len(axes) == 1 and axes[0].whole == rows * columns):
            axis = axes[0]
            if rows == 1:
                axes = [BoxAxis(1, 1, 0, axis.far * axis.whole, 1, 1), axis]
            elif columns == 1:
                axes = [axis, BoxAxis(1, 1, 0, 1, 1, 1)]
            elif axis.count == axis.whole:
                axes = [
                    BoxAxis(rows, rows, 0, axis.far * columns, columns, rows),
                    BoxAxis(columns, columns, 0, axis.far, 1, columns),
                ]
        if len(axes) != 2 or axes[0].whole != rows or axes[1].whole != columns:
            raise NotInHivm(op, "moves a matrix whose rows are no single dimension of the tensor")
        for axis in axes:
            if axis.skipped != 0:
                raise NotInHivm(op, "moves fractals that may begin before the tensor")
        return axes[0], axes[1]

    def _matrix_part(self, op: npu.TransferOp, rows: BoxAxis, columns: BoxAxis) -> Any:
        starts = self.memory.box(op).starts
        return self.memory.tensor_part(op, Box((rows, columns), starts), op.view)

    def scalar(self, op: npu.LoadScalarOp) -> None:
        """A number of a tensor as an index."""
        view: GmType = gm(op.source)
        emit = self.emit
        place: Number = view.offset
        for at, stride in zip(op.linear(), view.strides, strict=True):
            place = emit.plus(place, emit.times(emit.linear(at), stride))
        dtype = dtype_name(view.element)
        base = self.memory.tensor(op.source)
        count = size(base.type.get_shape())  # type: ignore[attr-defined]
        row = emit.value(
            ReinterpretCastOp.from_dynamic(base, [0], [count], [1], memref([count], element_of(dtype), "gm"))
        )
        number = emit.value(MemrefLoadOp.get(row, [emit.index(place)]))
        index = emit.value(arith.IndexCastOp(number, INDEX))
        low, high = integer(op.low), integer(op.high)
        emit.indices[op.result] = emit.least(emit.largest(index, low), high)
        emit.ranges[op.result] = (low, high)


def fractals(shape: tuple[int, ...], dtype: str, space: str) -> Any:
    """The type of a matrix in fractals: columns of blocks, rows of blocks, rows, bytes of a block."""
    from ...dialects.dtypes import itemsize

    element = element_of(dtype)
    inner = 16 if space == "cc" else FRACTAL_BYTES // itemsize(element)
    rows, columns = shape
    return memref([-(-columns // inner), -(-rows // 16), 16, inner], element, space)


__all__ = ["Axis", "MoveRules", "fractals"]
