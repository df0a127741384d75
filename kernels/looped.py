"""Stages in loops: each where its plan puts it, with a tile of extents of its own.

A stage at depth d stands inside the d outermost loops: before the next loop, or behind it where it takes what is made
further in. What is made further out than where it is used holds more than one use takes of it: the place of a use in it
is how far the loops between have gone. Loops over what is summed up carry the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .builder import may_repeat
from .graph import StageGraph
from .stage import Ref

LoopOf = Literal["tiles", "longer loads", "shorter loads", "steps"]
"""What a loop of a product goes over."""


@dataclass(frozen=True)
class LoopedAxis:
    """A loop over an axis: so many trips, each so many elements behind the one before. over: what it goes over;
    carries: whether it carries sums."""

    axis: int
    trips: int
    apart: int
    over: LoopOf
    carries: bool = False


@dataclass(frozen=True)
class LoopedStages:
    """Stages among loops, the outermost first. depths: how many loops each stage is in; tiles: the extents of its
    tile, by axis; sums: the stage that the loops that carry sums carry, before and behind them."""

    stages: StageGraph
    loops: Sequence[LoopedAxis]
    depths: Sequence[int]
    tiles: Sequence[Sequence[int]]
    sums: tuple[Ref, Ref]

    def axes_around(self, stage: int) -> tuple[int, ...]:
        """The axes of the loops that a stage is in, the outermost first."""
        return tuple(dict.fromkeys(loop.axis for loop in self.loops[: self.depths[stage]]))

    @property
    def behind(self) -> frozenset[int]:
        """The stages that take what is made in a loop further in."""
        found: set[int] = set()
        for i, stage in enumerate(self.stages):
            if any(j in found or self.depths[j] > self.depths[i] for j, _ in stage.operands):
                found.add(i)
        return frozenset(found)


def loops_of(*loops: LoopedAxis) -> list[LoopedAxis]:
    """Those of some loops that may run more than once."""
    return [loop for loop in loops if may_repeat(loop.trips)]
