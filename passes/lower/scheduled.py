"""`ScheduledKernel`: what a launch of a fusion is asked while its schedule is chosen, and when its kernel is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from xdsl.ir import Operation, SSAValue

from ...dialects import tile as ops
from ...dialects.dtypes import size
from ...dialects.graph import (
    AttentionSchedule,
    ConstantOp,
    CubeSchedule,
    FusionOp,
    RowAttentionSchedule,
    VectorSchedule,
)
from ...dialects.graph.schedules import Schedule, kind_of
from ...dialects.npu.occupancy import Occupancy
from ...kernels.graph import StageGraph
from ...kernels.plan import KernelPlan, PlannedAxis, PlannedGraph
from ...kernels.price import Price
from ...machine import Machine
from ..errors import PassError
from .spaces import KernelSpace, ListedSpace

Kind = TypeVar("Kind", VectorSchedule, CubeSchedule, AttentionSchedule, RowAttentionSchedule)


def cannot_obey(kernel: str, reason: str) -> PassError:
    """The error for a schedule, or a part of it that is pinned, that `kernel` cannot obey."""
    return PassError(f"@{kernel} cannot obey its pinned schedule: {reason}")


def is_made(value: SSAValue) -> bool:
    """Whether an op of the program makes a value, which is no constant."""
    return isinstance(value.owner, Operation) and not isinstance(value.owner, ConstantOp)


class BarrierIdle(NamedTuple):
    """So often a launch has to wait for so many microseconds, in which its cube cores have nothing else to do."""

    times: int
    microseconds: float


class ScheduledKernel(ABC):
    """One launch on its way from a fusion to a kernel.

    It is made for the choices that are `asked` for: some, where a schedule is chosen; all, where the kernel is built.
    """

    fusion: FusionOp
    machine: Machine
    warm: frozenset[int] = frozenset()
    """Inputs that L2 is known to have, as the launch right before wrote them."""

    @abstractmethod
    def candidates(self, name: str) -> Iterator[Schedule]:
        """Complete schedules that are worth judging, among equals the better one first; what is asked for is in all.
        At least one.

        Raises TooLarge where the fusion must be split, and PassError where what is asked for cannot be obeyed; `name`
        is what errors call the kernel.
        """

    def space(self, name: str) -> KernelSpace:
        """All its plans, of which nothing is asked; `name` is what errors call the kernel. Raises as `candidates`."""
        return ListedSpace(self, name)

    def completed(self, name: str, schedule: Schedule) -> Schedule:
        """A candidate with what need not be known to judge it. Raises PassError where it cannot be obeyed, TooLarge
        where the fusion must be split."""
        return schedule

    def walked(self) -> Sequence[Sequence[int]] | None:
        """The axes of its domain in the groups that it walks as one; None where no schedule says which these are."""
        return None

    @abstractmethod
    def check(self, name: str, schedule: Schedule) -> None:
        """Raises PassError where a complete schedule cannot be obeyed."""

    kinds: frozenset[str] = frozenset({"vector"})
    """Of the cores of a split chip that it occupies."""

    def occupancy(self, schedule: Schedule) -> Occupancy:
        """What a launch with a complete schedule occupies."""
        blocks = size(schedule.grid or ())
        kinds = frozenset({"fused"}) if self.machine.fused else self.kinds
        if kinds == {"vector"}:
            return Occupancy(self.machine.share_of(min(blocks, self.machine.vector_cores)), kinds)
        return Occupancy(min(blocks, self.machine.cube_cores), kinds)

    @abstractmethod
    def price(self, schedule: Schedule) -> Price:
        """What a launch with a complete schedule costs."""

    def bound(self, schedule: Schedule) -> float:
        """Microseconds of a launch with a complete schedule, by its price."""
        return self.price(schedule).microseconds

    def price_many(self, schedules: Sequence[Schedule]) -> np.ndarray:
        """The `bound` of each schedule."""
        return np.array([self.bound(schedule) for schedule in schedules])

    def idle_behind(self, schedule: Schedule) -> float:
        """Microseconds at the end of a launch in which its cube cores have nothing left to do, at least."""
        return 0.0

    def loading_ahead(
        self, schedule: Schedule, waits: Sequence[BarrierIdle], given: Callable[[SSAValue], bool]
    ) -> tuple[Schedule, float]:
        """A complete schedule, or one with other loads that takes less where the launch waits for barriers, and
        meanwhile loads what is `given`: values that no kernel makes; and how many microseconds that saves on the
        mean."""
        return schedule, 0.0

    # -- its plan, for people ----------------------------------------------------------------------------------

    @property
    def unstaged(self) -> str:
        """What of it is not made of stages, and why, as a clause; empty where all is."""
        return ""

    def planned_axes(self, schedule: Schedule) -> Sequence[PlannedAxis]:
        """What the axes are bound to that it walks with a complete schedule; none where it does not say."""
        return ()

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        """The stages that it is built from, by the part of the kernel that they are; empty for all of it. None where it
        is built from no stages."""
        return {}

    def planned_graphs(self, schedule: Schedule) -> Sequence[PlannedGraph]:
        """These stages in their places with a complete schedule."""
        return ()

    def plan_with(self, schedule: Schedule) -> KernelPlan:
        """How it is placed by a complete schedule."""
        axes, graphs = self.planned_axes(schedule), self.planned_graphs(schedule)
        return KernelPlan(schedule, tuple(axes), tuple(graphs), self.unstaged)

    @abstractmethod
    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        """The kernel for a complete schedule that has been checked."""


def as_vector(name: str, schedule: Schedule | None) -> VectorSchedule:
    """A schedule of a kernel of the vector cores; a free one where there is none. Raises PassError for another kind."""
    return _of_kind(VectorSchedule, name, schedule, "a kernel of the vector cores")


def as_cube(name: str, schedule: Schedule | None) -> CubeSchedule:
    """A schedule of a contraction; a free one where there is none. Raises PassError for another kind."""
    return _of_kind(CubeSchedule, name, schedule, "a contraction")


def as_attention(name: str, schedule: Schedule | None) -> AttentionSchedule:
    """A schedule of attention; a free one where there is none. Raises PassError for another kind."""
    return _of_kind(AttentionSchedule, name, schedule, "attention")


def as_row_attention(name: str, schedule: Schedule | None) -> RowAttentionSchedule:
    """A schedule of attention of few rows; a free one where there is none. Raises PassError for another kind."""
    return _of_kind(RowAttentionSchedule, name, schedule, "attention of few rows")


def _of_kind(kind: type[Kind], name: str, schedule: Schedule | None, kernel: str) -> Kind:
    if schedule is None:
        return kind()
    if not isinstance(schedule, kind):
        other = kind_of(schedule)
        article = "an" if other.startswith("a") else "a"
        raise cannot_obey(name, f"it is {kernel}, and its schedule {article} {other}")
    return schedule
