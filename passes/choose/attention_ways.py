"""In which way attention takes least: as one launch, in bands of rows, with its keys in parts, or taken apart again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from ...dialects.graph import FusionOp, RowAttentionSchedule
from ...dialects.graph.schedules import Schedule
from ..errors import TooLarge
from ..forms.chained import better_apart
from ..forms.fingerprint import structure
from ..lower.chains.attention_parts import chained_in, is_chained
from ..lower.chains.back_to_back import BackToBackKernel
from ..lower.chains.chain import ChainKernel
from ..lower.chains.row_attention import RowAttentionKernel
from ..lower.chains.row_attention_parts import fusions_of, note_apart, parts_combined, taken_apart
from ..lower.cube.contraction_choice import CLEARLY_BETTER
from ..lower.scheduled import as_attention, as_row_attention
from ..pins import pinned_for
from ..rewriting import inline_for
from .fronts import Chosen
from .launches import LaunchPlan, banded, kind_of_chain, launches_of
from .names import Memo

if TYPE_CHECKING:
    from .choose import Scheduler


CLEARLY_BETTER_THAN_TWO = 0.75
"""The same for products back to back: the bound of two kernels does not know that L2 has what is between them."""


class AttentionWays:
    """Schedules attention for a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.opened: Memo[str] = Memo()
        """Why attention of few rows is better in parts; "" where it is not."""

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
        for count in kernel.bands_tried() if asked.bands is None else ():
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

    def apart(self, fusion: FusionOp) -> list[FusionOp] | None:
        """The fusions that attention of few rows, or products back to back, are in parts, in their place, where they do
        not take clearly less time as one; None where they do, or something is pinned."""
        scheduler, machine = self.scheduler, self.scheduler.machine
        if not scheduler.may_join or fusion.schedule is not None or not is_chained(fusion):
            return None
        (plan,) = launches_of(fusion, machine)
        few = issubclass(plan.choices, RowAttentionSchedule)
        if not few:
            at = chained_in(fusion, machine)
            if kind_of_chain(at, machine) is not BackToBackKernel or better_apart(at, machine) is None:
                return None
        key, details = structure(fusion)
        why = self.opened.find(key, details)
        if why == "":
            return None
        block = taken_apart(fusion, machine)
        if why is None:
            parts = [c for op in fusions_of(block) for c in self.trial.fusion(op)]
            apart = scheduler.microseconds(parts)
            whole = inf
            with suppress(TooLarge):
                way = self.of_rows if few else self.in_bands
                whole = way(fusion, plan, "attention", None).microseconds
            better = whole >= apart * (CLEARLY_BETTER if few else CLEARLY_BETTER_THAN_TWO)
            said = f"{apart:.1f} us in parts, and {whole:.1f} us as one kernel, which is not clearly less"
            if not self.opened.keep(key, details, said if better else ""):
                return None
            why = said
        pieces = fusions_of(block)  # one that is too large is two by now
        inline_for(fusion, block, fusion.inputs)
        fusion.detach()
        fusion.erase()
        note_apart(pieces, f"{'attention of few rows takes' if few else 'products back to back take'} {why}")
        return pieces

    @cached_property
    def trial(self) -> Scheduler:
        """Schedules what could stand in the place of a fusion."""
        scheduler = self.scheduler
        return type(scheduler)(scheduler.machine, scheduler.oracle, join=scheduler.join)
