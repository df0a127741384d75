"""Whether a product and the reduction of windows behind it are one kernel: where that takes less time than two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from ...dialects.graph import CubeSchedule, FusionOp, VectorSchedule
from ..errors import PassError, TooLarge
from ..forms.fingerprint import structure
from ..fusion.merged import put_in_place
from ..instances import has_open_sizes
from ..lower.cube.pooled import TURNED, PooledKernel
from ..lower.cube.pooling import chain_behind, pooled_fusion
from ..pins import Schedule as Pin
from ..pins import pinned_for
from ..reasons import say_apart
from .fronts import Chosen
from .launches import launches_of
from .names import Memo

if TYPE_CHECKING:
    from .choose import Scheduler

NAME = "pooled"
"""What errors of a judged kernel call it; nobody sees them."""

DOES_NOT_FIT = "the rows that one window reaches do not fit on chip as one tile"
OPEN = "sizes are open, and tiles of whole windows have known ones"


class PoolingChoice:
    """Joins products with what pools them, for a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.known: Memo[str] = Memo()
        """Why chains of fusions are not one kernel; "" for those that are."""

    def joined(self, fusion: FusionOp, position: Mapping[Operation, int]) -> FusionOp | None:
        """A product's fusion and those that pool its result as one, put in their place, where that takes less time.
        `position`: that of each op of the block."""
        chain, why = chain_behind(fusion, position) if self.scheduler.pooling else ([], "")
        if not chain:
            return None
        one = None
        if not why and any(has_open_sizes(each) for each in chain):
            why = OPEN
        elif not why:
            one = pooled_fusion(chain)
            assert one is not None
            key, details = structure(one)
            known = self.known.find(key, details)
            why = self.known.keep(key, details, self._why_apart(chain, one)) if known is None else known
        if one is not None and not why:
            put_in_place(one, chain, chain[-1].results)
            return one
        if one is not None:
            one.erase()
        say_apart(chain[0], chain[1], why)
        return None

    def _why_apart(self, chain: Sequence[FusionOp], one: FusionOp) -> str:
        """Why several fusions take no longer than one; "" where they do."""
        (plan,) = launches_of(one, self.scheduler.machine)
        kernel = plan.kernel(NAME, None)
        if isinstance(kernel, PooledKernel) and kernel.turned:
            return TURNED
        try:
            together = self._best(one)
        except (TooLarge, PassError):
            return DOES_NOT_FIT
        apart = inf
        with suppress(TooLarge, PassError):  # nor can several where the first one cannot obey what is pinned
            apart = self.scheduler.microseconds([self._one_of(each, chain) for each in chain])
        whole = self.scheduler.microseconds([together])
        if pays(whole, apart):
            return ""
        number = len(chain)
        return f"one kernel takes {whole:.1f} us, in tiles of whole windows, and {number} take {apart:.1f}"

    def _best(self, one: FusionOp) -> Chosen:
        """The best schedules of a product. Raises TooLarge, and PassError where it cannot obey what is pinned of all
        kernels."""
        scheduler = self.scheduler
        (plan,) = launches_of(one, scheduler.machine)
        pins = scheduler.pins if isinstance(scheduler.pins, Pin) else None
        asked = pinned_for(pins, NAME, CubeSchedule, plan.obeys_all, product=True)
        if asked.chosen() and asked.parts is None:
            return scheduler.whole(plan.kernel(NAME, asked), NAME, asked)
        return scheduler.products.free_best(one, plan, NAME, (CubeSchedule, VectorSchedule))

    def _one_of(self, fusion: FusionOp, chain: Sequence[FusionOp]) -> Chosen:
        """The best schedules of one of several fusions. Raises TooLarge, and PassError."""
        scheduler = self.scheduler
        if fusion is chain[0]:
            return self._best(fusion)
        (plan,) = launches_of(fusion, scheduler.machine)
        return scheduler.best_behind(fusion, plan, NAME, chain)


def pays(together: float, apart: float) -> bool:
    """Whether one kernel that takes so many microseconds is better than several that take so many."""
    return together < apart
