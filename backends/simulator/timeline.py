"""When each command of the host program runs: queues in order, side by side, and the events between them.

All times are maxima of earlier times plus constants. A loop's pass is therefore a max-plus matrix over the times at
which queues are free and events happen, and n passes are its n-th power (maxplus.py does the same in cycles).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialects.npu.streams import COMPUTE, PROGRAM, QUEUES
from .steps import Record, Repeat, Step, Wait, Work

Row = NDArray[np.float64]
"""The time of something: the maximum of the times that a pass starts with, each with a constant added."""

NEVER = -np.inf


@dataclass(frozen=True)
class Placed:
    """A step of the host program from `begin` to `end` microseconds, `times` alike one after the other; `calls` are
    the calls that it is inside, outermost first."""

    step: Work
    begin: float
    end: float
    times: int
    calls: tuple[Operation, ...]


@dataclass(frozen=True)
class Rest:
    """What a queue does in the `passes` after the first one."""

    queue: str
    passes: int
    begin: float
    end: float


def makespan(steps: Sequence[Step | Repeat]) -> float:
    """From the first command to the end of the last, in microseconds."""
    clock = _Clock.at_zero()
    clock.run(steps)
    return clock.end()


def first_passes(steps: Sequence[Step | Repeat]) -> Iterator[Placed | Rest]:
    """All commands in time; of what is repeated the first pass, and how long the others take on each queue."""
    return _first_passes(_Clock.at_zero(), steps, ())


def _first_passes(
    clock: _Clock, steps: Sequence[Step | Repeat], calls: tuple[Operation, ...]
) -> Iterator[Placed | Rest]:
    for step in steps:
        if isinstance(step, Record | Wait):
            clock.step(step)
        elif not isinstance(step, Repeat):
            begin, end = clock.step(step)
            yield Placed(step, begin, end, 1, calls)
        else:
            inside = calls if step.call is None else (*calls, step.call)
            once = clock.copy() if step.call is None else clock.inside()
            yield from _first_passes(once, step.steps, inside)
            clock.repeat(step)
            if step.times > 1:
                for queue in sorted({q or COMPUTE for q in step.queues}):
                    yield Rest(queue, step.times - 1, once.free({queue}), clock.free({queue}))


def place(steps: Sequence[Step | Repeat]) -> list[Placed]:
    """All commands in time. What is repeated is placed once: its first pass, stretched to the time that all passes
    take."""
    return list(_place(_Clock.at_zero(), steps, 1, ()))


def _place(
    clock: _Clock, steps: Sequence[Step | Repeat], times: int, calls: tuple[Operation, ...]
) -> Iterator[Placed]:
    for step in steps:
        if isinstance(step, Record | Wait):
            clock.step(step)
        elif not isinstance(step, Repeat):
            begin, end = clock.step(step)
            yield Placed(step, begin, end, times, calls)
        else:
            inside = calls if step.call is None else (*calls, step.call)
            once = clock.copy() if step.call is None else clock.inside()
            first = list(_place(once, step.steps, times * step.times, inside))
            clock.repeat(step)
            base = min((p.begin for p in first), default=0.0)
            last = max((p.end for p in first), default=0.0)
            scale = (
                (clock.free(step.queues) - base) / (last - base) if step.times > 1 and last > base else 1.0
            )
            for p in first:
                begin, end = (base + (t - base) * scale for t in (p.begin, p.end))
                yield Placed(p.step, begin, end, p.times, p.calls)


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
        if isinstance(step, Record):
            begin = end = self.events[step.event] = queues[step.queue]
        elif isinstance(step, Wait):
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
        elif isinstance(step, Record):
            recorded.add(step.event)
        elif isinstance(step, Wait) and step.event not in recorded:
            recorded.add(step.event)
            yield step.event
