"""Kernels for gather: start indices become element offsets on the vector core, slices come by indirect loads."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from ....dialects.base import describe, integer, to_ints
from ....dialects.dtypes import itemsize, size
from ....dialects.graph import FusionOp, GatherOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.interface import gm_traffic
from ....dialects.npu.types import GmType, Pipe, padded_bytes, row_strides
from ....dialects.open_sizes import choosing, is_open
from ....kernels.builder import dense, gm_of
from ....kernels.graph import OwnAxis
from ....kernels.indexed import Count, LoadIndirect
from ....kernels.stage import BoxDim, Ref, StageLoadBox
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....kernels.writer import StageWriter, boxed
from ....machine import Machine
from ...errors import PassError
from ..boxes import BoxKernel
from ..schedule import cut_tile, divisor, merge_axes

LARGEST_OFFSET = 2**31 - 1


class GatherKernel(BoxKernel):
    """One kernel over (positions, slice): a tile is some positions by some of each slice."""

    def __init__(self, op: GatherOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        self.op = op
        self.args: list[SSAValue] = [*fusion.body.block.args]
        self.table, out = shape_of(op.x), shape_of(op.result)
        if size(self.table) > LARGEST_OFFSET:
            raise PassError(
                f"{describe(op)}: a table of {size(self.table)} elements is beyond 32-bit offsets"
            )
        self.element, self.width = element_of(op.x), itemsize(element_of(op.x))
        self.tensors = [gm_of(a) for a in self.args], [dense(out, self.element)]
        self.sizes, self.kept = to_ints(op.slice_sizes), op.slice_dims()
        offset_dims, out_strides = to_ints(op.offset_dims), row_strides(out)
        index_shape, index_dim = shape_of(op.indices), integer(op.index_dim)
        index_strides = row_strides(index_shape)
        self.along = index_strides[index_dim] if index_dim < len(index_shape) else 0
        self.batch_dims = [d for d in range(len(index_shape)) if d != index_dim]
        self.groups, self.batch, self.batch_strides, batch_out = _positions(
            op.batch_shape(),
            [index_strides[d] for d in self.batch_dims],
            [out_strides[d] for d in range(len(out)) if d not in offset_dims],
            {self.batch_dims.index(d) for d in to_ints(op.indices_batch)},
        )
        self.domain = [*self.batch, *(self.sizes[d] for d in self.kept)]
        self.strides = [*batch_out, *(out_strides[d] for d in offset_dims)]
        self.inner = len(self.batch) - 1
        """The axis of positions of which a tile has several."""
        self.each = self._slice_cycles()

    @choosing()
    def _slice_cycles(self) -> float:
        """Cycles of one core to load a slice."""
        strides, kept = row_strides(self.table), self.kept
        slices = [self.sizes[d] for d in kept] or [1]
        shape, steps = [self.table[d] for d in kept] or [1], [strides[d] for d in kept] or [1]
        taken, rank = GmType.of(shape, self.element, steps), len(slices)
        moved = gm_traffic(taken, [0] * rank, slices, [1] * rank, self.machine, self.width)
        return self.machine.moves["gm", "ub"].cycles(moved.bytes, moved.runs)

    def ub_bytes(self, tile: Sequence[int]) -> int:
        box = [*tile] if self.kept else [*tile, 1]  # single elements have a row each
        need = self.slots * (padded_bytes([size(tile)], self.element) + padded_bytes(box, self.element))
        return need + 8 * padded_bytes([tile[self.inner]], i32)

    def work(self, tile: Sequence[int]) -> VectorWork:
        out = GmType.of(self.domain, self.element, self.strides)
        store = copy_cycles("store", out, tile, self.machine)
        return VectorWork({Pipe.MTE2: size(self.batch) * self.each, Pipe.MTE3: store})

    def too_large(self) -> str:
        return f"{describe(self.op)}: one element does not fit ub of {self.machine.name}"

    def cut(self, largest: Sequence[int], cores: int, pieces: int) -> Sequence[int]:
        # in the time that a slice takes, a copy would bring this much for each of its elements
        brought = self.each * self.machine.moves["gm", "ub"].bytes_per_cycle
        alike = max(self.width, int(brought / (size([self.sizes[d] for d in self.kept]))))
        tile = cut_tile(largest, self.domain, self.whole, alike, cores)
        tile = tuple(1 if d < self.inner else t for d, t in enumerate(tile))
        return _whole_slices(self.domain, tile, len(self.batch))

    def refusal(self, tile: Sequence[int]) -> str | None:
        if any(t > 1 for t in tile[: self.inner]):
            return f"a tile has one place along axes 0 to {self.inner - 1}"
        if tuple(tile) != _whole_slices(self.domain, tile, len(self.batch)):
            return "slices are cut into equal parts: an indirect load has no edge to mask"
        return None

    def write(self, w: StageWriter) -> None:
        element, strides, n_batch = self.element, row_strides(self.table), len(self.batch)
        slices = [n_batch + k for k, _ in enumerate(self.kept)] or w.own([OwnAxis("element")])
        begins = self._offsets(w)
        dims = zip(self.kept, slices, strict=False)
        box = tuple(BoxDim(self.table[d], strides[d], a) for d, a in dims) or (BoxDim(1, 1, slices[0]),)
        shape = (self.inner, *slices)
        op = LoadIndirect(self._input(self.op.x), box)
        self._store(w, w.put(op, [element], frozenset(shape), [begins], shape))

    def _store(self, w: StageWriter, tile: Ref) -> None:
        w.store(0, boxed(self.domain, self.strides), tile)

    def _input(self, value: SSAValue) -> int:
        return self.args.index(value)

    def _starts(self, w: StageWriter, behind: int, shape: Sequence[int]) -> Ref:
        """Indices as i32, in a tile with these dimensions."""
        op = StageLoadBox(self._input(self.op.indices), boxed(self.batch, self.batch_strides), behind)
        loaded = w.load(op, element_of(self.op.indices), shape)
        return w.converted(loaded, i32)

    def _offsets(self, w: StageWriter) -> Ref:
        """The first element of each slice of a tile: indices clamped and multiplied, and what is fixed."""
        op, n_batch, inner = self.op, len(self.batch), self.inner
        table, strides, index_shape = self.table, row_strides(self.table), shape_of(op.indices)
        row, total = (inner,), list[Ref]()

        def scalar(value: int) -> Ref:
            return w.put(Count(value), [i32], shape=row) if is_open(value) else w.fill(value, i32, row)

        def add(part: Ref) -> None:
            total[:] = [w.apply("add", *total, part) if total else part]

        for j, d in enumerate(to_ints(op.start_map)):
            starts = self._starts(w, self.along * j, row)
            starts = w.apply("max", starts, scalar(0))
            starts = w.apply("min", starts, scalar(table[d] - self.sizes[d]))
            add(w.apply("mul", starts, scalar(strides[d])))
        fixed: list[tuple[int, int]] = []
        for d, i in zip(to_ints(op.x_batch), to_ints(op.indices_batch), strict=True):
            if index_shape[i] == 1:
                continue
            axis, place = self.groups.index([self.batch_dims.index(i)]), strides[d]
            if axis == inner:
                add(w.put(Count(0, ((axis, place),), axis, place), [i32], frozenset(row), (), row))
            else:
                fixed.append((axis, place))
        fixed += [(n_batch + k, strides[d]) for k, d in enumerate(self.kept)]
        if total and not fixed:
            return total[0]
        return w.put(Count(0, tuple(fixed)), [i32], frozenset(row), total, row)


def _positions(
    shape: Sequence[int], index_strides: Sequence[int], out_strides: Sequence[int], fixed: set[int]
) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    """The positions in few axes: (axes of `shape` that each stands for, extents, strides among the indices, strides in
    the result). `fixed` ones stay alone, those of one position are left out."""
    strides = [dict(enumerate(index_strides)), dict(enumerate(out_strides))]
    groups = merge_axes(shape, strides, [], fixed)
    if not groups:
        return [[]], [1], [1], [1]
    last = [group[-1] for group in groups]
    extents = [size([shape[a] for a in group]) for group in groups]
    return groups, extents, [index_strides[a] for a in last], [out_strides[a] for a in last]


def _whole_slices(domain: Sequence[int], tile: Sequence[int], n_batch: int) -> tuple[int, ...]:
    """Slice dimensions are cut into exact parts: an indirect load has no edge to mask."""
    return tuple(
        t if d < n_batch else divisor(n, t) for d, (n, t) in enumerate(zip(domain, tile, strict=True))
    )
