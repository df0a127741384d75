"""In which way attention takes least: as one launch, in bands of rows, or with its keys in parts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ...dialects.graph import FusionOp
from ...dialects.graph.schedules import Schedule
from ..alternatives import BANDS
from ..errors import TooLarge
from ..lower.chains.back_to_back import BackToBackKernel
from ..lower.chains.chain import ChainKernel
from ..lower.chains.row_attention import RowAttentionKernel
from ..lower.chains.row_attention_parts import fusions_of, parts_combined
from ..lower.scheduled import as_attention, as_row_attention
from ..pins import pinned_for
from .launches import LaunchPlan, banded
from .pareto import Chosen

if TYPE_CHECKING:
    from .choose import Scheduler


class AttentionWays:
    """Schedules attention for a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def _asked(self, plan: LaunchPlan, name: str, asked: Schedule | None) -> Schedule:
        """What is asked of a launch, or pinned of it."""
        return asked or pinned_for(self.scheduler.pins, name, plan.choices, plan.obeys_all)

    def in_bands(self, fusion: FusionOp, plan: LaunchPlan, name: str, given: Schedule | None) -> Chosen:
        """The best schedules of attention, its rows in bands where that is better. Raises PassError, and TooLarge."""
        whole, asked = self.scheduler.whole, as_attention(name, self._asked(plan, name, given))
        kernel = plan.kernel(name, asked)
        if isinstance(kernel, BackToBackKernel):
            return self.scheduler.whole(kernel, name, asked)
        assert isinstance(kernel, ChainKernel)

        def cut(count: int) -> Chosen:
            wanted = replace(asked, bands=count)
            plans = banded(fusion, kernel.bands(name, count), self.scheduler.machine)
            found = [whole(plan.kernel(name, wanted), name, wanted) for plan in plans]
            return Chosen(tuple(front for c in found for front in c.fronts), self.scheduler.microseconds(found))

        if (asked.bands or 1) > 1:
            return cut(asked.bands or 1)
        found = [whole(kernel, name, asked)]
        free = asked.bands is None and self.scheduler.may(BANDS)
        for count in kernel.bands_tried() if free else ():
            with suppress(TooLarge):
                found.append(cut(count))
        return min(found, key=lambda c: c.microseconds)

    def of_rows(self, fusion: FusionOp, plan: LaunchPlan, name: str, given: Schedule | None) -> Chosen:
        """The best schedules of attention of few rows, its keys in parts where that is better. Raises PassError, and
        TooLarge."""
        asked = as_row_attention(name, self._asked(plan, name, given))
        kernel = plan.kernel(name, asked)
        assert isinstance(kernel, RowAttentionKernel)
        chosen = self.scheduler.whole(kernel, name, asked)
        (front,), parts = chosen.fronts, chosen.fronts[0].kept.parts
        front.keep_only(lambda schedule: schedule.parts == parts)  # what combines the parts is for so many
        if parts is None:
            return chosen
        block = parts_combined(fusion, kernel.at, kernel.outer, parts, self.scheduler.machine)
        combining = (c for op in fusions_of(block) for c in self.scheduler.inner.fusion(op))
        return Chosen((front, *(other for c in combining for other in c.fronts)), chosen.microseconds)
