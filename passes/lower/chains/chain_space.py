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
from ....kernels.chain_cost import ChainPlans
from ....kernels.product import FRACTAL, round_up
from ....kernels.space import Box, PlanNumber, parts_of
from ..spaces import HeadedSpace
from .attention_choice import KEYS, MOST_PARTS, ROWS

if TYPE_CHECKING:
    from .attention_costs import AttentionCosts


class ChainSpace(HeadedSpace[AttentionSchedule]):
    """The plans of chained products in one band of rows."""

    kernel: AttentionCosts

    def __init__(self, kernel: AttentionCosts, name: str) -> None:
        rows = parts_of(kernel.extents[kernel.row], FRACTAL, ROWS[0])
        keys = parts_of(kernel.extents[kernel.keys], FRACTAL, KEYS[0])
        whole = [tuple(dict.fromkeys(map(round_up, lengths))) for lengths in (rows, keys)]
        choices = (
            PlanNumber("rows", whole[0]),
            PlanNumber("keys", whole[1]),
            PlanNumber("parts", tuple(range(1, MOST_PARTS + 1)), 1),
            PlanNumber("columns", tuple(sorted(kernel.columns_tried, reverse=True)), 1),
            PlanNumber("l0c", (2, 1), 1),
            PlanNumber("places", (2, 1), 1),
            PlanNumber("buffered", (2, 1), 1),
        )
        super().__init__(kernel, name, choices, kernel.machine.cube_cores)

    # -- from numbers to schedules -----------------------------------------------------------------------------

    def headed(self, *values: int) -> AttentionSchedule | None:
        rows, keys, parts, columns, sums, places, buffered = values
        able = keys % (parts * FRACTAL) == 0 and (self.kernel.pieces(keys) > 1 or places == 1)
        if not able:
            return None
        return replace(
            self.kernel.completed_tile(rows, keys, places, keys // parts, columns, sums), buffered=buffered
        )

    def counts(self, head: AttentionSchedule) -> Sequence[int]:
        return self.kernel.counts(head)

    def said(self, schedule: Schedule) -> list[int] | None:
        s = schedule
        if not isinstance(s, AttentionSchedule) or not (s.rows and s.keys and s.scored and s.columns and s.grid):
            return None
        return [s.rows, s.keys, s.keys // s.scored, s.columns, s.l0c or 1, s.places or 1, s.buffered or 1, size(s.grid)]

    # -- prices ------------------------------------------------------------------------------------------------

    def by_cores(self, box: Box) -> np.ndarray:
        """Microseconds at least, for each number of cores of a box: the busiest core has its share of all tiles. Where
        more than rows and keys is not known, all is summed up at once and nothing waits."""
        low, high = box
        cores = np.array(self.cores[low[-1] : high[-1] + 1], float)
        if low[:-1] == high[:-1]:
            head = self.head(low[:-1])
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
