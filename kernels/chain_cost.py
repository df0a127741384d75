"""What chained products cost on a chip whose cube and vector cores exchange tiles through device memory: the pipes of
both cores for a piece of the keys, and what all cores move through L2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..dialects.dtypes import size
from ..dialects.npu.types import Pipe
from ..machine import Machine
from ..machine.parts import CubeRate
from .columns import Number, launching, most, moving, parts, pick
from .price import Price, SharedTraffic, signalled, stored_in_turn, stored_late

BEHIND = 2
"""Pieces of the keys behind the last one: parts of the result are added two pieces late."""

CROSSINGS = 4
"""Signals between cores that nothing hides, at both ends of a tile of rows."""


@dataclass(frozen=True)
class ChainPlans:
    """What plans choose, a number or one for each plan, as `AttentionSchedule` names it: rows and keys of a tile, keys
    that are scored and columns that are summed up at once, steps along the summed axes, buffers, and cores along each
    axis of tiles. pieces: how many pieces of the keys there are; masked: 1 where places behind the last key are masked,
    else 0."""

    rows: Number
    keys: Number
    scored: Number
    columns: Number
    buffered: Number
    features: Number
    summed: Number
    places: Number
    l0c: Number
    pieces: Number
    masked: Number
    grid: Sequence[Number] = ()


@dataclass(frozen=True)
class ChainFacts:
    """What plans have in common. outer: elements along each axis of tiles; row: which of them has the rows of a tile;
    loaded: for each first product the elements that are summed up for a score, and bytes of one; scored: bytes of a
    score of each; width: of a weight; wide: columns of the result in whole fractals; rates: what the cube does of each
    first product, and of the second one; units: vector cores beside a cube; steps: instructions on scores between the
    products; softmax: whether one is there."""

    machine: Machine
    outer: Sequence[int]
    row: int
    loaded: Sequence[tuple[int, int]]
    scored: Sequence[int]
    width: int
    wide: int
    rates: Sequence[CubeRate]
    units: int
    steps: int
    softmax: bool

    def price(self, s: ChainPlans, pipes: Mapping[Pipe, Number] | None = None) -> Price:
        """What plans cost; pipes: those of `piece`, where they are known."""
        counts = (parts(n, s.rows) if a == self.row else n for a, n in enumerate(self.outer))
        tiles = size([parts(n, cut) for n, cut in zip(counts, s.grid, strict=True)])
        return self.on(s, tiles, size(s.grid), pipes)

    def on(
        self, s: ChainPlans, tiles: Number, cores: Number, pipes: Mapping[Pipe, Number] | None = None
    ) -> Price:
        """What plans cost on so many cores, the busiest of which has so many tiles of rows."""
        machine = self.machine
        late = pick(s.pieces == 1, 0, pick(s.places == 2, BEHIND / 2, BEHIND))
        turns = s.pieces + late
        crossing = (
            2 * s.rows * (s.keys * (sum(self.scored) + self.width) + (self.wide * 4 if self.softmax else 0))
        )
        each = sum(shared * q for shared, q in self.loaded) + self.wide * self.width
        moved = tiles * turns * (crossing + s.keys * each) * cores
        return Price(
            launch=launching(machine, cores, mixed=True),
            turn=self.piece(s) if pipes is None else pipes,
            turns=tiles * (turns + 1),
            clock_mhz=machine.clock_mhz,
            before=tiles * CROSSINGS * machine.cross_us * machine.clock_mhz,
            shared=SharedTraffic(moved, machine.l2_bytes_per_cycle),
        )

    def piece(self, s: ChainPlans) -> dict[Pipe, Number]:
        """Cycles of the pipes for a piece of the keys, whatever the grid is: those of the cube core, and of a vector
        core beside it; of MTE2, which both have, those of the busier one."""
        pipes = self.cube(s)
        vector, brought, handed = self._vector(s)
        pipes[Pipe.MTE2] = most(pipes[Pipe.MTE2], brought)
        return pipes | {Pipe.V: signalled(vector, self.machine), Pipe.MTE3: handed}

    def cube(self, s: ChainPlans) -> dict[Pipe, Number]:
        """Cycles of the pipes of a cube core for a piece of the keys."""
        machine, wide, p = self.machine, self.wide, self.width
        times = [*(s.keys // s.scored for _ in self.loaded), wide // s.columns]
        summed = [*(parts(shared, s.features) for shared, _ in self.loaded), s.keys // s.summed]
        steps = [n * each for n, each in zip(times, summed, strict=True)]
        sizes = [*((s.rows, s.keys, shared) for shared, _ in self.loaded), (s.rows, wide, s.keys)]
        products = [m / r.m * n / r.n * k / r.k for r, (m, n, k) in zip(self.rates, sizes, strict=True)]
        load, left, right = (machine.moves[way] for way in (("gm", "l1"), ("l1", "l0a"), ("l1", "l0b")))
        mte2 = sum(moving(load, s.keys * shared * q, 1) for shared, q in self.loaded)
        mte2 = mte2 + (moving(load, s.keys * wide * p, 1) + moving(load, s.rows * s.keys * p, 1))
        tiles = [(s.scored * s.features * q, s.rows * s.features * q) for _, q in self.loaded]
        tiles.append((s.columns * s.summed * p, s.rows * s.summed * p))
        moves = [
            n * (moving(left, of_left, overlapped=True) + moving(right, of_right, overlapped=True))
            for n, (of_left, of_right) in zip(steps, tiles, strict=True)
        ]
        pipes = {
            Pipe.M: sum(products) + sum(steps) * machine.cube_fixed_cycles,
            Pipe.FIX: self._stored(s, times, [most(*pair) for pair in zip(products, moves, strict=True)]),
            Pipe.MTE2: mte2,
            Pipe.MTE1: sum(moves),
        }
        return {pipe: cycles + 4 * machine.cube_fixed_cycles for pipe, cycles in pipes.items()}

    def _stored(self, s: ChainPlans, times: Sequence[Number], products: Sequence[Number]) -> Number:
        """Cycles of the way out of l0c for a piece of the keys. times: parts of it that each product gives, and the
        last one of the result; products: cycles that each takes, with its moves to l0."""
        drains = self.machine.moves["l0c", "gm"]
        drained = [moving(drains, s.rows * s.scored * bytes_) for bytes_ in self.scored]
        drained.append(moving(drains, s.rows * s.columns * 4))
        stored = [n * each for n, each in zip(times, drained, strict=True)]
        fix = sum(stored if self.softmax else stored[:-1])
        # what is summed up in the one place waits until what was there is stored
        made = [cycles / n for cycles, n in zip(products, times, strict=True)]
        before = (drained[-1], *drained)
        waits = [most(m - d, 0) + (n - 1) * m for m, n, d in zip(made, times, before, strict=False)]
        return pick(s.l0c == 1, stored_in_turn(fix, sum(waits)), stored_late(fix))

    def _vector(self, s: ChainPlans) -> tuple[Number, Number, Number]:
        """Cycles of V, MTE2 and MTE3 of a vector core for one piece of the keys."""
        machine, unit = self.machine, self.machine.vector
        h, wide, lanes = s.rows // self.units, self.wide, unit.repeat_bytes // 4
        held, repeats, ops = h * s.keys / lanes, parts(h, lanes), self.steps + s.masked
        load, store = machine.moves["gm", "ub"], machine.moves["ub", "gm"]
        brought = sum(moving(load, h * s.keys * bytes_, 1) for bytes_ in self.scored)
        if not self.softmax:
            work = (ops + 1) * held + (ops + 4) * unit.streamed_cycles
        else:
            each = repeats * (1 + self._meets)
            softmax = (ops + 2) * held + h * s.keys / unit.rates["exp"]["f32"] + s.keys * each
            work = softmax + (h * wide / lanes + wide * each) + (ops + 16) * unit.streamed_cycles
            brought = brought + moving(load, h * wide * 4, 1)
        work = work + pick(s.buffered == 1, brought / 2, 0)
        return work, brought, moving(store, h * s.keys * self.width)

    @cached_property
    def _meets(self) -> float:
        """Cycles that a reduction's reads wait for each other in a bank."""
        banks = self.machine.vector.banks
        return 0.0 if banks is None else banks.read_cycles / 2
