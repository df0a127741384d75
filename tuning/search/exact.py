"""Branch and bound: the best plan under a price, and the proof; or the best after a budget, and the gap.

A node is a box of plans, which are side by side in the space, with a time that none of them takes less than. The box
of the least bound is taken apart, and a box of one plan is priced; what cannot beat the best plan so far is left out.
So the least bound of what is left is a bound for all plans.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from time import monotonic
from typing import Protocol

import numpy as np

from ...kernels.space import Box, Plans, PlanSpace, plans_in

Plan = tuple[int, ...]
"""A plan: for each choice the number of its value."""

ROUNDED = 1 - 1e-12
"""Of equal times one may be so much of another one: sums are rounded."""

MOST_PLANS = 1 << 18
"""Plans that are priced together, at most."""


class Priced(Protocol):
    """What a search by a price needs to know of a space."""

    @property
    def space(self) -> PlanSpace:
        """What plans are."""
        ...

    def price(self, plans: Plans) -> np.ndarray:
        """Microseconds of plans, whether they fit or not."""
        ...

    def valid(self, plans: Plans) -> np.ndarray:
        """Which rows are plans at all."""
        ...

    def bound(self, box: Box) -> float:
        """What no plan of a box takes less than; infinity where none of its rows is one."""
        ...

    def parts(self, box: Box) -> Sequence[Box]:
        """Boxes that have all plans of one together."""
        ...


@dataclass
class Found:
    """What a search found.

    plan: the best one, None where none fits; microseconds: its price; bound: what no plan takes less than; priced:
    plans whose price was asked for; bounded: boxes of plans whose bound was; tested: plans of which it was asked
    whether they fit; best: the best ones, at most as many as asked for, the best first; trace: the best price after so
    many priced plans, each time it changed.
    """

    plan: Plan | None = None
    microseconds: float = inf
    bound: float = 0.0
    priced: int = 0
    bounded: int = 0
    tested: int = 0
    best: list[tuple[float, Plan]] = field(default_factory=list[tuple[float, Plan]])
    trace: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    @property
    def certified(self) -> bool:
        """Whether it is proven that no plan is better."""
        return self.plan is not None and self.bound >= self.microseconds * ROUNDED

    @property
    def gap(self) -> float:
        """How much less than the best plan one may take that was not looked at, as a share of it."""
        return 0.0 if self.plan is None or self.certified else 1 - self.bound / self.microseconds

    @property
    def evaluations(self) -> int:
        """Prices and bounds that were asked for."""
        return self.priced + self.bounded


def exact(
    kernel: Priced,
    fits: Callable[[Plan], bool],
    start: Sequence[Plan] = (),
    most: int | None = None,
    seconds: float | None = None,
    keep: int = 1,
) -> Found:
    """The best plan of a space that fits, by branch and bound.

    start: plans that are priced first, as those of a heuristic. most, seconds: the budget, in evaluations (prices and
    bounds) and in time; None: until it is proven. keep: how many of the best plans are kept.
    """
    search = _Search(kernel, fits, keep)
    end = None if seconds is None else monotonic() + seconds
    if start:
        search.judge(np.array(start, np.int64))
    search.add([kernel.space.whole], 0.0)
    found = search.found
    while search.nodes:
        if search.nodes[0][0] >= search.limit:
            break
        if (most is not None and found.evaluations >= most) or (end is not None and monotonic() >= end):
            found.bound = min(search.nodes[0][0], found.microseconds)
            return found
        bound, _, _, box = heapq.heappop(search.nodes)
        search.add(kernel.parts(box), bound)
    found.bound = found.microseconds if found.plan is not None else inf
    return found


class _Search:
    def __init__(self, kernel: Priced, fits: Callable[[Plan], bool], keep: int) -> None:
        self.kernel, self.fits, self.keep = kernel, fits, keep
        self.found = Found()
        self.nodes: list[tuple[float, int, int, Box]] = []
        """Boxes that are left: bound, plans, a number that orders equals, and the box. Of equal bounds the smallest box
        is taken first, so that there is a plan soon."""
        self.order = count()
        self.seen: set[Plan] = set()

    @property
    def limit(self) -> float:
        """The price from which on a plan is none of the best."""
        best = self.found.best
        return best[-1][0] * ROUNDED if len(best) == self.keep else inf

    def add(self, boxes: Sequence[Box], least: float) -> None:
        """Looks at boxes, of which no plan takes less than is said."""
        for box in boxes:
            if plans_in(box) == 1:
                self.judge(PlanSpace.plans(box))
                continue
            bound = max(self.kernel.bound(box), least)
            self.found.bounded += 1
            if bound <= 0 and plans_in(box) <= MOST_PLANS:  # nothing is known of them
                self.judge(PlanSpace.plans(box))
            elif bound < self.limit:
                heapq.heappush(self.nodes, (bound, plans_in(box), next(self.order), box))

    def judge(self, plans: Plans) -> None:
        """Prices plans, and keeps the best ones that fit: whether one does is asked of those alone that would be
        kept."""
        found = self.found
        known = np.array([tuple(plan) in self.seen for plan in plans.tolist()], bool)
        plans = plans[self.kernel.valid(plans) & ~known]
        if not len(plans):
            return
        us = self.kernel.price(plans)
        found.priced += len(plans)
        for i in np.argsort(us, kind="stable").tolist():
            price, plan = float(us[i]), tuple(plans[i].tolist())
            self.seen.add(plan)
            if price >= self.limit or price == inf:
                continue
            found.tested += 1
            if not self.fits(plan):
                continue
            found.best = sorted([*found.best, (price, plan)])[: self.keep]
            if price < found.microseconds:
                found.plan, found.microseconds = plan, price
                found.trace.append((found.priced, price))
