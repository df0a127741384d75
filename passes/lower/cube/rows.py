"""Brings what there is for each column of a product to the memories beside the cube: gm -> l1 -> bt or fb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, integer_attr, ints, pack
from ....dialects.dtypes import size
from ....dialects.npu.types import padded_bytes
from ....dialects.tile import TileType
from ....kernels.builder import KernelBuilder
from .columns import Columns

L1_PART = 32
"""The part of l1 that all columns of a core may take, for each of bias and factors: loads of operands leave as much."""


class ColumnRows:
    """The rows of numbers for the columns of a kernel's tiles, by the memory space that has them. axes: those of the
    columns; extents: of all axes; new_axis: the axis that is walked for each of the domain."""

    def __init__(
        self,
        rows: Mapping[str, Columns],
        axes: Sequence[int],
        extents: Sequence[int],
        new_axis: Mapping[int, int],
    ):
        self.rows = rows
        self.axes, self.extents, self.new_axis = axes, extents, new_axis
        self.first: dict[int, Expr] = {}
        self.ranges: dict[int, int] = {}
        self.whole: dict[str, SSAValue] = {}
        """In l1, what there is for all columns of a core."""

    def begin(self, b: KernelBuilder, first: Mapping[int, Expr], ranges: Mapping[int, int]) -> None:
        """Before the loops over tiles: loads what there is for all columns of the core, `ranges` by axis from `first`
        on, where that is not much."""
        self.first, self.ranges = {a: first[a] for a in self.axes}, dict(ranges)
        sizes = [ranges[a] for a in self.axes] or [1]
        for space, columns in self.rows.items():
            if padded_bytes(sizes, columns.element) <= b.machine.spaces["l1"].bytes // L1_PART:
                self.whole[space] = self._load(b, columns, first, sizes)

    def take(
        self, b: KernelBuilder, position: Mapping[int, Expr], step: Sequence[int]
    ) -> dict[str, SSAValue]:
        """Where the columns of a tile, `step` by axis at `position`, are known: their rows."""
        found: dict[str, SSAValue] = {}
        sizes = [step[a] for a in self.axes] or [1]
        for space, columns in self.rows.items():
            whole = self.whole.get(space)
            tile = self._load(b, columns, position, sizes) if whole is None else whole
            inside = [Expr() if whole is None else position[a] - self.first[a] for a in self.axes] or [Expr()]
            indices, offsets = pack(inside)
            row = TileType.of([1, size(sizes)], columns.element, space)
            twice = 2 * padded_bytes(row.shape, row.element) <= b.machine.spaces[space].bytes
            several = any(self.ranges[a] != step[a] for a in self.axes)
            slots = integer_attr(2) if twice and several else None
            made = b.add(
                ops.MoveRowOp, [tile, *indices], [row], offsets=offsets, sizes=ints(sizes), slots=slots
            )
            found[space] = made.results[0]
        return found

    def _load(
        self, b: KernelBuilder, columns: Columns, position: Mapping[int, Expr], sizes: Sequence[int]
    ) -> SSAValue:
        """What there is for the columns of a box of the axes, in l1."""
        strides = {self.new_axis[a]: s for a, s in sorted(columns.strides.items())}
        shape = [self.extents[a] for a in self.axes] or [1]
        view = b.view(
            b.gm(columns.source), shape, [strides.get(a, 0) for a in self.axes] or [1], columns.offset
        )
        offsets = [position[a] for a in self.axes] or [Expr()]
        return b.load(view, offsets, sizes, TileType.of(sizes, columns.element, "l1"))
