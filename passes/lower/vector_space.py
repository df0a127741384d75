"""All plans of a kernel of the vector cores: a tile along each axis, and how many cores.

Of lengths there are those of equal parts, and of divisions over so many cores the one with the least for the busiest.
A search halves the tiles first, and then the cores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from ...dialects.dtypes import size
from ...dialects.graph import VectorSchedule
from ...dialects.graph.schedules import Schedule
from ...kernels.builder import divide_grid, shared_tiles
from ...kernels.columns import launching_vectors
from ...kernels.space import Box, PlanNumber, Plans, PlanSpace, parts_of
from ...kernels.vector_cost import copy_cycles
from .spaces import CORES, DividedSpace, checked, nearest

if TYPE_CHECKING:
    from .boxes import BoxKernel
    from .vector import VectorKernel
    from .work_priced import WorkPriced

BLOCK = 8
"""Lengths along the last axis are a multiple of this, as those that graph-schedule tries."""


class TileSpace(DividedSpace):
    """The plans of a kernel of vector cores that all work that there is prices, two buffers in flight unless others are
    asked for."""

    def __init__(
        self,
        kernel: WorkPriced,
        name: str,
        extents: Sequence[int],
        divided: Sequence[int],
        like: VectorSchedule,
    ) -> None:
        """extents: of the axes that it walks; divided: those that cores share; like: what its schedules have beside a
        tile and a grid."""
        self.work, self.name, self.machine = kernel, name, kernel.machine
        self.extents, self.divided, self.like = extents, divided, like
        self.order = [*reversed(range(len(extents)))]
        """The axes in the order of the choices."""
        self.cores = tuple(range(1, self.machine.vector_cores + 1))
        last = len(extents) - 1
        tiles = [PlanNumber(f"tile_{a}", self.lengths(a, BLOCK if a == last else 1)) for a in self.order]
        self.space = PlanSpace((*tiles, PlanNumber(CORES, self.cores, 1)))
        self.cycles: dict[tuple[int, ...], float] = {}
        """Cycles of all pipes with a tile, as far as known."""
        self.shared: dict[tuple[int, ...], np.ndarray] = {}
        """Shares of the busiest core by tiles along the divided axes, as far as known."""

    @abstractmethod
    def lengths(self, axis: int, multiple: int) -> tuple[int, ...]:
        """The lengths of a tile along an axis, in multiples, the longest first."""

    def least(self, box: Box, longest: Sequence[int], shortest: Sequence[int]) -> float | None:
        """Cycles of all pipes with any tile of a box, at least; None where that is not known."""
        return None

    # -- from numbers to schedules -----------------------------------------------------------------------------

    def tile(self, plan: Sequence[int]) -> tuple[int, ...]:
        """The tile of a plan, all of the axes whose number it has not."""
        values = [*self.space.values(plan[: len(self.order)]).values()]
        by_axis = dict(zip(self.order, values, strict=False))
        return tuple(by_axis.get(a, n) for a, n in enumerate(self.extents))

    def _counts(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Tiles along each axis that cores share."""
        return tuple(-(-self.extents[a] // tile[a]) for a in self.divided)

    def shares(self, tile: Sequence[int]) -> np.ndarray:
        """Of all tiles the share of the busiest core, by how many cores work; infinity where fewer do the same."""
        counts = self._counts(tile)
        if counts not in self.shared:
            tiles, used = shared_tiles(counts, len(self.cores))
            self.shared[counts] = np.where(used == self.cores, tiles / max(size(counts), 1), np.inf)
        return self.shared[counts]

    def schedule(self, plan: Sequence[int]) -> Schedule | None:
        tile, cores = self.tile(plan), self.cores[plan[-1]]
        if not self.divides(plan):
            return None
        divided = divide_grid(self._counts(tile), cores)
        used = {a: n for a, (n, _) in zip(self.divided, divided, strict=True)}
        grid = tuple(used.get(a, 1) for a in range(len(self.extents)))
        return checked(self.work, self.name, replace(self.like, tile=tile, grid=grid))

    def numbers(self, schedule: Schedule) -> tuple[int, ...] | None:
        values, choices = self._values(schedule), self.space.choices
        if values is None or any(v not in c.values for c, v in zip(choices, values, strict=True)):
            return None
        return tuple(c.values.index(v) for c, v in zip(choices, values, strict=True))

    def near(self, schedule: Schedule) -> tuple[int, ...] | None:
        wanted = self._values(schedule)
        if wanted is None:
            return None
        head = [nearest(c.values, n) for c, n in zip(self.space.choices, wanted, strict=True)]
        able = np.flatnonzero(np.isfinite(self.shares(self.tile(head[:-1])))).tolist()
        head[-1] = able[nearest([self.cores[i] for i in able], self.cores[head[-1]])]
        return tuple(head)

    def _values(self, schedule: Schedule) -> list[int] | None:
        """What a schedule says of each choice; None where it is one of another kernel."""
        if not isinstance(schedule, VectorSchedule) or schedule.tile is None or schedule.grid is None:
            return None
        if len(schedule.tile) != len(self.order):
            return None
        return [*(schedule.tile[a] for a in self.order), size(schedule.grid)]

    # -- prices ------------------------------------------------------------------------------------------------

    def price(self, plans: Plans) -> np.ndarray:
        cycles = self.by_head(plans, lambda head: self.busiest(self.tile(head)))
        return self.launches[plans[:, -1]] + cycles / self.machine.clock_mhz

    def valid(self, plans: Plans) -> np.ndarray:
        return np.isfinite(self.by_head(plans, lambda head: self.shares(self.tile(head))))

    def busiest(self, tile: tuple[int, ...]) -> np.ndarray:
        """Cycles of the busiest core with a tile, by how many cores work; infinity where fewer do the same."""
        return self._cycles(tile) * self.shares(tile)

    def _cycles(self, tile: tuple[int, ...]) -> float:
        if tile not in self.cycles:
            self.cycles[tile] = self.work.work(tile).cycles
        return self.cycles[tile]

    @property
    def launches(self) -> np.ndarray:
        return self._starts * (not self.joined)

    @cached_property
    def _starts(self) -> np.ndarray:
        """Microseconds to start kernels on each number of cores."""
        return np.asarray(launching_vectors(self.machine, np.array(self.cores)), float)

    def divides(self, plan: Sequence[int]) -> bool:
        return bool(isfinite(self.shares(self.tile(plan))[plan[-1]]))

    def by_cores(self, box: Box) -> np.ndarray | None:
        """What all pipes take at least, shared by cores as evenly as the tiles allow: with the best tile of the box for
        each load and store by itself."""
        longest, shortest = (self.tile(side) for side in box)
        cycles = self._cycles(longest) if longest == shortest else self.least(box, longest, shortest)
        if cycles is None:
            return None
        own = slice(box[0][-1], box[1][-1] + 1)
        cores = np.array(self.cores[own])
        tiles = self._tiles_in(box)
        share = (np.ceil(tiles[:, None] / cores) / tiles[:, None]).min(axis=0)
        return self.launches[own] + cycles * share / self.machine.clock_mhz

    def _tiles_in(self, box: Box) -> np.ndarray:
        """How many tiles cores may share, with the tiles of a box."""
        found = np.ones(1)
        for at, a in enumerate(self.order):
            if a in self.divided:
                lengths = np.array(self.space.choices[at].values[box[0][at] : box[1][at] + 1])
                counts = np.ceil(self.extents[a] / lengths)
                found = np.unique(np.outer(found, counts))
        return found


class VectorSpace(TileSpace):
    """The plans of a kernel that walks a domain."""

    def __init__(self, kernel: VectorKernel, name: str) -> None:
        self.kernel = kernel
        self.copies: dict[tuple[int, tuple[int, ...], bool], float] = {}
        """Cycles of loads and stores, by their numbers and what they have at once, as far as known."""
        self.computed: dict[bool, float] = {}
        """Cycles of the vector unit, by whether rows are in pieces, as far as known."""
        like = VectorSchedule(axes=tuple(map(tuple, kernel.merged)), ub=kernel.slots)
        super().__init__(kernel, name, kernel.extents, kernel.divided, like)

    def lengths(self, axis: int, multiple: int) -> tuple[int, ...]:
        kernel = self.kernel
        if axis in kernel.rows and not kernel.reads_pieces:
            return (kernel.extents[axis],)
        found = parts_of(kernel.extents[axis], multiple)
        return tuple(dict.fromkeys(n + n % 2 for n in found)) if axis in kernel.paired else found

    def least(self, box: Box, longest: Sequence[int], shortest: Sequence[int]) -> float:
        """Cycles of all pipes with any tile of a box, at least."""
        again, total = self.kernel.again(longest), self._computed(longest)
        for i, step in enumerate(self.kernel.stages):
            if step.view is not None:
                warm = step.source in self.kernel.warm
                total += self._copied(i, box, longest, shortest, warm)
                if again[i]:
                    total += again[i] * self._copied(i, box, longest, shortest, True)
        return total

    def _copied(self, i: int, box: Box, longest: Sequence[int], shortest: Sequence[int], warm: bool) -> float:
        """Cycles of a load or a store with any tile of a box, at least. It takes less with more at once along all axes
        but the first, in the order in which elements lie in memory, of which the box has parts: of that all lengths are
        tried. Of others one element may leave the starts of runs in line."""
        step, whole = self.kernel.stages[i], self.kernel.extents
        others = {*step.moves} | {*step.axes}
        tried: list[list[int]] = [[n] for n in longest]
        for a in others:
            if shortest[a] == 1 != longest[a]:
                tried[a].append(1)
        found: list[float] = []
        for a in step.in_memory():
            at = self.order.index(a)
            lengths = self.space.choices[at].values[box[0][at] : box[1][at] + 1]
            tried[a] = [n for n in lengths if n < whole[a]]
            found += [self._copy(i, step.box(tile), warm) for tile in product(*tried)]
            if lengths[0] < whole[a]:
                return min(found)
            tried[a] = [whole[a]]
        return min([*found, *(self._copy(i, step.box(tile), warm) for tile in product(*tried))])

    def _copy(self, i: int, moved: Sequence[int], warm: bool) -> float:
        """Cycles of a load or a store of so many elements along each axis at once."""
        key = i, tuple(moved), warm
        if key not in self.copies:
            step = self.kernel.stages[i]
            assert step.view is not None
            self.copies[key] = copy_cycles(step.kind, step.view, moved, self.machine, warm, rounded=False)
        return self.copies[key]

    def _computed(self, longest: Sequence[int]) -> float:
        """Cycles of the vector unit with tiles that are no longer, at least."""
        key = self.kernel.is_cut(longest)
        if key not in self.computed:
            self.computed[key] = self.kernel.computed(tuple(longest), masked=False)
        return self.computed[key]


class BoxSpace(TileSpace):
    """The plans of a kernel that takes boxes of its domain, of which nothing is known before their tiles are."""

    def __init__(self, kernel: BoxKernel, name: str) -> None:
        self.kernel = kernel
        divided = [a for a in range(len(kernel.domain)) if a not in kernel.in_order]
        super().__init__(kernel, name, kernel.domain, divided, VectorSchedule(ub=kernel.slots))

    def lengths(self, axis: int, multiple: int) -> tuple[int, ...]:
        extent = self.kernel.domain[axis]
        return (extent,) if axis in self.kernel.whole else parts_of(extent, multiple)
