"""The stages of a product, and where a schedule puts them: what brings its operands, multiplies and stores.

for each tile of (batch, m, n) of this core:
  for each piece of k that one load brings to l1:      load a, load b           MTE2
    for each mma step inside it:                       move a, move b           MTE1
                                                       acc += a x b             M
  store acc, or hand it to the vector cores for the epilogue                    FIX

A load stands in the outermost loop in which it brings the same: before the loops over tiles that take all of it again,
or in those over k, where one that covers several of the other operand's stands further out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects.builtin import i32
from xdsl.ir import Attribute

from ....dialects.npu.types import padded_bytes
from ....kernels.builder import may_repeat
from ....kernels.graph import StageGraph
from ....kernels.looped import LoopedAxis, LoopedStages, loops_of
from ....kernels.product_stages import (
    HandOver,
    LoadOperand,
    LoadRow,
    MoveOperand,
    MoveRow,
    Multiply,
    NoSums,
    PlaceRead,
    ReadPlace,
    StoreSums,
)
from ....kernels.stage import BoxDim, Given, KernelStage, Ref, StageOp
from .contraction_axes import Operand
from .contraction_choice import ContractionChoice
from .cube_schedule import CubePlan
from .draining import Drain

PRODUCT = "product"
"""What the stages of a product are called among those of its kernel."""

GIVEN: tuple[str, str] = ("lhs", "rhs")
"""What stages call an operand that another part of the kernel brings to l1, by its number."""

L1_PART = 32
"""The part of l1 that all columns of a core may take, for each of bias and factors: loads of operands leave as much."""


@dataclass
class _Placing:
    """Stages on their way into loops."""

    kernel: StagedProduct
    plan: CubePlan
    loops: list[LoopedAxis]
    stages: StageGraph = field(default_factory=StageGraph)
    depths: list[int] = field(default_factory=list[int])
    tiles: list[Sequence[int]] = field(default_factory=list[Sequence[int]])

    def add(
        self,
        op: StageOp,
        element: Attribute | None,
        axes: Sequence[int],
        operands: Sequence[Ref],
        depth: int,
        tile: Sequence[int],
    ) -> Ref:
        """Adds a stage at a depth, with a tile of its own."""
        location, elements = self.kernel.fusion.location, [] if element is None else [element]
        self.stages.append(KernelStage(op, elements, frozenset(axes), operands, location=location))
        self.depths.append(depth)
        self.tiles.append(tile)
        return len(self.stages) - 1, 0

    def looped(self, sums: SumStages) -> LoopedStages:
        return LoopedStages(self.stages, self.loops, self.depths, self.tiles, (sums.before, sums.behind))


class SumStages(NamedTuple):
    """The stages that sum up a tile: the sums before, the parts of both operands in l1 and in l0, the sums behind."""

    before: Ref
    loaded: tuple[list[Ref], list[Ref]]
    moved: list[Ref]
    behind: Ref


class StagedProduct(ContractionChoice):
    """A product as stages."""

    def tile_loops(self, plan: CubePlan) -> list[tuple[int, int]]:
        """The loops over the tiles of a core (axis, trips), the outermost first."""
        trips = [(a, plan.tiles_of_core(a, self.problem)) for a in self.walk(plan.inner)]
        return [(a, n) for a, n in trips if may_repeat(n)]

    def on_grid(self, plan: CubePlan) -> Mapping[int, tuple[int, int]]:
        """The axes of the result that several cores share, the outermost first: how many do, and the tiles of each."""
        shares = {a: plan.shared(a, self.problem) for a in (*self.b_axes, *self.m_axes, *self.n_axes)}
        return {a: both for a, both in shares.items() if may_repeat(both[0])}

    def summing_loops(self, plan: CubePlan, whole: Mapping[int, int] | Sequence[int]) -> list[LoopedAxis]:
        """The loops over what is summed up, of which there is so much along each axis: over the longer loads of the two
        operands, over the shorter ones in each, and over the steps in each of those."""
        long, short = plan.l1, plan.short
        return loops_of(
            *(LoopedAxis(a, -(-whole[a] // long[a]), long[a], "longer loads", True) for a in self.k_axes),
            *(LoopedAxis(a, -(-long[a] // short[a]), short[a], "shorter loads", True) for a in self.k_axes),
            *(LoopedAxis(a, -(-short[a] // plan.l0[a]), plan.l0[a], "steps", True) for a in self.k_axes),
        )

    def looped(self, plan: CubePlan) -> LoopedStages:
        """All stages of the product, in the loops over tiles and over what is summed up."""
        around = self.tile_loops(plan)
        tiles = [LoopedAxis(a, n, self.problem.apart(a, plan.l0[a]), "tiles") for a, n in around]
        placing = _Placing(self, plan, [*tiles, *self.summing_loops(plan, self.extents)])
        batches = sum(axis in self.b_axes for axis, _ in around)  # the outermost loops
        rows = self._rows(placing, around)
        places = self._places(placing, batches)
        once = self.loaded_once(plan, [axis for axis, _ in around])
        at = len(tiles), len(tiles)
        if once is not None:
            at = tuple(once[0] if side == once[1] else depth for side, depth in enumerate(at))
        sums = self._sums(placing, at, places, rows.get("bt"))
        self._store_sums(placing, sums.behind, rows.get("fb"), len(tiles))
        return placing.looped(sums)

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        """With any plan the stages are the same."""
        whole = tuple(self.extents)
        plan = CubePlan(whole, whole, whole, (1,) * len(whole), "m", {}, None)
        return {PRODUCT: self.looped(plan).stages, **super().stage_graphs()}

    def looped_sums(
        self, plan: CubePlan, whole: Mapping[int, int] | Sequence[int]
    ) -> tuple[LoopedStages, SumStages]:
        """The stages that sum up one tile, in the loops over what is summed up alone."""
        placing = _Placing(self, plan, self.summing_loops(plan, whole))
        sums = self._sums(placing, (0, 0), {}, None)
        return placing.looped(sums), sums

    # -- parts -------------------------------------------------------------------------------------------------

    def _places(self, placing: _Placing, depth: int) -> Mapping[PlaceRead, Ref]:
        """What reads where slices begin, once it is known which product of the batch it is."""
        read = [d.begins for o in self.operands for d in o.dims if d.begins is not None]
        return {p: placing.add(ReadPlace(p), i32, (), (), depth, placing.plan.l0) for p in read}

    def _rows(self, placing: _Placing, around: Sequence[tuple[int, int]]) -> Mapping[str, Ref]:
        """What there is for the columns of a tile, in bt and fb: it comes to l1 for all columns of the core before the
        loops where that is not much, else for those of a tile, and from there where the columns of a tile are known."""
        plan, axes = placing.plan, self.n_axes
        known = max((i + 1 for i, (axis, _) in enumerate(around) if axis in axes), default=0)
        ranges = [plan.l0[a] * (dict(around).get(a, 1) if a in axes else 1) for a in range(len(self.extents))]
        loaded: dict[str, tuple[Ref, Attribute]] = {}
        for space, columns in (self.drain.rows if self.drain else {}).items():
            strides = {self.new_axis[a]: s for a, s in sorted(columns.strides.items())}
            box = tuple(BoxDim(self.extents[a], strides.get(a, 0), a) for a in axes) or (BoxDim(1, 1, None),)
            load = LoadRow(columns.source, box, columns.offset)
            whole = padded_bytes(load.shape(ranges), columns.element) <= self.machine.spaces["l1"].bytes // L1_PART
            at = (0, ranges) if whole else (known, plan.l0)
            loaded[space] = placing.add(load, columns.element, axes, (), *at), columns.element
        return {
            space: placing.add(MoveRow(space, tuple(axes)), element, axes, [tile], known, plan.l0)
            for space, (tile, element) in loaded.items()
        }

    def _sums(
        self, placing: _Placing, around: Sequence[int], places: Mapping[PlaceRead, Ref], bias: Ref | None
    ) -> SumStages:
        """What loads and moves both operands and multiplies them. around: how many loops an operand is loaded in that
        has all of what is summed up."""
        plan = placing.plan
        first = next((i for i, loop in enumerate(placing.loops) if loop.carries), len(placing.loops))
        outer = sum(loop.over == "longer loads" for loop in placing.loops)
        inner = outer + sum(loop.over == "shorter loads" for loop in placing.loops)
        both, m, n, k = (plan.lhs, plan.rhs), tuple(self.m_axes), tuple(self.n_axes), tuple(self.k_axes)
        before = placing.add(NoSums(m, n), self.acc_type, (*m, *n), (), first, plan.l0)
        loaded: tuple[list[Ref], list[Ref]] = [], []
        late = [both[side] != plan.l1 for side in (0, 1)]
        for side in sorted(self.loaded_first(), key=late.__getitem__):
            depth = around[side] if around[side] < first else first + (inner if late[side] else outer)
            for part in self.operands[side].parts:
                loaded[side].append(self._loaded(placing, side, part, places, depth, both[side]))
        moved: list[Ref] = []
        shapes = ("l0a", m, k), ("l0b", k, n)
        for side, (to, rows, columns) in enumerate(shapes):
            for part, tile in zip(self.operands[side].parts, loaded[side], strict=True):
                op = MoveOperand(to, tuple(part.dims), rows, columns, part.transpose)
                axes = (*rows, *columns)
                moved.append(placing.add(op, part.element, axes, [tile], len(placing.loops), plan.l0))
        lhs, rhs, *index = moved
        operands = [lhs, rhs, before, *index, *([] if bias is None else [bias])]
        multiply = Multiply(m, n, k)
        behind = placing.add(multiply, self.acc_type, (*m, *n), operands, len(placing.loops), plan.l0)
        return SumStages(before, loaded, moved, behind)

    def _loaded(
        self,
        placing: _Placing,
        side: int,
        part: Operand,
        places: Mapping[PlaceRead, Ref],
        depth: int,
        tile: Sequence[int],
    ) -> Ref:
        """What brings a part of an operand to l1."""
        axes = sorted(frozenset[int]().union(*(d.axes for d in part.dims)))
        if not self._loads_itself(side):
            along = tuple(a for d in part.dims for a, _ in (*d.along, *d.placed_by))
            op = Given(GIVEN[side], "load", along)
            return placing.add(op, part.element, axes, (), depth, tile)
        begins = [places[d.begins] for d in part.dims if d.begins is not None]
        op = LoadOperand(part.source, tuple(part.dims), part.offset)
        return placing.add(op, part.element, axes, begins, depth, tile)

    def _loads_itself(self, side: int) -> bool:
        """Whether an operand comes from a tensor of the fusion, and no other part of the kernel brings it to l1."""
        return self.operands[side].source >= 0

    def _store_sums(self, placing: _Placing, sums: Ref, scales: Ref | None, depth: int) -> None:
        """What leaves l0c: to the result, or to the workspace of the epilogue; nothing where the vector unit takes it
        from there."""
        if self.machine.fused:
            return
        plan, drain = placing.plan, self.drain or Drain()
        dims = (*self.b_axes, *self.m_axes, *self.n_axes)
        if self.plain:
            (stored,) = self.stored
            strides = self._out_strides(stored.value, stored.strides)
            by_axis = {self.new_axis[a]: s for a, s in sorted(strides.items()) if a in self.new_axis}
            box = tuple(BoxDim(self.extents[a], by_axis[a], a) for a in dims) or (BoxDim(1, 1, None),)
            op = StoreSums(drain.number, drain.zero, drain.relu, 0, box, stored.offset)
        else:
            op = HandOver(drain.number, drain.zero, drain.relu, dims)
        placing.add(op, None, dims, [sums, *([] if scales is None else [scales])], depth, plan.l0)

    def _handed_extent(self, plan: CubePlan, axis: int) -> int:
        """Elements along an axis of the workspace: those of the result."""
        return self.extents[axis]
