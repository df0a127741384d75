"""Joins a contraction with the vector fusion behind it where that takes less time than one kernel for each.

There are two ways: cores that have all columns of their rows reduce these in the kernel of the product, and where sums
are split the kernel that adds up the parts does the work of the tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from ...dialects.base import describe
from ...dialects.graph import CubeSchedule, FusionOp
from ...dialects.graph.schedules import to_schedules
from ..errors import TooLarge
from ..forms.fingerprint import structure
from ..fusion.merged import put_in_place
from ..instances import has_open_sizes
from ..lower.cube.contraction_axes import product_in
from ..lower.cube.contraction_choice import CLEARLY_BETTER
from ..lower.scheduled import cannot_obey
from ..pins import Schedule as Pin
from ..reasons import say_apart
from .joining import is_joined, join, least_microseconds, results_of, tail_of, why_no_rows, wiring_of
from .launches import launches_of
from .names import Memo
from .product_ways import KINDS

if TYPE_CHECKING:
    from .choose import Scheduler


NOTHING_BEHIND = "no kernel behind it reduces its rows"
NO_ROOM = "one row of its epilogue does not fit on chip"


@dataclass(frozen=True)
class _Asked:
    """What is asked of a contraction's tail. rows: whether it may be in the same kernel; kernels: 1 where it has to be,
    2 where it must not, None where that is free; name: that of the kernel, where it is asked of that alone."""

    rows: bool
    kernels: int | None
    name: str | None


@dataclass(frozen=True)
class _Judged:
    """What was found of a contraction and its tail, in microseconds.

    apart: why no kernel has whole rows, None where one may. one: of that kernel; least: less than that; split: with
    sums in parts, the last kernel doing the work of the tail; two: of a kernel for each.
    """

    apart: str | None
    one: float = inf
    split: float = inf
    two: float = inf
    least: float = 0.0

    @property
    def better(self) -> bool:
        """Whether they take less time as one fusion. Kernels of few vector cores cost their neighbours little, which
        is not known here: so one kernel has to be clearly better."""
        return self.one < self.two * CLEARLY_BETTER or self.split < self.two

    @property
    def said(self) -> str | None:
        """Why there is no kernel that has whole rows though there could be one; None where there could not."""
        if self.apart is not None or (self.one == inf and self.least < self.two):
            return None
        if self.one == inf:
            return f"one kernel that has whole rows takes at least {self.least:.1f} us, and two kernels {self.two:.1f}"
        less = ", which is not clearly more" if self.one < self.two else ""
        return f"one kernel that has whole rows takes {self.one:.1f} us, and two kernels {self.two:.1f}{less}"


class Tails:
    """Joins contractions with their tails for a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.known: Memo[_Judged] = Memo()
        """What was found, for those joined so far."""

    def joined(self, fusion: FusionOp, position: dict[Operation, int]) -> FusionOp:
        """A contraction and the vector fusions behind it as one, put in their place; the contraction where that does
        not pay.

        `position`: that of each op of the block. Raises PassError where they are to be one by name, and cannot.
        """
        asked = self._asked(fusion)
        while asked is not None and product_in(fusion) is not None and not is_joined(fusion):
            joined = self._with_tail(fusion, asked, position)
            if joined is None:
                break
            position[joined] = position[fusion]
            fusion, asked = joined, replace(asked, name=None)
        return fusion

    def _with_tail(
        self, fusion: FusionOp, asked: _Asked, position: Mapping[Operation, int]
    ) -> FusionOp | None:
        """A contraction and the first vector fusion behind it as one; None where that does not pay. Raises
        PassError."""
        scheduler = self.scheduler
        split = asked.kernels is None and scheduler.may_join and bool(scheduler.products.splits(fusion))
        tail = tail_of(fusion, position) if asked.rows or split else None
        if tail is None:
            return self._refused(asked, NOTHING_BEHIND) if asked.rows else None
        wanted = asked.rows, asked.kernels, split
        (key, details), (more, others) = structure(fusion), structure(tail)
        wiring = wiring_of(fusion, tail)
        judged = self.known.find((key, more, wiring, wanted), (details, others))
        if judged is None:
            judged = self._judge(fusion, tail, asked, split)
            self.known.keep((key, more, wiring, wanted), (details, others), judged)
        if judged.better:
            joined = join(fusion, tail, judged.apart is None)
            joined.schedule = fusion.schedule
            put_in_place(joined, (fusion, tail), results_of(fusion, tail))
            return joined
        if judged.said is not None:
            read = [r.index for r in fusion.results if r in tail.inputs]
            say_apart(fusion, tail, judged.said, read)
        return self._refused(asked, judged.apart or NO_ROOM)

    def _asked(self, fusion: FusionOp) -> _Asked | None:
        """What is asked of a contraction's tail; None where the fusion stays as it is."""
        scheduler = self.scheduler
        if scheduler.keeps_whole or has_open_sizes(fusion):
            return None
        schedules = to_schedules(fusion.schedule)
        if schedules:
            (first, *others) = schedules
            if others or not isinstance(first, CubeSchedule) or first.complete or first.tail is None:
                return None
            return _Asked(first.tail == 1, first.tail, describe(fusion))
        if scheduler.pins is None:
            return _Asked(scheduler.joins_rows, None, None)
        if isinstance(scheduler.pins, Pin):
            return _Asked(scheduler.pins.tail == 1, scheduler.pins.tail or 2, None)
        (plan,) = launches_of(fusion, scheduler.machine)
        name = scheduler.names.next(plan.stem)
        kernels = scheduler.pins[name].tail if name in scheduler.pins else None
        return _Asked(scheduler.joins_rows if kernels is None else kernels == 1, kernels, name)

    def _refused(self, asked: _Asked, why: str | None) -> None:
        """Raises PassError where one kernel is asked for by its name."""
        if asked.kernels == 1 and asked.name is not None:
            raise cannot_obey(asked.name, f"tail=1: {why}")

    def _judge(self, fusion: FusionOp, tail: FusionOp, asked: _Asked, split: bool) -> _Judged:
        """How long a contraction and its tail take: as one kernel, with their sums `split`, and as two kernels."""
        scheduler, name = self.scheduler, "joined"
        apart = why_no_rows(fusion, tail, scheduler.machine) if asked.rows else ""
        if apart is not None and not split:
            return _Judged(apart)
        if asked.kernels == 1:
            joined = join(fusion, tail, rows=True)
            judged = _Judged(None, one=self._row_microseconds(joined))
            joined.erase()
            return judged
        (plan,) = launches_of(fusion, scheduler.machine)
        try:
            found = [scheduler.products.free_best(fusion, plan, name, KINDS)]
            for other in launches_of(tail, scheduler.machine):
                found.append(scheduler.best_behind(tail, other, name, [fusion]))
        except TooLarge:
            return _Judged(apart)
        judged = _Judged(apart, two=scheduler.microseconds(found))
        joined = join(fusion, tail, rows=apart is None)
        with suppress(TooLarge):
            if split:
                judged = replace(judged, split=scheduler.products.free_split(joined, name, KINDS).microseconds)
        if apart is None:
            least = least_microseconds(fusion, tail, scheduler.machine)
            judged = replace(judged, least=least)
            if least < judged.two * CLEARLY_BETTER:
                judged = replace(judged, one=self._row_microseconds(joined))
        joined.erase()
        return judged

    def _row_microseconds(self, joined: FusionOp) -> float:
        """How long one kernel takes, whose cores have whole rows; infinity where there is none."""
        (plan,), free = launches_of(joined, self.scheduler.machine), CubeSchedule()
        try:
            return self.scheduler.whole(plan.kernel("joined", free), "joined", free).microseconds
        except TooLarge:
            return inf
