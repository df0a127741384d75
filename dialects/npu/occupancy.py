"""Which cores a launch occupies, and what it costs to start them: for one kernel, or for several behind barriers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...machine import Machine
from ..base import integer, text, to_ints
from .legality import Kernel


@dataclass(frozen=True)
class Occupancy:
    """What a launch occupies: `cores` cube cores, or the share of the chip that its vector cores are; of these
    `kinds`."""

    cores: int
    kinds: frozenset[str]

    def __or__(self, other: Occupancy) -> Occupancy:
        """What one launch of both occupies."""
        return Occupancy(max(self.cores, other.cores), self.kinds | other.kinds)

    def behind(self, first: int) -> Occupancy:
        """What a launch occupies of which this begins on another core than the first."""
        return Occupancy(first + self.cores, self.kinds) if first else self

    def places(self, first: int = 0) -> frozenset[tuple[str, int]]:
        """What it takes of the chip from a core on: (kind of core, number of a cube core or a share as large)."""
        return frozenset((kind, first + i) for kind in self.kinds for i in range(self.cores))

    @property
    def mixed(self) -> bool:
        """Whether cube and vector cores of a split chip work side by side."""
        return self.kinds >= {"cube", "vector"}

    def launch_microseconds(self, machine: Machine) -> float:
        """What starting and ending the launch costs."""
        return machine.launch_microseconds(self.cores, self.mixed)

    def barrier_microseconds(self, machine: Machine) -> float:
        """What a barrier over its cores costs."""
        return machine.barrier_microseconds(self.cores, self.mixed)


def blocks_at_once(kernel: Kernel, machine: Machine) -> int:
    """The blocks of a kernel that run side by side: all, or as many as the chip has cores for."""
    room = [
        machine.vector_cores // integer(s.units) if text(s.core) == "vector" else machine.cube_cores
        for s in kernel.sections()
    ]
    return min(prod(to_ints(kernel.grid)), max(1, min(room, default=1)))


def occupancy_of(kernel: Kernel, machine: Machine) -> Occupancy:
    """What a launch of one kernel occupies."""
    blocks, sections = blocks_at_once(kernel, machine), kernel.sections()
    kinds = frozenset(text(s.core) for s in sections)
    if kinds == {"vector"}:
        return Occupancy(machine.share_of(blocks * integer(sections[0].units)), kinds)
    return Occupancy(blocks, kinds)
