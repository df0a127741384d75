"""The plan of a vector kernel, for people: what its axes are bound to, and in which loops its stages stand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from ...dialects.graph.schedules import Schedule
from ...kernels.builder import may_repeat
from ...kernels.graph import StageGraph
from ...kernels.plan import Cut, PlannedAxis, PlannedGraph, StagePlace, cuts_of
from .fusion_stages import FusionStages
from .nested import NestedKernel
from .schedule import share
from .scheduled import as_vector
from .streaming import RowPieces


class PlannedVector(FusionStages, NestedKernel):
    """A vector kernel as far as its plan needs it: `rows` are the axes that it reduces, `outer` the others."""

    rows: frozenset[int]
    outer: Sequence[int]

    @abstractmethod
    def counts(self, tile: Sequence[int]) -> list[int]:
        """Tiles along each axis."""

    @abstractmethod
    def is_cut(self, tile: Sequence[int]) -> bool:
        """Whether rows are read in pieces with this tile."""

    @abstractmethod
    def _pieces_of(self, tile: Sequence[int], slots: int) -> RowPieces:
        """What emits the stages with pieces of these extents."""

    def planned_axes(self, schedule: Schedule) -> list[PlannedAxis]:
        plan = as_vector("", schedule)
        assert plan.tile is not None and plan.grid is not None
        counts, pieces = self.counts(plan.tile), self.is_cut(plan.tile)
        found: list[PlannedAxis] = []
        for a, (extent, tile) in enumerate(zip(self.extents, plan.tile, strict=True)):
            if a in self.rows:
                repeats = pieces and may_repeat(counts[a])
                cuts = (Cut("loop", counts[a], tile, "piece of a row"),) if repeats else ()
            else:
                cuts = cuts_of(*share(counts[a], plan.grid[a]), tile)
            role = "reduced" if a in self.rows else ""
            found.append(PlannedAxis(f"d{a}", role, extent, tile, cuts, tuple(self.merged[a])))
        return found

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        return {"": self.stages}

    def planned_graphs(self, schedule: Schedule) -> list[PlannedGraph]:
        plan = as_vector("", schedule)
        assert plan.tile is not None and plan.grid is not None and plan.ub is not None
        counts = self.counts(plan.tile)
        outer = [a for a in self.outer if may_repeat(share(counts[a], plan.grid[a])[1])]
        if self.is_cut(plan.tile):
            inner = [a for a in sorted(self.rows) if may_repeat(counts[a])]
            places = self._pieces_of(plan.tile, plan.ub).walks.places(plan.tile, outer, inner)
        else:
            levels = self.stages.levels({a: i + 1 for i, a in enumerate(outer)})
            places = tuple(StagePlace(tuple(outer[:level])) for level in levels)
        axes = tuple(range(len(self.extents)))
        return [PlannedGraph("", self.stages, axes, plan.tile, {"ub": plan.ub}, places)]
