"""The plans of a kernel as a measurement has them, and as far as a limit lets them be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.space import Box, Plans, PlanSpace
from ..passes.lower.spaces import KernelSpace


@dataclass(frozen=True)
class AdjustedSpace:
    """A space whose work takes `slower` times its price, the start of cores as before, and of which plans are left out
    that start more than `most_cores`."""

    inner: KernelSpace
    slower: float = 1.0
    most_cores: int | None = None

    @property
    def space(self) -> PlanSpace:
        """Of the same plans."""
        return self.inner.space

    def price(self, plans: Plans) -> np.ndarray:
        """Microseconds of plans, whether they fit or not."""
        us = self.inner.price(plans)
        if self.slower != 1 and self.inner.joined:
            us = us * self.slower
        elif self.slower != 1:
            work = self._work(self.inner.price, plans)
            us = np.where(np.isfinite(us), us + (self.slower - 1) * np.where(np.isfinite(work), work, 0.0), np.inf)
        if self.most_cores is None or not len(plans):
            return us
        at, counts = self.inner.core_counts
        return np.where(counts[plans[:, at]] <= self.most_cores, us, np.inf)

    def valid(self, plans: Plans) -> np.ndarray:
        """Which rows are plans at all."""
        return self.inner.valid(plans)

    def parts(self, box: Box) -> Sequence[Box]:
        """Boxes that have all plans of one together."""
        return self.inner.parts(box)

    def bound(self, box: Box) -> float:
        """Microseconds that no plan of a box takes less than; infinity where none fits."""
        left = self._left(box)
        if left is None:
            return np.inf
        us = self.inner.bound(left)
        if self.slower <= 1 or self.inner.joined:
            return us * self.slower  # a bound of the start alone is not known
        return us + (self.slower - 1) * self._work(self.inner.bound, left)

    def _left(self, box: Box) -> Box | None:
        """Of a box of plans those with the least cores, as far as a limit says nothing against them: all that it lets
        be are among them."""
        if self.most_cores is None:
            return box
        low, high = box
        at, counts = self.inner.core_counts
        able = np.flatnonzero(counts[low[at] : high[at] + 1] <= self.most_cores)
        if not len(able):
            return None
        return low, (*high[:at], low[at] + int(able[-1]), *high[at + 1 :])

    def _work(self, microseconds: Callable[[Any], Any], plans: Any) -> Any:
        """What these say where the start of cores is left out."""
        self.inner.joined = True
        try:
            return microseconds(plans)
        finally:
            self.inner.joined = False
