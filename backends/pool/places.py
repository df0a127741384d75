"""What every policy of a pool does: it knows which units of memory are free. A unit is the alignment of the pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class PoolBlock:
    """A block of so many units, from the unit `at`. A pinned one may not move."""

    at: int
    units: int
    pinned: bool = False

    @property
    def end(self) -> int:
        """The unit behind it."""
        return self.at + self.units


@dataclass(frozen=True)
class Compaction:
    """What to move to join free memory, and the places when all is moved.

    moves: the number of a block, the unit from which it is moved, and the one to which. In this order each move writes
    only to units that are free then, or to those of the block itself, and in that case towards the start of memory.
    """

    moves: Sequence[tuple[int, int, int]]
    after: Places


class Places(ABC):
    """The free units of a memory of `capacity` units; `free` is how many there are."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity

    @classmethod
    @abstractmethod
    def holding(cls, capacity: int, blocks: Sequence[PoolBlock]) -> Self:
        """A memory that has some blocks, given in the order of their addresses."""

    @abstractmethod
    def rounded(self, units: int) -> int:
        """The units that a request for some takes."""

    @property
    @abstractmethod
    def largest_possible(self) -> int:
        """The units of the largest block of the empty memory."""

    @property
    @abstractmethod
    def largest_free(self) -> int:
        """The units of the largest free block."""

    @abstractmethod
    def take(self, units: int) -> int | None:
        """The start of a free block of `units`, a rounded number, which is free no longer; None where there is none."""

    @abstractmethod
    def release(self, at: int, units: int) -> None:
        """Makes a block free again and joins it with free neighbours."""

    @abstractmethod
    def extend(self, at: int, units: int, wanted: int) -> bool:
        """Whether a block of `units` has become one of `wanted` units, a larger rounded number, at the same place."""

    @abstractmethod
    def compacted(self, blocks: Sequence[PoolBlock], enough: int | None = None) -> Compaction:
        """How to join the free memory between all its blocks, given in the order of their addresses; where `enough`
        is given, only as much of it as makes a free block of so many units, where that is possible."""
