"""The policy `buddy`: blocks of 2^k units at multiples of their size; the halves of a free block are its buddies.

A request takes the smallest power of two that holds it: fewer than twice its units. A freed block joins its buddy where
that is free, and so on (K. C. Knowlton, A Fast Storage Allocator, CACM 1965). A memory whose size is no power of two is
several ones, largest first: 7 units are 4, 2 and 1, and a request for more than 4 units is too large.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Self

from .places import Compaction, Places, PoolBlock


def order_of(units: int) -> int:
    """The binary logarithm of the smallest power of two that is not less."""
    return (units - 1).bit_length()


class BuddyPlaces(Places):
    """The free blocks of each order, sorted by address. No two buddies are both free."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._free: list[list[int]] = [[] for _ in range(capacity.bit_length())]
        self._filled = 0
        """A bit for each order that has a free block."""
        for at, order in self._roots():
            self._add(at, order)

    def _roots(self) -> list[tuple[int, int]]:
        """The blocks of the empty memory: start and order."""
        found, at = [], 0
        for order in reversed(range(self.capacity.bit_length())):
            if self.capacity >> order & 1:
                found.append((at, order))
                at += 1 << order
        return found

    @classmethod
    def holding(cls, capacity: int, blocks: Sequence[PoolBlock]) -> Self:
        places = cls(capacity)
        places._free = [[] for _ in places._free]
        places._filled = 0
        starts = [block.at for block in blocks]
        work = [*reversed(places._roots())]
        while work:
            at, order = work.pop()
            i = bisect_left(starts, at)
            if i == len(starts) or starts[i] >= at + (1 << order):
                places._add(at, order)
            elif starts[i] != at or blocks[i].units != 1 << order:
                work += [(at + (1 << order - 1), order - 1), (at, order - 1)]
        places.free -= sum(block.units for block in blocks)
        return places

    def rounded(self, units: int) -> int:
        return 1 << order_of(units)

    @property
    def largest_possible(self) -> int:
        return 1 << self.capacity.bit_length() - 1

    @property
    def largest_free(self) -> int:
        return 1 << self._filled.bit_length() - 1 if self._filled else 0

    def take(self, units: int) -> int | None:
        order = order_of(units)
        fitting = self._filled >> order
        if not fitting:
            return None
        found = order + (fitting & -fitting).bit_length() - 1
        at = self._free[found][0]
        self._remove(at, found)
        while found > order:
            found -= 1
            self._add(at + (1 << found), found)
        self.free -= units
        return at

    def release(self, at: int, units: int) -> None:
        self.free += units
        self._join(at, order_of(units))

    def extend(self, at: int, units: int, wanted: int) -> bool:
        """The block must be the first half of its parent and its buddy free, order by order."""
        orders = range(order_of(units), order_of(wanted))
        if any(at >> order & 1 or not self._has(at + (1 << order), order) for order in orders):
            return False
        for order in orders:
            self._remove(at + (1 << order), order)
        self.free -= wanted - units
        return True

    def compacted(self, blocks: Sequence[PoolBlock], enough: int | None = None) -> Compaction:
        """Joins free blocks two by two, from the smallest order: the buddy of one is moved into another, so that both
        halves are free. Without pinned blocks at most one free block of each order is left, so that 2^k units fit
        whenever as many are free. Of several, those are emptied whose buddies hold least."""
        work = self.holding(self.capacity, blocks)
        layout = _Layout(blocks)
        for order in range(len(work._free) - 1):
            size = 1 << order
            kept: list[int] = []
            emptied: list[tuple[int, int]] = []
            for at in work._free[order]:
                held = layout.movable_units(at ^ size, size) if (at ^ size) + size <= self.capacity else None
                if held is None:
                    kept.append(at)
                else:
                    emptied.append((held, at))
            emptied.sort()
            targets = kept + [at for _, at in reversed(emptied)]
            for (_, at), target in zip(emptied[: len(targets) // 2], targets, strict=False):
                if enough is not None and work.largest_free >= enough:
                    return Compaction(layout.moves, work)
                work._move_region(at ^ size, target, order)
                layout.move(at ^ size, target, size)
        return Compaction(layout.moves, work)

    def _move_region(self, source: int, target: int, order: int) -> None:
        """Updates what is free where all blocks of a region have moved to a free one."""
        self._remove(target, order)
        for smaller in range(order):
            free = self._free[smaller]
            inside = free[bisect_left(free, source) : bisect_left(free, source + (1 << order))]
            for at in inside:
                self._remove(at, smaller)
                self._add(at - source + target, smaller)
        self._join(source, order)

    def _join(self, at: int, order: int) -> None:
        """Adds a free block, joined with its buddy as often as that is free. A block of the empty memory has none: as
        much memory does not follow it."""
        while self._has(at ^ 1 << order, order):
            self._remove(at ^ 1 << order, order)
            at &= ~(1 << order)
            order += 1
        self._add(at, order)

    def _has(self, at: int, order: int) -> bool:
        free = self._free[order]
        i = bisect_left(free, at)
        return i < len(free) and free[i] == at

    def _add(self, at: int, order: int) -> None:
        insort(self._free[order], at)
        self._filled |= 1 << order

    def _remove(self, at: int, order: int) -> None:
        free = self._free[order]
        del free[bisect_left(free, at)]
        if not free:
            self._filled ^= 1 << order


class _Layout:
    """Where blocks are while some of them move, and the moves so far."""

    def __init__(self, blocks: Sequence[PoolBlock]) -> None:
        self.moves: list[tuple[int, int, int]] = []
        self._blocks = blocks
        self._starts = [block.at for block in blocks]
        self._numbers = list(range(len(blocks)))

    def movable_units(self, at: int, size: int) -> int | None:
        """The units that blocks in a region have; None where one of them is pinned."""
        inside = [self._blocks[n] for n in self._numbers[self._slice(at, size)]]
        if any(block.pinned for block in inside):
            return None
        return sum(block.units for block in inside)

    def move(self, source: int, target: int, size: int) -> None:
        """Moves what a region holds to one that holds nothing."""
        here = self._slice(source, size)
        starts, numbers = self._starts[here], self._numbers[here]
        del self._starts[here], self._numbers[here]
        moved = [at - source + target for at in starts]
        i = bisect_left(self._starts, target)
        self._starts[i:i] = moved
        self._numbers[i:i] = numbers
        self.moves += zip(numbers, starts, moved, strict=True)

    def _slice(self, at: int, size: int) -> slice:
        return slice(bisect_left(self._starts, at), bisect_left(self._starts, at + size))
