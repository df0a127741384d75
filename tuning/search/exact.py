"""Branch and bound: the best plan under a price, and the proof; or the best after a budget, and the gap.

A node is a row of numbers for the first levels of a space. Of its children those are looked at whose bound is below the
best plan so far, the least bound first; a child of the last level is a plan, which is priced. So the least bound of
what is left open is a bound for all plans.
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

from ...kernels.space import Plans, PlanSpace

Plan = tuple[int, ...]
"""A plan: for each choice the number of its value."""

MOST_CHILDREN = 1 << 18
"""Plans of one node that are priced together, at most."""


class Priced(Protocol):
    """What a search by a price needs to know of a space."""

    @property
    def space(self) -> PlanSpace:
        """What plans are."""
        ...

    def price(self, plans: Plans) -> np.ndarray:
        """Microseconds of plans, whether they fit or not."""
        ...

    def valid(self, rows: Plans) -> np.ndarray:
        """Which rows begin a plan at all."""
        ...

    def bound(self, prefixes: Plans) -> np.ndarray:
        """What no plan that begins so takes less than."""
        ...


@dataclass
class Found:
    """What a search found.

    plan: the best one, None where none fits; microseconds: its price; bound: what no plan takes less than; priced:
    plans whose price was asked for; bounded: rows whose bound was; tested: plans of which it was asked whether they
    fit; best: the best ones, at most as many as asked for, the best first; trace: the best price after so many priced
    plans, each time it changed.
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
        return self.plan is not None and self.bound >= self.microseconds * (1 - 1e-12)

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
    search.open(np.zeros((1, 0), np.int64), 0)
    found = search.found
    while search.nodes:
        if search.nodes[0][0] >= search.limit:
            break
        if (most is not None and found.evaluations >= most) or (end is not None and monotonic() >= end):
            found.bound = min(search.nodes[0][0], found.microseconds)
            return found
        _, _, prefix, level = heapq.heappop(search.nodes)
        search.open(np.array([prefix], np.int64).reshape(1, -1), level)
    found.bound = found.microseconds if found.plan is not None else inf
    return found


class _Search:
    def __init__(self, kernel: Priced, fits: Callable[[Plan], bool], keep: int) -> None:
        self.kernel, self.fits, self.keep = kernel, fits, keep
        self.space = kernel.space
        self.found = Found()
        self.nodes: list[tuple[float, int, Plan, int]] = []
        """Open ones: bound, a number that orders equals, the row, and the level that comes next."""
        self.order = count()
        self.seen: set[Plan] = set()

    @property
    def limit(self) -> float:
        """The price from which on a plan is none of the best."""
        best = self.found.best
        return best[-1][0] if len(best) == self.keep else inf

    def open(self, prefix: Plans, level: int) -> None:
        """Looks at the children of a node."""
        if level >= self.space.levels:
            self.judge(prefix)
            return
        children = self.space.extended(prefix, level)
        children = children[self.kernel.valid(children)]
        if level == self.space.levels - 1:
            for begin in range(0, len(children), MOST_CHILDREN):
                self.judge(children[begin : begin + MOST_CHILDREN])
            return
        bounds = self.kernel.bound(children)
        self.found.bounded += len(children)
        for bound, child in zip(bounds.tolist(), children.tolist(), strict=True):
            if bound < self.limit:
                heapq.heappush(self.nodes, (bound, next(self.order), tuple(child), level + 1))

    def judge(self, plans: Plans) -> None:
        """Prices plans, and keeps the best ones that fit: whether one does is asked of those alone that would be
        kept."""
        found = self.found
        us = self.kernel.price(plans)
        found.priced += len(plans)
        for i in np.argsort(us, kind="stable").tolist():
            price, plan = float(us[i]), tuple(plans[i].tolist())
            if price >= self.limit or price == inf:
                return
            if plan in self.seen:
                continue
            self.seen.add(plan)
            found.tested += 1
            if not self.fits(plan):
                continue
            found.best = sorted([*found.best, (price, plan)])[: self.keep]
            if price < found.microseconds:
                found.plan, found.microseconds = plan, price
                found.trace.append((found.priced, price))
