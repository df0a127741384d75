"""What no plan of a product takes less than (product_space.py): rooflines of many steps, and of one step and its loads.

A core has so many tiles along each axis as the division says, and each pipe all of them; what several tiles share is
loaded once, and operands come from HBM once. Of many steps each pipe has the best one by itself: the cycles of all
tiles shared by cores evenly, and those of the shortest step for the fewest tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....dialects.dtypes import numbers_in, size
from ....kernels.columns import launching, missing
from ....kernels.price import starved
from ....kernels.product import Extents, round_up
from ....kernels.product_cost import LoadCost
from .cube_schedule import accumulators

if TYPE_CHECKING:
    from .product_space import ProductSpace


class _Side(NamedTuple):
    """Steps along the axes of rows, of columns or of k, one a row. counts: tiles, or steps of a tile, along each of
    these axes; lengths: elements of a step, of rows and columns in whole fractals."""

    counts: np.ndarray
    lengths: np.ndarray

    @property
    def count(self) -> np.ndarray:
        """Tiles, or steps of a tile, along all axes."""
        return self.counts.prod(axis=1)

    @property
    def all(self) -> np.ndarray:
        """Elements of all tiles, or steps, together."""
        return self.count * self.lengths

    def of(self, numbers: slice) -> _Side:
        """Some of them."""
        return _Side(self.counts[numbers], self.lengths[numbers])


class _Loads(NamedTuple):
    """Loads of one operand, one a row, as `LoadCost` has them; how many a tile takes; and whether one has all of k, and
    may be for all tiles that take the same."""

    each: np.ndarray
    times: np.ndarray
    whole: np.ndarray

    def only(self, those: np.ndarray) -> _Loads:
        """Some of them."""
        return _Loads(self.each[those], self.times[those], self.whole[those])


class _Loading(NamedTuple):
    """Cycles of the first loads of both operands, and of these and all loads of a core."""

    first: np.ndarray
    busy: np.ndarray


class ProductBounds:
    """Bounds of the plans of a space, in microseconds, for each of some divisions (`grids`, cores along each axis that
    cores share)."""

    def __init__(self, space: ProductSpace) -> None:
        self.space, self.kernel = space, space.kernel
        self.problem, self.machine = space.problem, space.machine
        self.whole: dict[tuple[int, int, int], _Loads] = {}
        """Loads of all of k of a side of a step, by the sides, as far as known."""

    # -- one step ----------------------------------------------------------------------------------------------

    def of_step(
        self, step: Extents, loads: Sequence[tuple[Extents, Extents]], inner: str, grids: np.ndarray
    ) -> np.ndarray:
        """With a step, any of these loads, and the inner loop."""
        problem = self.problem
        tiles = self.space.base(step, inner)
        cost, cores = tiles.cost, grids.prod(axis=1)
        if cost.epilogue == np.inf:  # it has no room
            return np.full(len(cores), np.inf)
        own = self._own(dict(zip(problem.out, map(int, tiles.counts), strict=True)), grids)
        number = prod(own.values(), start=np.ones(len(cores)))
        boxes = [[*dict.fromkeys(pair[side] for pair in loads)] for side in (0, 1)]
        sides = [self._loads([self.kernel.loads_of(b)[i] for b in some], some, i) for i, some in enumerate(boxes)]
        found = self._loading(sides, own, [number[None]] * 2, grids)
        overlaps = accumulators(problem, dict(enumerate(step)), self.machine) > 1
        cube = cost.mma if overlaps else cost.mma + cost.held
        busy = found.busy
        if len(loads) == 1:
            alike = self._alike(own, grids)
            each = np.all([each == number for each, side in zip(alike, sides, strict=True) if side.whole[0]], axis=0)
            rare, often = sorted(float(side.times[0]) for side in sides)
            if rare < often:  # both wait for a flag of their own, where each tile has loads of its own
                idle = starved(rare, often, found.first + cost.wait, np.maximum(cost.mte1, cube))
                cube, busy = cube + each * idle, busy + each * cost.wait * number * (rare + often) / 2
        move = self.machine.moves["gm", "l1"]
        also = np.maximum(
            cost.also + cost.also_bytes * move.miss_cycles,
            cost.also_bytes * cores / (self.machine.hbm_bytes_per_cycle * move.hbm_share),
        )
        epilogue, waits = 0.0 if self.kernel.outside.reduces else cost.epilogue, 0.0
        if cost.turn > 0:  # that of loads of one step each
            once = sum(each.each.cycles * each.times for each in cost.loads) + cost.waits
            waits = cost.turn - once + sum(float((each.times * each.each[:, 0]).min()) for each in sides)
        late = max(cost.fix, epilogue, cost.stored, waits)
        one = np.maximum(cost.mte1, cube)
        cycles = np.maximum(busy + number * also, found.first + one + (number - 1) * np.maximum(one, late))
        cycles = cycles + cost.wait + cost.fix + epilogue
        return cycles / self.machine.clock_mhz + self._launching(cores, cost.epilogue > 0)

    # -- many steps --------------------------------------------------------------------------------------------

    def of_steps(self, low: Sequence[int], high: Sequence[int], grids: np.ndarray) -> np.ndarray:
        """With any step whose rows, columns and depth are among those from `low` to `high`."""
        problem, machine, cores = self.problem, self.machine, grids.prod(axis=1)
        rows, columns, depths = (s.of(slice(a, b + 1)) for s, a, b in zip(self._sides, low, high, strict=False))
        counts = {a: problem.extents[a] for a in problem.batch}
        counts |= dict(zip(problem.m, rows.counts.min(axis=0).tolist(), strict=True))
        counts |= dict(zip(problem.n, columns.counts.min(axis=0).tolist(), strict=True))
        own = self._own(counts, grids)
        number = prod(own.values(), start=np.ones(len(cores)))
        batch = size([problem.extents[a] for a in problem.batch])
        m, n, k = (float(side.count.min()) for side in (rows, columns, depths))
        short, wide = float(rows.lengths.min()), float(columns.lengths.min())

        def busy(every: float, one: float) -> np.ndarray:
            """Cycles of a pipe that takes so many for all tiles, and for one."""
            return np.maximum(batch * every / cores, one * number)

        blocks = [float((s.count * b).min()) for s, b in zip((rows, columns, depths), self._blocks(low, high))]
        deepest = float(depths.all.min())
        fixed = machine.cube_fixed_cycles
        small = float(self._blocks(low, high)[0].min() * self._blocks(low, high)[1].min())
        mma, one_mma = m * n * k * fixed + prod(blocks), k * fixed + small * blocks[2]
        left, right = machine.moves["l1", "l0a"], machine.moves["l1", "l0b"]
        moved = problem.itemsize * left.overlap_factor / left.bytes_per_cycle
        starts = left.fixed_cycles * left.overlap_factor
        mte1 = n * float(rows.all.min()) * deepest * moved
        one_mte1 = short * deepest * moved
        for part in problem.rhs_parts:
            moved = problem.itemsize * right.overlap_factor / right.bytes_per_cycle / part
            starts += right.fixed_cycles * right.overlap_factor
            mte1, one_mte1 = mte1 + m * float(columns.all.min()) * deepest * moved, one_mte1 + wide * deepest * moved
        mte1, one_mte1 = mte1 + m * n * k * starts, one_mte1 + k * starts
        area, least = float(rows.all.min() * columns.all.min()), short * wide
        late, behind = np.zeros(len(cores)), 0.0
        if not machine.fused and not problem.pooled:  # of what is pooled that is known tile by tile
            drain, units = machine.moves["l0c", "gm"], max(machine.vector_cores // machine.cube_cores, 1)
            ways = [(problem.stored / drain.bytes_per_cycle, float(drain.fixed_cycles))]
            if not self.kernel.outside.reduces:
                ways.append((problem.epilogue / units, problem.epilogue_head))
            for each, start in ways:
                one = least * each + start
                late = np.maximum(late, busy(area * each + m * n * start, one) - one)
                behind += one
            if self._in_turn(low):
                each, start = ways[0]
                mma, one_mma = mma + area * each + m * n * start, one_mma + least * each + start
        turns = np.maximum(busy(mma, one_mma), busy(mte1, one_mte1))
        many = [np.maximum(number, batch * s.count[:, None] * other / cores) for s, other in ((rows, n), (columns, m))]
        found = self._loading(self._whole_loads(low, high), own, many, grids, float(depths.count.max()))
        one = max(one_mma, one_mte1)
        cycles = np.maximum(found.busy, found.first + np.maximum(turns, one + late)) + behind
        cycles = cycles + machine.wait_cycles.get("MTE2", 0)
        return cycles / machine.clock_mhz + self._launching(cores, self._mixed and not machine.fused)

    @cached_property
    def _mixed(self) -> bool:
        """Whether vector cores work along."""
        step = self.space.side(0, self.space.space.choices[0].values[0])
        return self.space.base(step, self.space.space.choices[4].values[0]).cost.epilogue > 0

    @cached_property
    def _sides(self) -> tuple[_Side, _Side, _Side]:
        """The steps along rows, columns and k, by the numbers of their choices."""
        problem = self.problem
        found: list[_Side] = []
        for which, axes in enumerate((problem.m, problem.n, problem.k)):
            tiles = [self.space.side(which, value) for value in self.space.space.choices[which].values]
            places = problem.tiles if which < 2 else lambda a, n: -(-problem.extents[a] // n)
            counts = np.array([[places(a, tile[a]) for a in axes] for tile in tiles], float)
            lengths = [size([tile[a] for a in axes]) for tile in tiles]
            found.append(
                _Side(
                    counts.reshape(len(tiles), len(axes)),
                    np.array([n if which == 2 else round_up(n) for n in lengths], float),
                )
            )
        return found[0], found[1], found[2]

    def _blocks(self, low: Sequence[int], high: Sequence[int]) -> list[np.ndarray]:
        """Blocks of the cube along each side of steps."""
        rate = self.machine.cube[self.problem.dtype]
        fewer = self.machine.cube_sparse.get(self.problem.dtype, 1) if self.problem.sparse else 1
        of = (rate.m, rate.n, rate.k * fewer / numbers_in(self.problem.dtype))
        sides = zip(self._sides, low, high, of, strict=False)
        return [np.ceil(side.lengths[a : b + 1] / n) for side, a, b, n in sides]

    def _in_turn(self, low: Sequence[int]) -> bool:
        """Whether l0c has room for one accumulator at most of all these steps."""
        rows, columns = (side.lengths[i] for side, i in zip(self._sides[:2], low, strict=False))
        return rows * columns * 4 * 2 > self.machine.spaces["l0c"].bytes

    def _whole_loads(self, low: Sequence[int], high: Sequence[int]) -> tuple[_Loads, _Loads]:
        """Loads of all of k of rows and of columns."""
        problem, found = self.problem, list[_Loads]()
        for side, which in enumerate((0, 1)):
            key = side, low[which], high[which]
            if key not in self.whole:
                numbers = range(low[which], high[which] + 1)
                tiles = [self.space.side(which, self.space.space.choices[which].values[i]) for i in numbers]
                boxes = [tuple(problem.extents[a] if a in problem.k else n for a, n in enumerate(t)) for t in tiles]
                loads = self._loads([self.kernel.least_loads(box)[side] for box in boxes], boxes, side)
                loads.each[:, 2] = loads.each[:, 1]  # parts may begin at lines where all of k does not
                self.whole[key] = loads
            found.append(self.whole[key])
        return found[0], found[1]

    # -- both --------------------------------------------------------------------------------------------------

    def _own(self, counts: dict[int, int], grids: np.ndarray) -> dict[int, np.ndarray]:
        """Tiles of the busiest core along each axis of the result, of so many, for each division."""
        cores = dict(zip(self.space.cut, grids.T, strict=True))
        one = np.ones(len(grids), np.int64)
        return {a: -(-int(n) // cores.get(a, one)) for a, n in counts.items()}

    def _loads(self, each: Sequence[LoadCost], boxes: Sequence[Extents], side: int) -> _Loads:
        """Loads of an operand of such boxes, of which each costs so much."""
        room = self.machine.spaces["l1"].bytes
        whole = [self.space.has_all(box) and self.kernel.l1_bytes(box, box)[side] <= room for box in boxes]
        times = [self.problem.times(box) for box in boxes]
        return _Loads(np.array(each, float), np.array(times, float), np.array(whole, bool))

    def _loading(
        self,
        sides: Sequence[_Loads],
        own: dict[int, np.ndarray],
        number: Sequence[np.ndarray],
        grids: np.ndarray,
        parts: float = 1.0,
    ) -> _Loading:
        """What loads take a core at least. number: tiles of a core, for each load of lhs and of rhs; parts: in how many
        a load may be. Of one operand a load may be for all tiles that take the same."""
        problem, found = self.problem, list[_Loading]()
        alike, one = self._alike(own, grids), np.ones(len(grids), np.int64)
        along = dict(zip(self.space.cut, grids.T, strict=True))
        sharers = [prod((along.get(a, one) for a in axes), start=one) for axes in (problem.n, problem.m)]
        cores = grids.prod(axis=1)
        for once in (-1, 0, 1):
            if once >= 0 and not sides[once].whole.any():
                continue
            each = [
                self._of_side(side, loads.only(loads.whole), alike[side][None], cores, sharers[side], 1.0)
                if side == once
                else self._of_side(side, loads, number[side], cores, sharers[side], parts)
                for side, loads in enumerate(sides)
            ]
            first, busy, crossing = (sum(numbers) for numbers in zip(*each, strict=True))
            found.append(_Loading(np.asarray(first), np.maximum(busy, crossing)))
        return _Loading(*(np.min(numbers, axis=0) for numbers in zip(*found, strict=True)))

    def _alike(self, own: dict[int, np.ndarray], grids: np.ndarray) -> list[np.ndarray]:
        """Tiles of a core that take another part of lhs, and of rhs, for each division."""
        problem, one = self.problem, np.ones(len(grids), np.int64)
        return [prod((own[a] for a in (*problem.batch, *axes)), start=one) for axes in (problem.m, problem.n)]

    def _of_side(
        self, side: int, loads: _Loads, tiles: np.ndarray, cores: np.ndarray, sharers: np.ndarray, parts: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of one operand with the best of its loads, in so many parts at most: cycles of the first load; of that and
        all others of a core; and of that and what HBM gives to all cores. sharers: cores that load the same.

        More that misses L2 takes no less than it does at least. Both operands may wait for one flag: each counts for
        half."""
        machine, move = self.machine, self.machine.moves["gm", "l1"]
        cycles, bytes_, bus, turn = (loads.each[:, i, None] for i in range(4))
        start, wait = move.fixed_cycles, machine.wait_cycles.get("MTE2", 0) / 2
        count = loads.times[:, None] * tiles
        missed = np.minimum(self.kernel.outside.operands[side] / cores / np.maximum(count * bytes_, 1.0), 1.0)
        alone, misses = missing(move, bus, cycles), bus * cores / (machine.hbm_bytes_per_cycle * move.hbm_share)
        crowd = (cores - 1) / max(machine.cube_cores - 1, 1) * (sharers > 1)
        hits = cycles + crowd * np.maximum(bus / move.shared_bytes_per_cycle - cycles, 0.0)
        hits = np.minimum(np.maximum(hits, bus * cores / machine.l2_bytes_per_cycle), alone)
        given = np.maximum(alone, misses) * missed + hits * (1 - missed) - start
        moved = alone * missed + hits * (1 - missed) - start
        turns = turn * sharers - np.maximum(misses - alone, 0.0)
        split = np.clip(np.sqrt(np.maximum(given, 0) / (count * (start + wait))), 1.0, parts) if parts > 1 else 1.0
        first = start + given / parts
        if parts == 1:
            first = np.maximum(first, turn * sharers)
        most = np.maximum(count * (split * (start + wait) + moved), count * (turns + split * wait))
        busy = np.maximum(start + given / split, first) + most
        crossing = first + count * missed * misses
        return first.min(axis=0), busy.min(axis=0), crossing.min(axis=0)

    def _launching(self, cores: np.ndarray, mixed: bool) -> np.ndarray:
        if self.space.joined:
            return np.zeros(len(cores))
        return np.asarray(launching(self.machine, cores, mixed), float)
