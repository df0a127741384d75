"""Products of tiles: what the vendor's library makes of one of them (Ascend/AscendNPU-IR, LocalMmad.cpp)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...dialects.hivm import transfers
from ...dialects.hivm.cube import MmadL1Op
from ...dialects.hivm.tiling import macro_cut
from ...dialects.npu.types import FRACTAL_ROWS
from .instructions import accumulation
from .places import BufferView, Memref
from .steps import CoreStep, refused
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


def part(place: Memref, columns: int) -> BufferView:
    """The first columns of a matrix in fractals."""
    rows, every = matrix(place)
    return BufferView(place.space, place.element, (rows, columns), 0 if columns == every else every, place.start)


def _keep_piece(walk: BlockWalk, op: Any, place: Memref) -> None:
    """Keeps which matrix an op moves, which may turn out to be a piece of another one; unless it moves nothing."""
    if walk.steps and walk.steps[-1].op is op:
        walk.pieces[len(walk.steps) - 1] = place


def settle_pieces(walk: BlockWalk) -> None:
    """Lets what moves pieces of matrices, the rest of whose rows and columns others move, touch these alone: where a
    product has the matrix that a piece lies in. In fractals a piece begins as many rows of 32 bytes behind it."""
    filled = {s.operands[0].start for s in walk.steps if s.name == "npu.fill_l1"}
    groups: dict[Memref, list[tuple[int, int, int]]] = {}
    for number, place in walk.pieces.items():
        found = next((m for m in walk.matrices if _is_inside(place, m)), None)
        if found is not None:
            block, rows = found.strides[2] * found.unit, found.shape[1] * found.shape[2]
            column, row = divmod((place.start - found.start) // block, rows)
            groups.setdefault(found, []).append((number, row, column * found.shape[3]))
    for whole_one, pieces in groups.items():
        if whole_one.start not in filled and not any(row or column for _, row, column in pieces):
            continue
        rows, columns = matrix(whole_one)
        moved = {number: _moved(walk.steps[number]) for number, *_ in pieces}
        last = max(row + moved[number][0] for number, row, _ in pieces)
        for number, row, column in pieces:
            step, (n, d) = walk.steps[number], moved[number]
            loads = step.name == "npu.load_nd2nz" and whole_one.start not in filled
            if loads and row + n == last:  # what is behind it does not count
                n = rows - row
            if loads and not any(at for *_, at in pieces):
                d = columns
            start = whole_one.start + (row * columns + column) * whole_one.unit
            view = BufferView(whole_one.space, whole_one.element, (n, d), columns, start)
            chip = step.name == "npu.load_nd2nz"
            operands = (step.operands[0], view) if chip else (view, step.operands[1])
            walk.steps[number] = replace(step, operands=operands, sizes=(n, d))


def _is_inside(place: Memref, whole_one: Memref) -> bool:
    """Whether a piece begins in a matrix, whose columns are as far apart."""
    alike = (place.space, place.element, place.shape[1:]) == (
        whole_one.space,
        whole_one.element,
        whole_one.shape[1:],
    )
    return alike and 0 <= place.start - whole_one.start < whole_one.size * whole_one.unit


def _moved(step: CoreStep) -> tuple[int, int]:
    """Rows and columns of the box of device memory that a step moves."""
    (box,) = (o for o in step.operands if isinstance(o, Memref))
    rows, columns = box.shape
    return rows, columns


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
    _keep_piece(walk, op, dest)


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
    dest = _rank(op, dest, 2)
    given = ["relu"] if relu == "NORMAL_RELU" else []
    properties = ", ".join([*given, *filter(None, [accumulation(walk, op, dest)])])
    used = min(columns, dest.shape[1])
    walk.emit(op, "npu.fixpipe", part(source, used), dest, properties=properties, sizes=(rows, used))
    _keep_piece(walk, op, source)


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
    transposed_a, transposed_b = op.a_transpose is not None, op.b_transpose is not None
    rows, columns = matrix(c)
    m = matrix(a)[1 if transposed_a else 0]
    n = matrix(b)[0 if transposed_b else 1]
    fractals = (-(-min(n, columns) // FRACTAL_ROWS) * FRACTAL_ROWS, columns)
    if m != rows or fractals[0] != fractals[1]:
        raise refused(op, f"multiplies {m} rows by {n} columns for {rows} x {columns} sums")
    size_of_part, halves = macro_cut(m, n, a.element, L0_BYTES)
    n = min(n, columns)
    walk.matrices += [place for place in (a, b, c) if place not in walk.matrices]
    if not size_of_part:
        raise refused(op, f"has tiles of {m} x {n} that do not fit in l0")
    parts = -(-k // size_of_part)
    for event, given in enumerate(own):
        if given == -1:
            flag(walk, op, "set_flag", "M", "MTE1", event)
    names = [given if given != -1 else event for event, given in enumerate(own)]
    for i in range(parts):
        begin, size = i * size_of_part, min(size_of_part, k - i * size_of_part)
        turn = ((max(parity, 0) * parts if parity != -1 else 0) + i) % 2 if halves else 0
        waits = [names[turn]] if halves else [0, 1]
        for event in waits:
            flag(walk, op, "wait_flag", "M", "MTE1", event)
        start = turn * L0_BYTES // 2
        left = BufferView("l0a", a.element, (m, size), 0, start)
        right = BufferView("l0b", b.element, (size, n), 0, start)
        last = i + 1 == parts
        for place, into, transposed, ready, free, at in (
            (a, left, transposed_a, ready_a, free_a, (0, begin)),
            (b, right, transposed_b, ready_b, free_b, (begin, 0)),
        ):
            if not i and ready != -1:
                flag(walk, op, "wait_flag", "MTE2", "MTE1", ready)
            sizes = into.shape[::-1] if transposed else into.shape
            places = at[::-1] if transposed else at
            properties = f"sizes = {list(sizes)}" + (", transpose = 1" if transposed else "")
            walk.emit(op, "npu.load_l0", whole(place), into, properties=properties, at=places)
            if last and free != -1:
                flag(walk, op, "set_flag", "MTE1", "MTE2", free)
        flag(walk, op, "set_flag", "MTE1", "M", LIBRARY_EVENT)
        flag(walk, op, "wait_flag", "MTE1", "M", LIBRARY_EVENT)
        walk.emit(op, "npu.mmad", left, right, part(c, n), at=[0 if fresh and not i else 1])
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
