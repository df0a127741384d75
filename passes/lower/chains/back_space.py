"""All plans of products back to back: rows of a tile, keys of a part of a piece and how many parts it has, steps of
both products, and cores. What fits l0 twice is there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....dialects.dtypes import size
from ....dialects.graph import AttentionSchedule
from ....dialects.graph.schedules import Schedule
from ....kernels.product import FRACTAL, round_up
from ....kernels.space import PlanNumber, parts_of
from ..spaces import HeadedSpace
from .attention_choice import ROWS

if TYPE_CHECKING:
    from .back_to_back import BackToBackKernel


class BackToBackSpace(HeadedSpace[AttentionSchedule]):
    """The plans of products back to back."""

    kernel: BackToBackKernel

    def __init__(self, kernel: BackToBackKernel, name: str, parts: Sequence[int]) -> None:
        """parts: how many parts a piece of the keys may have."""
        whole, keys, spaces = kernel.extents[kernel.row], kernel.extents[kernel.keys], kernel.machine.spaces
        most = max(spaces["l0c"].bytes // (4 * (FRACTAL + kernel.wide)) // FRACTAL, 1) * FRACTAL
        rows = {round_up(n) for n in parts_of(whole, FRACTAL, most)}
        rows |= {n for n in ROWS if n <= max(round_up(whole), FRACTAL)}
        lengths = tuple(n for n in range(keys, 0, -FRACTAL) if keys % n == 0)
        choices = (
            PlanNumber("rows", tuple(sorted(rows, reverse=True))),
            PlanNumber("scored", lengths),
            PlanNumber("parts", tuple(parts)),
            PlanNumber("features", tuple(dict.fromkeys(map(round_up, parts_of(kernel.shared, FRACTAL)))), 1),
            PlanNumber("summed", lengths, 1),
        )
        super().__init__(kernel, name, choices, kernel.machine.cube_cores)

    def headed(self, *values: int) -> AttentionSchedule | None:
        rows, scored, parts, features, summed = values
        return self.kernel.completed_tile(rows, scored, parts, features, summed)

    def counts(self, head: AttentionSchedule) -> Sequence[int]:
        return self.kernel.counts(head)

    def said(self, schedule: Schedule) -> list[int] | None:
        s = schedule
        if not isinstance(s, AttentionSchedule) or not (s.rows and s.keys and s.scored and s.features and s.summed):
            return None
        return [s.rows, s.scored, s.keys // s.scored, s.features, s.summed, size(s.grid or ())]
