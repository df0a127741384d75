"""All plans of attention, and of what else is chained on a chip whose cube and vector cores exchange tiles: rows and
keys of a tile, in how many parts scores and the result are summed up, their buffers, and cores.

Rows and keys are of equal parts, and steps along the summed axes the longest ones that fit. A search halves rows and
keys first, then what a tile does, then the cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ....dialects.dtypes import size
from ....dialects.graph import AttentionSchedule
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import Pipe
from ....kernels.builder import divide_grid
from ....kernels.chain_cost import ChainPlans
from ....kernels.columns import launching
from ....kernels.product import FRACTAL, round_up
from ....kernels.space import Box, Choice, Plans, PlanSpace, parts_of
from ..spaces import CORES, DividedSpace, checked, nearest
from .attention_choice import KEYS, MOST_PARTS, ROWS

if TYPE_CHECKING:
    from .attention_costs import AttentionCosts


class ChainSpace(DividedSpace):
    """The plans of chained products in one band of rows."""

    def __init__(self, kernel: AttentionCosts, name: str) -> None:
        self.kernel, self.name, self.machine = kernel, name, kernel.machine
        self.cores = tuple(range(1, self.machine.cube_cores + 1))
        rows = parts_of(kernel.extents[kernel.row], FRACTAL, ROWS[0])
        keys = parts_of(kernel.extents[kernel.keys], FRACTAL, KEYS[0])
        whole = [tuple(dict.fromkeys(map(round_up, lengths))) for lengths in (rows, keys)]
        self.space = PlanSpace(
            (
                Choice("rows", whole[0]),
                Choice("keys", whole[1]),
                Choice("parts", tuple(range(1, MOST_PARTS + 1)), 1),
                Choice("columns", tuple(sorted(kernel.columns_tried, reverse=True)), 1),
                Choice("l0c", (2, 1), 1),
                Choice("places", (2, 1), 1),
                Choice("buffered", (2, 1), 1),
                Choice(CORES, self.cores, 2),
            )
        )
        self.heads: dict[tuple[int, ...], AttentionSchedule | None] = {}
        """Schedules without a grid, by all numbers but that of cores, as far as known."""
        self.grids: dict[tuple[int, int], tuple[int, ...] | None] = {}

    # -- from numbers to schedules -----------------------------------------------------------------------------

    def _head(self, head: Sequence[int]) -> AttentionSchedule | None:
        """The schedule of a plan before its cores are known; None where it is none."""
        key = tuple(head)
        if key not in self.heads:
            rows, keys, parts, columns, sums, places, buffered = (
                c.values[i] for c, i in zip(self.space.choices, head, strict=False)
            )
            several = self.kernel.pieces(keys) > 1
            able = keys % (parts * FRACTAL) == 0 and (several or places == 1)
            found = self.kernel.completed_tile(rows, keys, places, keys // parts, columns, sums) if able else None
            self.heads[key] = None if found is None else replace(found, buffered=buffered)
        return self.heads[key]

    def _counts(self, rows: int) -> list[int]:
        """Tiles of so many rows along each axis of the result but the last."""
        kernel = self.kernel
        return [-(-kernel.extents[a] // rows) if a == kernel.row else kernel.extents[a] for a in kernel.outer]

    def _grid(self, rows: int, cores: int) -> tuple[int, ...] | None:
        """Cores along each axis of tiles; None where fewer do the same."""
        key = rows, cores
        if key not in self.grids:
            grid = tuple(n for n, _ in divide_grid(self._counts(rows), cores))
            self.grids[key] = grid if size(grid) == cores else None
        return self.grids[key]

    def _schedule(self, plan: Sequence[int]) -> AttentionSchedule | None:
        head = self._head(plan[:-1])
        grid = None if head is None or head.rows is None else self._grid(head.rows, self.cores[plan[-1]])
        return None if head is None or grid is None else replace(head, grid=grid)

    def schedule(self, plan: Sequence[int]) -> Schedule | None:
        found = self._schedule(plan)
        return None if found is None else checked(self.kernel, self.name, found)

    def numbers(self, schedule: Schedule) -> tuple[int, ...] | None:
        values = self._values(schedule)
        if values is None or any(v not in c.values for c, v in zip(self.space.choices, values, strict=True)):
            return None
        found = tuple(c.values.index(v) for c, v in zip(self.space.choices, values, strict=True))
        return found if self._schedule(found) == schedule else None

    def near(self, schedule: Schedule) -> tuple[int, ...] | None:
        values = self._values(schedule)
        if values is None:
            return None
        head = [nearest(c.values, n) for c, n in zip(self.space.choices[:-1], values, strict=False)]
        if self._head(head) is None:  # one part, and one piece of the keys has one place
            head[2] = 0
            head[5] = self.space.choices[5].values.index(1)
        able = [i for i in range(len(self.cores)) if self._schedule((*head, i)) is not None]
        return (*head, able[nearest([self.cores[i] for i in able], values[-1])]) if able else None

    @staticmethod
    def _values(schedule: Schedule) -> list[int] | None:
        """What a schedule says of each choice; None where it is one of another kernel."""
        s = schedule
        if not isinstance(s, AttentionSchedule) or not (s.rows and s.keys and s.scored and s.columns and s.grid):
            return None
        return [s.rows, s.keys, s.keys // s.scored, s.columns, s.l0c or 1, s.places or 1, s.buffered or 1, size(s.grid)]

    # -- prices ------------------------------------------------------------------------------------------------

    def valid(self, plans: Plans) -> np.ndarray:
        return np.array([self._schedule(plan) is not None for plan in plans.tolist()], bool)

    def price(self, plans: Plans) -> np.ndarray:
        found = np.full(len(plans), np.inf)
        schedules = {i: s for i, plan in enumerate(plans.tolist()) if (s := self._schedule(plan)) is not None}
        if schedules:
            own = [*schedules.values()]
            us = self.kernel.price_many(own)
            if self.joined:
                us = us - self._launching(np.array([size(s.grid or ()) for s in own]))
            found[[*schedules]] = us
        return found

    def _launching(self, cores: np.ndarray) -> np.ndarray:
        return np.asarray(launching(self.machine, cores, True), float)

    def divides(self, plan: Sequence[int]) -> bool:
        return self._schedule(plan) is not None

    def by_cores(self, box: Box) -> np.ndarray:
        """Microseconds at least, for each number of cores of a box: the busiest core has its share of all tiles. Where
        more than rows and keys is not known, all is summed up at once and nothing waits."""
        low, high = box
        cores = np.array(self.cores[low[-1] : high[-1] + 1], float)
        if low[:-1] == high[:-1]:
            head = self._head(low[:-1])
            if head is None:
                return np.zeros(0)
            plans = self.kernel.plans([replace(head, grid=(1,) * len(self.kernel.outer))])
        else:
            rows, keys = (
                np.array(self.space.choices[i].values[low[i] : high[i] + 1], float) for i in (0, 1)
            )
            rows, keys = (n.ravel() for n in np.meshgrid(rows, keys, indexing="ij"))
            plans = self._fastest(rows[:, None], keys[:, None])
        facts, tiles = self.kernel.facts, 1.0
        for a, n in enumerate(facts.outer):
            tiles = tiles * (np.ceil(n / plans.rows) if a == facts.row else n)
        pipes = facts.piece(plans)
        if len({shared for shared, _ in facts.loaded}) > 1:
            pipes.pop(Pipe.MTE1)  # steps of several lengths
        price = facts.on(plans, np.ceil(tiles / cores), cores, pipes)
        us = np.asarray(price.microseconds - (price.launch if self.joined else 0.0))
        return np.atleast_2d(us).min(axis=0)

    def _fastest(self, rows: np.ndarray, keys: np.ndarray) -> ChainPlans:
        """No plan with these rows and keys takes less on any pipe, fits or not."""
        one = np.ones(rows.shape)
        pieces = np.array([[self.kernel.pieces(int(n))] for n in keys.ravel()], float)
        features = float(round_up(max(shared for shared, _ in self.kernel.loaded)))
        return ChainPlans(
            rows=rows,
            keys=keys,
            scored=keys,
            columns=one * self.kernel.wide,
            buffered=one * 2,
            features=one * features,
            summed=keys,
            places=one * 2,
            l0c=one * 2,
            pieces=pieces,
            masked=one * 0,
        )
