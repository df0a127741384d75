"""Closed-form cost estimates of contraction tiles, accurate enough to choose between tiles but not for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialects.dtypes import size
from ...machine import Machine
from .builder import divide_grid

FRACTAL = 16
"""Rows and columns of a cube fractal."""

Loads = Callable[[dict[int, int]], tuple[float, float]]
"""(MTE2 cycles where all is in L2, bytes) of the loads of both operands for a box of the contraction's axes."""


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
    dtype: str = "f32"
    stored: int = 4
    """Bytes of an element that the accumulator is stored as."""
    epilogue: float = 0.0
    """Cycles of a vector core for each element of the result; 0 without an epilogue."""
    epilogue_head: float = 0.0
    """Cycles of a vector core for each tile on top."""

    @property
    def out(self) -> list[int]:
        """The axes of the result."""
        return [*self.batch, *self.m, *self.n]

    def counts(self, l0: dict[int, int]) -> list[int]:
        """Tiles along each axis of the result."""
        return [-(-self.extents[a] // l0[a]) for a in self.out]


@dataclass(frozen=True)
class CubeCost:
    """Estimated cycles of one core for one tile of the result, by pipe; `whole` and `tile` are bytes loaded for the
    whole problem (once) and for the tile."""

    mte2: float
    mte1: float
    mma: float
    fix: float
    epilogue: float
    whole: float
    tile: float
    first: float
    """The share of a tile's loads that nothing overlaps with."""

    @staticmethod
    def of(
        problem: CubeProblem,
        l0: dict[int, int],
        box: dict[int, int],
        machine: Machine,
        loads: Loads,
        whole: float,
    ) -> CubeCost:
        """The cost of tiles of `l0` along the result's axes, in steps of `l0` along k; `box`: the extents of a load;
        `whole`: bytes of both operands."""
        rows, cols = sides(problem, l0)
        depth = size([l0[a] for a in problem.k])
        steps = size([-(-problem.extents[a] // l0[a]) for a in problem.k])
        rate = machine.cube[problem.dtype]
        blocks = -(-rows // rate.m) * -(-cols // rate.n) * -(-depth // rate.k)
        left, right = machine.moves["l1", "l0a"], machine.moves["l1", "l0b"]
        moved = left.cycles(rows * depth * problem.itemsize, overlapped=True)
        moved += right.cycles(depth * cols * problem.itemsize, overlapped=True)
        drain = machine.moves["l0c", "ub" if machine.fused else "gm"].cycles(rows * cols * problem.stored)
        times = size([-(-problem.extents[a] // box[a]) for a in problem.k])
        cycles, bytes_ = loads(box)
        cycles, bytes_ = (cycles + machine.wait_cycles.get("MTE2", 0)) * times, bytes_ * times
        units = max(machine.vector_cores // machine.cube_cores, 1)
        return CubeCost(
            mte2=cycles,
            mte1=steps * moved,
            mma=steps * (machine.cube_fixed_cycles + blocks),
            fix=drain,
            epilogue=problem.epilogue_head + problem.epilogue * rows * cols / units,
            whole=whole,
            tile=bytes_,
            first=1 / times,
        )

    def microseconds(self, cores: int, tiles: int, drain_overlaps: bool, machine: Machine) -> float:
        """Of the kernel on `cores` cores, the busiest of which has `tiles` tiles."""
        load = machine.moves["gm", "l1"]
        moved = tiles * self.tile
        missed = min(self.whole / cores / moved, 1.0) if moved else 0.0
        shared = moved / load.shared_bytes_per_cycle if cores > 1 else 0.0
        hits = max(tiles * self.mte2, shared, moved * cores / machine.l2_bytes_per_cycle)
        alone = tiles * self.mte2 + moved * load.miss_cycles
        misses = max(alone, moved * cores / machine.hbm_bytes_per_cycle)
        loading = missed * misses + (1 - missed) * hits
        product = self.mma if drain_overlaps else self.mma + self.fix
        streamed = max(loading, tiles * max(self.mte1, product, self.fix, self.epilogue))
        cycles = streamed + loading / tiles * self.first + self.fix + self.epilogue
        return machine.cycles_to_microseconds(cycles) + machine.launch_microseconds(cores)

    def best(
        self, counts: Sequence[int], cores: int, drain_overlaps: bool, machine: Machine
    ) -> tuple[float, int]:
        """(microseconds, cores) of the best number of cores, at most `cores`, for so many tiles along each axis."""
        found: list[tuple[float, int]] = []
        total, most = size(counts), cores
        while most >= 1 and len(found) < MOST_ROUNDS:
            split = divide_grid(counts, most)
            used, tiles = size([c for c, _ in split]), size([t for _, t in split])
            found.append((self.microseconds(used, tiles, drain_overlaps, machine), used))
            most = min(-(-total // (tiles + 1)), used - 1)
        return min(found)


MOST_ROUNDS = 6
"""Numbers of cores that are tried for a tile: from all of them on, each with one tile more for the busiest."""


def sides(problem: CubeProblem, l0: dict[int, int]) -> tuple[int, int]:
    """(rows, columns) of a mma step, in whole fractals."""
    rows, columns = (round_up(size([l0[a] for a in axes])) for axes in (problem.m, problem.n))
    return rows, columns


def round_up(n: int) -> int:
    return -(-n // FRACTAL) * FRACTAL
