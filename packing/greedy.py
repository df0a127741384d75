"""Offsets without a search: buffers one after the other, each where it fits at once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from .problem import FAR, PackingProblem, aligned

SKYLINES = 2048
"""Buffers up to which `skyline` is tried: it looks at all of them for each."""


CHECKED = 64
"""A plan looks at the clock once for so many buffers."""


def plans(problem: PackingProblem, deadline: float = math.inf) -> Iterator[np.ndarray]:
    """Offsets in bytes, i64 [n], by one rule after another. All buffers of the problem are used. deadline: the
    processor time, in seconds, from which on the buffers that are left lie one on the other, above all others."""
    length, size = problem.ends - problem.starts, problem.sizes
    area = length * size.astype(np.float64)
    by_start = np.argsort(problem.starts, kind="stable")
    yield fitted(problem, by_start, deadline=deadline)
    by_size = np.argsort(-size, kind="stable")
    yield fitted(problem, by_size, deadline=deadline)
    if len(problem.buffers) <= SKYLINES:
        for key in (length, area, size):
            yield skyline(problem, np.argsort(-key, kind="stable"))
        yield skyline(problem, by_start)
    for key in (area, length):
        yield fitted(problem, np.argsort(-key, kind="stable"), deadline=deadline)
    yield fitted(problem, by_size, lowest=True, deadline=deadline)
    yield fitted(problem, by_start, lowest=True, deadline=deadline)


def fitted(
    problem: PackingProblem, order: np.ndarray, lowest: bool = False, deadline: float = math.inf
) -> np.ndarray:
    """Offsets of buffers in the order in which they are placed, each in the smallest gap that it fits in, or in the
    lowest; by size this is what Pisarchyk and Lee do (Efficient Memory Management for Deep Neural Net Inference,
    2020)."""
    near = _Neighbours(problem)
    tops = problem.sizes.copy()  # of those that are placed: where they end
    offsets = np.full(len(order), -1, np.int64)
    trivial = bool((problem.alignments == 1).all())
    for number, i in enumerate(order.tolist()):
        if not number % CHECKED and time.process_time() > deadline:
            _stack(problem, order[number:], offsets, int(tops[order[:number]].max(initial=0)))
            break
        met = near.of(i)
        met = met[offsets[met] >= 0]
        size = int(problem.sizes[i])
        if not met.size:
            offsets[i] = 0
            continue
        begin = offsets[met]
        by_offset = np.argsort(begin)
        begin = begin[by_offset]
        ends = np.maximum.accumulate(tops[met[by_offset]])
        free = np.append(0, ends)
        if not trivial:
            free = aligned(free, problem.alignments[i])
        gaps = np.append(begin, FAR) - free
        fits = gaps >= size
        at = fits.argmax() if lowest else np.where(fits, gaps, FAR).argmin()
        offsets[i] = free[at]
        tops[i] = free[at] + size
    return offsets


def _stack(problem: PackingProblem, left: np.ndarray, offsets: np.ndarray, top: int) -> None:
    """Places buffers one on the other from `top` on."""
    for i in left.tolist():
        offsets[i] = aligned(np.array(top), problem.alignments[i])
        top = int(offsets[i] + problem.sizes[i])


class _Neighbours:
    """The buffers that are in use at a time of a given one."""

    def __init__(self, problem: PackingProblem) -> None:
        self.order = np.argsort(problem.starts, kind="stable")
        self.starts, self.ends = problem.starts, problem.ends
        starts, self.by_start = problem.starts[self.order], problem.ends[self.order]
        reach = np.maximum.accumulate(self.by_start) if starts.size else starts
        self.low = np.searchsorted(reach, problem.starts, side="right").tolist()
        self.high = np.searchsorted(starts, problem.ends).tolist()

    def of(self, i: int) -> np.ndarray:
        """Their numbers, with its own: i64 [k]."""
        low = self.low[i]
        later = np.flatnonzero(self.by_start[low : self.high[i]] > self.starts[i])
        return self.order[later + low]


def skyline(problem: PackingProblem, order: np.ndarray) -> np.ndarray:
    """Offsets where the buffer comes next that can lie lowest, the first in an order of those."""
    starts, ends, sizes = problem.starts[order], problem.ends[order], problem.sizes[order]
    alignments = None if (problem.alignments == 1).all() else problem.alignments[order]
    low, offsets = np.zeros(len(order), np.int64), np.empty(len(order), np.int64)
    for _ in range(len(order)):
        i = int(low.argmin())
        top = low[i] + sizes[i]
        offsets[order[i]] = low[i]
        low[i] = FAR
        met = np.flatnonzero((starts < ends[i]) & (ends > starts[i]))
        raised = np.maximum(low[met], top)
        low[met] = raised if alignments is None else aligned(raised, alignments[met])
    return offsets
