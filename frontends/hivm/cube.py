"""Products of tiles: what the vendor's library makes of one of them (Ascend/AscendNPU-IR, LocalMmad.cpp)."""

from __future__ import annotations

from typing import Any

from ...dialects.hivm import transfers
from ...dialects.hivm.cube import MmadL1Op
from ...dialects.hivm.tiling import macro_cut
from ...dialects.npu.types import FRACTAL_ROWS
from .places import BufferView, Memref
from .steps import refused
from .walk import HANDLERS, BlockWalk, flag

L0_BYTES = 65_536
"""Bytes of l0a and l0b, of which the library uses the halves in turn."""

LIBRARY_EVENT = 7
"""The event by which the library tells its products that their operands are there."""

FEW_FRACTALS = 10
"""Below so many fractals of sums a barrier follows each product."""


def matrix(place: Memref) -> tuple[int, int]:
    """Rows and columns of a matrix in fractals: [columns, rows, 16, of a row]."""
    outer, rows, inner, width = place.shape
    return rows * inner, outer * width


def whole(place: Memref) -> BufferView:
    """A matrix in fractals as an operand."""
    return BufferView(place.space, place.element, matrix(place), 0, place.start)


def _rank(op: Any, place: Memref, rank: int) -> Memref:
    if len(place.shape) != rank:
        raise refused(op, f"works on a matrix of {len(place.shape)} dimensions, not {rank}")
    return place


def _nd2nz(walk: BlockWalk, op: transfers.Nd2nzOp) -> None:
    source, dest = _rank(op, walk.memref(op.src, op), 2), _rank(op, walk.memref(op.dst, op), 4)
    rows, columns = matrix(dest)
    if op.init_out_buffer is not None and op.init_out_buffer.value.data:
        raise refused(op, "fills its buffer first")
    if source.shape[0] > rows or source.shape[1] > columns:
        raise refused(op, f"loads {list(source.shape)} to {rows} x {columns}")
    walk.emit(op, "npu.load_nd2nz", source, whole(dest), sizes=(rows, columns))


def _fixpipe(walk: BlockWalk, op: transfers.FixpipeOp) -> None:
    source, dest = walk.memref(op.src, op), walk.memref(op.dst, op)
    if op.unit_flag_mode is not None:
        raise refused(op, "has unit flags")
    if op.quant_scale is not None or op.channel_split is not None or op.dual_dst_mode is not None:
        raise refused(op, "scales, splits channels or drains to two cores")
    if dest.space != "gm" or op.dma_mode is None or op.dma_mode.data != "nz2nd":
        raise refused(op, "drains to another memory than rows of device memory")
    relu = op.pre_relu.data if op.pre_relu is not None else "NO_RELU"
    if relu not in ("NO_RELU", "NORMAL_RELU"):
        raise refused(op, f"has {relu}")
    rows, columns = matrix(_rank(op, source, 4))
    properties = "relu" if relu == "NORMAL_RELU" else ""
    dest = _rank(op, dest, 2)
    walk.emit(op, "npu.fixpipe", whole(source), dest, properties=properties, sizes=(rows, columns))


def _product(walk: BlockWalk, op: MmadL1Op) -> None:
    """The loop of the library over parts of k, with its flags."""
    a, b, c = (_rank(op, walk.memref(v, op), 4) for v in (op.a, op.b, op.c))
    if op.per_channel_bias is not None or op.unit_flag_mode is not None:
        raise refused(op, "has a bias or unit flags")
    if op.enable_I4 is not None or op.enable_HF32 is not None:
        raise refused(op, "multiplies i4 or HF32")
    fresh, k = bool(walk.number(op.init_condition, op)), walk.number(op.real_k, op)
    events = [walk.number(v, op) for v in op.sync_related_args] or [-1] * 7
    ready_a, ready_b, free_a, free_b, parity, *own = events
    turned_a, turned_b = op.a_transpose is not None, op.b_transpose is not None
    rows, columns = matrix(c)
    m = matrix(a)[1 if turned_a else 0]
    n = matrix(b)[0 if turned_b else 1]
    if (m, n) != (rows, columns):
        raise refused(op, f"multiplies {m} rows by {n} columns for {rows} x {columns} sums")
    part, halves = macro_cut(m, n, a.element, L0_BYTES)
    if not part:
        raise refused(op, f"has tiles of {m} x {n} that do not fit in l0")
    parts = -(-k // part)
    for event, given in enumerate(own):
        if given == -1:
            flag(walk, op, "set_flag", "M", "MTE1", event)
    names = [given if given != -1 else event for event, given in enumerate(own)]
    for i in range(parts):
        begin, size = i * part, min(part, k - i * part)
        turn = ((max(parity, 0) * parts if parity != -1 else 0) + i) % 2 if halves else 0
        waits = [names[turn]] if halves else [0, 1]
        for event in waits:
            flag(walk, op, "wait_flag", "M", "MTE1", event)
        start = turn * L0_BYTES // 2
        left = BufferView("l0a", a.element, (m, size), 0, start)
        right = BufferView("l0b", b.element, (size, n), 0, start)
        last = i + 1 == parts
        for place, into, turned, ready, free, at in (
            (a, left, turned_a, ready_a, free_a, (0, begin)),
            (b, right, turned_b, ready_b, free_b, (begin, 0)),
        ):
            if not i and ready != -1:
                flag(walk, op, "wait_flag", "MTE2", "MTE1", ready)
            sizes = into.shape[::-1] if turned else into.shape
            places = at[::-1] if turned else at
            properties = f"sizes = {list(sizes)}" + (", transpose = 1" if turned else "")
            walk.emit(op, "npu.load_l0", whole(place), into, properties=properties, at=places)
            if last and free != -1:
                flag(walk, op, "set_flag", "MTE1", "MTE2", free)
        flag(walk, op, "set_flag", "MTE1", "M", LIBRARY_EVENT)
        flag(walk, op, "wait_flag", "MTE1", "M", LIBRARY_EVENT)
        walk.emit(op, "npu.mmad", left, right, whole(c), at=[0 if fresh and not i else 1])
        if rows // FRACTAL_ROWS * n // FRACTAL_ROWS < FEW_FRACTALS:
            walk.emit(op, "npu.pipe_barrier", properties='pipe = "M"')
        for event in waits:
            flag(walk, op, "set_flag", "M", "MTE1", event)
    for event, given in enumerate(own):
        if given == -1:
            flag(walk, op, "wait_flag", "M", "MTE1", event)


HANDLERS["hivm.hir.nd2nz"] = _nd2nz
HANDLERS["hivm.hir.fixpipe"] = _fixpipe
HANDLERS["hivm.hir.mmadL1"] = _product
