"""All plans of a kernel of the vector cores that walks a domain: a tile along each axis, and how many cores.

Of lengths there are those of equal parts, and of divisions over so many cores the one with the least for the busiest.
A level of a search fixes one axis, from the last one outwards, and the last level the cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...dialects.dtypes import size
from ...dialects.graph import VectorSchedule
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.types import Pipe
from ...kernels.builder import divide_grid
from ...kernels.columns import launching_vectors
from ...kernels.space import Choice, Plans, PlanSpace, parts_of
from ...kernels.vector_cost import copy_cycles
from .spaces import CORES, KernelSpace, checked, nearest

if TYPE_CHECKING:
    from .vector import VectorKernel

BLOCK = 8
"""Lengths along the last axis are a multiple of this, as those that graph-schedule tries."""

MOST_TABLE = 4096
"""Tiles of a stage along its axes, of which the best is looked for at most."""


class VectorSpace(KernelSpace):
    """The plans of a kernel that walks a domain, two buffers in flight unless others are asked for."""

    def __init__(self, kernel: VectorKernel, name: str) -> None:
        self.kernel, self.name, self.machine = kernel, name, kernel.machine
        extents = kernel.extents
        last = len(extents) - 1
        self.order = [*reversed(range(len(extents)))]
        """The axes in the order of the levels."""
        self.cores = tuple(range(1, self.machine.vector_cores + 1))
        tiles = [
            Choice(f"tile_{a}", self._lengths(a, BLOCK if a == last else 1), level)
            for level, a in enumerate(self.order)
        ]
        self.space = PlanSpace((*tiles, Choice(CORES, self.cores, len(tiles))))
        self.cycles: dict[tuple[int, ...], float] = {}
        """Cycles of all pipes with a tile, as far as known."""
        self.tables: dict[int, np.ndarray] = {}
        """Cycles of loads and stores, by their numbers and those of their axes, as far as known."""
        self.grids: dict[tuple[tuple[int, ...], int], tuple[int, ...] | None] = {}

    def _lengths(self, axis: int, multiple: int) -> tuple[int, ...]:
        kernel = self.kernel
        if axis in kernel.rows and not kernel.reads_pieces:
            return (kernel.extents[axis],)
        found = parts_of(kernel.extents[axis], multiple)
        return tuple(dict.fromkeys(n + n % 2 for n in found)) if axis in kernel.paired else found

    # -- from numbers to schedules -----------------------------------------------------------------------------

    def _tile(self, plan: Sequence[int]) -> tuple[int, ...]:
        """The tile of a plan, all of the axes whose number it has not."""
        values = [*self.space.values(plan[: len(self.order)]).values()]
        by_axis = dict(zip(self.order, values, strict=False))
        return tuple(by_axis.get(a, n) for a, n in enumerate(self.kernel.extents))

    def _grid(self, tile: tuple[int, ...], cores: int) -> tuple[int, ...] | None:
        """Cores along each axis; None where fewer cores do the same."""
        key = tile, cores
        if key not in self.grids:
            counts = self.kernel.counts(tile)
            divided = [n for n, _ in divide_grid([counts[a] for a in self.kernel.divided], cores)]
            used = dict(zip(self.kernel.divided, divided, strict=True))
            grid = tuple(used.get(a, 1) for a in range(len(counts)))
            self.grids[key] = grid if size(grid) == cores else None
        return self.grids[key]

    def schedule(self, plan: Sequence[int]) -> Schedule | None:
        tile = self._tile(plan)
        grid = self._grid(tile, self.cores[plan[-1]])
        if grid is None:
            return None
        axes = tuple(map(tuple, self.kernel.merged))
        return checked(self.kernel, self.name, VectorSchedule(axes, tile, grid, self.kernel.slots))

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
        able = [i for i, cores in enumerate(self.cores) if self._grid(self._tile(head[:-1]), cores) is not None]
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
        found = np.full(len(plans), np.inf)
        heads, which = np.unique(plans[:, :-1], axis=0, return_inverse=True)
        cores = plans[:, -1]
        for i, head in enumerate(heads.tolist()):
            own = np.flatnonzero(which.ravel() == i)
            found[own] = self._of_tile(self._tile(head))[cores[own]]
        return found

    def valid(self, rows: Plans) -> np.ndarray:
        if rows.shape[1] < len(self.space.choices) or not len(rows):
            return super().valid(rows)
        heads, which = np.unique(rows[:, :-1], axis=0, return_inverse=True)
        able = np.array(
            [[self._grid(self._tile(head), n) is not None for n in self.cores] for head in heads.tolist()]
        )
        return able[which.ravel(), rows[:, -1]]

    def _of_tile(self, tile: tuple[int, ...]) -> np.ndarray:
        """Microseconds with a tile, by how many cores work."""
        shares = np.full(len(self.cores), np.inf)
        for i, cores in enumerate(self.cores):
            grid = self._grid(tile, cores)
            if grid is not None:
                own, given = self.kernel.shared(tile, grid)
                busiest = size([-(-n // g) for n, g in zip(own, given, strict=True)])
                shares[i] = busiest / max(size(own), 1)
        return self._launches + self._cycles(tile) * shares / self.machine.clock_mhz

    def _cycles(self, tile: tuple[int, ...]) -> float:
        if tile not in self.cycles:
            self.cycles[tile] = self.kernel.work(tile).cycles
        return self.cycles[tile]

    @property
    def _launches(self) -> np.ndarray:
        return self._starts * (not self.joined)

    @cached_property
    def _starts(self) -> np.ndarray:
        """Microseconds to start kernels on each number of cores."""
        return np.asarray(launching_vectors(self.machine, np.array(self.cores)), float)

    def bound(self, prefixes: Plans) -> np.ndarray:
        """What all pipes take at least, shared by all cores evenly: with the best tile for each load and store by
        itself, of those that begin so."""
        found = np.empty(len(prefixes))
        fixed = prefixes.shape[1]
        for i, prefix in enumerate(prefixes.tolist()):
            if fixed >= len(self.order):
                cycles = self._cycles(self._tile(prefix))
            else:
                cycles = self._least(dict(zip(self.order, prefix, strict=False)))
            found[i] = np.min(self._launches + cycles / np.array(self.cores) / self.machine.clock_mhz)
        return found

    def _least(self, fixed: dict[int, int]) -> float:
        """Cycles of all pipes with any tile that has these numbers of its axes, at least."""
        total = self._computed
        for i, (stage, axes) in enumerate(self._copies):
            if prod(len(self._choice(a).values) for a in axes if a not in fixed) > MOST_TABLE:
                continue
            known = self.tables.get(i)
            if known is None:
                if prod(len(self._choice(a).values) for a in axes) > MOST_TABLE:
                    continue
                known = self.tables[i] = self._table(stage, axes)
            total += known[tuple(fixed.get(a, slice(None)) for a in axes)].min()
        return float(total)

    def _choice(self, axis: int) -> Choice:
        return self.space.choices[self.order.index(axis)]

    def _table(self, stage: int, axes: Sequence[int]) -> np.ndarray:
        """Cycles of a load or a store, by the numbers of its axes."""
        step = self.kernel.stages[stage]
        assert step.view is not None
        found = np.empty([len(self._choice(a).values) for a in axes])
        for at in np.ndindex(found.shape):
            tile = list(self.kernel.extents)
            for a, i in zip(axes, at, strict=True):
                tile[a] = self._choice(a).values[i]
            warm = step.source in self.kernel.warm
            found[at] = copy_cycles(step.kind, step.view, step.box(tile), self.machine, warm)
        return found

    @cached_property
    def _copies(self) -> list[tuple[int, list[int]]]:
        """The loads and stores, by number, with the axes along which they move."""
        steps = enumerate(self.kernel.stages)
        return [(i, sorted({*s.moves} | {*s.axes})) for i, s in steps if s.view is not None]

    @cached_property
    def _computed(self) -> float:
        """Cycles of the vector unit, whatever the tile is."""
        return self.kernel.work(tuple(self.kernel.extents)).pipes.get(Pipe.V, 0.0)
