"""Kernels of the vector cores that are priced by all the work there is, in shares of cores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from ...dialects.graph.schedules import Schedule
from ...dialects.open_sizes import any_open
from ...kernels.columns import as_list, columns
from ...kernels.price import Price
from ...kernels.vector_cost import VectorWork
from .scheduled import ScheduledKernel, as_vector


class WorkPriced(ScheduledKernel):
    """A kernel whose cores take equal shares of its tiles, their pipes one behind the other."""

    @abstractmethod
    def work(self, tile: Sequence[int]) -> VectorWork:
        """What all of it would take one core, in such tiles."""

    @abstractmethod
    def shared(self, tile: Sequence[int], grid: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Tiles and cores along each axis that cores share."""

    def price(self, schedule: Schedule) -> Price:
        plan = as_vector("", schedule)
        tile, grid = plan.tile or (), plan.grid or ()
        return self.work(tile).price(*self.shared(tile, grid), self.machine)

    def price_many(self, schedules: Sequence[Schedule]) -> np.ndarray:
        plans = [as_vector("", schedule) for schedule in schedules]
        shares = [self.shared(s.tile or (), s.grid or ()) for s in plans]
        if len(plans) < FEW or any(any_open(counts) for counts, _ in shares):
            return super().price_many(schedules)
        works = [self.work(s.tile or ()).pipes for s in plans]
        found = zip(works[0], columns([[*pipes.values()] for pipes in works]), strict=True)
        counts, grid = (columns([each[i] for each in shares]) for i in (0, 1))
        return np.array(
            as_list(VectorWork(dict(found)).price(counts, grid, self.machine).microseconds, len(plans))
        )


FEW = 8
"""Fewer schedules than these are priced sooner one by one."""
