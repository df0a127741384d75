"""The plan of a product, for people: what its axes are bound to, and where the stages of its epilogue stand."""

from __future__ import annotations

from collections.abc import Mapping

from ....dialects.dtypes import size
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import Pipe
from ....kernels.builder import may_repeat
from ....kernels.graph import StageGraph
from ....kernels.plan import Brought, Cut, PlannedAxis, PlannedGraph, StagePlace, cuts_of
from ....kernels.product import sides
from .cube_schedule import CubePlan
from .epilogue import ACCUMULATOR
from .product_stages import GIVEN, PRODUCT, StagedProduct

ROLES = {"b": "batch", "m": "rows", "n": "columns", "k": "summed"}
"""What the axes of a product are, by the letter of their role."""


EPILOGUE = "epilogue"
"""What the stages behind a product are called."""


class PlannedProduct(StagedProduct):
    """A product as far as its plan needs it."""

    def planned_axes(self, schedule: Schedule) -> list[PlannedAxis]:
        plan = CubePlan.of(self.completed("", schedule))
        behind = self._cuts_behind(plan)
        found: list[PlannedAxis] = []
        for a, (role, extent) in enumerate(zip(self.role, self.extents, strict=True)):
            same = [other for other, its in enumerate(self.role) if its == role]
            name = f"{role}{same.index(a)}" if len(same) > 1 else role
            cuts = (
                self._steps_along(plan, a)
                if role == "k"
                else (*self._tiles_along(plan, a), *behind.get(a, ()))
            )
            found.append(PlannedAxis(name, ROLES[role], extent, plan.l0[a], cuts, tuple(self.merged[a])))
        return found

    def _tiles_along(self, plan: CubePlan, axis: int) -> tuple[Cut, ...]:
        """How an axis of the result is shared by cores and cut into tiles. Tiles of windows may overlap."""
        tile = plan.l0[axis]
        cores, trips = plan.shared(axis, self.problem)
        what = "tile of whole windows" if axis in self.problem.pooled else "tile"
        return cuts_of(cores, trips, tile, what, self.problem.apart(axis, tile))

    def _steps_along(self, plan: CubePlan, axis: int) -> tuple[Cut, ...]:
        """How a summed axis is cut: into loads of both operands, or of the one with longer loads and then the other,
        and these into mma steps."""
        whole, long, short, step = self.extents[axis], plan.l1[axis], plan.short[axis], plan.l0[axis]
        longer, shorter = ("lhs", "rhs") if plan.lhs[axis] == long else ("rhs", "lhs")
        loads = "load of both operands" if long == short else f"load of {longer}"
        cuts = (
            Cut("loop", -(-whole // long), long, loads),
            Cut("loop", -(-long // short), short, f"load of {shorter}"),
            Cut("loop", -(-short // step), step, "mma step"),
        )
        return tuple(cut for cut in cuts if may_repeat(cut.times))

    def _cuts_behind(self, plan: CubePlan) -> Mapping[int, tuple[Cut, ...]]:
        """How the epilogue cuts tiles of the result further, by axis: elements of windows where these are pooled."""
        if not self.has_epilogue:
            return {}
        _, parts = self.epilogue_loops(plan, self.tile_loops(plan))
        found: dict[int, tuple[Cut, ...]] = {}
        axis, units = (None, 1) if self.machine.fused else self._units(plan)
        if axis is not None:
            own = self._result_tile(plan)[axis] // units
            found[axis] = (Cut("units", units, own, "part of a vector core"),)
        for a, times, elements in parts:
            what = "part of the epilogue, in windows" if a in self.problem.pooled else "part of the epilogue"
            found[a] = (*found.get(a, ()), Cut("loop", times, elements, what))
        return found

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        return {**super().stage_graphs(), **({EPILOGUE: self.stages} if self.has_epilogue else {})}

    def planned_graphs(self, schedule: Schedule) -> list[PlannedGraph]:
        plan = CubePlan.of(self.completed("", schedule))
        found = [self._planned_product(plan)]
        if self.has_epilogue:
            found.append(self._planned_epilogue(plan))
        return found

    def _planned_product(self, plan: CubePlan) -> PlannedGraph:
        """What the cube and the pipes around it do."""
        looped = self.looped(plan)
        sums, carried = looped.sums[1][0], any(loop.carries for loop in looped.loops)
        tiles, axes = tuple(map(tuple, looped.tiles)), tuple(range(len(plan.l0)))
        tile = sides(self.problem, plan.l0) if carried else (0, 0)
        places = tuple(
            StagePlace(looped.axes_around(i), carried=size(tile) * 4 if i == sums else 0)
            for i, _ in enumerate(looped.stages)
        )
        brought: dict[str, Brought] = dict.fromkeys(GIVEN, Brought("an operand that vector cores make", Pipe.MTE2))
        return PlannedGraph(PRODUCT, looped.stages, axes, tuple(plan.l0), plan.slots, places, brought, tiles)

    def _planned_epilogue(self, plan: CubePlan) -> PlannedGraph:
        """What vector cores do to the sums."""
        assert plan.epilogue is not None
        loops, parts = self.epilogue_loops(plan, self.tile_loops(plan))
        order = [a for a, *_ in (*loops, *parts)]
        levels = self.stages.levels({a: i + 1 for i, a in enumerate(order)})
        places = tuple(StagePlace(tuple(dict.fromkeys(order[:level]))) for level in levels)
        axes = tuple(range(len(plan.epilogue)))
        sums = Brought("sums of the cube", Pipe.V if self.machine.fused else Pipe.MTE2)
        tile = tuple(plan.epilogue)
        return PlannedGraph(EPILOGUE, self.stages, axes, tile, plan.slots, places, {ACCUMULATOR: sums})
