"""When each command of the host program runs: queues in order, side by side, and the events between them.

All times are maxima of earlier times plus constants. A loop's pass is therefore a max-plus matrix over the times at
which queues are free and events happen, and n passes are its n-th power (maxplus.py does the same in cycles).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialects.npu.streams import PROGRAM, QUEUES
from .steps import EventRecord, EventWait, Repeat, Step, Work, track

Row = NDArray[np.float64]
"""The time of something: the maximum of the times that a pass starts with, each with a constant added."""

NEVER = -np.inf


@dataclass(frozen=True)
class Placed:
    """A step of the host program from `begin` to `end` microseconds. `calls`: the calls that it is inside, outermost
    first, each with a number of its own, so that two passes through one call can be told apart."""

    step: Work
    begin: float
    end: float
    calls: tuple[tuple[Operation, int], ...]


@dataclass(frozen=True)
class Rest:
    """What a queue does from `begin` to `end` in the `passes` through a loop that are not laid out one by one. `op`: a
    command of the loop, or a call in it; `calls`: as of Placed."""

    queue: str
    passes: int
    begin: float
    end: float
    op: Operation
    calls: tuple[tuple[Operation, int], ...]


def makespan(steps: Sequence[Step | Repeat]) -> float:
    """From the first command to the end of the last, in microseconds."""
    clock = _Clock.at_zero()
    clock.run(steps)
    return clock.end()


def lay_out(steps: Sequence[Step | Repeat], commands: int) -> Iterator[Placed | Rest]:
    """All commands in time. Of loops the first passes are laid out one by one: as many, the same number for each loop,
    as make at most `commands` commands in all, and at least one; the others are one Rest for each queue."""
    return _lay_out(_Clock.at_zero(), steps, _passes(steps, commands), (), count())


def _passes(steps: Sequence[Step | Repeat], commands: int) -> int:
    """The largest number of passes through each loop that makes at most `commands` commands; at least 1."""
    low, high = 1, _longest(steps, {})
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(steps, middle, {}) <= commands else (low, middle - 1)
    return low


def _longest(steps: Sequence[Step | Repeat], known: dict[int, int]) -> int:
    """The most passes that any loop has."""
    found = 1
    for step in steps:
        if isinstance(step, Repeat):
            if id(step.steps) not in known:
                known[id(step.steps)] = _longest(step.steps, known)
            found = max(found, step.times, known[id(step.steps)])
    return found


def _size(steps: Sequence[Step | Repeat], passes: int, known: dict[int, int]) -> int:
    """The commands that are laid out where at most `passes` of each loop are."""
    found = 0
    for step in steps:
        if isinstance(step, Repeat):
            if id(step.steps) not in known:
                known[id(step.steps)] = _size(step.steps, passes, known)
            found += min(step.times, passes) * known[id(step.steps)]
        else:
            found += not isinstance(step, EventRecord | EventWait)
    return found


def _lay_out(
    clock: _Clock,
    steps: Sequence[Step | Repeat],
    passes: int,
    calls: tuple[tuple[Operation, int], ...],
    numbers: Iterator[int],
) -> Iterator[Placed | Rest]:
    for step in steps:
        if isinstance(step, EventRecord | EventWait):
            clock.step(step)
        elif not isinstance(step, Repeat):
            begin, end = clock.step(step)
            yield Placed(step, begin, end, calls)
        else:
            once, shown = clock.copy(), min(step.times, passes)
            for _ in range(shown):
                inside = calls
                if step.call is not None:
                    once, inside = once.inside(), (*calls, (step.call, next(numbers)))
                yield from _lay_out(once, step.steps, passes, inside, numbers)
            clock.repeat(step)
            op = _first(step)
            if step.times > shown and op is not None:
                for queue in sorted(_tracks(step)):
                    yield Rest(queue, step.times - shown, once.free({queue}), clock.free({queue}), op, calls)


def _first(step: Step | Repeat) -> Operation | None:
    """The op of the first command, or call, that a loop runs; None where it runs none."""
    if not isinstance(step, Repeat):
        return None if isinstance(step, EventRecord | EventWait) else step.op
    if step.call is not None:
        return step.call
    return next((op for inner in step.steps if (op := _first(inner)) is not None), None)


def _tracks(repeat: Repeat) -> set[str]:
    """The queues that show what a loop does."""
    found: set[str] = set()
    for step in repeat.steps:
        if isinstance(step, Repeat):
            found |= _tracks(step)
        elif not isinstance(step, EventRecord | EventWait):
            found.add(track(step))
    return found


class _Clock:
    """When each queue is free and each event happened, as rows over what they started with. `passes`: the matrices of
    what was repeated so far."""

    def __init__(self, queues: dict[str, Row], events: dict[int, Row], passes: dict[int, _Pass]) -> None:
        self.queues, self.events, self.passes = queues, events, passes

    @classmethod
    def at_zero(cls) -> _Clock:
        return cls({q: np.zeros(1) for q in QUEUES}, {}, {})

    def copy(self) -> _Clock:
        return _Clock(dict(self.queues), dict(self.events), self.passes)

    def inside(self) -> _Clock:
        """As it is at the start of a function, whose events are its own."""
        return _Clock(dict(self.queues), {}, self.passes)

    def end(self) -> float:
        """When all queues are free."""
        return max(float(row.max()) for row in self.queues.values())

    def free(self, queues: Collection[str | None]) -> float:
        """When some queues are free."""
        found = QUEUES if None in queues else [q for q in QUEUES if q in queues]
        return max((float(self.queues[q].max()) for q in found), default=0.0)

    def run(self, steps: Sequence[Step | Repeat]) -> None:
        for step in steps:
            if isinstance(step, Repeat):
                self.repeat(step)
            else:
                self.step(step)

    def step(self, step: Step) -> tuple[float, float]:
        """Runs one step; when it begins and ends."""
        queues = self.queues
        if isinstance(step, EventRecord):
            begin = end = self.events[step.event] = queues[step.queue]
        elif isinstance(step, EventWait):
            begin = queues[step.queue]
            end = queues[step.queue] = np.maximum(begin, self.events.get(step.event, begin))
        else:
            begin, end = self._work(step.queue, step.microseconds)
        return float(begin.max()), float(end.max())

    def _work(self, queue: str | None, microseconds: float) -> tuple[Row, Row]:
        if queue is None:
            begin = np.stack(list(self.queues.values())).max(axis=0)
            end = begin + microseconds
            for name in QUEUES:
                self.queues[name] = end
        else:
            begin = np.maximum(self.queues[queue], self.queues[PROGRAM])
            end = self.queues[queue] = begin + microseconds
        return begin, end

    def repeat(self, repeat: Repeat) -> None:
        """Runs all passes."""
        if len(repeat.queues) == 1 and not repeat.ordered:  # one command after the other
            (queue,) = repeat.queues
            self._work(queue, repeat.microseconds)
        elif repeat.call is not None:  # a function's events are its own
            _Pass.of(repeat, self.passes).apply(self, repeat.times)
        else:
            if repeat.times > 1:
                _Pass.of(repeat, self.passes).apply(self, repeat.times - 1)
            self.run(repeat.steps)  # leaves the events of the last pass


@dataclass(frozen=True)
class _Pass:
    """One pass through what is repeated: the times of queues and of the `events` that it hands to the next pass, as a
    matrix over the same times before it."""

    events: tuple[int, ...]
    matrix: NDArray[np.float64]

    @staticmethod
    def of(repeat: Repeat, known: dict[int, _Pass]) -> _Pass:
        key = id(repeat.steps)
        if key not in known:
            events = () if repeat.call is not None else tuple(_carried(repeat.steps, set()))
            unit = np.full((len(QUEUES) + len(events),) * 2, NEVER)
            np.fill_diagonal(unit, 0.0)
            clock = _Clock(
                dict(zip(QUEUES, unit[: len(QUEUES)], strict=True)),
                dict(zip(events, unit[len(QUEUES) :], strict=True)),
                known,
            )
            clock.run(repeat.steps)
            known[key] = _Pass(events, np.stack([*clock.queues.values(), *(clock.events[e] for e in events)]))
        return known[key]

    def apply(self, clock: _Clock, times: int) -> None:
        """Runs it `times` times."""
        rows = list(clock.queues.values())
        never = np.full_like(rows[0], NEVER)
        state = np.stack([*rows, *(clock.events.get(e, never) for e in self.events)])
        matrix = self.matrix
        while times:
            if times & 1:
                state = _product(matrix, state)
            times >>= 1
            if times:
                matrix = _product(matrix, matrix)
        clock.queues.update(zip(QUEUES, state, strict=False))
        clock.events.update(zip(self.events, state[len(QUEUES) :], strict=True))


def _product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """`left` after `right`."""
    return (left[:, :, None] + right[None, :, :]).max(axis=1)


def _carried(steps: Sequence[Step | Repeat], recorded: set[int]) -> Iterator[int]:
    """The events that steps wait for before they record them, each once; adds what they record."""
    for step in steps:
        if isinstance(step, Repeat):
            if step.call is None:
                yield from _carried(step.steps, recorded)
        elif isinstance(step, EventRecord):
            recorded.add(step.event)
        elif isinstance(step, EventWait) and step.event not in recorded:
            recorded.add(step.event)
            yield step.event
