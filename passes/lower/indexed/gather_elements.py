"""Kernels for gathers of single elements along one dimension: rows are loaded, and the vector unit picks from them.

Before:  %y = gather %x, %i : y[b, j] = x[b, i[b, j]], an indirect load for each element
After:   load x[b, :] ; tile.gather of it at i[b, :] ; store y[b, :]

Where what is gathered along is not the last dimension of the table, a tile has several of its columns, and each place
counts through their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from math import inf

from xdsl.dialects.builtin import i32

from ....dialects.base import to_ints
from ....dialects.dtypes import dtype_name, itemsize, size
from ....dialects.graph import FusionOp, GatherOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import ROW_BYTES, GmType, Pipe, padded_bytes, row_strides
from ....dialects.open_sizes import any_open
from ....kernels.graph import OwnAxis
from ....kernels.indexed import Count, StageGather, TileExtent
from ....kernels.stage import Ref, StageLoadBox
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....kernels.writer import StageWriter, boxed
from ....machine import Machine
from ...errors import PassError
from .gather import GatherKernel

PLACES = 5
"""Tiles of places that are held at once: what is loaded, twice, and what is computed of it."""

INSTRUCTIONS = 6
"""Instructions of the vector unit for a tile, however small it is."""


class GatherElementsKernel(GatherKernel):
    """One kernel over positions: a tile is the places along one axis, of one row of the table or of several columns."""

    @cached_property
    def fixed(self) -> dict[int, int]:
        """The dimension of the table that each axis of positions stands for, but for the one that is picked along."""
        axes = {group[0]: a for a, group in enumerate(self.groups) if len(group) == 1}
        pairs = zip(to_ints(self.op.x_batch), to_ints(self.op.indices_batch), strict=True)
        found = ((axes.get(self.batch_dims.index(i)), d) for d, i in pairs)
        return {a: d for a, d in found if a is not None}

    @cached_property
    def along_dim(self) -> int:
        """The dimension of the table that is picked along."""
        return to_ints(self.op.start_map)[0]

    @cached_property
    def picking(self) -> int | None:
        """The axis of positions along it; None where there is one position."""
        return next((a for a in range(len(self.batch)) if a not in self.fixed), None)

    @cached_property
    def columns(self) -> int | None:
        """The axis whose neighbours are neighbours in the table; None where those of the picked dimension are."""
        if row_strides(self.table)[self.along_dim] == 1:
            return None
        return next(a for a, d in self.fixed.items() if row_strides(self.table)[d] == 1)

    @property
    def block(self) -> int:
        """Columns that fill whole blocks of ub."""
        return ROW_BYTES // self.width

    def _cut_axes(self) -> list[int]:
        """The axes of which a tile has several places, in order."""
        return [a for a in range(len(self.batch)) if a in (self.picking, self.columns)]

    def _source(self, tile: Sequence[int]) -> list[int]:
        rows = self.table[self.along_dim]
        return [rows] if self.columns is None else [rows, tile[self.columns]]

    def _places(self, tile: Sequence[int]) -> list[int]:
        return [tile[a] for a in self._cut_axes()] or [1]

    def ub_bytes(self, tile: Sequence[int]) -> int:
        places = self._places(tile)
        moved = padded_bytes(self._source(tile), self.element) + padded_bytes(places, self.element)
        return self.slots * moved + PLACES * padded_bytes(places, i32)

    def work(self, tile: Sequence[int]) -> VectorWork:
        unit, whole = self.machine.vector, [size(self.batch)]
        rows = self._view_of_rows()
        again = 1 if self.picking is None else -(-self.batch[self.picking] // tile[self.picking])
        box = [*(1 for _ in self._others()), *self._source(tile)]
        load = again * copy_cycles("load", rows, box, self.machine)
        load += copy_cycles("load", GmType.of(whole, i32, [1]), [size(tile)], self.machine)
        store = copy_cycles("store", GmType.of(self.domain, self.element, self.strides), tile, self.machine)
        picked = size(self.batch) * (self._each() + PLACES * itemsize(i32) / unit.repeat_bytes)
        tiles = size([-(-n // t) for n, t in zip(self.batch, tile, strict=True)])
        picked += tiles * INSTRUCTIONS * unit.cycles("add", "i32", 1)
        return VectorWork({Pipe.MTE2: load, Pipe.V: picked, Pipe.MTE3: store})

    def _each(self) -> float:
        """Cycles of the vector unit to pick an element."""
        many = 1 << 10
        return self.machine.vector.cycles("gather", dtype_name(self.element), many) / many

    def _others(self) -> list[int]:
        return [a for a in self.fixed if a != self.columns]

    def _view_of_rows(self) -> GmType:
        """The table with what is picked along behind all else, and the columns behind that."""
        strides, d = row_strides(self.table), self.along_dim
        shape = [*(self.batch[a] for a in self._others()), self.table[d]]
        steps = [*(strides[self.fixed[a]] for a in self._others()), strides[d]]
        if self.columns is not None:
            shape, steps = [*shape, self.batch[self.columns]], [*steps, 1]
        return GmType.of(shape, self.element, steps)

    # -- choice ------------------------------------------------------------------------------------------------

    def _tile(self, places: int, columns: int) -> tuple[int, ...]:
        cut = {self.picking: places, self.columns: columns}
        return tuple(cut.get(a, 1) for a in range(len(self.batch)))

    def largest(self) -> tuple[int, ...] | None:
        """All places if they fit with one block of columns, and then as many columns as fit."""
        places = 1 if self.picking is None else self.batch[self.picking]
        while not self.fits(self._tile(places, self.block)):
            if places == 1:
                return None
            places = -(-places // 2)
        most = 0 if self.columns is None else -(-self.batch[self.columns] // self.block)
        blocks = max(
            (n for n in range(1, most + 1) if self.fits(self._tile(places, n * self.block))), default=1
        )
        return self._tile(places, blocks * self.block)

    def cut(self, largest: Sequence[int], cores: int, pieces: int) -> Sequence[int]:
        """A tile for so many cores: columns are shared first, then places, as long as these are as many as rows that
        are loaded for them."""
        tile = list(largest)

        def missing() -> int:
            return -(-cores // size([-(-n // t) for n, t in zip(self.batch, tile, strict=True)]))

        if self.columns is not None and missing() > 1:
            length = -(-tile[self.columns] // missing())
            tile[self.columns] = max(self.block, -(-length // self.block) * self.block)
        if self.picking is not None and missing() > 1:
            least = min(tile[self.picking], self.table[self.along_dim])
            tile[self.picking] = max(-(-tile[self.picking] // missing()), least, 1)
        return tuple(tile)

    def refusal(self, tile: Sequence[int]) -> str | None:
        cut = self._cut_axes()
        if any(t > 1 for a, t in enumerate(tile) if a not in cut):
            return f"a tile has several places along axes {cut} alone"
        if self.columns is not None and tile[self.columns] % self.block:
            return f"a tile has whole blocks of {self.block} columns"
        return None

    # -- build -------------------------------------------------------------------------------------------------

    def write(self, w: StageWriter) -> None:
        (row,) = w.own([OwnAxis("picked from", self.table[self.along_dim])])
        cut = self._cut_axes() or w.own([OwnAxis("element")])
        columns = [] if self.columns is None else [self.columns]
        view = self._view_of_rows()
        box = boxed(view.shape, view.strides, [*self._others(), row, *columns])
        rows = StageLoadBox(self._input(self.op.x), box)
        data = w.load(rows, self.element, (row, *columns))
        places = self._counted(w, cut)
        self._store(w, w.put(StageGather(), [self.element], frozenset(cut), [data, places], cut))

    def _counted(self, w: StageWriter, cut: Sequence[int]) -> Ref:
        """The places of a tile among the elements of its rows: indices within the table, through so many columns."""
        found = w.apply("max", self._starts(w, 0, cut), w.fill(0, i32, cut))
        found = w.apply("min", found, w.fill(self.table[self.along_dim] - 1, i32, cut))
        if self.columns is None:
            return found
        found = w.apply("mul", found, w.put(TileExtent(self.columns), [i32], shape=cut))
        column = w.put(Count(axis=self.columns, step=1), [i32], frozenset(cut), (), cut)
        return w.apply("add", found, column)


def gather_kernel(op: GatherOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule) -> GatherKernel:
    """The kernel of a gather: picks from rows on chip where it gathers single elements and that takes less time."""
    kind = GatherElementsKernel if _is_better(op, fusion, machine) else GatherKernel
    return kind(op, fusion, machine, asked)


def _is_better(op: GatherOp, fusion: FusionOp, machine: Machine) -> bool:
    """Whether elements are better picked on chip, whatever is asked of the kernel."""
    if not _gathers_elements(op, machine):
        return False
    picking = GatherElementsKernel(op, fusion, machine, VectorSchedule())
    if not _lies_well(picking):
        return False
    return _least_microseconds(picking) < _least_microseconds(
        GatherKernel(op, fusion, machine, VectorSchedule())
    )


def _least_microseconds(kernel: GatherKernel) -> float:
    """What a kernel takes at least, by its bound; infinity where not even its smallest tile fits."""
    with suppress(PassError):
        return min(map(kernel.bound, kernel.candidates("gather")))
    return inf


def _gathers_elements(op: GatherOp, machine: Machine) -> bool:
    """Whether a gather gives single elements along one dimension, each other one a batch or of one place."""
    table, starts = shape_of(op.x), to_ints(op.start_map)
    if op.slice_dims() or len(starts) != 1 or any_open((*table, *shape_of(op.indices), *shape_of(op.result))):
        return False
    if 0 in (*table, *shape_of(op.result)) or any(n != 1 for n in to_ints(op.slice_sizes)):
        return False
    known = {*to_ints(op.x_batch), starts[0]}
    if any(n != 1 for d, n in enumerate(table) if d not in known):
        return False
    return machine.vector.supports("gather", dtype_name(element_of(op.x)))


def _lies_well(kernel: GatherElementsKernel) -> bool:
    """Whether a table's neighbours are along what is picked, or along columns that fill blocks; and positions are along
    one axis beside the batch."""
    free = [a for a in range(len(kernel.batch)) if a not in kernel.fixed]
    if len(free) > 1 or any(len(kernel.groups[a]) != 1 for a in kernel.fixed):
        return False
    strides = row_strides(kernel.table)
    if strides[kernel.along_dim] == 1:
        return True
    return any(strides[d] == 1 and kernel.batch[a] >= kernel.block for a, d in kernel.fixed.items())
