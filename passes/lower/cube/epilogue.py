"""The epilogue of a contraction on the vector cores: stages over the tiles of its result, in parts that fit ub.

Where it reduces along columns of the result, it waits for all tiles of a block of rows, and takes whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd, inf

from xdsl.ir import Attribute

from ....dialects.base import describe
from ....dialects.dtypes import dtype_name, itemsize, size
from ....dialects.graph.interface import element_of
from ....kernels.product_cost import FusedEpilogue
from ....kernels.stage import BoxDim, Given, KernelStage, Ref, spanning
from ...errors import TooLarge
from ...forms.access import splat_of
from ...fusion.long_rows import UB_FRACTION
from ..axes import StoredPart, reduced_dims
from .contraction_axes import ContractionStages
from .cube_schedule import CubePlan

ACCUMULATOR = "accumulator"
"""What stages know the sums by that leave the cube."""


class EpilogueStages(ContractionStages):
    """What the vector cores do to the sums of a contraction. `slots`: buffers in ub of what crosses pipes."""

    slots: int
    pieces: dict[tuple[int, ...], int]
    """In how many pieces a vector core takes its part of a tile, by the extents of that part, as far as known."""
    parts: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]]
    """The extents of these pieces, by those of the part and the rows along which it may be cut, as far as known."""
    blocks: dict[tuple[int, ...], float]
    """Cycles of a block of rows that is reduced, by the extents of a vector core's part, as far as known."""

    @property
    def has_epilogue(self) -> bool:
        """Whether vector cores work on what the cube computes."""
        raise NotImplementedError

    @cached_property
    def whole(self) -> frozenset[int]:
        """The axes that the epilogue reduces along, or takes single places of: a core has all of them of its rows."""
        reduced = (self._new([self._axes_of(op)[d] for d in reduced_dims(op)]) for op in self.members)
        return self.taken.union(*reduced)

    @cached_property
    def taken(self) -> frozenset[int]:
        """The axes that the epilogue takes single places of."""
        traced = (self._trace(v, axes) for v, axes in self._uses() if splat_of(v) is None)
        return frozenset[int]().union(*map(self.places_taken, traced))

    def _place_of(self, part: StoredPart) -> tuple[Sequence[BoxDim], int]:
        """Parts of equal size that lie side by side are places along a dimension: so all are boxes of one view."""
        offsets = [other.offset for other in self.stored if other.output == part.output]
        step = gcd(*offsets)
        if not self.taken or not step:
            return super()._place_of(part)
        return (BoxDim(max(offsets) // step + 1, step, None, start=part.offset // step),), 0

    def _epilogue_cycles(self) -> tuple[float, float]:
        """Cycles of a vector core beside a cube for each element of the result, and for each piece of a tile on top: an
        estimate from what it copies and computes. Zero where the vector unit is in the cube's own core."""
        if not self.members or self.machine.fused or self.whole:
            return 0.0, 0.0
        moves, unit = self.machine.moves, self.machine.vector
        load, store, width = moves["gm", "ub"], moves["ub", "gm"], itemsize(self.acc_type)
        stored = sum(itemsize(element_of(v)) for v in self.yielded) / store.bytes_per_cycle
        loaded = width / load.bytes_per_cycle
        head = load.fixed_cycles + store.fixed_cycles + len(self.members) * unit.streamed_cycles
        return loaded + stored + len(self.members) * width / unit.repeat_bytes, head

    def _epilogue_pieces(self, plan: CubePlan) -> int:
        """In how many pieces a vector core takes its part of a tile; 1 where not even a row fits ub."""
        if not self.members or self.whole:
            return 1
        extent = self._epilogue_extent(plan)
        known = self.pieces.get(tuple(extent))
        if known is None:
            try:
                chunk = plan.epilogue or self._epilogue_tile(plan)
            except TooLarge:
                chunk = extent
            known = size([-(-n // part) for n, part in zip(extent, chunk, strict=True)])
            self.pieces[tuple(extent)] = known
        return known

    def _fused_epilogue(self, plan: CubePlan) -> FusedEpilogue | None:
        """What a core that has both units does to a tile of sums; None where there are cores of two kinds, or where a
        row of the epilogue does not fit ub."""
        if not self.machine.fused:
            return None
        try:
            chunk = plan.epilogue or self._epilogue_tile(plan)
        except TooLarge:
            return None
        extent = self._epilogue_extent(plan)
        pieces = size([-(-n // part) for n, part in zip(extent, chunk, strict=True)])
        swept = self.m_axes if plan.inner == "m" else self.n_axes
        inner = {a for a in swept if plan.l0[a] < self.extents[a]}
        total = FusedEpilogue(pieces=pieces)
        for step, varies in zip(self.stages, self.stages.varies(), strict=True):
            if inner and not varies & inner:
                continue  # it stands before the inner loop over tiles
            often = pieces if any(extent[a] != chunk[a] for a in varies) else 1
            shape = spanning(self.stages.extents(step, chunk), step.axes)
            total = total.also(self._step_cycles(step, shape), often)
        return total

    def _step_cycles(self, step: KernelStage, shape: Sequence[int]) -> FusedEpilogue:
        """What one step does to a piece of a tile."""
        moves, unit, n = self.machine.moves, self.machine.vector, size(shape)
        kinds = [*step.elements, *(self.stages[j].elements[i] for j, i in step.operands)]
        if step.kind == "drain":
            return FusedEpilogue(vector=moves["l0c", "ub"].cycles(n * itemsize(kinds[0])))
        if step.kind == "load":
            bytes_ = n * itemsize(kinds[0])
            return FusedEpilogue(loaded=moves["gm", "ub"].cycles(bytes_), bytes=bytes_)
        if step.kind == "store":
            return FusedEpilogue(stored=moves["ub", "gm"].cycles(n * itemsize(kinds[0])))
        if step.kind not in ("op", "reduce"):
            return FusedEpilogue()
        dtype = dtype_name(max(kinds, key=itemsize))
        function = step.function or ("max" if step.reduces else "broadcast")
        return FusedEpilogue(
            vector=unit.cycles(function, dtype, n) if unit.supports(function, dtype) else 0.0
        )

    def _row_cycles(self, plan: CubePlan) -> float:
        """Cycles of the vector cores beside a cube for a block of rows that they reduce, their pipes side by side but
        for the first piece; infinity where not even a row fits ub."""
        extent = self._epilogue_extent(plan)
        known = self.blocks.get(tuple(extent))
        if known is None:
            known = self.blocks[tuple(extent)] = self._block_cycles(plan, extent)
        return known

    def _block_cycles(self, plan: CubePlan, extent: Sequence[int]) -> float:
        try:
            chunk = plan.epilogue or self._epilogue_tile(plan)
        except TooLarge:
            return inf
        pieces = size([-(-n // part) for n, part in zip(extent, chunk, strict=True)])
        total = FusedEpilogue()
        for step, varies in zip(self.stages, self.stages.varies(), strict=True):
            if varies:  # else it stands before the loops, while the cube multiplies
                total = total.also(self._step_cycles(step, spanning(chunk, step.axes | step.reduces)), 1)
        pipes = total.vector, total.loaded, total.stored
        return max(pipes) * (pieces - 1) + sum(pipes)

    def _units(self, plan: CubePlan) -> tuple[int | None, int]:
        """The axis along which the vector cores beside a cube share each tile, and how many do; None and 1 where no
        axis can be cut."""
        per_cube = self.machine.vector_cores // self.machine.cube_cores
        tile = self._result_tile(plan)
        shared = [a for a in (*self.m_axes, *self.n_axes) if a not in self.whole]
        axis = next((a for a in shared if tile[a] % per_cube == 0), None)
        return axis, per_cube if axis is not None else 1

    def _result_tile(self, plan: CubePlan) -> dict[int, int]:
        """Elements along each axis of the result that the cube hands over before the vector cores begin."""
        kept = (a for a, role in enumerate(self.role) if role != "k")
        return {a: self.extents[a] if a in self.whole else plan.l0[a] for a in kept}

    def _epilogue_extent(self, plan: CubePlan) -> list[int]:
        """What one vector core has of each tile of the result, by axis."""
        extent = [*self._result_tile(plan).values()]
        axis, units = (None, 1) if self.machine.fused else self._units(plan)
        if axis is not None:
            extent[axis] //= units
        return extent

    def _epilogue_bytes(self, chunk: Sequence[int]) -> int:
        return self.stages.ub_bytes(chunk, self.slots, self.machine.fused)

    def _cut_rows(self, plan: CubePlan) -> Sequence[int]:
        """The m axes along which a tile may be in parts: what is drained from l0c has rows side by side."""
        return self.m_axes[:1] if self.machine.fused else self.m_axes

    def _epilogue_tile(self, plan: CubePlan) -> list[int]:
        """Equal parts of a tile of the result that fit ub. Raises TooLarge."""
        extent = self._epilogue_extent(plan)
        key = tuple(extent), tuple(self._cut_rows(plan))
        if key not in self.parts:
            self.parts[key] = self._parts_of(plan, extent)
        return list(self.parts[key])

    def _parts_of(self, plan: CubePlan, extent: Sequence[int]) -> list[int]:
        """The same, found anew for a vector core's part of a tile."""
        capacity = int(self.machine.spaces["ub"].bytes * UB_FRACTION)
        chunk = list(extent)
        axes = [a for a in (*self._cut_rows(plan), *self.n_axes) if a not in self.whole]
        while self._epilogue_bytes(chunk) > capacity:
            cut = {a: _smaller_divisor(extent[a], chunk[a]) for a in axes if chunk[a] > 1}
            if not cut:
                break
            # along the axis where that makes the fewest parts more: rows of a prime number are parts of one row. What
            # lies side by side in memory is cut last, where a row has several axes
            beside = self.n_axes[-1] if len(self.n_axes) > 1 else None
            axis = min(cut, key=lambda a: (a == beside, chunk[a] / cut[a]))
            chunk[axis] = cut[axis]
        if self._epilogue_bytes(chunk) > capacity:
            raise TooLarge(
                f"{describe(self.fusion)}: one row of its epilogue does not fit ub of {self.machine.name}"
            )
        return chunk

    def _epilogue_refusal(self, plan: CubePlan) -> str | None:
        """Why the tile of the epilogue cannot be as it is asked for, as the rest of a sentence; None where it can."""
        assert plan.epilogue is not None
        extent, chunk = self._epilogue_extent(plan), list(plan.epilogue)
        shown = " x ".join(map(str, chunk))
        if not self.has_epilogue:
            return "it has no epilogue"
        if len(chunk) != len(extent):
            return f"its result has {len(extent)} axes, and the epilogue {len(chunk)}"
        if any(n % part for n, part in zip(extent, chunk, strict=True)):
            return f"a tile of {shown} of the epilogue does not divide the {extent} that a vector core has"
        whole = [*self.b_axes, *(a for a in self.m_axes if a not in self._cut_rows(plan)), *self.whole]
        if any(chunk[a] != extent[a] for a in whole):
            return f"a tile of {shown} of the epilogue cuts an axis that is not cut"
        need, room = self._epilogue_bytes(chunk), self.machine.spaces["ub"].bytes
        return (
            f"a tile of {shown} takes {need} bytes of ub, and {self.machine.name} has {room}"
            if need > room
            else None
        )

    def _accumulator(self, element: Attribute) -> Ref:
        """The step that brings the accumulator to the vector core: a load of the workspace, or a drain of l0c."""
        axes = frozenset(a for a, r in enumerate(self.role) if r != "k")
        given = Given(ACCUMULATOR, "drain" if self.machine.fused else "load", tuple(sorted(axes)))
        return self._stage(KernelStage(given, [element], axes))

    def epilogue_loops(
        self, plan: CubePlan, tile_loops: Sequence[tuple[int, int]]
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """The loops (axis, trips, elements) that an epilogue stands in: those of `tile_loops` (axis, trips) over tiles
        of the result, and inside each those over the parts of a vector core's tile that fit ub."""
        assert plan.epilogue is not None
        whole = self._result_tile(plan)
        loops = [(a, trips, whole[a]) for a, trips in tile_loops if a not in self.whole]
        own = zip(whole, self._epilogue_extent(plan), plan.epilogue, strict=True)
        return loops, [(a, extent // part, part) for a, extent, part in own if extent != part]


def _smaller_divisor(extent: int, current: int) -> int:
    return next(d for d in range(current - 1, 0, -1) if extent % d == 0)
