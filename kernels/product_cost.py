"""What the kernel of a product costs: a tile of the result with a step and its loads, and a grid of tiles on cores.

`CubeCost` is what a tile costs, `TileCosts` what is known before its cores are, `ProductRun` the tiles on their cores.
What `ProductPlans` has, and all that comes of it, has a number for each of many plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..dialects.dtypes import numbers_in, size
from ..dialects.npu.types import Pipe
from ..machine import Machine
from .columns import Number, launching, least, missing, most, parts, pick
from .price import Price, starved
from .product import CubeProblem, Extents, sides

EPILOGUE_SLOTS = 2
"""Pieces of a tile that there are buffers in ub for, unless they are pinned."""


class LoadCost(NamedTuple):
    """One load to l1: cycles of MTE2 where all is in L2, bytes, the bytes of bandwidth that they take, and the cycles
    at least for each core that asks for the same lines at the same time."""

    cycles: Number
    bytes: Number
    bus: Number
    turn: Number = 0.0


Loads = Callable[[Extents], Sequence[LoadCost]]
"""The load of each operand for a box of the contraction's axes."""


@dataclass(frozen=True)
class FusedEpilogue:
    """Cycles of the pipes of a core that does to a tile what a vector core beside a cube does elsewhere.

    vector: of the vector unit, which brings the sums to ub as well; loaded, stored: of the ways into ub and out of it;
    bytes: what is loaded; pieces: in how many the tile is worked on. The sums are in l0c until the last one is begun.
    """

    vector: float = 0.0
    loaded: float = 0.0
    stored: float = 0.0
    bytes: float = 0.0
    pieces: int = 1

    def also(self, other: FusedEpilogue, times: int) -> FusedEpilogue:
        """With what another one does, so many times."""
        return FusedEpilogue(
            self.vector + other.vector * times,
            self.loaded + other.loaded * times,
            self.stored + other.stored * times,
            self.bytes + other.bytes * times,
            self.pieces,
        )


@dataclass(frozen=True)
class OperandLoads:
    """The loads of one operand to l1: each, and how many a tile of the result takes (less than 1 where several tiles
    share one); sharers: cores side by side that read the same; crossing: bytes that all cores together bring from
    HBM."""

    each: LoadCost
    times: Number
    sharers: Number = 1
    crossing: Number = 0.0

    def parts(self, cores: Number, tiles: Number, machine: Machine) -> tuple[Number, Number, Number]:
        """Cycles of MTE2 for a tile, of `tiles` on each of `cores` cores, as backends/simulator/pricing.py has them:
        (what misses L2 on a core that has HBM for itself, on one that shares it with all others, what hits)."""
        asked = tiles * self.times * self.each.bytes
        load, bus, times = machine.moves["gm", "l1"], self.each.bus, pick(asked > 0, self.times, 0.0)
        missed = least(self.crossing / cores / pick(asked > 0, asked, 1.0), 1.0)
        hit = bus * (1 - missed)
        own = self.each.cycles * (1 - missed)
        if machine.cube_cores > 1:
            crowd = (cores - 1) / (machine.cube_cores - 1)
            crowded = crowd * most(0.0, hit / load.shared_bytes_per_cycle - own)
            own = own + pick(self.sharers > 1, crowded, 0.0)
        alone = missing(load, bus, self.each.cycles) * missed
        misses = bus * missed * cores / (machine.hbm_bytes_per_cycle * load.hbm_share)
        turns = self.each.turn * self.sharers - most(alone, misses)
        hits = most(own, hit * cores / machine.l2_bytes_per_cycle, turns)
        return times * alone, times * misses, times * hits


def loading(found: Sequence[tuple[Number, Number, Number]]) -> Number:
    """Cycles of MTE2 for a tile, one of many, of the `parts` of both operands: some cores get bytes of L2 while others
    load over HBM."""
    hits = sum(hit for *_, hit in found)
    return hits + sum(most(alone, misses - (hits - hit)) for alone, misses, hit in found)


@dataclass(frozen=True)
class CubeCost:
    """Estimated cycles of one core for one tile of the result, by pipe."""

    loads: tuple[OperandLoads, OperandLoads]
    """Of lhs and of rhs."""
    wait: Number
    """Cycles of MTE2 before a load that waits for its buffer."""
    also: Number
    """Cycles of MTE2 for what an epilogue loads."""
    also_bytes: Number
    mte1: Number
    mma: Number
    fix: Number
    epilogue: Number
    held: Number
    """How long the sums stay in l0c behind the product."""
    stored: Number
    """Cycles of the way out of ub."""
    turn: Number
    """Cycles from a tile to the next where loads of both take turns: what an epilogue loads waits for room in
    ub, and the operands of the next tile behind it."""
    tail: Number = 0.0
    """Cycles of the epilogue behind that of the last tile, where it waits for several tiles, whose rows it reduces."""

    @staticmethod
    def of(
        problem: CubeProblem,
        step: Extents,
        lhs: Extents,
        rhs: Extents,
        machine: Machine,
        loads: Loads,
        fused: FusedEpilogue | None = None,
        pieces: int = 1,
    ) -> CubeCost:
        """The cost of tiles of `step` along the result's axes, in mma steps of `step` along k; `lhs`, `rhs`: the
        extents of a load of each operand; `fused`: what the same core does to the sums, where it does; `pieces`: in
        how many the cores beside it take a tile, where they do."""
        rows, cols = sides(problem, step)
        depth = size([step[a] for a in problem.k])
        steps = problem.times(step)
        rate = machine.cube[problem.dtype]
        fewer = machine.cube_sparse.get(problem.dtype, 1) if problem.sparse else 1
        terms = depth * numbers_in(problem.dtype)
        blocks = -(-rows // rate.m) * -(-cols // rate.n) * -(-terms // (rate.k * fewer))
        left, right = machine.moves["l1", "l0a"], machine.moves["l1", "l0b"]
        moved = left.cycles(rows * depth * problem.itemsize, overlapped=True)
        for each in problem.rhs_parts:
            moved += right.cycles(-(-depth // each) * cols * problem.itemsize, overlapped=True)
        drain = machine.moves["l0c", "ub" if machine.fused else "gm"].cycles(rows * cols * problem.stored)
        each = [problem.times(load) for load in (lhs, rhs)]
        left_load = loads(lhs)
        loaded = left_load[0], (left_load if rhs == lhs else loads(rhs))[1]
        units = max(machine.vector_cores // machine.cube_cores, 1)
        mte1, mma = steps * moved, steps * (machine.cube_fixed_cycles + blocks)
        cost = CubeCost(
            loads=(OperandLoads(loaded[0], each[0]), OperandLoads(loaded[1], each[1])),
            wait=machine.wait_cycles.get("MTE2", 0),
            also=0.0,
            also_bytes=0.0,
            mte1=mte1,
            mma=mma,
            fix=drain,
            epilogue=problem.epilogue_head * pieces + problem.epilogue * rows * cols / units,
            held=drain,
            stored=0.0,
            turn=0.0,
        )
        if fused is None:
            return cost
        ahead = min(EPILOGUE_SLOTS / fused.pieces, 1.0)
        mte2 = sum(o.each.cycles * o.times for o in cost.loads) + cost.waits
        turn = fused.vector * (1 - ahead) + mte2 + fused.loaded / fused.pieces + max(mte1, mma)
        return replace(
            cost,
            also=fused.loaded,
            also_bytes=fused.bytes,
            fix=0.0,
            epilogue=fused.vector,
            held=fused.vector * max(fused.pieces - 1, 1) / fused.pieces,
            stored=fused.stored,
            turn=turn if fused.loaded and ahead < 1 else 0.0,
        )

    @property
    def row(self) -> list[float]:
        """Its numbers, as `of_columns` takes them; of loads without what depends on cores."""
        loads = [n for load in self.loads for n in (*load.each, load.times)]
        return [*loads, *(getattr(self, name) for name in FIELDS)]

    @staticmethod
    def of_columns(numbers: Sequence[Number]) -> CubeCost:
        """What has these numbers, of which each may be many."""
        lhs, rhs = (OperandLoads(LoadCost(*numbers[i : i + 4]), numbers[i + 4]) for i in (0, LOADS // 2))
        return CubeCost((lhs, rhs), *numbers[LOADS:])

    def price(self, cores: Number, tiles: Number, drain_overlaps: Number, machine: Machine) -> Price:
        """Of the kernel on `cores` cores, the busiest of which has `tiles` tiles."""
        load = machine.moves["gm", "l1"]
        # what an epilogue loads is read once, of HBM
        alone = self.also + self.also_bytes * load.miss_cycles
        others = most(alone, self.also_bytes * cores / (machine.hbm_bytes_per_cycle * load.hbm_share))
        found = self._parts(cores, tiles, machine)
        begin = sum(self._first(found)) + self.wait
        cube = pick(drain_overlaps, self.mma, self.mma + self.held)
        idle = self._starved(begin, most(self.mte1, cube))
        turn = {
            Pipe.MTE2: loading(found) + self.waits + others,
            Pipe.MTE1: self.mte1 + idle,
            Pipe.M: cube + idle,
        }
        return Price(
            launch=launching(machine, cores, self.epilogue > 0),
            turn=turn,
            turns=tiles,
            clock_mhz=machine.clock_mhz,
            late={Pipe.FIX: self.fix, Pipe.V: self.epilogue, Pipe.MTE3: self.stored},
            before=begin,
            behind=self.fix + self.epilogue + self.tail,
            waits=self.turn,
        )

    def behind_barrier(
        self,
        side: int,
        cores: Number,
        tiles: Number,
        drain_overlaps: Number,
        waited: Number,
        machine: Machine,
    ) -> Number:
        """Microseconds behind a barrier until a core with so many tiles is done, that waits for so many microseconds
        and meanwhile loads an operand (0: lhs, 1: rhs), once."""
        found = self._parts(cores, tiles, machine)
        first = self._first(found)
        begin = most(first[side] - waited * machine.clock_mhz, 0.0) + first[1 - side] + self.wait
        one = most(self.mte1, pick(drain_overlaps, self.mma, self.mma + self.held))
        last = one / most(*(each.times for each in self.loads), 1.0)
        busy = sum(most(alone, misses) + hits for alone, misses, hits in found)
        loads = tiles * (busy + self.waits) - sum(first)
        products = begin + most(loads + last, tiles * one)
        late = (tiles - 1) * most(most(self.fix, self.epilogue, self.stored) - one, 0.0)
        return machine.cycles_to_microseconds(products + late + self.fix + self.epilogue + self.tail)

    def _parts(self, cores: Number, tiles: Number, machine: Machine) -> list[tuple[Number, Number, Number]]:
        """What the loads of both operands take, in parts."""
        return [each.parts(cores, tiles, machine) for each in self.loads]

    def _first(self, found: Sequence[tuple[Number, Number, Number]]) -> list[Number]:
        """Cycles of the first load of each operand, where all cores make it at the same time."""
        both = zip(found, self.loads, strict=True)
        return [(most(alone, misses) + hits) / each.times for (alone, misses, hits), each in both]

    @property
    def waits(self) -> Number:
        """Cycles of MTE2 that wait for buffers, for a tile: loads of one length share a flag."""
        left, right = (each.times for each in self.loads)
        return self.wait * pick(left == right, left, left + right)

    def _starved(self, both: Number, product: Number) -> Number:
        """Cycles for a tile that the cube has nothing to do while a long load, and a short one behind it, are on their
        way (`both`, in cycles)."""
        left, right = (each.times for each in self.loads)
        rare, often = least(left, right), most(left, right)
        return pick(rare < often, starved(rare, often, both + self.wait, product), 0.0)


FIELDS = ("wait", "also", "also_bytes", "mte1", "mma", "fix", "epilogue", "held", "stored", "turn", "tail")
"""The numbers of a `CubeCost` besides its loads, in their order."""

LOADS = 10
"""How many numbers its loads have."""


@dataclass(frozen=True)
class Outside:
    """What a kernel moves outside of its tiles, whatever they are. operands: bytes of lhs and of rhs; epilogue: bytes
    that the epilogue loads and stores; reduces: whether vector cores beside a cube reduce its rows."""

    operands: Sequence[float]
    epilogue: float
    reduces: bool = False


@dataclass(frozen=True)
class TileCosts:
    """What is known of tiles before their cores are: the cost of one; how many there are along each axis of the result;
    of lhs and of rhs whether one load has what all tiles of a core along that axis take of it, as 0 or 1; and cycles of
    a vector core for a block of rows that it reduces."""

    cost: CubeCost
    counts: Sequence[Number]
    shared: tuple[Sequence[Number], Sequence[Number]]
    block: Number = 0.0

    @cached_property
    def row(self) -> list[float]:
        """All its numbers."""
        return [*self.cost.row, *self.counts, *self.shared[0], *self.shared[1], self.block]


@dataclass(frozen=True)
class ProductPlans:
    """Plans of a product with one inner loop over tiles, `inner` ("m" or "n"). known: tiles that some of them have;
    numbers: which of these each plan has; grid: cores along each axis of the result; overlaps: whether the next tile
    begins while the sums of one leave."""

    known: Sequence[TileCosts]
    numbers: Sequence[int] | np.ndarray
    grid: Sequence[Number]
    inner: str
    overlaps: Number

    @property
    def tiles(self) -> TileCosts:
        """The tiles of each plan."""
        if len(self.numbers) == 1:
            return self.known[int(self.numbers[0])]
        axes, first = len(self.known[0].counts), LOADS + len(FIELDS)
        table = list(np.array([each.row for each in self.known], float).T[:, np.asarray(self.numbers)])
        counts, lhs, rhs = (table[first + i * axes : first + (i + 1) * axes] for i in range(3))
        return TileCosts(CubeCost.of_columns(table[:first]), counts, (lhs, rhs), table[-1])


@dataclass(frozen=True)
class ProductRun:
    """The tiles of a product on their cores: what one costs, on how many cores, the tiles of the busiest one, whether
    the next begins while its sums leave."""

    cost: CubeCost
    cores: Number
    tiles: Number
    overlaps: Number

    def price(self, machine: Machine) -> Price:
        """What the kernel costs."""
        return self.cost.price(self.cores, self.tiles, self.overlaps, machine)

    def behind_barriers(
        self, side: int, times: Sequence[int], waited: Sequence[float], machine: Machine
    ) -> Number:
        """Microseconds behind barriers, `times` of each, for which it waits so long, on the mean; as `behind_barrier`
        of CubeCost says."""
        run = self.cost.behind_barrier
        total = 0.0
        for n, each in zip(times, waited, strict=True):
            total = total + n * run(side, self.cores, self.tiles, self.overlaps, each, machine)
        return total / sum(times)


def on_cores(plans: ProductPlans, problem: CubeProblem, outside: Outside, machine: Machine) -> ProductRun:
    """The tiles of plans on their cores."""
    known, grid, inner = plans.tiles, plans.grid, plans.inner
    cost, points = known.cost, size(grid)
    cores = least(points, machine.cube_cores)
    tiles = dict(zip(problem.out, known.counts, strict=True))
    own = {a: parts(tiles[a], cut) for a, cut in zip(problem.out, grid, strict=True)}
    lhs, rhs = _read(cost, tiles, own, cores, inner, problem, outside, machine)
    order = problem.walk(inner)
    sharing = (dict(zip(problem.out, shared, strict=True)) for shared in known.shared)
    (left, of_left), (right, of_right) = (shared_loops(order, own, shared) for shared in sharing)
    # one load of an operand is for all tiles of the loops further in: of the operand that has it for more loops
    lhs = replace(lhs, times=lhs.times / pick(left > right, of_left, 1))
    rhs = replace(rhs, times=rhs.times / pick(left <= right, of_right, 1))
    cost = replace(cost, loads=(lhs, rhs))
    if outside.reduces:
        each = known.block / size([own[a] for a in problem.whole])
        cost = replace(cost, epilogue=each, tail=known.block - each)
    return ProductRun(cost, cores, size([*own.values()]) * parts(points, cores), plans.overlaps)


def shared_loops(
    order: Sequence[int], own: Mapping[int, Number], shared: Mapping[int, Number]
) -> tuple[Number, Number]:
    """Of loops over axes in an order, with `own` tiles of a core along each, the innermost ones for all of which one
    load is enough: how many there are, and the tiles in them. shared: 1 for axes along which it is, else 0."""
    going, loops, tiles = 1, 0, 1
    for a in reversed(order):
        several = pick(own[a] > 1, 1, 0)
        going = going * (1 - several * (1 - shared[a]))
        loops = loops + going * several
        tiles = tiles * pick(going > 0, own[a], 1)
    return loops, tiles


def _read(
    cost: CubeCost,
    tiles: Mapping[int, Number],
    own: Mapping[int, Number],
    cores: Number,
    inner: str,
    problem: CubeProblem,
    outside: Outside,
    machine: Machine,
) -> tuple[OperandLoads, OperandLoads]:
    """What the loads of both operands take where a core has its `own` tiles along each axis of the result: cores
    side by side along the axes of one operand read the same of the other. What L2 has no room for beside all that
    the cores move in a sweep of a loop over tiles is read again in the next one, as in backends/simulator/reuse.py."""
    stored = outside.epilogue / size([*tiles.values()])
    sides = [[*problem.batch, *problem.m], [*problem.batch, *problem.n]]
    beside = {a: parts(n, own[a]) for a, n in tiles.items()}
    each = [
        load.times * load.each.bytes * size([beside[a] for a in axes])
        for load, axes in zip(cost.loads, sides, strict=True)
    ]
    sweeps = [size([own[a] for a in axes]) for axes in (problem.m, problem.n)]
    swept, kept = (0, 1) if inner == "m" else (1, 0)
    one = each[0] + each[1] + stored * cores
    sweep = each[swept] * sweeps[swept] + each[kept] + stored * cores * sweeps[swept]
    room = machine.l2_bytes
    again: list[Number] = [1.0, 1.0]
    again[swept] = pick(sweep <= room, 1.0, sweeps[kept])
    again[kept] = pick(one <= room, 1.0, sweeps[swept])
    sharers = [size([beside[a] for a in axes]) for axes in (problem.n, problem.m)]
    lhs, rhs = (
        replace(load, sharers=same, crossing=whole * times)
        for load, same, whole, times in zip(cost.loads, sharers, outside.operands, again, strict=True)
    )
    return lhs, rhs
