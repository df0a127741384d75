"""The clock of one core: when each pipe is free and when each flag was raised, in integer cycles.

Pipes are in-order queues and flags FIFO semaphores, so one pass over the instructions in program order gives
every time exactly. The scalar unit issues in program order, one instruction in the machine's `scalar_cycles`,
into queues of unlimited depth; it runs ahead of the pipes and stops only at a barrier or a flag that it waits
for itself. A set raises its flag when the source pipe has finished what it was given before; a wait must come
after its set in program order. A cube that has to wait for its operands takes `head_cycles` more to start, and
every wait for a flag takes its pipe `wait_cycles`.

Every time is a maximum of earlier ones plus a constant. Steady runs of a loop are therefore taken in one
step, by a power of the loop body's max-plus matrix (see maxplus.py), which is found by running the body on
rows of that matrix in place of numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dialects.base import describe
from ...dialects.npu import Pipe
from . import maxplus
from .errors import SimulationError
from .nodes import (
    BARRIER,
    LOOP,
    SET,
    SUMS,
    WAIT,
    WORK,
    Env,
    Sums,
    TimedFlag,
    TimedInstruction,
    TimedNode,
)
from .section import TimedLoop, TimedSection

MATRIX_PERIODS = 4
MATRIX_WORK = 400
"""A steady run is taken by matrix from this many periods and instructions on: below, running is faster."""

Time = Any
"""Cycles since the kernel began: an int, or a max-plus row while a matrix is being found."""

Busy = Sequence[Sequence[int]]
"""Busy cycles of each instruction of a section, by its number and variant."""


class Event:
    """An instruction that ran: `start` and `end` in cycles, `env` the values of the index variables."""

    __slots__ = ("end", "env", "start", "variant", "work")

    def __init__(
        self, work: TimedInstruction, variant: int, start: int, end: int, env: tuple[int, ...]
    ) -> None:
        self.work, self.variant, self.start, self.end, self.env = work, variant, start, end, env

    def later(self, cycles: int) -> Event:
        """The same, that many cycles later."""
        return Event(self.work, self.variant, self.start + cycles, self.end + cycles, self.env)


class BarrierWait(NamedTuple):
    """A wait of so many cycles from the start, at the first access of a device tensor that is not one of `ahead`.
    begins: in cycles from the start, when cores of each kind begin, as far as they are busy before."""

    cycles: int
    ahead: frozenset[int]
    begins: tuple[tuple[str, int], ...] = ()

    def stops(self, node: TimedInstruction) -> bool:
        """Whether an instruction comes behind the wait."""
        return node.operand is not None and node.operand not in self.ahead


class Core:
    """Runs one section in one environment."""

    def __init__(
        self, section: TimedSection, env: Env, busy: Busy, matrices: dict[Hashable, Any] | None
    ) -> None:
        """`matrices` keeps loop matrices for cores with the same `busy`; where None, loops run in full."""
        self.section, self.env, self.busy, self.matrices = section, env, busy, matrices
        self.pipes: list[Time] = [0] * len(section.machine.pipes)
        self.flags: dict[int, deque[Time]] = {}
        self.held: BarrierWait | None = None
        """`hold` sets it."""
        self.join: Callable[[Time, Time], Time] = max
        self.events: list[Event] = []
        self.record = 0
        self.unrecorded = False
        self.symbolic = False
        machine = section.machine
        self.heads = [machine.cube_head_cycles if pipe == Pipe.M else 0 for pipe in machine.pipes]
        self.waits = [machine.wait_cycles.get(pipe, 0) for pipe in machine.pipes]
        self.in_turn = machine.in_turn
        self.cross_cycles = round(machine.cross_us * machine.clock_mhz)

    def hold(self, held: BarrierWait) -> None:
        """Lets the core begin as `held` says, and wait."""
        self.held = held
        self.pipes[:] = [dict(held.begins).get(self.section.core, 0)] * len(self.pipes)

    @property
    def end(self) -> int:
        """When the last pipe is done, and the core has waited."""
        return max(*self.pipes, 0 if self.held is None else self.held.cycles)

    # -- instructions --------------------------------------------------------------------------------------

    def run(self, nodes: Sequence[TimedNode]) -> None:
        """Run nodes that need nothing from other cores."""
        pipes, join, busy, env = self.pipes, self.join, self.busy, self.env
        for node in nodes:
            kind = node.kind
            if kind == LOOP:
                assert isinstance(node, TimedLoop)
                self._loop(node)
                continue
            issued = pipes[0] = pipes[0] + node.issue
            if kind == WORK:
                assert isinstance(node, TimedInstruction)
                if self.held is not None and self.held.stops(node):
                    issued = pipes[0] = join(issued, self.held.cycles)
                    self.held = None
                variant = node.variant(env) if node.rows else 0
                if self.in_turn:
                    for time in pipes[1:]:
                        issued = join(issued, time)
                start = join(pipes[node.pipe], issued)
                cycles = busy[node.number][variant]
                if node.sums is None:
                    end = start + cycles
                else:
                    start, end = self._by_fractals(node.sums, start, cycles)
                pipes[node.pipe] = end
                if self.record:
                    self.record -= 1
                    self.events.append(Event(node, variant, start, end, tuple(env)))
                else:
                    self.unrecorded = True
            elif kind == SET:
                assert isinstance(node, TimedFlag)
                raised = join(pipes[node.pipe], issued)
                self._fifo(node.channel + node.counter.evaluate(env) % node.slots).append(raised)
            elif kind == WAIT:
                assert isinstance(node, TimedFlag)
                fifo = self._fifo(node.channel + node.counter.evaluate(env) % node.slots)
                if not fifo:
                    raise SimulationError(
                        f"{describe(node.op)} waits for a flag {node.flag(env)} that nothing has raised: "
                        "deadlock"
                    )
                raised = fifo.popleft() + self.heads[node.pipe]
                pipes[node.pipe] = join(join(pipes[node.pipe], issued), raised) + self.waits[node.pipe]
            elif kind == BARRIER:
                for time in pipes[1:]:
                    issued = join(issued, time)
                pipes[:] = [issued] * len(pipes)

    def _by_fractals(self, sums: Sums, start: Time, cycles: int) -> tuple[Time, Time]:
        """When a product begins and ends that follows the last drain of its sums fractal by fractal, or that drain the
        product."""
        product = sums.at(self.env)
        mine, other = (product + 1, product) if sums.drains else (product, product + 1)
        piece = -(-cycles // sums.pieces)
        first, last = self._fifo(other)
        start = self.join(start, first)
        end = self.join(start + cycles, last + piece)
        known = self._fifo(mine)
        known.clear()
        known.extend((start + piece, end))
        return start, end

    def _fifo(self, channel: int) -> deque[Time]:
        """The times at which a flag was raised; of sums, those of the first and the last fractal."""
        fifo = self.flags.get(channel)
        if fifo is None:
            fifo = self.flags[channel] = deque((0, 0) if channel >= SUMS else ())
        return fifo

    # -- loops ---------------------------------------------------------------------------------------------

    def _loop(self, loop: TimedLoop) -> None:
        first, trips = loop.extent(self.env)
        if self.matrices is None or self.record:
            self._trips(loop, first, 0, trips)
            return
        begun = 0
        while self.held is not None and begun < trips:
            self._trips(loop, first, begun, 1)
            begun += 1
        for start, count, steady in loop.runs(self.env, first, trips):
            start, count = max(start, begun), count - max(begun - start, 0)
            if count <= 0:
                continue
            if steady and self._leap(loop, first, start, count):
                rest = count % loop.period
                self._trips(loop, first, start + count - rest, rest)
            else:
                self._trips(loop, first, start, count)

    def _trips(self, loop: TimedLoop, first: int, start: int, count: int) -> None:
        for trip in range(start, start + count):
            self.env[loop.variable] = first + loop.step * trip
            self.run(loop.body)

    def _leap(self, loop: TimedLoop, first: int, start: int, count: int) -> bool:
        """Take the whole periods of `count` steady trips in one step; False where running them is better."""
        assert self.matrices is not None
        periods = count // loop.period
        fifos = [self._fifo(channel) for channel in loop.channels]
        depths = tuple([len(fifo) for fifo in fifos])
        key = (loop.number, loop.key(self.env), start, periods, depths)
        if key not in self.matrices:
            if periods < MATRIX_PERIODS or periods * loop.period * loop.weight < MATRIX_WORK:
                return False
            body = self._matrix(loop, first, start, depths)
            self.matrices[key] = None if body is None else maxplus.matrix_power(body, periods)
        matrix = self.matrices[key]
        if matrix is None:
            return False
        before = np.array([*self.pipes, *[time for fifo in fifos for time in fifo]], dtype=np.int64)
        after = maxplus.matrix_product(matrix, before)
        times = list(after) if self.symbolic else after.tolist()
        self.pipes[:] = times[: len(self.pipes)]
        at = len(self.pipes)
        for fifo, depth in zip(fifos, depths, strict=True):
            fifo.clear()
            fifo.extend(times[at : at + depth])
            at += depth
        return True

    def _matrix(
        self, loop: TimedLoop, first: int, start: int, depths: Sequence[int]
    ) -> maxplus.Matrix | None:
        """The max-plus matrix of one period over the pipes and the pending flags; None if flags pile up."""
        rows = deque(maxplus.identity_matrix(len(self.pipes) + sum(depths)))
        inner = Core(self.section, list(self.env), self.busy, self.matrices)
        inner.join, inner.symbolic = np.maximum, True
        inner.pipes = [rows.popleft() for _ in self.pipes]
        inner.flags = {
            channel: deque([rows.popleft() for _ in range(depth)])
            for channel, depth in zip(loop.channels, depths, strict=True)
        }
        inner._trips(loop, first, start, loop.period)
        fifos = [inner.flags[channel] for channel in loop.channels]
        if [len(fifo) for fifo in fifos] != list(depths):
            return None
        return np.array([*inner.pipes, *[row for fifo in fifos for row in fifo]], dtype=np.int64)
