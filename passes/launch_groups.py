"""Which neighbouring launches run as stages of one launch, with barriers between them, and how each is cut for that.

A *group* is a launch and those that are joined to it. Its launch occupies the most cores that any of its kernels
occupies, of all their kinds, and each kernel but the first waits at a barrier over them, unless it is independent of
those since the last one. So it depends on the neighbours what a kernel costs, and on how many cores it is best: one
core alone starts quickly, but in a group of a large kernel the others are awake anyway. Independent kernels, which no
barrier parts, are one after the other on all cores of the group, or side by side on equal parts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ..dialects.npu.occupancy import Occupancy
from ..dialects.open_sizes import example
from ..machine import Machine

T = TypeVar("T", bound=Hashable)

PER_MICROSECOND = 10**6
"""Picoseconds, in which costs are counted: sums of whole numbers are exact, so equal costs are equal."""

NEVER = 1 << 60
"""Picoseconds of what cannot be."""


class LaunchPoint(NamedTuple):
    """A point of a launch's Pareto front: what it occupies, and the microseconds that it then works."""

    occupancy: Occupancy
    microseconds: float = 0.0


class Neighbour(NamedTuple):
    """A launch among those that could be one.

    points: how it may be run. first: it may only begin a group. free: it needs nothing of those before it that are
    free, nor of the one before these, so no barrier parts it from them.
    """

    points: tuple[LaunchPoint, ...]
    first: bool = False
    free: bool = False


class GroupMember(NamedTuple):
    """What becomes of a launch: whether it runs in the one before it, what it may occupy, and what its group occupies
    at most: the same, or it is on a part of that, side by side with others."""

    joined: bool
    occupancy: Occupancy
    group: Occupancy


class Together(Generic[T]):
    """What launches that no barrier parts read and write. `near` gives the tensors that share bytes with some, these
    included."""

    def __init__(self, near: Callable[[Set[T]], Set[T]] = lambda tensors: tensors):
        self.near = near
        self.read: set[T] = set()
        self.written: set[T] = set()
        self.before: set[T] = set()
        """What the launches write that are ahead of the last barrier, and behind the one before that."""

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
        self.before = self.written
        self.read, self.written = set(), set()

    def joined_by(self, reads: Set[T], writes: Set[T]) -> bool:
        """Adds a launch, behind a barrier if it needs one; whether it needs none, and is not the first."""
        free = bool(self.read or self.written) and not self.meets(reads, writes)
        if not free:
            self.clear()
        self.add(reads, writes)
        return free


def first_cores(launches: Sequence[Occupancy], room: int) -> list[int]:
    """For each of some independent launches of a group that occupies so many cores the first core that it takes: the
    next ones side by side, as far as there are some, and from the first core on again."""
    taken: dict[str, int] = {}
    found: list[int] = []
    for occupancy in launches:
        first = max(taken.get(kind, 0) for kind in occupancy.kinds)
        if first + occupancy.cores > room:
            first = 0
        taken.update(dict.fromkeys(occupancy.kinds, first + occupancy.cores))
        found.append(first)
    return found


PARTS = np.array((1, 2, 3, 4, 6, 8))
"""Numbers of equal parts of the cores on which independent launches are side by side; 1 for one after the other."""

MOST_STARTS = 8
"""Launches of one set of independent ones with which a group may begin, as far as they are kept in mind."""


class _Shelves:
    """What independent launches take: one after the other, or so many of `PARTS` side by side as there are parts of the
    cores, and the next ones when all of these are over. In picoseconds, for each number of parts and each bound."""

    def __init__(self, count: int, over: np.ndarray, running: np.ndarray):
        self.count, self.over, self.running = count, over, running

    @classmethod
    def of(cls, work: np.ndarray) -> _Shelves:
        """One launch, whose work within each part of each bound is this."""
        return cls(1, np.zeros_like(work), work)

    def with_one_more(self, work: np.ndarray) -> _Shelves:
        full = (self.count % PARTS[: len(work)] == 0)[:, None]
        over = np.where(full, self.over + self.running, self.over)
        return _Shelves(
            self.count + 1, np.minimum(over, NEVER), np.where(full, work, np.maximum(self.running, work))
        )

    def each(self) -> np.ndarray:
        return np.minimum(self.over + self.running, NEVER)

    def least(self) -> np.ndarray:
        """For each bound, with the best number of parts."""
        return self.each().min(axis=0)


class _State(NamedTuple):
    """What launches so far take at least if their last group occupies no more than each bound, of those ways in which
    the launches since its last barrier begin with one. before: the number of the state from which the last launch is
    joined, or -1 where it begins a group."""

    cost: np.ndarray
    joins: np.ndarray
    shelves: _Shelves
    start: int
    before: np.ndarray


class Groups:
    """Groups of neighbouring launches that take least, for one machine.

    Dynamic programming over the launches, for each of what a group may occupy: what those so far take at least if the
    last group occupies no more. Time and memory are linear in the launches.
    """

    def __init__(self, machine: Machine, neighbours: Sequence[Neighbour], concurrent: bool = True):
        """concurrent: whether independent launches may be side by side."""
        occupancies = {p.occupancy for n in {id(n.points): n.points for n in neighbours}.values() for p in n}
        kinds = {o.kinds for o in occupancies}
        for _ in range(len(kinds)):
            kinds |= {a | b for a in kinds for b in kinds}
        cores = {o.cores for o in occupancies}
        if concurrent and any(n.free for n in neighbours):
            cores |= {n * parts for n in cores for parts in PARTS.tolist() if n * parts <= machine.cube_cores}
        self.neighbours, self.parts = neighbours, PARTS if concurrent else PARTS[:1]
        self.bounds = [Occupancy(n, k) for k in sorted(kinds, key=sorted) for n in sorted(cores)]
        """What a group may occupy at most."""
        self.launch = _picoseconds([b.launch_microseconds(machine) for b in self.bounds])
        self.barrier = _picoseconds([b.barrier_microseconds(machine) for b in self.bounds])
        self.within = np.array([example(bound.cores) for bound in self.bounds]) // np.array(self.parts)[:, None]
        """The cores of each part of each bound."""
        self.having: dict[frozenset[str], np.ndarray] = {}
        self.work: dict[int, np.ndarray] = {}
        """The least work of a launch within each part of each bound, by the identity of its points."""

    def least(self) -> tuple[float, list[GroupMember]]:
        """Microseconds of all launches, and what becomes of each: of several such ways the one with the fewest
        joins."""
        steps: list[list[_State]] = []
        tops: list[tuple[int, int]] = []
        for i, neighbour in enumerate(self.neighbours):
            states = self._next(i, neighbour, steps[-1] if steps else [], tops[-1] if tops else None)
            steps.append(states)
            found = [(*_first(state), n) for n, state in enumerate(states)]
            *_, bound, number = min(found)
            tops.append((number, bound))
        if not steps:
            return 0.0, []
        number, at = tops[-1]
        total = int(steps[-1][number].cost[at])
        return total / PER_MICROSECOND, self._members(steps, tops)

    def _next(
        self, i: int, neighbour: Neighbour, before: Sequence[_State], top: tuple[int, int] | None
    ) -> list[_State]:
        """The states behind one more launch."""
        cost, joins = np.zeros_like(self.launch), np.zeros_like(self.launch)
        if top is not None:
            number, at = top
            cost, joins = cost + before[number].cost[at], joins + before[number].joins[at]
        cost, origin = cost + self.launch, np.full(len(self.bounds), -1)
        work = self._work(neighbour.points)
        states: list[_State] = []
        if before and not neighbour.first and not neighbour.free:
            costs, all_joins = (np.stack([getattr(state, name) for state in before]) for name in ("cost", "joins"))
            best = np.lexsort((all_joins, costs), axis=0)[0]
            behind, more = (np.take_along_axis(x, best[None], axis=0)[0] for x in (costs, all_joins + 1))
            behind = behind + self.barrier
            joined = (behind < cost) | ((behind == cost) & (more < joins))
            cost, joins = np.where(joined, behind, cost), np.where(joined, more, joins)
            origin = np.where(joined, best, origin)
        elif before and not neighbour.first:
            for number, state in enumerate(before):
                shelves = state.shelves.with_one_more(work)
                behind = np.minimum(state.cost + shelves.least() - state.shelves.least(), NEVER)
                kept = np.full_like(origin, number)
                states.append(_State(behind, state.joins + 1, shelves, state.start, kept))
            states = sorted(states, key=_first)[: MOST_STARTS - 1]
        shelves = _Shelves.of(work)
        alone = np.minimum(cost + shelves.least(), NEVER)
        return [*states, _State(alone, joins, shelves, i, origin)]

    def _members(self, steps: Sequence[Sequence[_State]], tops: Sequence[tuple[int, int]]) -> list[GroupMember]:
        """What becomes of each launch, from the last one on."""
        found: list[GroupMember] = []
        number, at = tops[-1]
        parts, start = 1, len(steps)
        for i in reversed(range(len(steps))):
            state = steps[i][number]
            if i < start:  # the last one before a barrier, or of a group
                each, start = state.shelves.each()[:, at], state.start
                parts = min(int(PARTS[np.flatnonzero(each == each.min())[-1]]), state.shelves.count)
            joined = bool(state.before[at] >= 0)
            bound = self.bounds[at]
            found.append(GroupMember(joined, Occupancy(bound.cores // parts, bound.kinds), bound))
            number, at = (int(state.before[at]), at) if joined else tops[i - 1]
        return found[::-1]

    def _work(self, points: tuple[LaunchPoint, ...]) -> np.ndarray:
        found = self.work.get(id(points))
        if found is None:
            found = np.full((len(self.parts), len(self.bounds)), NEVER)
            for point in points:
                within = self._has(point.occupancy.kinds) & (example(point.occupancy.cores) <= self.within)
                found[within] = np.minimum(found[within], round(point.microseconds * PER_MICROSECOND))
            self.work[id(points)] = found
        return found

    def _has(self, kinds: frozenset[str]) -> np.ndarray:
        """Which bounds have these kinds of cores."""
        known = self.having.get(kinds)
        if known is None:
            known = self.having[kinds] = np.array([kinds <= bound.kinds for bound in self.bounds])
        return known


def _first(state: _State) -> tuple[int, int, int]:
    """What a state costs at least, how many launches are joined then, and with which bound."""
    at = int(np.lexsort((state.joins, state.cost))[0])
    return int(state.cost[at]), int(state.joins[at]), at


def _picoseconds(microseconds: Sequence[float]) -> np.ndarray:
    return np.array([round(us * PER_MICROSECOND) for us in microseconds], np.int64)
