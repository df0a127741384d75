"""Kernels that copy boxes: dynamic slices, updates in place, parts of a concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from ....dialects.dtypes import itemsize, size
from ....dialects.graph import FusionOp, VectorSchedule
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import GmType, Pipe, row_strides
from ....dialects.open_sizes import certain, is_open
from ....kernels.builder import dense, divide_grid
from ....kernels.indexed import StageScalar
from ....kernels.stage import BoxDim, Ref, StageLoadBox
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....kernels.writer import StageWriter
from ....machine import Machine
from ..boxes import BoxKernel
from ..schedule import divisor, merge_axes
from ..scheduled import as_vector, cannot_obey

Start = int | tuple[int, int, int]
"""A constant first index, or (kernel input holding it, lowest, highest allowed value)."""


@dataclass(frozen=True)
class BoxCopy:
    """A copy of a box of `source` (input 0) to a box of `dest` (the output). Starts refer to rank-0 inputs of the
    element types `scalars`. Equal copies are one kernel."""

    source: tuple[int, ...]
    dest: tuple[int, ...]
    box: tuple[int, ...]
    element: Attribute
    scalars: tuple[Attribute, ...]
    source_starts: tuple[Start, ...]
    dest_starts: tuple[Start, ...]
    dest_steps: tuple[int, ...]


class CopyKernel(BoxKernel):
    """A kernel over a box, dimensions that lie side by side in both tensors merged."""

    def __init__(self, copy: BoxCopy, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        self.copy = copy
        self.element, self.width = copy.element, itemsize(copy.element)
        self.tensors = (
            [dense(copy.source, copy.element), *(dense((), s) for s in copy.scalars)],
            [dense(copy.dest, copy.element)],
        )
        box, starts = copy.box, (copy.source_starts, copy.dest_starts)
        fixed = zip(*starts, copy.dest_steps, strict=True)
        plain = [d for d, place in enumerate(fixed) if place == (0, 0, 1)]
        side_by_side = {d for d in plain if certain(box[d], "==", copy.source[d])}
        side_by_side = {d for d in side_by_side if certain(box[d], "==", copy.dest[d])}
        self.strides = [dict(enumerate(row_strides(shape))) for shape in (copy.source, copy.dest)]
        self.groups = _groups(box, side_by_side, self.strides)
        self.domain = [size([box[d] for d in g]) for g in self.groups]
        # A box at a start known only at run time has no view whose edge could mask the last tile: tiles must divide it,
        # and cores the tiles.
        self.moving = [any(isinstance(s[g[-1]], tuple) for s in starts) if g else False for g in self.groups]

    def work(self, tile: Sequence[int]) -> VectorWork:
        read, write = (
            GmType.of(self.domain, self.element, [s[g[-1]] if g else 1 for g in self.groups])
            for s in self.strides
        )
        load, store = (
            copy_cycles(kind, view, tile, self.machine) for kind, view in (("load", read), ("store", write))
        )
        return VectorWork({Pipe.MTE2: load, Pipe.MTE3: store})

    def too_large(self) -> str:
        return f"a copy of {self.copy.box}: one element does not fit ub of {self.machine.name}"

    def cut(self, largest: Sequence[int], cores: int, pieces: int) -> Sequence[int]:
        def busiest(tile: Sequence[int]) -> tuple[int, int]:
            counts = self._counts(tile)
            grid = self.divide(counts, cores)
            trips = size([-(-n // used) for n, used in zip(counts, grid, strict=True)])
            return trips * size(tile), trips

        # what no cores divide is copied in as few pieces as fit
        cut = super().cut(largest, cores, pieces)
        return min((self._divided(t) for t in (cut, largest)), key=busiest)

    def _divided(self, limit: Sequence[int]) -> tuple[int, ...]:
        """The longest tile within `limit` that divides the box where it must."""
        lists = zip(self.domain, limit, self.moving, strict=True)
        return tuple(divisor(n, t) if moving else t for n, t, moving in lists)

    def divide(self, counts: Sequence[int], cores: int) -> list[int]:
        used, left = [0] * len(counts), cores
        for a, (n, moving) in enumerate(zip(counts, self.moving, strict=True)):
            if moving and is_open(n):
                used[a] = divisor(n, left)
                left //= used[a]
        rest = [a for a in range(len(counts)) if not used[a]]
        shares = divide_grid([counts[a] for a in rest], left, [self.moving[a] for a in rest])
        for a, (number, _) in zip(rest, shares, strict=True):
            used[a] = number
        return used

    def check(self, name: str, schedule: Schedule) -> None:
        super().check(name, schedule)
        plan = as_vector(name, schedule)
        rows = zip(self._counts(plan.tile or ()), plan.grid or (), self.moving, strict=True)
        for a, (tiles, cores, moving) in enumerate(rows):
            if moving and not certain(tiles % cores, "==", 0):
                raise cannot_obey(
                    name,
                    f"axis {a}, whose start is known at run time, has {tiles} tiles, which {cores} cores cannot "
                    "share evenly",
                )

    def refusal(self, tile: Sequence[int]) -> str | None:
        if tuple(tile) != self._divided(tile):
            return f"tiles must divide {self.domain} along the axes whose start is known at run time"
        return None

    def write(self, w: StageWriter) -> None:
        copy, ones = self.copy, (1,) * len(self.copy.box)
        known: dict[Start, Ref] = {}
        box, behind, at = self._box(w, known, copy.source, copy.source_starts, ones, 0)
        to, to_behind, to_at = self._box(w, known, copy.dest, copy.dest_starts, copy.dest_steps, 1)
        w.store(0, to, w.load(StageLoadBox(0, box, behind), self.element, scalars=at), to_behind, to_at)

    def _box(
        self,
        w: StageWriter,
        known: dict[Start, Ref],
        shape: Sequence[int],
        starts: Sequence[Start],
        steps: Sequence[int],
        operands: int,
    ) -> tuple[tuple[BoxDim, ...], int, list[Ref]]:
        """The dimensions of what is moved in one tensor, how many elements behind the first one it begins, and what
        says at run time how much further on, behind so many other operands. The view ends with the box where that is
        known, so that its edge masks the last tile."""
        strides, box, behind, scalars = row_strides(shape), list[BoxDim](), 0, list[Ref]()
        for a, (group, extent) in enumerate(zip(self.groups, self.domain, strict=True)):
            if not group:
                box.append(BoxDim(extent, 1, a))
                continue
            last = group[-1]
            first, step = starts[last], steps[last]
            if isinstance(first, tuple):
                if first not in known:
                    known[first] = w.put(StageScalar(*first), [self.copy.scalars[first[0] - 1]])
                box.append(BoxDim(shape[last], strides[last], a, step, plus=operands + len(scalars)))
                scalars.append(known[first])
            else:
                behind += first * strides[last]
                box.append(BoxDim((extent - 1) * step + 1, strides[last], a, step))
        return tuple(box), behind, scalars


def _groups(box: Sequence[int], whole: set[int], strides: Sequence[dict[int, int]]) -> list[list[int]]:
    everything = frozenset(range(len(box)))
    merged = merge_axes(box, strides, [everything], set(everything) - whole)
    kept = {d for g in merged for d in g}
    alone = [[d] for d in range(len(box)) if d not in kept and d not in whole]
    return sorted([*merged, *alone], key=lambda g: g[0]) or [[]]
