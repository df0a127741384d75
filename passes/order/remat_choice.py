"""Which values leave device memory for a while, rematerialised or offloaded, so that a program needs less at one time:
the cheapest first.

Between two uses a value may be away. It comes back by running what makes it again (rematerialisation, with what that
needs and is away itself), or, over the link, from the host (offload). An eviction is judged by how much of what is over
the limit it takes away, summed over the positions of the program, for each microsecond that the program takes longer. A
copy over the link that runs beside kernels costs nothing; there are as many of these as the link has time for.

The order in which evictions are taken is that of a lazy greedy search: estimates are kept in a heap, and only the best
is estimated again before it is taken. All is deterministic.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .memory_problem import MemoryProblem, MemoryRun, MemoryState, Spell

LONGEST = 32
"""Ops that run again for one value at most."""

SMALL = 8
"""What a value needs has to be this many times smaller to be kept for it, rather than made again with it."""

SLACK = 1.25
"""How much longer a copy is taken to last than the link needs, as kernels may take less than is estimated."""

FREE_OF_COST = 0.05
"""Microseconds that count for an eviction that costs none, so that the larger of two comes first."""


@dataclass(frozen=True)
class Link:
    """The link to the host: microseconds of a runtime call, and bytes in each of them behind that."""

    call_us: float
    bytes_per_us: float

    @property
    def worthwhile(self) -> float:
        """Bytes from which on the link takes longer than the runtime call: fewer do not go to the host."""
        return self.call_us * self.bytes_per_us

    def microseconds(self, bytes_: int) -> float:
        return SLACK * (self.call_us + bytes_ / self.bytes_per_us)


@dataclass(frozen=True)
class Eviction:
    """A value that is away until the run `back`: `gain` is what it takes off what is over the limit, in bytes times
    positions, `microseconds` what it costs. chain: the ops that run again before `back`; without, the value moves to
    the host before the run `leaves` and returns before `returns`. `stall`: how long kernels wait for the link."""

    value: int
    back: MemoryRun
    gain: float
    microseconds: float
    stall: float = 0.0
    chain: tuple[int, ...] = ()
    leaves: MemoryRun | None = None
    returns: MemoryRun | None = None

    @property
    def score(self) -> float:
        return self.gain / max(self.microseconds, FREE_OF_COST)


class RematSearch:
    """Takes evictions until a program needs no more than some bytes at one time, or none is left that helps. `limit`:
    the bytes beyond which it counts how much is live."""

    def __init__(self, problem: MemoryProblem, runs: Sequence[MemoryRun], limit: int, link: Link | None) -> None:
        """link: None where no values may go to the host."""
        self.problem, self.limit, self.link = problem, limit, link
        self.state = MemoryState(problem, runs)
        self.heap: list[tuple[float, int, int, MemoryRun]] = []
        """What was found, the best first; of equals the one that was found first."""
        self.pushed = 0
        self.there: dict[MemoryRun, float] = {}
        """When each move back from the host is over."""

    def run(self, enough: int, aim: int) -> bool:
        """Takes evictions until at most `enough` bytes are live at one time; whether they are. What is over `aim`
        counts as too much."""
        self.limit = aim
        self.heap.clear()
        self.measure()
        fresh = True
        while self.state.peak > enough:
            found = self.next()
            if found is None:
                if not fresh:
                    break
                fresh = False
                for v in range(len(self.problem.values)):
                    self.offer(v)
                continue
            fresh = True
            self.take(found)
        return self.state.peak <= enough

    @property
    def microseconds(self) -> float:
        """What the evictions so far cost."""
        ops = self.problem.ops
        return sum(run.stall + (ops[run.op].microseconds if run.again else 0.0) for run in self.state.runs)

    @property
    def stalls(self) -> bool:
        """Whether kernels wait for the link."""
        return any(run.stall for run in self.state.runs)

    def measure(self) -> None:
        """What follows from the state: what is over the limit, and when the link is busy."""
        self.over = np.maximum(self.state.live - self.limit, 0)
        self.total = int(self.over.sum())
        self.some = np.concatenate([[0], np.cumsum(self.over > 0)])
        self.outs, self.ins = self.transfers()

    def transfers(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """When the link brings values to the host, and back, from when to when each, in order."""
        outs: list[tuple[float, float]] = []
        ins: list[tuple[float, float]] = []
        self.there.clear()
        if self.link is None:
            return outs, ins
        starts = self.state.starts
        made: dict[int, int] = {}
        for at, run in enumerate(self.state.runs):
            if not run.moves:
                made.update(dict.fromkeys(self.problem.ops[run.op].makes, at))
                continue
            taken = self.link.microseconds(self.problem.values[run.value].bytes)
            busy = outs if run.out else ins
            ready = starts[made.get(run.value, -1) + 1] if run.out else starts[at]
            begin = max(float(ready), busy[-1][1] if busy else 0.0)
            busy.append((begin, begin + taken))
            if run.back:
                self.there[run] = begin + taken
        return outs, ins

    # -- the search ----------------------------------------------------------------------------------------

    def gaps(self, v: int) -> Iterator[tuple[int, int]]:
        """Pairs of positions between which a value is not used, where something is over the limit."""
        for spell in self.state.spells[v]:
            for a, b in zip(spell.touches, spell.touches[1:], strict=False):
                runs = self.state.runs
                moved = runs[b].out or (a >= 0 and runs[a].back)
                if b > a + 1 and self.some[b] > self.some[a + 1] and not moved:
                    yield a, b

    def offer(self, v: int) -> None:
        """Puts the evictions of a value into the heap."""
        if self.problem.values[v].bytes and self.problem.values[v].until < 0:
            for a, b in self.gaps(v):
                found = self.best(v, a, b)
                if found is not None:
                    self.push(found)

    def push(self, found: Eviction) -> None:
        self.pushed += 1
        heapq.heappush(self.heap, (-found.score, self.pushed, found.value, found.back))

    def next(self) -> Eviction | None:
        """The best eviction, estimated as things are now."""
        while self.heap:
            _, _, v, back = heapq.heappop(self.heap)
            at = self.state.place[back]
            before = next((a for a, b in self.gaps(v) if b == at), None)
            found = None if before is None else self.best(v, before, at)
            if found is None:
                continue
            if not self.heap or found.score >= -self.heap[0][0]:
                return found
            self.push(found)
        return None

    def take(self, eviction: Eviction) -> None:
        runs = self.state.runs
        new: dict[MemoryRun, list[MemoryRun]] = {}
        for i, op in enumerate(eviction.chain):
            stall = 0.0 if i else eviction.stall
            new.setdefault(eviction.back, []).append(MemoryRun(op, again=True, stall=stall))
        if eviction.leaves is not None and eviction.returns is not None:
            new.setdefault(eviction.leaves, []).append(MemoryRun(value=eviction.value, out=True))
            new.setdefault(eviction.returns, []).append(MemoryRun(value=eviction.value, stall=eviction.stall))
        self.state = MemoryState(self.problem, [r for run in runs for r in (*new.get(run, ()), run)])
        self.measure()
        touched = {eviction.value}
        for op in eviction.chain:
            touched.update(self.problem.ops[op].uses, self.problem.ops[op].makes)
        for v in sorted(touched):
            self.offer(v)

    def best(self, v: int, a: int, b: int) -> Eviction | None:
        """The best way to have a value away between two positions; None where none helps."""
        found = [e for e in (self.rematerialised(v, a, b), self.offloaded(v, a, b)) if e is not None and e.gain > 0]
        return max(found, key=lambda e: e.score, default=None)

    # -- rematerialising -----------------------------------------------------------------------------------

    def rematerialised(self, v: int, a: int, b: int) -> Eviction | None:
        """Running a value's ops again right before position b."""
        chain = _Chain(self, v, a, b)
        if not chain.make(v):
            return None
        gain = chain.gain()
        if gain is None:
            return None
        again = sum(self.problem.ops[i].microseconds for i in chain.ops)
        return Eviction(v, self.state.runs[b], gain, again + chain.stall, chain.stall, tuple(chain.ops))

    # -- to the host and back ------------------------------------------------------------------------------

    def offloaded(self, v: int, a: int, b: int) -> Eviction | None:
        """Moving a value to the host behind position a, and back before b."""
        starts, bytes_ = self.state.starts, self.problem.values[v].bytes
        if self.link is None or bytes_ < self.link.worthwhile:
            return None
        taken = self.link.microseconds(bytes_)
        spell = self.state.spell_before(v, b)
        assert spell is not None
        gone = _free_after(self.outs, float(starts[spell.first + 1]), taken) + taken
        leaves = max(int(np.searchsorted(starts, gone)), a + 1)
        if leaves >= b:
            return None
        begin = _free_before(self.ins, float(starts[b]), taken)
        returns = int(np.searchsorted(starts, begin, side="right")) - 1
        stall = 0.0
        if begin < gone or returns <= leaves:
            returns = b
            start = max(gone, float(starts[b]), self.ins[-1][1] if self.ins else 0.0)
            stall = start + taken - float(starts[b])
        gain = float(np.minimum(self.over[leaves:returns], bytes_).sum())
        runs = self.state.runs
        return Eviction(v, runs[b], gain, stall, stall, leaves=runs[leaves], returns=runs[returns])


class _Chain:
    """The ops that run again before position `b`, so that value `v` need not be there behind position `a`."""

    def __init__(self, search: RematSearch, v: int, a: int, b: int) -> None:
        self.search, self.problem, self.state = search, search.problem, search.state
        self.limit, self.total = search.limit, search.total
        self.v, self.a, self.b = v, a, b
        self.ops: list[int] = []
        self.opened = 0
        self.stall = 0.0
        """Microseconds that it waits for what is on its way back from the host."""
        self.made: set[int] = set()
        self.kept: dict[int, int] = {}
        """Values that stay longer, and where their use ended."""
        self.after = self.state.live.copy()
        """What is live at each position then."""
        self.after[a + 1 : b] -= self.problem.values[v].bytes

    def have(self, x: int) -> bool:
        """Sees to it that a value is there before `b`; whether that can be."""
        if x in self.made or x in self.kept:
            return True
        value, spell = self.problem.values[x], self.state.spell_before(x, self.b)
        if value.until >= 0 and self.state.first[value.until] < self.b:
            return False
        if spell is not None and spell.last >= self.b and x != self.v:
            self.wait(spell)
            return True
        longer = None if spell is None else self.longer(spell)
        if longer == 0:
            return self.keep(x, spell)
        saved = self.problem.values[self.v].bytes
        small = value.bytes * SMALL < saved and longer is not None and longer * SMALL < saved * (self.b - self.a)
        if small or (longer is not None and self.problem.makers[x] < 0):
            return self.keep(x, spell)
        return self.make(x)

    def wait(self, spell: Spell) -> None:
        """Where a value is on its way back from the host, the chain waits for it."""
        if spell.first >= 0:
            there = self.search.there.get(self.state.runs[spell.first], 0.0)
            self.stall = max(self.stall, there - float(self.state.starts[self.b]))

    def longer(self, spell: Spell) -> float:
        """What is over the limit, if a value stays until `b`, in bytes times positions."""
        part = self.after[spell.last + 1 : self.b]
        bytes_ = self.problem.values[spell.value].bytes
        return float((np.maximum(part + bytes_ - self.limit, 0) - np.maximum(part - self.limit, 0)).sum())

    def keep(self, x: int, spell: Spell | None) -> bool:
        assert spell is not None
        self.after[spell.last + 1 : self.b] += self.problem.values[x].bytes
        self.kept[x] = spell.last
        return True

    def make(self, x: int) -> bool:
        """Runs the op that makes a value again; whether that can be."""
        maker = self.problem.makers[x]
        self.opened += 1
        if maker < 0 or not self.problem.ops[maker].again or self.opened > LONGEST:
            return False
        op = self.problem.ops[maker]
        self.made.update(op.makes)
        if not all(self.have(u) for u in op.uses):
            return False
        self.ops.append(maker)
        return True

    def gain(self) -> float | None:
        """What is taken off what is over the limit; None where more than now would be live at one time."""
        values, state, b = self.problem.values, self.state, self.b
        lasting = {self.v}
        for y in self.made - lasting:
            spell = state.spell_before(y, b)
            if spell is not None and spell.last >= b:
                lasting.add(y)
                next_ = bisect_left(spell.touches, b)
                if next_ < len(spell.touches) and state.runs[spell.touches[next_]].out:
                    return None
                used = spell.touches[next_ - 1]
                self.after[used + 1 : b] -= values[y].bytes
        run = state.runs[b]
        begins = () if run.moves else self.problem.ops[run.op].makes
        base = int(state.across[b]) - sum(values[y].bytes for y in begins if values[y].over < 0)
        base -= sum(values[y].bytes for y in lasting)
        base += sum(values[x].bytes for x in self.kept)
        ends: dict[int, int] = {}
        for at, i in enumerate(self.ops):
            ends.update(dict.fromkeys((*self.problem.ops[i].uses, *self.problem.ops[i].makes), at))
        top = over = 0
        for at, i in enumerate(self.ops):
            op = self.problem.ops[i]
            base += sum(values[y].bytes for y in op.makes if values[y].over < 0)
            top = max(top, base + op.alone)
            over += max(base + op.alone - self.limit, 0)
            for y in {*op.uses, *op.makes} & self.made:
                if ends[y] == at and y not in lasting:
                    base -= values[y].bytes
        if top > state.peak or int(self.after.max()) > state.peak:
            return None
        return float(self.total - int(np.maximum(self.after - self.limit, 0).sum()) - over)


def _free_after(busy: Sequence[tuple[float, float]], ready: float, taken: float) -> float:
    """The earliest time from `ready` on at which the link is free for so long."""
    at = ready
    for begin, end in busy:
        if begin - at >= taken:
            break
        at = max(at, end)
    return at


def _free_before(busy: Sequence[tuple[float, float]], needed: float, taken: float) -> float:
    """The latest time at which the link is free for so long, and done by `needed`; negative where there is none."""
    at = needed
    for begin, end in reversed(busy):
        if at - end >= taken:
            break
        at = min(at, begin)
    return at - taken
