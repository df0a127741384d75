"""What a launch costs, as data, and the one function that makes microseconds of it.

A core of a kernel does a *turn* again and again: it loads a tile, computes it, and hands it on. A `Price` says how many
cycles each pipe is busy in a turn, how many turns the busiest core has, and what stands before the first and behind the
last one. Kernels give a price for a schedule (`ScheduledKernel.price` of passes/lower/scheduled.py); fields may be
arrays with a number for each of many plans (columns.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..dialects.npu.types import Pipe
from ..machine import Machine
from .columns import Number, is_many, most

VERSION = "1"
"""Of the formulas: what was found by others is searched for again. It is raised where a schedule gets another price."""

LAUNCH, SHARED = "launch", "shared memory"
"""What binds a price that no pipe does: launches, and the bandwidth of what all cores share."""


@dataclass(frozen=True)
class SharedTraffic:
    """What all cores together move through a memory that they share, in bytes, and how many that gives in a cycle."""

    bytes: Number = 0.0
    bytes_per_cycle: float = 1.0

    @property
    def cycles(self) -> Number:
        """Cycles that no kernel which moves so much ends before."""
        return self.bytes / self.bytes_per_cycle


@dataclass(frozen=True)
class Price:
    """What a launch costs, or what each of many plans does.

    Attributes:
        launch: Microseconds to start the cores and to end.
        turn: Cycles that pipes are busy in each turn of the busiest core.
        turns: How many turns that core has: a fraction where a turn is all there is to do.
        late: Cycles of the pipes that take up what a turn has made while the next one is on its way.
        before, behind: Cycles before the first turn, and behind the last one: loads that nothing hides, and what is
            late of the last turn.
        overlap: Whether pipes go on at the same time; else one behind the other.
        waits: Cycles that a turn takes at least while something is late of the one before.
        shared: What all cores move through L2 or HBM.
        further: Microseconds of the launches that this one needs behind it.
        clock_mhz: Cycles in a microsecond.
    """

    launch: Number
    turn: Mapping[Pipe, Number]
    turns: Number
    clock_mhz: float
    late: Mapping[Pipe, Number] = field(default_factory=dict[Pipe, Number])
    before: Number = 0.0
    behind: Number = 0.0
    overlap: bool = True
    waits: Number = 0.0
    shared: SharedTraffic = SharedTraffic()
    further: Number = 0.0

    @property
    def cycles(self) -> Number:
        """Cycles of the busiest core: the pipe that is busiest in a turn hides all others. What is late of a turn is
        hidden by the next one, or hides it."""
        one = most(*self.turn.values()) if self.overlap else sum(self.turn.values())
        if self.late:
            busy = self.before + one + (self.turns - 1) * most(one, *self.late.values(), self.waits)
        else:
            busy = self.before + self.turns * one
        return most(busy + self.behind, self.shared.cycles)

    @property
    def microseconds(self) -> Number:
        """How long the launch takes, those behind it included; infinity for what cannot be."""
        found = self.cycles / self.clock_mhz + self.launch + self.further
        if is_many(found):
            return np.where(np.isnan(found), np.inf, found)
        return float("inf") if found != found else found

    def busy(self, pipe: Pipe) -> Number:
        """Cycles that a pipe of the busiest core is busy in turns; of what is late, without the last turn's."""
        return self.turn.get(pipe, 0.0) * self.turns + self.late.get(pipe, 0.0) * most(self.turns - 1, 0)

    @property
    def pipes(self) -> list[Pipe]:
        """The pipes that are busy in turns."""
        return list(dict.fromkeys([*self.turn, *self.late]))

    @property
    def least_microseconds(self) -> Number:
        """A roofline: what a launch with the same turns takes at least, whatever overlaps. No pipe ends before it has
        done all its turns, and what is shared gives no more bytes; nothing is counted before the first turn or behind
        the last one."""
        busiest = most(*(self.busy(pipe) for pipe in self.pipes), self.shared.cycles)
        return busiest / self.clock_mhz + self.launch + self.further

    @property
    def binds(self) -> str | np.ndarray:
        """What takes longest: the name of a pipe, of what is shared, or launches; for each plan where there are many.
        Among equals the first of launches, what is shared, and pipes in their order."""
        names = [LAUNCH, SHARED, *map(str, self.pipes)]
        times = [
            (self.launch + self.further) * self.clock_mhz,
            self.shared.cycles,
            *map(self.busy, self.pipes),
        ]
        if not is_many(*times):
            return names[max(range(len(times)), key=times.__getitem__)]
        return np.array(names)[np.argmax(np.array(np.broadcast_arrays(*times)), axis=0)]


# -- rules of overlap: what the pipes of a turn lose to each other ---------------------------------------------


def handed_on(cycles: Number) -> Number:
    """Cycles of a piece of which a cube core takes what its fixpipe gives through l1: pipes wait for each other.

    1.12 is fitted to the simulator's times of products back to back in benchmarks/price.py."""
    return cycles * 1.12


def signalled(cycles: Number, machine: Machine) -> Number:
    """Cycles of a vector core for a piece that it gets from cube cores and gives back: it waits for signals, one and a
    half on the mean, each of which takes `cross_us` of the machine file.

    1.5 is read off the simulator's traces of attention."""
    return cycles + 1.5 * machine.cross_us * machine.clock_mhz


def stored_late(cycles: Number) -> Number:
    """Cycles of the stores of sums that have two places in l0c: they wait for signals of vector cores.

    1.1 is fitted to the simulator's times of attention in benchmarks/price.py."""
    return cycles * 1.1


def stored_in_turn(cycles: Number, waits: Number) -> Number:
    """The same where sums have one place, and wait for it so many cycles: the longer of the waits, and a quarter more.

    1.25 is fitted to the simulator's times of attention in benchmarks/price.py."""
    return most(cycles + waits, cycles * 1.25)


def starved(rare: Number, often: Number, both: Number, product: Number) -> Number:
    """Cycles for a tile in which the cube has nothing to do while a long load, and a short one behind it, are on their
    way. rare, often: how many of the long and of the short ones there are for a tile; both: cycles of one of each;
    product: cycles of the cube for a tile.

    Of the two buffers of short loads one is filled anew until then: 1.6 of them are used up meanwhile, by the
    simulator's figures."""
    return rare * most(0.0, both - 1.6 * product / often)
