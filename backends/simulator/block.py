"""The cores that run one grid point side by side, and signal each other.

Each core runs on its own until it waits for a signal that is not there: when it was raised is all that counts, so that
their order does not matter. A loop with signals inside comes into a steady state, in which all that still counts of
every core happens as many cycles later with each round. Once that is seen twice in a row, the rounds that are left are
taken in one step (`_Rounds`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...dialects.base import describe
from .core import Core
from .errors import SimulationError
from .nodes import SET_CROSS, TimedCross, TimedNode
from .section import TimedLoop

LEAST_TRIPS = 12
"""Rounds that must be left of a loop so that a steady state is looked for: it takes some to come into one."""

MOST_ROUND = 6
"""Trips of a round, at most."""


@dataclass(slots=True)
class _Place:
    """Where a core stands: before a trip of a loop, the `entry`-th that it came into."""

    loop: TimedLoop
    entry: int
    first: int
    trips: int
    trip: int = 0
    steady: Sequence[tuple[int, int, bool]] | None = None

    def same_until(self, core: Core, since: int) -> int:
        """The trip up to which all cost what those cost from another one on; the next one where they do not."""
        if self.steady is None:
            self.steady = self.loop.runs(core.env, self.first, self.trips)
        for start, count, steady in self.steady:
            if steady and start <= since and self.trip < start + count:
                return start + count
        return self.trip


class Block:
    """Runs cores side by side. A wait_cross takes one set of its event from every unit of the other sections that sets
    it at all."""

    def __init__(self, cores: Sequence[Core]) -> None:
        self.cores = list(cores)
        self.sets: dict[tuple[int, int, int], deque[int]] = {}
        """When signals were raised that nothing has waited for: by sender, receiver and event."""
        self._senders = {
            (i, event): [
                j
                for j, core in enumerate(cores)
                if core.section is not own.section and event in core.section.sends
            ]
            for i, own in enumerate(cores)
            for event in {e for core in cores for e in core.section.sends}
        }
        self._receivers: dict[tuple[int, int], list[int]] = {
            (j, event): [
                i
                for i, core in enumerate(cores)
                if event in core.section.awaits and j in self._senders[i, event]
            ]
            for j, own in enumerate(cores)
            for event in own.section.sends
        }
        self.places: list[_Place | None] = [None] * len(self.cores)
        """Before which trips cores stand that wait there for the others."""
        self._entries = 0
        self._rounds = _Rounds(self) if len(self.cores) > 1 else None

    def run(self) -> None:
        """Run all cores to their ends. Raises SimulationError on deadlock."""
        running: dict[int, tuple[Iterator[TimedCross | None], TimedCross | None]] = {
            i: (self._run(i, core.section.body), None) for i, core in enumerate(self.cores)
        }
        while running:
            moved = False
            for i, (steps, waits) in list(running.items()):
                if self.places[i] is None and (waits is None or self._ready(i, waits)):
                    moved = True
                    blocked = next(steps, _OVER)
                    if blocked is _OVER:
                        del running[i]
                    else:
                        assert blocked is None or isinstance(blocked, TimedCross)
                        running[i] = (steps, blocked)
            if not moved and not self._let_go():
                stuck = next(iter(running.values()))[1]
                assert stuck is not None
                raise SimulationError(
                    f"{describe(stuck.op)} waits for cross-core event {stuck.event} that no other core of "
                    "the block raises: deadlock"
                )

    def _let_go(self) -> bool:
        """Lets cores go on that stand before a trip; whether there are any. Where all do, rounds may be left out."""
        if not any(self.places):
            return False
        if self._rounds is not None and all(self.places):
            self._rounds.look([p for p in self.places if p is not None])
        self.places = [None] * len(self.cores)
        return True

    def _run(self, own: int, nodes: Sequence[TimedNode]) -> Iterator[TimedCross | None]:
        """Run nodes; yields each wait_cross that is not ready yet, and None before a trip of a loop."""
        core = self.cores[own]
        pipes = core.pipes
        for node in nodes:
            if not node.crosses:
                core.run((node,))
            elif isinstance(node, TimedLoop):
                yield from self._trips(own, node)
            else:
                assert isinstance(node, TimedCross)
                issued = pipes[0] = pipes[0] + node.issue
                if node.kind == SET_CROSS:
                    time = max(pipes[node.pipe], issued)
                    for other in self._receivers[own, node.event]:
                        self.sets.setdefault((own, other, node.event), deque()).append(time)
                    continue
                while not self._ready(own, node):
                    yield node
                arrived = [
                    self.sets[sender, own, node.event].popleft() for sender in self._senders[own, node.event]
                ]
                signalled = max(arrived) + core.cross_cycles
                pipes[node.pipe] = max(pipes[node.pipe], issued, signalled) + core.waits[node.pipe]

    def _trips(self, own: int, loop: TimedLoop) -> Iterator[TimedCross | None]:
        core = self.cores[own]
        first, trips = loop.extent(core.env)
        self._entries += 1
        place = _Place(loop, self._entries, first, trips)
        while place.trip < trips:
            if self._rounds is not None and trips >= LEAST_TRIPS:
                self.places[own] = place
                yield None
                if place.trip >= trips:
                    break
            core.env[loop.variable] = first + loop.step * place.trip
            yield from self._run(own, loop.body)
            place.trip += 1

    def _ready(self, own: int, wait: TimedCross) -> bool:
        senders = self._senders.get((own, wait.event), [])
        return bool(senders) and all(self.sets.get((sender, own, wait.event)) for sender in senders)


_OVER = object()


@dataclass(slots=True)
class _State:
    """All times of cores that stand before a trip, in an order that `form` says; the first ones are those of the scalar
    units."""

    form: tuple[object, ...]
    times: NDArray[np.int64]
    trips: NDArray[np.int64]

    def behind(self, other: _State) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cycles and trips since another state of the same form."""
        return self.times - other.times, self.trips - other.trips


class _Rounds:
    """Finds steady states of a block, and leaves rounds out.

    Let two rounds in a row move each time by as much: most by d, the most there is; what nothing touches by 0; those of
    scalar units, which issue ahead of the pipes, by less or as much; those of a core that waits for no other one by as
    much as that takes. Where all that moves by d is later than all scalar units are behind the round, none of these
    waits for it. Then all rounds move all times so. For every time is a maximum of earlier ones plus constants: one
    that is d later though some that it might wait for are not does not wait for these, and they fall behind further.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.seen: dict[tuple[int, ...], deque[_State]] = {}

    def look(self, places: Sequence[_Place]) -> None:
        """Notes the state of cores that stand before these trips, and leaves out the rounds that are known."""
        if any(core.record or core.matrices is None or core.held is not None for core in self.block.cores):
            return
        if min(place.trips - place.trip for place in places) < LEAST_TRIPS // 2:
            return
        known = self.seen.setdefault(tuple([p.entry for p in places]), deque(maxlen=2 * MOST_ROUND))
        state = self._state(places)
        for length in range(1, min(MOST_ROUND, len(known) // 2) + 1):
            last, before = known[-length], known[-2 * length]
            if not state.form == last.form == before.form:
                continue
            (later, trips), first = state.behind(last), last.behind(before)
            if np.array_equal(later, first[0]) and np.array_equal(trips, first[1]):
                if self._is_steady(state, later):
                    self._leave_out(places, before, state, later, trips)
                    known.clear()
                break
        known.append(state)

    def _is_steady(self, now: _State, later: NDArray[np.int64]) -> bool:
        """Whether all further rounds move times as two did, if they cost as much. A core that waits for no other one is
        a state of its own, which the others must not fall behind."""
        cores, owner = self.block.cores, self._owners()
        alone = [i for i, core in enumerate(cores) if not core.section.awaits]
        together = [i for i in range(len(cores)) if i not in alone]
        slowest = 0
        for group in ([i] for i in alone):
            most = self._pace(now, later, owner, group, [*group, *together])
            if most is None:
                return False
            slowest = max(slowest, most)
        if together:
            most = self._pace(now, later, owner, together, together)
            return most is not None and most >= slowest
        return True

    def _pace(
        self, now: _State, later: NDArray[np.int64], owner: NDArray[np.int64], group: list[int], units: list[int]
    ) -> int | None:
        """By how much a round moves the times of some cores, if it moves them as it should. units: the scalar units
        that might wait for them."""
        own = np.isin(owner, group)
        most = int(later[own].max())
        fast = own & (later == most)
        rest = own & ~fast & (later != 0)
        rest[: len(self.block.cores)] = False
        behind = [i for i in units if later[i] < most]
        if rest.any() or (behind and now.times[fast].min() <= (now.times + later)[behind].max()):
            return None
        return most

    def _owners(self) -> NDArray[np.int64]:
        """The number of the core that each time of a state is of; signals are their sender's."""
        cores = self.block.cores
        found = [*range(len(cores))]
        for i, core in enumerate(cores):
            found += [i] * (len(core.pipes) - 1 + sum(map(len, core.flags.values())))
        for (sender, *_), raised in self.block.sets.items():
            found += [sender] * len(raised)
        return np.array(found, np.int64)

    def _leave_out(
        self,
        places: Sequence[_Place],
        before: _State,
        now: _State,
        later: NDArray[np.int64],
        trips: NDArray[np.int64],
    ) -> None:
        """Goes on to where the last full round ends whose trips cost what those from `before` on did."""
        if trips.min() < 1:
            return
        rounds = []
        for place, core, since, n in zip(
            places, self.block.cores, before.trips.tolist(), trips.tolist(), strict=True
        ):
            end = place.same_until(core, since)
            rounds.append((end - place.trip) // n)
        count = min(rounds)
        if count < 1:
            return
        self._set((now.times + count * later).tolist())
        for place, n in zip(places, trips.tolist(), strict=True):
            place.trip += count * n

    def _state(self, places: Sequence[_Place]) -> _State:
        cores, sets = self.block.cores, self.block.sets
        form: list[object] = []
        times = [core.pipes[0] for core in cores]
        for core, place in zip(cores, places, strict=True):
            form.append((place.loop.number, place.trip % place.loop.period))
            times += core.pipes[1:]
            for channel, raised in core.flags.items():
                form.append((channel, len(raised)))
                times += raised
        for key, raised in sets.items():
            form.append((key, len(raised)))
            times += raised
        trips = [place.trip for place in places]
        return _State(tuple(form), np.array(times, np.int64), np.array(trips, np.int64))

    def _set(self, times: Sequence[int]) -> None:
        """Gives all times of the block values, in the order of `_state`."""
        left = iter(times)
        cores, sets = self.block.cores, self.block.sets
        for core in cores:
            core.pipes[0] = next(left)
        for core in cores:
            core.pipes[1:] = [next(left) for _ in core.pipes[1:]]
            for raised in core.flags.values():
                _replace(raised, left)
        for raised in sets.values():
            _replace(raised, left)


def _replace(raised: deque[int], times: Iterator[int]) -> None:
    """Gives the times in a fifo new values."""
    for _ in range(len(raised)):
        raised.popleft()
        raised.append(next(times))
