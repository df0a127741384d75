"""What launches around one take, in groups as npu-join-launches will make them: what is won where a row is made by the
kernels that read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.npu.occupancy import Occupancy, occupancy_of
from ...machine import Machine
from ..errors import PassError
from ..launch_groups import Groups, LaunchPoint, Neighbour, Together
from ..npu.busy import work_microseconds
from ..npu.trial import allocated
from .launch_order import FREE
from .row_producers import alone, has_open_sizes

AROUND = 4
"""Launches before and behind those in question that are looked at: they may be stages of one launch."""


class RecomputeStage(NamedTuple):
    """A launch among others: what it occupies, the microseconds that each of its cores works, whether it can only begin
    a group, and the tensors that it reads and writes."""

    occupancy: Occupancy
    work: float
    first: bool
    reads: frozenset[SSAValue]
    writes: frozenset[SSAValue]


@dataclass
class RecomputeJudge:
    """Judges launches. join: whether neighbours will be stages of one."""

    machine: Machine
    join: bool
    works: dict[tile.KernelOp, float | None] = field(default_factory=dict)
    occupancies: dict[tile.KernelOp, Occupancy] = field(default_factory=dict)
    groups: dict[tuple[tuple[Occupancy, float, bool, bool], ...], float] = field(default_factory=dict)

    def work(self, kernel: tile.KernelOp) -> float | None:
        """Microseconds that each core of a kernel of vector cores works; None of another one, of one with open sizes,
        and where its tiles do not fit on chip."""
        if kernel not in self.works:
            self.works[kernel] = self._work(kernel)
        return self.works[kernel]

    def _work(self, kernel: tile.KernelOp) -> float | None:
        if alone(kernel) is None or has_open_sizes(kernel):
            return None
        try:
            lowered = allocated(kernel, self.machine)
            return None if lowered is None else work_microseconds(lowered, self.machine)
        except (PassError, KeyError):  # what the machine cannot run is for npu-check to say
            return None

    def occupancy(self, kernel: tile.KernelOp) -> Occupancy:
        """What a launch of a kernel occupies."""
        if kernel not in self.occupancies:
            self.occupancies[kernel] = occupancy_of(kernel, self.machine)
        return self.occupancies[kernel]

    def microseconds(self, stages: Sequence[RecomputeStage]) -> float:
        """Microseconds of launches, in groups or each by itself."""
        together, frees = Together[SSAValue](), list[bool]()
        for stage in stages:
            if stage.first:
                together.clear()
            frees.append(together.joined_by(stage.reads, stage.writes))
        key = tuple((s.occupancy, s.work, s.first, free) for s, free in zip(stages, frees, strict=True))
        if key not in self.groups:
            neighbours = [
                Neighbour((LaunchPoint(occupancy, work),), first or not self.join, free and self.join)
                for occupancy, work, first, free in key
            ]
            self.groups[key] = Groups(self.machine, neighbours).least()[0]
        return self.groups[key]


def launches_around(
    maker: tile.LaunchOp, readers: Sequence[tile.LaunchOp]
) -> list[tuple[tile.LaunchOp, bool]]:
    """The launches from some before one to some behind the last one of its readers, and whether something stands
    between each and the one before it."""
    first, left = maker, AROUND
    op = maker.prev_op
    while op is not None and left:
        if isinstance(op, tile.LaunchOp):
            first, left = op, left - 1
        op = op.prev_op
    found: list[tuple[tile.LaunchOp, bool]] = []
    waiting, parted, left = set(readers), False, AROUND
    op = first
    while op is not None and (waiting or left):
        if isinstance(op, tile.LaunchOp):
            found.append((op, parted))
            left -= not waiting
            waiting.discard(op)
            parted = False
        elif not isinstance(op, FREE):
            parted = True
        op = op.next_op
    return found
