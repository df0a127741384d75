"""A row-reduction epilogue: fuses a contraction with the vector fusion behind it where that takes less time than one
kernel for each.

There are two ways: cores that have all columns of their rows reduce these in the kernel of the product, and where sums
are split the kernel that adds up the parts does the work of the epilogue.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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
from ..instantiation import has_open_sizes
from ..lower.cube.contraction_axes import product_in
from ..lower.cube.contraction_choice import CLEARLY_BETTER
from ..lower.cube.pooling import pooling_in
from ..lower.scheduled import cannot_obey
from ..pins import Schedule as Pin
from ..reasons import say_apart
from .epilogue_fusion import (
    epilogue_of,
    fuse_epilogue,
    is_for_split_sums,
    least_microseconds,
    results_of,
    why_no_rows,
    wiring_of,
)
from .launches import launches_of
from .names import Memo
from .rewrites import Offer, Proposal, Rewrites, Verdict

if TYPE_CHECKING:
    from .choose import Scheduler


NOTHING_BEHIND = "no kernel behind it reduces its rows"
NO_ROOM = "one row of its epilogue does not fit on chip"


@dataclass(frozen=True)
class _Asked:
    """What is asked of a contraction's row epilogue. rows: whether it may be in the same kernel; kernels: 1 where it
    has to be, 2 where it must not, None where that is free; name: that of the kernel, where it is asked of that alone;
    split: whether sums may be in parts, so that the kernel that adds them up does the work of the epilogue."""

    rows: bool
    kernels: int | None
    name: str | None
    split: bool = False


@dataclass(frozen=True)
class _Judged:
    """What was found of a contraction and its epilogue, in microseconds.

    rows: whether a kernel may have whole rows. one: of that kernel; least: less than that; split: with sums in parts,
    the last kernel doing the work of the epilogue; two: of a kernel for each.
    """

    rows: bool
    one: float = inf
    split: float = inf
    two: float = inf
    least: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """Whether they take less time as one fusion. Kernels of few vector cores cost their neighbours little, which
        is not known here: so one kernel has to be clearly better."""
        made = min(self.one if self.one < self.two * CLEARLY_BETTER else inf, self.split)
        return Verdict(made < self.two, self._said, min(self.one, self.split), self.two)

    @property
    def _said(self) -> str:
        """Why there is no kernel that has whole rows though there could be one; "" where there could not."""
        if not self.rows or (self.one == inf and self.least < self.two):
            return ""
        if self.one == inf:
            return f"one kernel that has whole rows takes at least {self.least:.1f} us, and two kernels {self.two:.1f}"
        less = ", which is not clearly more" if self.one < self.two else ""
        return f"one kernel that has whole rows takes {self.one:.1f} us, and two kernels {self.two:.1f}{less}"


FUSED = "fused"
"""What errors of a judged kernel call it; nobody sees them."""


class RowEpilogue(Rewrites):
    """A contraction and the vector fusion behind it as one."""

    OBEYS_PINS = ASKED_FOR = True

    def __init__(self, scheduler: Scheduler, name: str, considered: bool = True) -> None:
        super().__init__(scheduler, name, considered)
        self.apart: Memo[str | None] = Memo()
        """Why no kernel has whole rows of fusions and their epilogues; None for those that one may have."""
        self.fused: set[FusionOp] = set()
        """Those that have an epilogue already: no other has to be."""

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        """Raises PassError where a fusion and its epilogue are to be one by name, and cannot."""
        if product_in(fusion) is None or pooling_in(fusion) is not None or is_for_split_sums(fusion):
            return None
        asked = self._asked(fusion)
        epilogue = None if asked is None or not (asked.rows or asked.split) else epilogue_of(fusion, position)
        if asked is None or epilogue is None:
            return self._refuse(asked, NOTHING_BEHIND) if asked is not None and asked.rows else None
        (key, details), (more, others) = structure(fusion), structure(epilogue)
        wiring = wiring_of(fusion, epilogue)
        apart = self._why_apart(fusion, epilogue, (key, more, wiring), (details, others)) if asked.rows else ""
        if apart is not None and not asked.split:
            return self._refuse(asked, apart or NO_ROOM)
        wanted = asked.rows, asked.kernels, asked.split
        return Offer(
            (fusion, epilogue),
            (key, more, wiring, wanted),
            (details, others),
            lambda: self._as_one(fusion, epilogue, apart is None),
        )

    def _why_apart(self, fusion: FusionOp, epilogue: FusionOp, key: Hashable, details: object) -> str | None:
        return self.apart.known(key, details, lambda: why_no_rows(fusion, epilogue, self.machine))

    def _as_one(self, fusion: FusionOp, epilogue: FusionOp, rows: bool) -> Proposal:
        """A contraction and its epilogue as one fusion. rows: whether one kernel may be made of it."""
        one = fuse_epilogue(fusion, epilogue, rows)

        def replace() -> list[FusionOp]:
            one.schedule = fusion.schedule
            put_in_place(one, (fusion, epilogue), results_of(fusion, epilogue))
            self.fused.add(one)
            return [one]

        return Proposal([one], replace)

    def _asked(self, fusion: FusionOp) -> _Asked | None:
        """What is asked of a contraction's row epilogue; None where the fusion stays as it is."""
        scheduler = self.scheduler
        if scheduler.no_further_cuts or has_open_sizes(fusion):
            return None
        schedules = to_schedules(fusion.schedule)
        if schedules:
            (first, *others) = schedules
            if others or not isinstance(first, CubeSchedule) or first.complete or first.tail is None:
                return None
            return _Asked(first.tail == 1, first.tail, self._named(fusion, describe(fusion)))
        if scheduler.pins is None:
            split = self.considered and bool(scheduler.products.splits(fusion))
            return _Asked(self.considered, None, None, split)
        if isinstance(scheduler.pins, Pin):
            return _Asked(scheduler.pins.tail == 1, scheduler.pins.tail or 2, None)
        (plan,) = launches_of(fusion, scheduler.machine)
        name = scheduler.names.next(plan.stem)
        kernels = scheduler.pins[name].tail if name in scheduler.pins else None
        rows = self.considered if kernels is None else kernels == 1
        return _Asked(rows, kernels, self._named(fusion, name))

    def _named(self, fusion: FusionOp, name: str) -> str | None:
        return None if fusion in self.fused else name

    def _refuse(self, asked: _Asked, why: str) -> None:
        """Raises PassError where one kernel is asked for by its name."""
        if asked.kernels == 1 and asked.name is not None:
            raise cannot_obey(asked.name, f"tail=1: {why}")

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        """A contraction and its epilogue: as one kernel, with their sums split, and as two kernels."""
        (fusion, epilogue), (fused,) = offer.fusions, proposal.fusions
        scheduler, products = self.scheduler, self.scheduler.products
        asked, rows = self._asked(fusion), not is_for_split_sums(fused)
        assert asked is not None
        if asked.kernels == 1:
            return _Judged(True, one=self._row_microseconds(fused)).verdict
        judged = _Judged(rows, two=scheduler.price((fusion, epilogue)))
        if judged.two == inf:
            return judged.verdict
        with suppress(TooLarge):
            if asked.split:
                judged = replace(judged, split=products.free_split(fused, FUSED, products.kinds).microseconds)
        if rows:
            judged = replace(judged, least=least_microseconds(fusion, epilogue, self.machine))
            if judged.least < judged.two * CLEARLY_BETTER:
                judged = replace(judged, one=self._row_microseconds(fused))
        return judged.verdict

    def _row_microseconds(self, fused: FusionOp) -> float:
        """How long one kernel takes, whose cores have whole rows; infinity where there is none."""
        (plan,), free = launches_of(fused, self.machine), CubeSchedule()
        try:
            return self.scheduler.whole(plan.kernel(FUSED, free), FUSED, free).microseconds
        except TooLarge:
            return inf

    def refused(self, offer: Offer, why: str) -> None:
        """Raises PassError where one kernel is asked for by its name."""
        fusion, epilogue = offer.fusions
        if why:
            say_apart(fusion, epilogue, why, [r.index for r in fusion.results if r in epilogue.inputs])
        asked = self._asked(fusion)
        assert asked is not None
        self._refuse(asked, NO_ROOM)
