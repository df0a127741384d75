"""Orders the commands of a program for parallel in-order queues: list scheduling on plain numbers.

A unit is scheduled as a whole: a launch, or a transfer, a host call and the transfer of its result. Its
legs run one after the other, each on a queue, and a queue runs its legs in order. A kernel that waits for the
host therefore blocks every later kernel, even a ready one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...dialects.npu.streams import COMPUTE, HOST, PROGRAM, QUEUES


@dataclass
class Unit:
    """Legs are (queue, microseconds). `needs`: units that come before it; `at_issue`: those of them that the program's
    thread waits for before it gives the unit away; `whole`: it starts when all queues are free, and they are free
    again when it ends; `bytes`: device memory that only it uses; `ready`: when what it has from outside is there."""

    legs: Sequence[tuple[str, float]]
    needs: set[int] = field(default_factory=set)
    at_issue: set[int] = field(default_factory=set)
    whole: bool = False
    bytes: int = 0
    ready: float = 0.0

    @property
    def aside(self) -> bool:
        """Whether giving it away holds up nothing of the device and nothing of the program."""
        queues = {queue for queue, _ in self.legs}
        return not (self.whole or self.at_issue or queues & {COMPUTE, PROGRAM})

    @property
    def calls(self) -> bool:
        return any(queue == HOST for queue, _ in self.legs)

    @property
    def microseconds(self) -> float:
        return sum(us for _, us in self.legs)


@dataclass
class TensorLife:
    """Device memory from the unit `maker` (-1: from the start) to the last of its `users`, or to the end if `kept`."""

    bytes: int
    maker: int
    users: set[int] = field(default_factory=set)
    kept: bool = False


@dataclass
class Clock:
    """When each queue is free, and when each unit ended."""

    free: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0.0))
    ends: dict[int, float] = field(default_factory=dict)

    def starts(self, unit: Unit) -> float:
        """When the first leg could start if its queue were free."""
        return max(unit.ready, self.free[PROGRAM], *(self.ends[i] for i in unit.needs), 0.0)

    def run(self, number: int, unit: Unit) -> None:
        at = self.starts(unit)
        self.free[PROGRAM] = max(self.free[PROGRAM], *(self.ends[i] for i in unit.at_issue), 0.0)
        if unit.whole:
            at = max(at, *self.free.values())
        for queue, us in unit.legs:
            at = self.free[queue] = max(at, self.free[queue]) + us
        if unit.whole:
            self.free = dict.fromkeys(self.free, at)
        self.ends[number] = at

    @property
    def end(self) -> float:
        return max(self.free.values())


def run(units: Sequence[Unit], order: Sequence[int], free: dict[str, float] | None) -> Clock:
    """All units in an order, from when queues are free: at 0 where that is not said."""
    clock = Clock() if free is None else Clock(dict(free))
    for i in order:
        clock.run(i, units[i])
    return clock


def arrange(
    units: Sequence[Unit],
    tensors: Sequence[TensorLife] = (),
    free: dict[str, float] | None = None,
    room: int = 0,
) -> list[int]:
    """The order in which units are best given to their queues.

    They come in an order that respects their needs. Where no other is estimated to end earlier, that is the answer. No
    other takes more device memory at one time than that one, but for what one host call brings: that may wait for its
    reader while others run, if it takes at most half of what is left of the `room` bytes.
    """
    before = list(range(len(units)))
    if not any(unit.calls for unit in units):
        return before
    found = list(
        _listed(units, LiveBytes(units, tensors, room), Clock() if free is None else Clock(dict(free)))
    )
    shorter = run(units, found, free).end < run(units, before, free).end * (1 - 1e-9)
    return found if shorter else before


def _listed(units: Sequence[Unit], memory: LiveBytes, clock: Clock) -> Iterator[int]:
    """List scheduling: of the units that could start now, those first on which a host call waits, then as they came;
    if none could, the one that can start next. A unit that does not fit in memory makes way for the first one that is
    left, which always fits. What holds up nothing goes at once."""
    users: list[list[int]] = [[] for _ in units]
    for i, unit in enumerate(units):
        for j in unit.needs:
            users[j].append(i)
    awaited = [unit.calls for unit in units]
    for i in range(len(units) - 1, -1, -1):
        awaited[i] = awaited[i] or any(awaited[j] for j in users[i])
    missing = [len(unit.needs) for unit in units]
    done = [False] * len(units)
    now: list[tuple[bool, int]] = []
    later: list[tuple[float, bool, int]] = []
    at_once: list[int] = []

    def offer(i: int) -> None:
        if units[i].aside:
            heapq.heappush(at_once, i)
        else:
            heapq.heappush(later, (clock.starts(units[i]), not awaited[i], i))

    def taken() -> int:
        while at_once:
            i = heapq.heappop(at_once)
            if memory.fits(i):
                return i
            heapq.heappush(now, (not awaited[i], i))
        while later and (done[later[0][-1]] or later[0][0] <= clock.free[COMPUTE]):
            _, rank, i = heapq.heappop(later)
            heapq.heappush(now, (rank, i))
        while now and done[now[0][-1]]:
            heapq.heappop(now)
        i = now[0][-1] if now else later[0][-1]
        return i if memory.fits(i) else memory.head

    for i, n in enumerate(missing):
        if n == 0:
            offer(i)
    for _ in units:
        i = taken()
        done[i] = True
        memory.take(i)
        clock.run(i, units[i])
        for j in users[i]:
            missing[j] -= 1
            if missing[j] == 0:
                offer(j)
        yield i


class LiveBytes:
    """The bytes that are alive while some units went before their turn.

    `profile[p]` is what is alive while unit p runs, if all units that are left run as they came: a tensor whose maker
    went early is there from now on, one whose last user did is gone. The most that the units need as they came,
    and what one host call brings, is the `limit` for any order.
    """

    def __init__(self, units: Sequence[Unit], tensors: Sequence[TensorLife], room: int) -> None:
        self.units, self.tensors = units, tensors
        self.profile = np.array([unit.bytes for unit in units], np.int64)
        self.made: list[list[int]] = [[] for _ in units]
        self.used: list[list[int]] = [[] for _ in units]
        self.left = [set(t.users) for t in tensors]
        self.head = 0
        self.alive = 0
        self.done = [False] * len(units)
        for t, tensor in enumerate(tensors):
            self.profile[max(tensor.maker, 0) : self._last(t) + 1] += tensor.bytes
            if tensor.maker < 0:
                self.alive += tensor.bytes
            else:
                self.made[tensor.maker].append(t)
            for user in tensor.users:
                self.used[user].append(t)
        peak = int(self.profile.max(initial=0))
        brought = (sum(tensors[t].bytes for t in self.made[i]) for i, unit in enumerate(units) if unit.calls)
        self.limit = peak + min(max(brought, default=0), max(0, room - peak) // 2)

    def _last(self, t: int) -> int:
        """The unit up to which a tensor is needed, of those that are left."""
        tensor = self.tensors[t]
        return len(self.units) - 1 if tensor.kept else max(self.left[t], default=tensor.maker)

    def fits(self, i: int) -> bool:
        """Whether a unit may go now without more than the limit being alive, now or later."""
        if i == self.head:
            return True
        new = sum(self.tensors[t].bytes for t in self.made[i])
        if self.alive + new + self.units[i].bytes > self.limit:
            return False
        changes = list(self._changes(i))
        for first, behind, by in changes:
            self.profile[first:behind] += by
        fits = self.profile[self.head : i].max(initial=0) <= self.limit
        for first, behind, by in changes:
            self.profile[first:behind] -= by
        return bool(fits)

    def take(self, i: int) -> None:
        """A unit goes now."""
        for first, behind, by in self._changes(i):
            self.profile[first:behind] += by
        self.alive += sum(self.tensors[t].bytes for t in self.made[i])
        for t in self.used[i]:
            self.left[t].discard(i)
        for t in {*self.made[i], *self.used[i]}:
            if not self.left[t] and not self.tensors[t].kept:
                self.alive -= self.tensors[t].bytes
        self.done[i] = True
        while self.head < len(self.units) and self.done[self.head]:
            self.head += 1

    def _changes(self, i: int) -> Iterator[tuple[int, int, int]]:
        """What changes in the profile if a unit goes now, as (first unit, unit behind the last, bytes)."""
        for t in self.made[i]:
            if self.left[t] or self.tensors[t].kept:
                yield self.head, i, self.tensors[t].bytes
        for t in self.used[i]:
            if not self.tensors[t].kept and i == self._last(t):
                rest = max((u for u in self.left[t] if u != i), default=self.head - 1)
                yield rest + 1, i + 1, -self.tensors[t].bytes
