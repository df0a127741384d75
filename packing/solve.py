"""The ladder: greedy plans until one meets the bound, then the exact search for lower and lower capacities."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from .exact import OffsetSearch, OutOfBudget, parted
from .greedy import plans
from .problem import PackingError, PackingProblem
from .rankings import rankings

SEARCHED = 2048
"""Buffers of one part up to which there is an exact search."""

FIRST_NODES = 2
"""Placements for each buffer that a ranking has in the first round."""

GROWTH = 4
"""How many times those of a round it has in the next."""

STEPS = 1024
"""A round does not look for heights that are lower by less than one of so many parts."""


@dataclass(frozen=True)
class Budget:
    """How long a search may take: placements looked at, and seconds of processor time. The result of one that ends by
    placements is the same on all machines."""

    nodes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class PackingPlan:
    """Offsets in bytes, i64 [n], and where they end. bound: bytes that no offsets do without; proved: whether none end
    lower. greedy: the end of the best greedy plan; nodes: placements that the search looked at."""

    offsets: np.ndarray
    height: int
    bound: int
    greedy: int
    nodes: int
    proved: bool

    @property
    def ratio(self) -> float:
        """Height over bound, 1 for nothing."""
        return self.height / self.bound if self.bound else 1.0


def solve(problem: PackingProblem, budget: Budget) -> PackingPlan:
    """The lowest offsets found within a budget. They are a greedy plan's where that meets the bound, or where a part of
    the problem has more than SEARCHED buffers."""
    return _Ladder(problem, budget).lowest()


def within(problem: PackingProblem, capacity: int, budget: Budget) -> PackingPlan | None:
    """Offsets that end at `capacity` bytes at the latest; None where there are none. Raises PackingError where the
    budget ended before either was known."""
    return _Ladder(problem, budget).within(capacity)


@dataclass
class _Part:
    """Buffers that no time without any of them divides, in units of what all sizes and alignments are multiples of."""

    numbers: np.ndarray
    problem: PackingProblem
    offsets: np.ndarray

    @property
    def height(self) -> int:
        return self.problem.height(self.offsets)


class _Ladder:
    def __init__(self, problem: PackingProblem, budget: Budget) -> None:
        self.problem = problem
        self.nodes = 0
        self.most_nodes = math.inf if budget.nodes is None else budget.nodes
        self.deadline = math.inf if budget.seconds is None else time.process_time() + budget.seconds
        self.unit = math.gcd(*problem.sizes.tolist(), *(a for a in problem.alignments.tolist() if a > 1)) or 1
        used = np.flatnonzero(problem.used)
        self.parts: list[_Part] = []
        for part in parted(used, problem.first[used], problem.last[used]):
            inner = problem.of(used[part])
            small = PackingProblem(
                tuple(
                    replace(b, size=b.size // self.unit, alignment=max(b.alignment // self.unit, 1))
                    for b in inner.buffers
                )
            )
            self.parts.append(_Part(used[part], small, np.zeros(0, np.int64)))
        self.bound = max((p.problem.bound for p in self.parts), default=0)
        for p in self.parts:
            p.offsets = _greedy(p.problem, self.bound, self.deadline)
        self.greedy = self.height

    @property
    def height(self) -> int:
        """The end of the lowest offsets so far, in units."""
        return max((p.height for p in self.parts), default=0)

    def found(self, proved: bool) -> PackingPlan:
        offsets = np.zeros(len(self.problem.buffers), np.int64)
        for p in self.parts:
            offsets[p.numbers] = p.offsets * self.unit
        return PackingPlan(
            offsets,
            self.problem.height(offsets),
            self.problem.bound,
            self.greedy * self.unit,
            self.nodes,
            proved or self.height == self.bound,
        )

    def within(self, capacity: int) -> PackingPlan | None:
        """See `within` above."""
        room = capacity // self.unit
        for number in count():
            fits = self._fits(room, number)
            if fits is False:
                return None
            if fits:
                return self.found(False)
            if self._ended():
                break
        raise PackingError(
            f"no offsets within {capacity} bytes were found after {self.nodes} placements; there may be some"
        )

    def lowest(self) -> PackingPlan:
        """See `solve` above."""
        proved = self.bound  # no height is below it
        for number in count():
            low = proved
            # where the bound is no height, the heights between are halved
            while self.height - low > (0 if low == proved else self.height // STEPS) and not self._ended():
                room = low if low == proved else (low + self.height) // 2
                fits = self._fits(room, number)
                if fits is False:
                    proved = low = room + 1
                elif fits is None:
                    low = room + 1
            if proved >= self.height or self._ended():
                return self.found(proved >= self.height)
        raise AssertionError("unreachable")

    def _fits(self, room: int, number: int) -> bool | None:
        """Whether all parts fit into `room` units; if so, their offsets do. None where a round ended before that was
        known."""
        for part in self.parts:
            if part.height > room:
                fits = self._searched(part, room, number)
                if not fits:
                    return fits
        return True

    def _searched(self, part: _Part, room: int, number: int) -> bool | None:
        """As `_fits`, for one part."""
        if part.problem.bound > room:
            return False
        if len(part.numbers) > SEARCHED:
            return None
        limit = FIRST_NODES * GROWTH**number * len(part.numbers)
        for ranking in rankings(part.problem, number):
            left = min(limit, self.most_nodes - self.nodes)
            search = OffsetSearch(part.problem, room, ranking, left, self.deadline)
            try:
                offsets = search.run()
            except OutOfBudget:
                continue
            finally:
                self.nodes += search.seen
            if offsets is None:
                return False
            part.offsets = offsets
            return True
        return None

    def _ended(self) -> bool:
        """Whether there is nothing left to search, or no budget."""
        searchable = any(p.height > self.bound and len(p.numbers) <= SEARCHED for p in self.parts)
        return not searchable or self.nodes >= self.most_nodes or time.process_time() > self.deadline


def _greedy(problem: PackingProblem, enough: int, deadline: float) -> np.ndarray:
    """The lowest of the greedy plans, or the first that ends at `enough` units; of those that are made before the
    deadline, and one at least."""
    best = None
    for offsets in plans(problem, deadline):
        if best is None or problem.height(offsets) < problem.height(best):
            best = offsets
        if problem.height(best) <= enough or time.process_time() > deadline:
            break
    assert best is not None
    return best
