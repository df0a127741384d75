"""What a schedule of chained products costs: its numbers, as kernels/chain_cost.py prices them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter

import numpy as np

from ....dialects.dtypes import dtype_name, itemsize
from ....dialects.graph import AttentionSchedule
from ....dialects.graph.interface import element_of
from ....dialects.graph.schedules import Schedule
from ....dialects.open_sizes import any_open
from ....kernels.chain_cost import ChainFacts, ChainPlans
from ....kernels.columns import as_list, columns, most
from ....kernels.price import Price
from ..scheduled import as_attention
from ..spaces import KernelSpace
from .attention_choice import AttentionChoice
from .chain_space import ChainSpace

CHOSEN = attrgetter("rows", "keys", "scored", "columns", "buffered", "features", "summed", "places", "l0c")
"""What of a schedule a piece of the keys depends on."""


class AttentionCosts(AttentionChoice):
    """The price of chained products."""

    def space(self, name: str) -> KernelSpace:
        return ChainSpace(self, name)

    def price(self, schedule: Schedule) -> Price:
        return self.facts.price(self.plans([as_attention("", schedule)]))

    def price_many(self, schedules: Sequence[Schedule]) -> np.ndarray:
        if self._is_open or not schedules:
            return super().price_many(schedules)
        price = self.facts.price(self.plans([as_attention("", s) for s in schedules]))
        return np.array(as_list(price.microseconds, len(schedules)))

    def plans(self, schedules: Sequence[AttentionSchedule]) -> ChainPlans:
        """The numbers of schedules, as columns."""
        rows = [(*CHOSEN(s), *self._pieces_of(s)) for s in schedules]
        return ChainPlans(*columns(rows), grid=columns([s.grid or () for s in schedules]))

    def _pieces_of(self, s: AttentionSchedule) -> tuple[int, int]:
        """How many pieces of the keys there are, and whether places behind the last key are masked: 1, or 0."""
        known = self.pieces_known.get((s.keys, s.places))
        if known is None:
            known = self.pieces_known[s.keys, s.places] = self.pieces(s.keys or 1), int(self.is_masked(s))
        return known

    @cached_property
    def pieces_known(self) -> dict[tuple[int | None, int | None], tuple[int, int]]:
        """What `_pieces_of` found, by keys and places."""
        return {}

    def _cube_cycles(self, schedules: Sequence[AttentionSchedule]) -> Sequence[float]:
        together = [[s] for s in schedules] if self._is_open or not schedules else [schedules]
        found: list[float] = []
        for several in together:
            pipes = self.facts.cube(self.plans(several))
            found += as_list(most(*pipes.values()), len(several))
        return found

    @property
    def _is_open(self) -> bool:
        """Whether sizes are open, so that schedules are priced one by one."""
        return any_open([*self.whole.values(), *self.summed])

    @cached_property
    def facts(self) -> ChainFacts:
        """What schedules have in common."""
        machine = self.machine
        return ChainFacts(
            machine,
            outer=[self.extents[a] for a in self.outer],
            row=self.outer.index(self.row),
            loaded=self.loaded,
            scored=[itemsize(kind) for kind in self.scored],
            width=self.width,
            wide=self.wide,
            rates=[
                machine.cube[dtype_name(element_of(part.anchor.lhs))] for part in (*self.scores, self.values)
            ],
            units=self.units,
            steps=sum(step.kind == "op" for chain in self.chains for step in chain.stages),
            softmax=self.softmax is not None,
        )
