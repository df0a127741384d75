"""Kernels of products whose result is pooled: the windows are reduced where their elements leave the cube.

for each tile of windows of this core:
  the product of all rows that the windows reach          cube
  for each part of it that fits ub:                       vector
    what is done to each element; neutral ones outside of the tensor
    windows reduced; what is done to each result; store

A tile's rows are those of whole windows (`PooledAxis`). Where windows of two tiles overlap, both compute what these
share: the workspace has room for each tile, and nothing is handed from core to core. Behind the reduction a step has
one element for each window in the place of the elements of the windows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import inf

from xdsl.ir import Operation, SSAValue

from ....dialects.base import describe, text
from ....dialects.dtypes import dtype_name, itemsize, size
from ....dialects.elementwise import REDUCTION_FUNCTION, identity
from ....dialects.graph import CubeSchedule, FusionOp, ReduceOp
from ....dialects.graph.interface import element_of
from ....dialects.npu.interface import Traffic, gm_traffic
from ....dialects.npu.types import GmType, padded_bytes
from ....kernels.builder import dense
from ....kernels.graph import StageGraph
from ....kernels.pooled_axes import PooledAxis
from ....kernels.product import CubeProblem
from ....kernels.product_cost import CubeCost
from ....kernels.stage import Extract, KernelStage, Mask, ReduceWindows, Ref, spanning
from ....machine import Machine
from ...errors import PassError, TooLarge
from ..indexed.windows import UNROLLED_TAPS
from ..spaces import KernelSpace
from .contract import ContractKernel
from .cube_schedule import CubePlan
from .pooling import Pooling, pooling_in

WINDOWS_ACROSS = (
    "the rows of the product lie side by side in memory, so that a tile has those of one dimension, and windows are "
    "over several"
)


class PooledStages(StageGraph):
    """Stages of which those behind a reduction of windows have fewer elements than those before it."""

    def __init__(self, pooled: Mapping[int, PooledAxis]) -> None:
        super().__init__()
        self.pooled = pooled

    def extents(self, step: KernelStage, tile: Sequence[int]) -> Sequence[int]:
        """By axis: windows of a tile, or the elements that these reach."""
        return _reached(self.pooled, tile, step.pooled)


def _reached(pooled: Mapping[int, PooledAxis], windows: Sequence[int], done: Collection[int]) -> list[int]:
    """The elements that so many windows reach along each axis; windows along those that are `done`."""
    return [n if a in done or a not in pooled else pooled[a].reach(n) for a, n in enumerate(windows)]


class PooledKernel(ContractKernel):
    """Lowers one mix fusion whose product is pooled: `pooling` is how, `pooled` the windows along axes that are
    walked, `done` those that are reduced before the step that is made."""

    pooling: Pooling
    pooled: Mapping[int, PooledAxis]
    done: frozenset[int] = frozenset()
    beside: dict[Sequence[int], tuple[float, float]]
    """Cycles of the way to the workspace and of a vector core for a tile, by its extents, as far as known."""

    def __init__(self, fusion: FusionOp, machine: Machine, asked: CubeSchedule):
        found = pooling_in(fusion)
        assert found is not None
        self.pooling, self.beside = found, {}
        super().__init__(fusion, machine, asked)

    @property
    def windows_across(self) -> bool:
        """Whether the rows of lhs lie side by side in memory, so that a tile has those of the last axis, and windows
        are along others."""
        return self.operands[0].transpose and self.pooled.keys() != {self.m_axes[-1]}

    def space(self, name: str) -> KernelSpace:
        self._check_windows()
        return super().space(name)

    def candidates(self, name: str) -> Iterator[CubeSchedule]:
        self._check_windows()
        yield from super().candidates(name)

    def _check_windows(self) -> None:
        """Raises PassError where tiles of whole windows have no way to l1."""
        if self.windows_across:
            raise PassError(f"{describe(self.anchor)}: {WINDOWS_ACROSS}")

    def _too_large(self) -> str:
        if self.asked.base_m is not None:
            return f"no tile of whole windows has base_m={self.asked.base_m} rows, and fits"
        windows = " x ".join(str(along.reach(1)) for along in self.pooled.values())
        return f"the rows of one window of {windows} do not fit on chip of {self.machine.name} as one tile"

    # -- axes --------------------------------------------------------------------------------------------------

    @cached_property
    def whole(self) -> frozenset[int]:
        return super().whole - self.pooled.keys()

    def _constraints(self) -> tuple[list[dict[int, int]], list[frozenset[int]], set[int]]:
        strides, presence, fixed = super()._constraints()
        whole = frozenset(
            a for a, along in self.pooling.axes.items() if along.is_whole and not along.bordered
        )
        return strides, [*presence, whole], fixed | (self.pooling.axes.keys() - whole)

    def _merge(self) -> None:
        super()._merge()
        self.pooled = {}
        for a, along in self.pooling.axes.items():
            axis = self.new_axis[a]
            n = self.extents[axis]
            self.pooled[axis] = along if len(self.merged[axis]) == 1 else PooledAxis(n, 1, n, n)

    def _problem(self, stored: SSAValue) -> CubeProblem:
        return replace(super()._problem(stored), pooled=self.pooled)

    def _result_tile(self, plan: CubePlan) -> dict[int, int]:
        tile = super()._result_tile(plan)
        return {a: self.pooled[a].windows(n) if a in self.pooled else n for a, n in tile.items()}

    def _cut_rows(self, plan: CubePlan) -> Sequence[int]:
        """On a fused core the first axis of several rows: those before it leave them side by side."""
        if not self.machine.fused:
            return self.m_axes
        return [a for a in self.m_axes if plan.l0[a] > 1][:1]

    def _handed_extent(self, plan: CubePlan, axis: int) -> int:
        """Tiles have room of their own."""
        whole = plan.l0[axis]
        return self.problem.tiles(axis, whole) * whole if axis in self.pooled else self.extents[axis]

    def _stored_extent(self, axis: int) -> int:
        return self.pooled[axis].places if axis in self.pooled else self.extents[axis]

    def _epilogue_cycles(self) -> tuple[float, float]:
        """With the elements that are looked at for each of the product, and fewer behind them."""
        each, head = super()._epilogue_cycles()
        if self.machine.fused:
            return each, head
        unit, width = self.machine.vector, itemsize(self.acc_type)
        fewer = size([along.places for along in self.pooled.values()]) / max(
            size([along.extent for along in self.pooled.values()]), 1
        )
        looked = 0.0
        for group in self._turns():
            looked += 2 * size([self.pooled[a].window for a in group]) * fewer
        return each + looked * width / unit.repeat_bytes, head

    def _costed(self, cost: CubeCost, plan: CubePlan) -> CubeCost:
        """With what the cores beside a cube do to a tile, step by step: windows are few elements side by side, and what
        lies across them moves in short runs."""
        if self.machine.fused:
            return cost
        key = plan.l0[: len(self._result_tile(plan))]
        if key not in self.beside:
            try:
                self.beside[key] = self._beside(plan)
            except TooLarge:
                self.beside[key] = inf, inf
        drained, epilogue = self.beside[key]
        return replace(cost, fix=drained, held=drained, epilogue=epilogue)

    def _beside(self, plan: CubePlan) -> tuple[float, float]:
        """Cycles of the way to the workspace, and of a vector core, for a tile. Raises TooLarge."""
        chunk = plan.epilogue or self._epilogue_tile(plan)
        extent = self._epilogue_extent(plan)
        pieces = size([-(-n // part) for n, part in zip(extent, chunk, strict=True)])
        moves, unit = self.machine.moves, self.machine.vector
        handed = dense(
            [self._handed_extent(plan, a) for a in self._result_tile(plan)], element_of(self.drained)
        )
        cycles = {"load": 0.0, "op": 0.0, "store": 0.0}
        for step, varies in zip(self.stages, self.stages.varies(), strict=True):
            shape = spanning(self.stages.extents(step, chunk), step.axes)
            if step.kind in ("load", "store") and varies:
                box = [1 if a is None else shape[a] for a in step.along] if step.view is not None else shape
                moved = self._traffic(step.view or handed, box)
                way = moves[("gm", "ub") if step.kind == "load" else ("ub", "gm")]
                cycles[step.kind] += way.cycles(moved.bytes, moved.runs)
            elif step.kind in ("op", "reduce") and varies:
                taken = [step, *(self.stages[j] for j, _ in step.operands if step.kind == "reduce")]
                element = max((e for s in taken for e in s.elements), key=itemsize)
                function, dtype = step.function or "copy", dtype_name(element)
                shapes = [spanning(self.stages.extents(s, chunk), s.axes) for s in taken]
                lanes = max(padded_bytes(n, element) // itemsize(element) for n in shapes)
                cycles["op"] += (
                    unit.cycles(function, dtype, lanes) if unit.supports(function, dtype) else lanes
                )
        tile = self._traffic(handed, [n for a, n in enumerate(plan.l0) if self.role[a] != "k"])
        return moves["l0c", "gm"].cycles(tile.bytes, tile.runs), pieces * max(cycles.values())

    def _traffic(self, view: GmType, box: Sequence[int]) -> Traffic:
        return gm_traffic(view, [0] * len(box), box, [1] * len(box), self.machine, self.machine.gm_align)

    # -- steps -------------------------------------------------------------------------------------------------

    def _no_stages(self) -> StageGraph:
        return PooledStages(self.pooled)

    def _stage(self, stage: KernelStage) -> Ref:
        if self.done:
            stage.pooled = self.done
        return super()._stage(stage)

    def _other(self, op: Operation) -> None:
        if op is self.pooling.op:
            self._pool()
        else:
            super()._other(op)

    def _reduce(self, op: ReduceOp) -> None:
        if op is self.pooling.op:
            self._pool()
        else:
            super()._reduce(op)

    def _pool(self) -> None:
        """The steps that reduce all windows."""
        op = self.pooling.op
        axes, element, kind = self._axes_of(op), element_of(op.result), text(op.kind)
        native = self._native(REDUCTION_FUNCTION[kind], element)
        source = self._cast(self._spread(self._value(op.x, axes), self._new(axes)), native)
        bordered = [a for a, along in self.pooled.items() if along.bordered]
        if bordered:
            source = self._masked(source, bordered, identity(kind, dtype_name(element)))
        for group in self._turns():
            source = self._combined(source, group, kind)
        self.casts.clear()  # what was repeated over the elements of windows is not what windows take
        self.made[op.result] = self._cast(source, element)

    def _turns(self) -> list[tuple[int, ...]]:
        """The axes whose windows are reduced together, one group after the other: all that have one window by one
        instruction; the others axis by axis where that takes fewer instructions' elements than all positions of their
        windows at once."""
        whole = tuple(a for a, along in self.pooled.items() if along.is_whole)
        rest = [a for a in self.pooled if a not in whole]
        ahead = [size([self.pooled[b].stride for b in rest[i + 1 :]]) for i in range(len(rest))]
        windows = [self.pooled[a].window for a in rest]
        one_by_one = sum((2 * w - 1) * n for w, n in zip(windows, ahead, strict=True))
        at_once = 2 * size(windows) - 1 <= one_by_one and size(windows) <= UNROLLED_TAPS
        turns = [tuple(rest)] if at_once else [(a,) for a in rest]
        return [group for group in (whole, *turns) if group]

    def _masked(self, source: Ref, along: Sequence[int], neutral: float | int) -> Ref:
        """Neutral elements in the place of those outside of the tensor."""
        bounds = tuple((a, self.extents[a]) for a in sorted(along))
        return self._stage(
            KernelStage(Mask(bounds, neutral), [self._element(source)], self._span(source), [source])
        )

    def _combined(self, source: Ref, group: Sequence[int], kind: str) -> Ref:
        """The windows along some axes reduced."""
        element, axes, function = self._element(source), self._span(source), REDUCTION_FUNCTION[kind]
        self.done |= frozenset(group)
        if all(self.pooled[a].is_whole for a in group):
            reduction = ReduceWindows(kind, tuple(sorted(group)))
            return self._stage(KernelStage(reduction, [element], axes, [source]))
        total: Ref | None = None
        for position in product(*(range(self.pooled[a].window) for a in group)):
            piece = self._tap(source, dict(zip(group, position, strict=True)))
            total = piece if total is None else self._apply(function, [total, piece], element, axes)
        assert total is not None
        return total

    def _tap(self, source: Ref, position: Mapping[int, int]) -> Ref:
        """The elements at a position of all windows."""
        taken = tuple(
            (a, at * self.pooled[a].dilation, self.pooled[a].stride) for a, at in sorted(position.items())
        )
        return self._stage(KernelStage(Extract(taken), [self._element(source)], self._span(source), [source]))
