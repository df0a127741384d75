"""Plans that are known of kernels, as schedules that are judged beside those that graph-schedule tries."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.graph import FusionOp
from ...dialects.graph.schedules import Schedule
from ...machine import Machine
from ..errors import PassError
from ..known_plans import KnownPlan, PlanSource
from ..lower.scheduled import ScheduledKernel

CREDIBLE = 0.75
"""What is known of a plan counts no less than this share of its price: the price is that far from the simulator's times
in benchmarks/price.py, and what stands in a file may be anything."""


class TakenPlans:
    """What a source knows of kernels, and how many fusions get a schedule of it (`count`)."""

    def __init__(self, source: PlanSource, machine: Machine) -> None:
        self.source, self.machine = source, machine
        self.known: set[Schedule] = set()
        self.count = 0

    def of(self, kernel: ScheduledKernel, name: str, kind: type[Schedule]) -> Sequence[KnownPlan]:
        """The plans of a kind that are known of a kernel, and can be obeyed; where there are none, those of kernels of
        other sizes, made to fit."""
        found: list[KnownPlan] = []
        for known in self.source.find(kernel.fusion, self.machine):
            if not isinstance(known.schedule, kind):
                continue
            try:
                kernel.check(name, known.schedule)
                least = 0.0 if self.source.binding else CREDIBLE * kernel.bound(known.schedule)
                found.append(known._replace(microseconds=max(known.microseconds, least)))
                self.known.add(kernel.completed(name, known.schedule))
            except PassError as error:
                self.source.refuse(kernel.fusion, str(error))
        return found or ([] if self.source.binding else self._scaled(kernel, name, kind))

    def _scaled(self, kernel: ScheduledKernel, name: str, kind: type[Schedule]) -> Sequence[KnownPlan]:
        """Plans that are known of kernels of other sizes, made to fit a kernel: they count what the price says."""
        schedules = [s for s in self.source.near(kernel.fusion, self.machine) if isinstance(s, kind)]
        if not schedules:
            return ()
        space, found = kernel.space(name), list[KnownPlan]()
        for numbers in dict.fromkeys(space.near(s) for s in schedules):
            schedule = None if numbers is None else space.schedule(numbers)
            if schedule is not None:
                found.append(KnownPlan(schedule, kernel.bound(schedule)))
                self.known.add(schedule)
        return found

    def chosen(self, fusion: FusionOp, schedules: Sequence[Schedule]) -> None:
        """Takes notice of the schedules that a fusion gets, one for each launch."""
        self.source.chosen(fusion, schedules, self.machine)
        self.count += len(schedules) == 1 and schedules[0] in self.known
