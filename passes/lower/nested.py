"""Kernels that are built of stages in loops."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ...dialects import tile as ops
from ...dialects.graph.schedules import Schedule
from ...kernels.emit_nest import Frame, SectionNest, nested_kernel
from ...kernels.graph import StageGraph
from ...kernels.nest import Nest
from ...kernels.plan import PlannedGraph
from .scheduled import ScheduledKernel


class NestedKernel(ScheduledKernel):
    """A kernel that says what its stages are, in which loops."""

    @abstractmethod
    def frame(self, schedule: Schedule) -> Frame:
        """What it has around its stages, with a complete schedule."""

    @abstractmethod
    def sections(self, schedule: Schedule) -> Sequence[SectionNest]:
        """Its stages in their loops, with a complete schedule: what cores of each kind do."""

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        return nested_kernel(name, self.frame(schedule), self.sections(schedule))


class PlannedNest(NestedKernel):
    """One whose stages are what its nest has, and stand where they stand there."""

    CORE: ClassVar[str]
    """The section that it is in."""
    units: int = 1

    @abstractmethod
    def nest(self, schedule: Schedule) -> Nest:
        """Its stages in their loops, with a complete schedule."""

    def sections(self, schedule: Schedule) -> list[SectionNest]:
        return [SectionNest(self.CORE, self.nest(schedule), self.units)]

    @abstractmethod
    def planned(self, nest: Nest) -> Sequence[int]:
        """For each axis of its nest, which of `planned_axes` it is, or goes along."""

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        """Those of the schedule that is asked for, or of the first that is tried."""
        return {"": self.nest(next(iter(self.candidates("")))).stages}

    def planned_graphs(self, schedule: Schedule) -> list[PlannedGraph]:
        nest, frame = self.nest(schedule), self.frame(schedule)
        return [nest.placed(self.planned(nest), frame.slots, (len(frame.inputs), len(frame.outputs)))]
