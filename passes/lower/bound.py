"""The analytic bound: microseconds of a kernel in closed form, good enough to compare schedules but not for reports.

`VectorWork` and `CubeCost` are what a kernel of the vector cores and a contraction have to do. Schedules, numbers of
cores and the order of launches around host calls are all judged by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...dialects.dtypes import numbers_in, size
from ...dialects.npu.interface import gm_traffic
from ...dialects.npu.types import GmType
from ...dialects.open_sizes import is_open
from ...dialects.sparsity import INDEXED, KEPT_OF
from ...kernels.builder import divide_grid
from ...machine import Machine
from .pooled_axes import PooledAxis
from .schedule import COPY_BYTES

SHARES = 4
"""In how many steps the share of a chip is tried that a kernel of vector cores takes."""


@dataclass(frozen=True)
class VectorWork:
    """What a kernel would take one vector core, its pipes one after the other, in cycles."""

    cycles: float

    def microseconds(self, counts: Sequence[int], grid: Sequence[int], machine: Machine) -> float:
        """Of the kernel with so many tiles along each axis, and so many cores."""
        busiest = size([-(-n // cores) for n, cores in zip(counts, grid, strict=True)])
        return self.on(size(grid), busiest / max(size(counts), 1), machine)

    def on(self, cores: int, share: float, machine: Machine) -> float:
        """Microseconds on so many cores, the busiest of which has this share of the work."""
        work = machine.cycles_to_microseconds(self.cycles * share)
        return machine.vector_launch_microseconds(cores) + work

    def worth_waking(self, machine: Machine) -> int:
        """The fewest vector cores on which the kernel ends first: each further one shortens the work and lengthens the
        launch."""
        return min(range(1, machine.vector_cores + 1), key=lambda n: self.on(n, 1 / n, machine))

    def numbers_of_cores(self, most: int, machine: Machine) -> list[int]:
        """Numbers of cores, at most so many, that are worth trying: on how many a launch ends first, and larger shares
        of the chip, which a group of launches may occupy for others."""
        fewest = min(self.worth_waking(machine), most)
        shares = (machine.vector_cores * part // SHARES for part in range(1, SHARES + 1))
        return [fewest, *(n for n in shares if fewest < n <= most)]

    def pieces(self, machine: Machine) -> int:
        """How many pieces there are of it, none shorter than a copy in and out of COPY_BYTES / 2."""
        load, store = machine.moves["gm", "ub"], machine.moves["ub", "gm"]
        half = COPY_BYTES / 2
        copied = half / load.bytes_per_cycle + half * load.miss_cycles + half / store.bytes_per_cycle
        return int(self.cycles // copied)


def copy_cycles(kind: str, view: GmType, box: Sequence[int], machine: Machine, warm: bool = False) -> float:
    """Cycles of one vector core to "load" or "store" all of a view, box by box. It is loaded from HBM, unless it is
    known that L2 has it: that it is `warm`."""
    move = machine.moves[("gm", "ub") if kind == "load" else ("ub", "gm")]
    rank, boxes = len(box), size(view.shape) / max(size(box), 1)
    moved = gm_traffic(view, [0] * rank, box, [1] * rank, machine, machine.gm_align)
    own = max(move.run_cycles * moved.runs, moved.bus / move.bytes_per_cycle)
    return boxes * (own + (0 if warm else moved.bus * move.miss_cycles))


FRACTAL = 16
"""Rows and columns of a cube fractal."""

Extents = Sequence[int]
"""Elements along each axis of a contraction."""


class LoadCost(NamedTuple):
    """One load to l1: cycles of MTE2 where all is in L2, bytes, the bytes of bandwidth that they take, and the cycles
    at least for each core that asks for the same lines at the same time."""

    cycles: float
    bytes: float
    bus: float
    turn: float = 0.0


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
class CubeProblem:
    """A contraction's axes: their extents and roles; itemsize of the inputs, in bytes."""

    extents: Sequence[int]
    batch: Sequence[int]
    m: Sequence[int]
    n: Sequence[int]
    k: Sequence[int]
    itemsize: int
    wide_m: bool = True
    """Whether a tile's rows may span several m axes (not where m is the innermost axis of lhs)."""
    windows: frozenset[int] = frozenset()
    """k axes that slide over an m axis (image to column): taken whole or one by one."""
    singly: frozenset[int] = frozenset()
    """Axes of which a step and a load have one place: those of windows where no move unrolls them."""
    dtype: str = "f32"
    stored: int = 4
    """Bytes of an element that the accumulator is stored as."""
    epilogue: float = 0.0
    """Cycles of a vector core for each element of the result; 0 without an epilogue."""
    epilogue_head: float = 0.0
    """Cycles of a vector core for each piece of a tile on top."""
    sparse: bool = False
    """Whether of rhs 2 of 4 numbers along the last k axis are stored, with their positions."""
    even: frozenset[int] = frozenset()
    """Axes of which all cores have as many tiles: the scalar unit reads a number for each, and none behind the last."""
    whole: frozenset[int] = frozenset()
    """Axes of the result that a core has all of, as what stands behind the product is reduced along them."""
    pooled: Mapping[int, PooledAxis] = field(default_factory=dict[int, PooledAxis])
    """Rows that are pooled behind the product, by axis: a step has those of whole windows."""

    @property
    def rhs_parts(self) -> tuple[int, ...]:
        """Elements along k for each element of what is stored of rhs: its values, and their positions."""
        return (KEPT_OF, INDEXED) if self.sparse else (1,)

    @property
    def out(self) -> list[int]:
        """The axes of the result."""
        return [*self.batch, *self.m, *self.n]

    @property
    def cut_k(self) -> Sequence[int]:
        """The k axes of which a step may have several places; all where none is such."""
        return [a for a in self.k if a not in self.singly] or self.k

    def counts(self, step: Extents) -> list[int]:
        """Tiles along each axis of the result."""
        return [self.tiles(a, step[a]) for a in self.out]

    def tiles(self, axis: int, step: int) -> int:
        """Tiles of `step` elements along an axis of the result."""
        along = self.pooled.get(axis)
        return -(-self.extents[axis] // step) if along is None else -(-along.places // along.windows(step))

    def apart(self, axis: int, step: int) -> int:
        """Elements from where a tile of `step` elements along an axis begins to where the next one does."""
        along = self.pooled.get(axis)
        return step if along is None else along.windows(step) * along.stride

    def first(self, axis: int) -> int:
        """Where the first tile along an axis begins."""
        return -self.pooled[axis].low if axis in self.pooled else 0

    def long_k(self, step: Mapping[int, int] | Extents) -> int:
        """The k axis along which loads have several of these steps: the last one, or where a step has all of that, the
        one before, and so on. None of them is a window."""
        found = self.cut_k[-1]
        for a in reversed(self.cut_k[:-1]):
            if a in self.windows or found in self.windows or is_open(self.extents[found]):
                break
            if step[found] < self.extents[found]:
                break
            found = a
        return found

    def times(self, load: Extents) -> int:
        """How many loads of these extents follow each other along k."""
        return size([-(-self.extents[a] // load[a]) for a in self.k])


@dataclass(frozen=True)
class OperandLoads:
    """The loads of one operand to l1: each, and how many a tile of the result takes (less than 1 where several tiles
    share one); sharers: cores side by side that read the same; crossing: bytes that all cores together bring from
    HBM."""

    each: LoadCost
    times: float
    sharers: int = 1
    crossing: float = 0.0

    def parts(self, cores: int, tiles: int, machine: Machine) -> tuple[float, float, float]:
        """Cycles of MTE2 for a tile, of `tiles` on each of `cores` cores, as backends/simulator/pricing.py has them:
        (what misses L2 on a core that has HBM for itself, on one that shares it with all others, what hits)."""
        asked = tiles * self.times * self.each.bytes
        if not asked:
            return 0.0, 0.0, 0.0
        load, bus = machine.moves["gm", "l1"], self.each.bus
        missed = min(self.crossing / cores / asked, 1.0)
        hit = bus * (1 - missed)
        own = self.each.cycles * (1 - missed)
        if self.sharers > 1 and machine.cube_cores > 1:
            crowd = (cores - 1) / (machine.cube_cores - 1)
            own += crowd * max(0.0, hit / load.shared_bytes_per_cycle - own)
        alone = load.missed_cycles(bus, self.each.cycles) * missed
        misses = bus * missed * cores / (machine.hbm_bytes_per_cycle * load.hbm_share)
        hits = max(own, hit * cores / machine.l2_bytes_per_cycle, self.each.turn * self.sharers - max(alone, misses))
        return self.times * alone, self.times * misses, self.times * hits

    def busy(self, cores: int, tiles: int, machine: Machine) -> float:
        """Cycles of MTE2 for a tile where all cores load it at the same time."""
        alone, misses, hits = self.parts(cores, tiles, machine)
        return max(alone, misses) + hits


def loading(loads: Sequence[OperandLoads], cores: int, tiles: int, machine: Machine) -> float:
    """Cycles of MTE2 for a tile, one of many: some cores get bytes of L2 while others load over HBM."""
    parts = [each.parts(cores, tiles, machine) for each in loads]
    hits = sum(hit for *_, hit in parts)
    return hits + sum(max(alone, misses - (hits - hit)) for alone, misses, hit in parts)


@dataclass(frozen=True)
class CubeCost:
    """Estimated cycles of one core for one tile of the result, by pipe."""

    loads: tuple[OperandLoads, OperandLoads]
    """Of lhs and of rhs."""
    wait: float
    """Cycles of MTE2 before a load that waits for its buffer."""
    also: float
    """Cycles of MTE2 for what an epilogue loads."""
    also_bytes: float
    mte1: float
    mma: float
    fix: float
    epilogue: float
    held: float
    """How long the sums stay in l0c behind the product."""
    stored: float
    """Cycles of the way out of ub."""
    turn: float
    """Cycles from a tile to the next where loads of both take turns: what an epilogue loads waits for room in
    ub, and the operands of the next tile behind it."""
    tail: float = 0.0
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

    def loading_once(self, side: int, tiles: int) -> CubeCost:
        """The same where one operand (0: lhs, 1: rhs) is loaded once for so many tiles."""
        once = self.loads[side]
        fewer = replace(once, times=once.times / tiles)
        return replace(self, loads=(fewer, self.loads[1]) if side == 0 else (self.loads[0], fewer))

    def microseconds(self, cores: int, tiles: int, drain_overlaps: bool, machine: Machine) -> float:
        """Of the kernel on `cores` cores, the busiest of which has `tiles` tiles."""
        load = machine.moves["gm", "l1"]
        # what an epilogue loads is read once, of HBM
        alone = self.also + self.also_bytes * load.miss_cycles
        others = max(alone, self.also_bytes * cores / (machine.hbm_bytes_per_cycle * load.hbm_share))
        busy = [each.busy(cores, tiles, machine) for each in self.loads]
        begin = sum(cycles / each.times for cycles, each in zip(busy, self.loads, strict=True)) + self.wait
        product = max(self.mte1, self.mma if drain_overlaps else self.mma + self.held)
        product += self._starved(begin, product)
        loaded = loading(self.loads, cores, tiles, machine)
        first = max(loaded + self.waits + others, product)
        streamed = max(first, self.fix, self.epilogue, self.stored, self.turn)
        cycles = begin + first + (tiles - 1) * streamed + self.fix + self.epilogue + self.tail
        return machine.cycles_to_microseconds(cycles) + machine.launch_microseconds(cores, self.epilogue > 0)

    def behind_barrier(
        self, side: int, cores: int, tiles: int, drain_overlaps: bool, waited: float, machine: Machine
    ) -> float:
        """Microseconds behind a barrier until a core with so many tiles is done, that waits for so many microseconds
        and meanwhile loads an operand (0: lhs, 1: rhs), once."""
        busy = [each.busy(cores, tiles, machine) for each in self.loads]
        first = [cycles / each.times for cycles, each in zip(busy, self.loads, strict=True)]
        begin = max(first[side] - waited * machine.clock_mhz, 0.0) + first[1 - side] + self.wait
        one = max(self.mte1, self.mma if drain_overlaps else self.mma + self.held)
        last = one / max(*(each.times for each in self.loads), 1.0)
        loads = tiles * (sum(busy) + self.waits) - sum(first)
        products = begin + max(loads + last, tiles * one)
        late = (tiles - 1) * max(max(self.fix, self.epilogue, self.stored) - one, 0.0)
        return machine.cycles_to_microseconds(products + late + self.fix + self.epilogue + self.tail)

    @property
    def waits(self) -> float:
        """Cycles of MTE2 that wait for buffers, for a tile: loads of one length share a flag."""
        left, right = (each.times for each in self.loads)
        return self.wait * (left if left == right else left + right)

    def _starved(self, both: float, product: float) -> float:
        """Cycles for a tile that the cube has nothing to do while a long load, and a short one behind it, are on their
        way (`both`, in cycles): there are two buffers of the short ones, which the product uses up meanwhile."""
        rare, often = sorted(each.times for each in self.loads)
        return rare * max(0.0, both + self.wait - AHEAD * product / often) if rare < often else 0.0


AHEAD = 1.6
"""Short loads that the cube has in l1 while a long one is on its way: of two buffers one is filled anew until then."""

EPILOGUE_SLOTS = 2
"""Pieces of a tile that there are buffers in ub for, unless they are pinned."""

MOST_ROUNDS = 6
"""Numbers of cores that are tried for a tile: from all of them on, each with one tile more for the busiest."""


def grids(counts: Sequence[int], cores: int, even: Sequence[bool] = ()) -> Iterator[list[int]]:
    """Cores along each axis for so many tiles along each: the divisions over at most `cores` that are worth trying.
    even: axes of which all cores have as many tiles."""
    total, most = size(counts), cores
    for _ in range(MOST_ROUNDS):
        split = divide_grid(counts, most, even)
        used, tiles = size([c for c, _ in split]), size([t for _, t in split])
        yield [c for c, _ in split]
        most = min(-(-total // (tiles + 1)), used - 1)
        if most < 1:
            return


def sides(problem: CubeProblem, step: Extents) -> tuple[int, int]:
    """(rows, columns) of a mma step, in whole fractals."""
    rows, columns = (round_up(size([step[a] for a in axes])) for axes in (problem.m, problem.n))
    return rows, columns


def round_up(n: int) -> int:
    return -(-n // FRACTAL) * FRACTAL
