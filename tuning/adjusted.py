"""The plans of a kernel as a measurement has them, and as far as a limit lets them be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..kernels.space import Plans, PlanSpace
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
        us = self._slower(self.inner.price, plans)
        if self.most_cores is None or not len(plans):
            return us
        at, counts = self.inner.core_counts
        return np.where(counts[plans[:, at]] <= self.most_cores, us, np.inf)

    def valid(self, rows: Plans) -> np.ndarray:
        """Which rows begin a plan at all."""
        return self.inner.valid(rows)

    def bound(self, prefixes: Plans) -> np.ndarray:
        """What no plan that begins so takes less than."""
        return self._slower(self.inner.bound, prefixes)

    def _slower(self, microseconds: Callable[[Plans], np.ndarray], rows: Plans) -> np.ndarray:
        """What these are where only the work takes longer, not the start of cores."""
        inner, us = self.inner, microseconds(rows)
        if self.slower == 1 or inner.joined:
            return us * self.slower
        if self.slower < 1 and microseconds == inner.bound:
            return us * self.slower  # a bound of the start alone is not known
        inner.joined = True
        try:
            work = microseconds(rows)
        finally:
            inner.joined = False
        return np.where(np.isfinite(us), us + (self.slower - 1) * np.where(np.isfinite(work), work, 0.0), np.inf)
