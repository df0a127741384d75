"""What a schedule of chained products costs: the pipes of both cores, and what all cores move through L2."""

from __future__ import annotations

from functools import cached_property

from ....dialects.dtypes import dtype_name, itemsize, size
from ....dialects.graph import AttentionSchedule
from ....dialects.graph.interface import element_of
from ....dialects.graph.schedules import Schedule
from ..scheduled import as_attention
from .attention_choice import BEHIND, AttentionChoice

SIGNALS = 1.5
"""Signals of other cores that a vector core waits for with each piece, by the simulator's figures."""

LATE = 1.25, 1.1
"""How much longer the stores of sums take as they wait for these, with one place for sums and with two: fitted to the
simulator."""


class AttentionCosts(AttentionChoice):
    """The analytic bound of chained products."""

    def bound(self, schedule: Schedule) -> float:
        s, machine = as_attention("", schedule), self.machine
        assert s.rows and s.keys and s.grid and s.features and s.summed
        pieces, cores = self.pieces(s.keys), size(s.grid)
        turns = pieces + (0 if pieces == 1 else BEHIND / 2 if s.places == 2 else BEHIND)
        tiles = size([own for _, own in self._split(s).values()])
        signal = machine.cross_us * machine.clock_mhz
        step = self._piece_cycles(s)
        cycles = tiles * (turns * step + step + 4 * signal)
        p, wide, scored = self.width, self.wide, sum(map(itemsize, self.scored))
        crossing = 2 * s.rows * (s.keys * (scored + p) + (0 if self.softmax is None else wide * 4))
        moved = crossing + s.keys * (sum(shared * q for shared, q in self.loaded) + wide * p)
        cycles = max(cycles, tiles * turns * moved * cores / machine.l2_bytes_per_cycle)
        return machine.cycles_to_microseconds(cycles) + machine.launch_microseconds(cores, mixed=True)

    def _piece_cycles(self, s: AttentionSchedule) -> float:
        """Cycles of one piece of the keys, whatever the grid is."""
        key = s.rows, s.keys, s.scored, s.columns, s.buffered, s.features, s.summed, s.places, s.l0c
        known = self.steps_known.get(key)
        if known is None:
            vector, *moves = self._vector_cycles(s)
            signal = self.machine.cross_us * self.machine.clock_mhz
            known = max(self._cube_cycles(s), vector + SIGNALS * signal, *moves)
            self.steps_known[key] = known
        return known

    @cached_property
    def steps_known(self) -> dict[tuple[int | None, ...], float]:
        """What a piece of the keys takes, as far as known."""
        return {}

    def _vector_cycles(self, s: AttentionSchedule) -> tuple[float, float, float]:
        """Cycles of V, MTE2 and MTE3 of a vector core for one piece of the keys."""
        assert s.rows and s.keys
        machine, unit = self.machine, self.machine.vector
        h, wide, lanes = s.rows // self.units, self.wide, unit.repeat_bytes // 4
        held, wideness, repeats = h * s.keys / lanes, h * wide / lanes, -(-h // lanes)
        meets = 0.0 if unit.banks is None else unit.banks.read_cycles / 2
        ops = sum(step.kind == "op" for chain in self.chains for step in chain.stages)
        ops += self.is_masked(s)
        load, store = machine.moves["gm", "ub"], machine.moves["ub", "gm"]
        brought = sum(load.cycles(h * s.keys * itemsize(kind), 1) for kind in self.scored)
        if self.softmax is None:
            work = (ops + 1) * held + (ops + 4) * unit.streamed_cycles
        else:
            softmax = (ops + 2) * held + h * s.keys / unit.rates["exp"]["f32"]
            softmax += s.keys * repeats * (1 + meets)
            update = wideness + wide * repeats * (1 + meets)
            work = softmax + update + (ops + 16) * unit.streamed_cycles
            brought += load.cycles(h * wide * 4, 1)
        work += brought / 2 if s.buffered == 1 else 0
        return work, brought, store.cycles(h * s.keys * self.width)

    def _cube_cycles(self, s: AttentionSchedule) -> float:
        """Cycles of the slowest pipe of a cube core for one piece of the keys."""
        key = s.rows, s.keys, s.scored, s.columns, s.features, s.summed, s.l0c
        known = self.cube_known.get(key)
        if known is None:
            known = self.cube_known[key] = self._cube_cycles_of(s)
        return known

    @cached_property
    def cube_known(self) -> dict[tuple[int | None, ...], float]:
        """What a piece of the keys takes a cube core, as far as known."""
        return {}

    def _cube_cycles_of(self, s: AttentionSchedule) -> float:
        assert s.rows and s.keys and s.scored and s.columns and s.features and s.summed
        machine, wide, p = self.machine, self.wide, self.width
        parts = [*(s.keys // s.scored for _ in self.loaded), wide // s.columns]
        summed = [-(-shared // s.features) for shared, _ in self.loaded] + [s.keys // s.summed]
        steps = [n * each for n, each in zip(parts, summed, strict=True)]
        rates = [machine.cube[dtype_name(element_of(part.anchor.lhs))] for part in (*self.scores, self.values)]
        sizes = [(s.rows, s.keys, shared) for shared, _ in self.loaded] + [(s.rows, wide, s.keys)]
        products = [m / r.m * n / r.n * k / r.k for r, (m, n, k) in zip(rates, sizes, strict=True)]
        mma = sum(products) + sum(steps) * machine.cube_fixed_cycles
        drains = machine.moves["l0c", "gm"]
        drained = [drains.cycles(s.rows * s.scored * itemsize(kind)) for kind in self.scored]
        drained.append(drains.cycles(s.rows * s.columns * 4))
        stored = [n * each for n, each in zip(parts, drained, strict=True)]
        fix = sum(stored[:-1]) + (0 if self.softmax is None else stored[-1])
        load = machine.moves["gm", "l1"]
        mte2 = sum(load.cycles(s.keys * shared * q, 1) for shared, q in self.loaded)
        mte2 += load.cycles(s.keys * wide * p, 1) + load.cycles(s.rows * s.keys * p, 1)
        left, right = machine.moves["l1", "l0a"], machine.moves["l1", "l0b"]
        tiles = [(s.scored * s.features * q, s.rows * s.features * q) for _, q in self.loaded]
        tiles.append((s.columns * s.summed * p, s.rows * s.summed * p))
        moves = [
            n * (left.cycles(of_left, overlapped=True) + right.cycles(of_right, overlapped=True))
            for n, (of_left, of_right) in zip(steps, tiles, strict=True)
        ]
        if s.l0c == 1:  # what is summed up waits until what was there is stored
            made = [max(both) / n for both, n in zip(zip(products, moves, strict=True), parts, strict=True)]
            waits = [
                max(each - before, 0) + (n - 1) * each
                for each, n, before in zip(made, parts, (drained[-1], *drained), strict=False)
            ]
            fix = max(fix + sum(waits), LATE[0] * fix)
        else:
            fix *= LATE[1]
        return max(mma, fix, mte2, sum(moves)) + 4 * machine.cube_fixed_cycles
