"""Whether values are right: each element held against its own bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tilewright.verification.bounds import Bound
from tilewright.verification.compare import compare
from tilewright.verification.structure import Cache
from tilewright.verification.tolerance import LIKELY, roundoff, smallest
from tilewright.verification.walk import GraphWalk, Settings

UNITS = 16
"""Roundings within which an element needs no bound of its own."""


class Elements:
    """The room that each element of a program's results has: `verification/bounds` of the source program, computed
    where an element is more than `UNITS` roundings of its own magnitude off.

    source: gives the module before any pass, and the flat inputs of its @main.
    """

    def __init__(self, source: Callable[[], tuple[ModuleOp, Sequence[Any]]]):
        self.source = source
        self.bounds: list[Bound] | None = None

    def hold(self, got: Sequence[Any], want: Sequence[Any], what: str = "") -> None:
        """Raises AssertionError where an element of `got` is too far from that of `want`; either may be off by its
        bound. what: comes before the message."""
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            x, y = np.asarray(a), np.asarray(b)
            if compare(x, y, near(y)).ratio <= 1:
                continue
            bound = self._bound(i)
            room = None if bound is None else 2 * LIKELY * np.asarray(bound, np.float64)
            found = compare(x, y, room)
            assert found.ratio <= 1, (
                f"{what} result {i} at {list(found.element)} is {found.got} where {found.want} is expected: "
                f"{found.ratio:.3g} times what its roundings allow ({found.count} of {y.size} elements)"
            )

    def _bound(self, i: int) -> Bound:
        if self.bounds is None:
            module, inputs = self.source()
            walk = GraphWalk(module, Cache(), Settings(likely=True, record=False))
            self.bounds = walk.run(inputs).result_bounds
        return self.bounds[i]


def near(want: np.ndarray) -> np.ndarray | None:
    """How far an element may be off without a look at its bound; None for integers, which are exact."""
    unit = roundoff(want.dtype)
    if not unit:
        return None
    kind = np.complex128 if want.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        room = UNITS * unit * np.abs(want.astype(kind)) + smallest(want.dtype)
    return np.where(np.isfinite(room), room, 0.0)
