"""An exact search for offsets within a capacity.

Buffers are placed in the order of their offsets, ties by a rank, each as low as those before it let it: where there are
offsets within the capacity, there are some of this form (Moffitt, MiniMalloc, ASPLOS 2023,
https://doi.org/10.1145/3623278.3624752). A branch ends where

* a section has more bytes left to place than there are above the lowest of its buffers that is left;
* a buffer that could lie lower than the one that is placed has nothing left that lifts it. If it has, it comes to lie
  on the lowest top of what can, and sections are looked at again with that;
* a buffer would leave a gap below it into which another one fits.

Where no buffer that is left spans a time, what lives before it and after it are searched apart, each part in an order
of its own: ranks depend on the bytes that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .problem import FAR, PackingProblem, aligned

Ranking = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The order in which buffers of one offset are tried: of the numbers of some buffers, i64 [k], and the bytes left to
place in each section, i64 [sections]."""


class OutOfBudget(Exception):
    """A search has looked at as many placements as it may, or for as long."""


class _Frame:
    """Buffers that are still to be placed, one after the other: which of them may come next, and which did.

    left: their numbers, in the order of ranks. total: the bytes left to place in each section from `at`. Of the
    sections in which some of them live, idx and ptr are the positions in `left` of those that live in each, one section
    after the other, and where a section's begin; room is the highest offset at which its lowest buffer may lie, and
    alone whether one buffer lives there. begin, end: the first of these sections for each buffer, and the one behind
    its last. candidates: positions of those that may come next; tried: how many of them were. behind: what is left
    after the one that is placed, in parts, with the least position that may lie at its offset; done: how many parts
    are placed.
    """

    def __init__(self, search: OffsetSearch, left: np.ndarray, least: int, position: int) -> None:
        self.left = left
        self.first, self.last = search.first[left], search.last[left]
        self.low, self.size = search.low[left], search.size[left]
        self.tried = self.done = 0
        self.behind: list[tuple[np.ndarray, int]] = []
        self.at = at = int(self.first.min())
        end = int(self.last.max()) + 1
        self.total = search.total[at:end].copy()
        search.position.fill(-1)
        search.position[left] = np.arange(left.size)
        held = search.position[search.held[search.starts[at] : search.starts[end]]]
        section = search.section[search.starts[at] : search.starts[end]]
        kept = held >= 0
        self.idx, section = held[kept], section[kept]
        self.ptr = np.flatnonzero(np.diff(section, prepend=-1))
        some = section[self.ptr]
        self.room = search.capacity - search.total[some]
        self.alone = np.diff(self.ptr, append=section.size) == 1
        self.begin = np.searchsorted(some, self.first)
        self.end = np.searchsorted(some, self.last) + 1
        top = min(int((self.low + self.size).min()) - 1, int(self.room.min()))
        may = (self.low <= top) & (self.low >= least)
        may[:position] &= self.low[:position] > least
        found = np.flatnonzero(may)
        self.candidates = found[np.argsort(self.low[found], kind="stable")].tolist()

    def met(self, c: int) -> np.ndarray:
        """Which buffers are in use at a time of the one at a position: bool [k]. It meets itself."""
        return (self.first <= self.last[c]) & (self.last >= self.first[c])


@dataclass
class OffsetSearch:
    """A search for offsets within a capacity, in the order of a ranking. Raises OutOfBudget after `nodes` placements,
    or at `deadline` (time.process_time, seconds). All buffers of the problem are used."""

    problem: PackingProblem
    capacity: int
    ranking: Ranking
    nodes: float
    deadline: float = float("inf")

    def __post_init__(self) -> None:
        problem = self.problem
        n, sections = len(problem.buffers), problem.sections
        self.size, self.first, self.last = problem.sizes, problem.first, problem.last
        self.alignments = None if (problem.alignments == 1).all() else problem.alignments
        lives = self.last - self.first + 1
        # the sections of each buffer one after the other, then sorted by section
        of = np.repeat(np.arange(n), lives)
        section = np.arange(of.size) - np.repeat(np.cumsum(lives) - lives, lives) + self.first[of]
        order = np.argsort(section, kind="stable")
        self.held, self.section = of[order], section[order]
        self.starts = np.searchsorted(self.section, np.arange(sections + 1))
        self.position = np.empty(n, np.int64)
        self.low, self.offsets = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.total = problem.live_bytes.copy()
        self.seen = 0

    def run(self) -> np.ndarray | None:
        """Offsets in bytes, i64 [n]; None where there are none within the capacity."""
        if self.problem.bound > self.capacity:
            return None
        left = np.arange(len(self.size))
        for part in parted(left, self.first, self.last):
            if not self._placed(self.ranking(left[part], self.total)):
                return None
        return self.offsets

    def _placed(self, left: np.ndarray) -> bool:
        """Whether buffers can be placed; then they are."""
        stack = [_Frame(self, left, 0, 0)]
        placed = False
        going_down = True
        while stack:
            frame = stack[-1]
            if not going_down:  # the frame above this one has ended
                frame.done += placed
                if placed and frame.done == len(frame.behind):
                    stack.pop()
                    continue
                if not placed:
                    self._take_back(frame)
            if frame.done < len(frame.behind):
                part, position = frame.behind[frame.done]
                least = int(self.offsets[frame.left[frame.candidates[frame.tried - 1]]])
                stack.append(_Frame(self, part, least, position))
                going_down = True
                continue
            placed = self._next(frame)
            going_down = placed and bool(frame.behind)
            if not going_down:
                stack.pop()
        return placed

    def _next(self, frame: _Frame) -> bool:
        """Places the next candidate of a frame that may fit; False where there is none."""
        while frame.tried < len(frame.candidates):
            if self.seen >= self.nodes or (self.seen % 256 == 255 and time.process_time() > self.deadline):
                raise OutOfBudget
            c = frame.candidates[frame.tried]
            frame.tried += 1
            self.seen += 1
            offset = int(frame.low[c])
            met = frame.met(c)
            raised = np.where(met, np.maximum(frame.low, offset + int(frame.size[c])), frame.low)
            if self.alignments is not None:
                raised = aligned(raised, self.alignments[frame.left])
            if self._may_fit(frame, c, offset, raised):
                self._place(frame, c, raised)
                return True
            if np.count_nonzero(met) == 1:
                break  # this one is in nobody's way: no other does better
        return False

    def _place(self, frame: _Frame, c: int, raised: np.ndarray) -> None:
        i = frame.left[c]
        self.offsets[i] = frame.low[c]
        self.low[frame.left] = raised
        self.total[self.first[i] : self.last[i] + 1] -= self.size[i]
        left = np.delete(frame.left, c)
        parts = parted(left, self.first[left], self.last[left])
        if len(parts) == 1:
            frame.behind = [(left, c)]
        else:
            frame.behind = [(self.ranking(left[part], self.total), 0) for part in parts]
        frame.done = 0

    def _take_back(self, frame: _Frame) -> None:
        """Takes back what the last candidate of a frame has changed, and parts behind it that were placed."""
        self.low[frame.left] = frame.low
        self.total[frame.at : frame.at + frame.total.size] = frame.total
        frame.behind, frame.done = [], 0
        if np.count_nonzero(frame.met(frame.candidates[frame.tried - 1])) == 1:
            frame.tried = len(frame.candidates)  # it is in nobody's way: no other does better

    def _may_fit(self, frame: _Frame, c: int, offset: int, raised: np.ndarray) -> bool:
        """Whether the others of a frame may fit after candidate `c` of it."""
        bounds = raised.copy()
        bounds[c] = FAR
        passed = bounds < offset
        passed[:c] |= bounds[:c] == offset
        lower = np.flatnonzero(passed)
        if lower.size:
            tops = np.maximum(bounds, offset) + frame.size
            tops[c] = FAR
            meets = (frame.first <= frame.last[lower, None]) & (frame.last >= frame.first[lower, None])
            meets[np.arange(lower.size), lower] = False
            lifted = np.where(meets, tops, FAR).min(1)
            if self.alignments is not None:
                lifted = np.minimum(aligned(lifted, self.alignments[frame.left[lower]]), FAR)
            bounds[lower] = lifted
        room = frame.room.copy()
        own = room[frame.begin[c] : frame.end[c]]
        own += frame.size[c]
        own[frame.alone[frame.begin[c] : frame.end[c]]] = FAR
        return not (np.minimum.reduceat(bounds[frame.idx], frame.ptr) > room).any()


def parted(left: np.ndarray, first: np.ndarray, last: np.ndarray) -> list[np.ndarray]:
    """Positions in `left` by the times that none of them spans, each part in ascending order; first and last: their
    sections."""
    if left.size < 2:
        return [np.arange(left.size)] if left.size else []
    by_start = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate(last[by_start])
    cuts = np.flatnonzero(first[by_start[1:]] > reach[:-1]) + 1
    return [np.sort(part) for part in np.split(by_start, cuts)] if cuts.size else [np.arange(left.size)]
