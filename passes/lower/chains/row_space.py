"""All plans of attention of few rows whose keys are in one part: rows and keys of a tile, and cores.

Pieces of the keys are equal parts of them, rounded up or not, or as long as those that graph-schedule tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....dialects.dtypes import size
from ....dialects.graph import RowAttentionSchedule
from ....dialects.graph.schedules import Schedule
from ....kernels.space import PlanNumber, parts_of
from ..spaces import HeadedSpace

if TYPE_CHECKING:
    from .row_attention import RowAttentionKernel


class RowSpace(HeadedSpace[RowAttentionSchedule]):
    """The plans of attention of few rows."""

    kernel: RowAttentionKernel

    def __init__(self, kernel: RowAttentionKernel, name: str, tried: Sequence[int]) -> None:
        """tried: the keys of pieces that graph-schedule tries, the shortest one last."""
        least = tried[-1]
        longest = max(kernel.keys, least)
        keys = {*parts_of(longest), *parts_of(longest, least), *(n for n in tried if n <= longest)}
        choices = (
            PlanNumber("rows", tuple(sorted({1, kernel.longest}, reverse=True))),
            PlanNumber("keys", tuple(sorted(keys, reverse=True))),
        )
        super().__init__(kernel, name, choices, kernel.machine.vector_cores)

    def headed(self, *values: int) -> RowAttentionSchedule:
        rows, keys = values
        return RowAttentionSchedule(rows, keys, ub=self.kernel.slots)

    def counts(self, head: RowAttentionSchedule) -> Sequence[int]:
        return self.kernel.counts(head)

    def said(self, schedule: Schedule) -> list[int] | None:
        s = schedule
        if not isinstance(s, RowAttentionSchedule) or not (s.rows and s.keys and s.grid is not None):
            return None
        return [s.rows, s.keys, size(s.grid)]
