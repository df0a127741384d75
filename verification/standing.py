"""The results of a program beside the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .bounds import Bound
from .compare import Difference, compare, largest_finite
from .tolerance import LIKELY


@dataclass
class Standing:
    """The program's results beside the reference. error, tolerance, ratio: as in a `Check`; exact: whether numbers that
    equal the reference are not open, however large the tolerance."""

    reference: Sequence[Any] | None
    results: Sequence[Any]
    exact: bool = False
    differences: list[Difference] = field(default_factory=list)
    error: float = 0.0
    tolerance: float = 0.0
    ratio: float = 0.0
    numbers: int = 0
    open: int = 0

    def add(self, x: Any, want: Any, bound: Bound) -> None:
        """Compares the next result. bound: one standard deviation of it, None where it must be equal."""
        allowed = None if bound is None else 2 * LIKELY * np.asarray(bound)
        d = compare(x, np.asarray(want).reshape(np.shape(x)), allowed)
        self.differences.append(d)
        self.error = max(self.error, d.error)
        self.ratio = max(self.ratio, d.ratio)
        self.numbers += int(np.size(x))
        if allowed is not None and np.size(x):
            scale, finite = _scale(want), allowed[np.isfinite(allowed)]
            self.tolerance = max(self.tolerance, float(finite.max() if finite.size else 0) / scale)
            free = ~(np.broadcast_to(allowed, np.shape(x)) <= scale)
            self.open += int((free & (np.asarray(x) != np.asarray(want)) if self.exact else free).sum())


def _scale(x: Any) -> float:
    largest = largest_finite(np.asarray(x))
    return largest if largest > 0 else 1.0
