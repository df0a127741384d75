"""Which neighbouring launches run as stages of one launch, with barriers between them, and how each is cut for that.

A *group* is a launch and those that are joined to it. Its launch wakes the most cores that any of its kernels wakes, of
all their kinds, and each kernel but the first waits at a barrier over them, unless it is independent of those since the
last one. So it depends on the neighbours what a kernel costs, and on how many cores it is best: one core alone starts
quickly, but in a group of a large kernel the others are awake anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ..dialects.npu.waking import Woken
from ..machine import Machine

T = TypeVar("T", bound=Hashable)

PER_MICROSECOND = 10**6
"""Picoseconds, in which costs are counted: sums of whole numbers are exact, so equal costs are equal."""

NEVER = 1 << 60
"""Picoseconds of what cannot be."""


class Way(NamedTuple):
    """A way to run a kernel: what it wakes, and the microseconds that it then works."""

    woken: Woken
    microseconds: float = 0.0


class Neighbour(NamedTuple):
    """A launch among those that could be one.

    ways: how it may be run. first: it may only begin a group. free: it needs nothing of those before it that are free,
    nor of the one before these, so no barrier parts it from them.
    """

    ways: tuple[Way, ...]
    first: bool = False
    free: bool = False


class GroupMember(NamedTuple):
    """What becomes of a launch: whether it runs in the one before it, and what its group wakes at most."""

    joined: bool
    woken: Woken


class Together(Generic[T]):
    """What launches that no barrier parts read and write. `near` gives the tensors that share bytes with some, these
    included."""

    def __init__(self, near: Callable[[Set[T]], Set[T]] = lambda tensors: tensors):
        self.near = near
        self.read: set[T] = set()
        self.written: set[T] = set()

    def meets(self, reads: Set[T], writes: Set[T]) -> bool:
        """Whether a launch that reads and writes these touches what one of them writes, or writes what one reads."""
        writes = self.near(writes)
        return not self.read.isdisjoint(writes) or not self.written.isdisjoint(self.near(reads) | writes)

    def add(self, reads: Set[T], writes: Set[T]) -> None:
        """One more launch."""
        self.read |= reads
        self.written |= writes

    def clear(self) -> None:
        """Behind a barrier."""
        self.read.clear()
        self.written.clear()

    def joined_by(self, reads: Set[T], writes: Set[T]) -> bool:
        """Adds a launch, behind a barrier if it needs one; whether it needs none, and is not the first."""
        free = bool(self.read or self.written) and not self.meets(reads, writes)
        if not free:
            self.clear()
        self.add(reads, writes)
        return free


class Groups:
    """Groups of neighbouring launches that take least, for one machine.

    Dynamic programming over the launches, for each of what a group may wake: what those so far take at least if the
    last group wakes no more. Time and memory are linear in the launches.
    """

    def __init__(self, machine: Machine, neighbours: Sequence[Neighbour]):
        ways = {way.woken for n in {id(n.ways): n.ways for n in neighbours}.values() for way in n}
        kinds = {w.kinds for w in ways}
        for _ in range(len(kinds)):
            kinds |= {a | b for a in kinds for b in kinds}
        cores = sorted({w.cores for w in ways})
        self.neighbours = neighbours
        self.bounds = [Woken(n, k) for k in sorted(kinds, key=sorted) for n in cores]
        """What a group may wake at most."""
        self.launch = _picoseconds([b.launch_microseconds(machine) for b in self.bounds])
        self.barrier = _picoseconds([b.barrier_microseconds(machine) for b in self.bounds])
        self.work: dict[int, np.ndarray] = {}
        """The least work of a launch within each bound, by the identity of its ways."""

    def least(self) -> tuple[float, list[GroupMember]]:
        """Microseconds of all launches, and what becomes of each: of several such ways the one with the fewest
        joins."""
        before, joins_before, at = 0, 0, 0
        cost = joins = np.zeros(len(self.bounds), np.int64)
        steps: list[tuple[np.ndarray, int]] = []
        for i, neighbour in enumerate(self.neighbours):
            alone = before + self.launch
            joined = np.zeros(len(self.bounds), bool)
            if i and not neighbour.first:
                behind = cost if neighbour.free else cost + self.barrier
                joined = (behind < alone) | ((behind == alone) & (joins + 1 < joins_before))
                alone, joins = np.where(joined, behind, alone), np.where(joined, joins + 1, joins_before)
            else:
                joins = np.full(len(self.bounds), joins_before)
            cost = np.minimum(alone + self._work(neighbour.ways), NEVER)
            steps.append((joined, at))
            at = int(np.lexsort((joins, cost))[0])
            before, joins_before = int(cost[at]), int(joins[at])
        members: list[GroupMember] = []
        for joined, last in reversed(steps):
            members.append(GroupMember(bool(joined[at]), self.bounds[at]))
            at = at if joined[at] else last
        return before / PER_MICROSECOND, members[::-1]

    def _work(self, ways: tuple[Way, ...]) -> np.ndarray:
        found = self.work.get(id(ways))
        if found is None:
            found = np.full(len(self.bounds), NEVER)
            for way in ways:
                within = [way.woken | bound == bound for bound in self.bounds]
                work = round(way.microseconds * PER_MICROSECOND)
                found = np.where(within, np.minimum(found, work), found)
            self.work[id(ways)] = found
        return found


def _picoseconds(microseconds: Sequence[float]) -> np.ndarray:
    return np.array([round(us * PER_MICROSECOND) for us in microseconds], np.int64)
