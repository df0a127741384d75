"""The plan of a product, for people: what its axes are bound to, and where the stages of its epilogue stand."""

from __future__ import annotations

from collections.abc import Mapping

from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import Pipe
from ....kernels.builder import may_repeat
from ....kernels.graph import StageGraph
from ....kernels.plan import Brought, Cut, PlannedAxis, PlannedGraph, StagePlace, cuts_of
from ..schedule import share
from .contraction_choice import ContractionChoice
from .cube_schedule import CubePlan
from .epilogue import ACCUMULATOR

ROLES = {"b": "batch", "m": "rows", "n": "columns", "k": "summed"}
"""What the axes of a product are, by the letter of their role."""


class PlannedProduct(ContractionChoice):
    """A product as far as its plan needs it."""

    @property
    def unstaged(self) -> str:
        if self.has_epilogue:
            return "the product itself is the cube's loops over these axes, and the stages are its epilogue"
        return "it is a product, which the cube's loops over these axes make, and no vector core works on its result"

    def tile_loops(self, plan: CubePlan) -> list[tuple[int, int]]:
        """The loops over the tiles of a core (axis, trips), the outermost first."""
        trips = [(a, plan.tiles_of_core(a, self.problem)) for a in self.walk(plan.inner)]
        return [(a, n) for a, n in trips if may_repeat(n)]

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
        cores, trips = share(self.problem.tiles(axis, tile), plan.grid[axis])
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
        return {"epilogue": self.stages} if self.has_epilogue else {}

    def planned_graphs(self, schedule: Schedule) -> list[PlannedGraph]:
        if not self.has_epilogue:
            return []
        plan = CubePlan.of(self.completed("", schedule))
        assert plan.epilogue is not None
        loops, parts = self.epilogue_loops(plan, self.tile_loops(plan))
        order = [a for a, *_ in (*loops, *parts)]
        levels = self.stages.levels({a: i + 1 for i, a in enumerate(order)})
        places = tuple(StagePlace(tuple(dict.fromkeys(order[:level]))) for level in levels)
        axes = tuple(range(len(plan.epilogue)))
        sums = Brought("sums of the cube", Pipe.V if self.machine.fused else Pipe.MTE2)
        tile, slots = tuple(plan.epilogue), plan.slots["ub"]
        return [PlannedGraph("epilogue", self.stages, axes, tile, slots, places, {ACCUMULATOR: sums})]
