"""The policy `best-fit`: the smallest hole that fits, of those the first.

Holes are kept by size in classes, each sorted; 8 classes to a power of two. A request looks into its own class with a
binary search, then takes the smallest hole of the next class that has any: O(log n) comparisons. Sorted lists also
shift on insertion, as much as a class is long; a class is short.

Free memory behind the last block is no hole: it is taken only where no hole fits (the "wilderness" of Wilson et al.,
Dynamic Storage Allocation: A Survey and Critical Review, 1995). So the memory in use grows only if it must, from which
`bounds.best_fit_bound` follows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Self

from .places import Compaction, Places, PoolBlock

SPLITS = 3
"""Binary logarithm of the classes to a power of two."""


def size_class(units: int) -> int:
    """The number of a hole's class: a larger hole is in the same one or a later one."""
    shift = max(0, units.bit_length() - SPLITS - 1)
    return (shift << SPLITS) + (units >> shift)


class BestFitPlaces(Places):
    """Holes between blocks, and the free rest from the unit `top`. No two holes touch, and none touches the rest."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.top = 0
        self._units: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        """The start of the hole that ends at a unit."""
        self._classes: dict[int, list[tuple[int, int]]] = {}
        self._filled = 0
        """A bit for each class that has a hole."""

    @classmethod
    def holding(cls, capacity: int, blocks: Sequence[PoolBlock]) -> Self:
        places = cls(capacity)
        for block in blocks:
            if block.at > places.top:
                places._add(places.top, block.at - places.top)
            places.top = block.end
            places.free -= block.units
        return places

    def rounded(self, units: int) -> int:
        return units

    @property
    def largest_possible(self) -> int:
        return self.capacity

    @property
    def largest_free(self) -> int:
        rest = self.capacity - self.top
        if not self._filled:
            return rest
        return max(rest, self._classes[self._filled.bit_length() - 1][-1][0])

    def take(self, units: int) -> int | None:
        hole = self._smallest(units)
        if hole is None:
            if units > self.capacity - self.top:
                return None
            at = self.top
            self.top += units
        else:
            size, at = hole
            self._remove(at)
            if size > units:
                self._add(at + units, size - units)
        self.free -= units
        return at

    def release(self, at: int, units: int) -> None:
        self.free += units
        end = at + units
        before = self._starts.get(at)
        if before is not None:
            self._remove(before)
            at = before
        if end in self._units:
            end += self._remove(end)
        if end == self.top:
            self.top = at
        else:
            self._add(at, end - at)

    def extend(self, at: int, units: int, wanted: int) -> bool:
        end, more = at + units, wanted - units
        if end == self.top:
            if more > self.capacity - end:
                return False
            self.top += more
        else:
            hole = self._units.get(end, 0)
            if more > hole:
                return False
            self._remove(end)
            if hole > more:
                self._add(end + more, hole - more)
        self.free -= more
        return True

    def compacted(self, blocks: Sequence[PoolBlock], enough: int | None = None) -> Compaction:
        """Slides blocks towards the start, in the order of their addresses: all, or neighbours between which enough is
        free. A pinned block stays, and leaves a hole in front of it that later blocks fill. Every block moves down, so
        memory that it is moved to was free or has been left before, but for its own."""
        run = None if enough is None else self._cheapest_run(blocks, enough)
        if run is not None:
            return self._slid(blocks, run)
        holes: list[tuple[int, int]] = []
        moves: list[tuple[int, int, int]] = []
        found: list[PoolBlock] = []
        cursor = 0
        for number, block in enumerate(blocks):
            target = block.at
            if block.pinned:
                if target > cursor:
                    insort(holes, (target - cursor, cursor))
                cursor = block.end
            else:
                i = bisect_left(holes, (block.units, 0))
                if i < len(holes):
                    size, target = holes.pop(i)
                    if size > block.units:
                        insort(holes, (size - block.units, target + block.units))
                else:
                    target, cursor = cursor, cursor + block.units
                if target != block.at:
                    moves.append((number, block.at, target))
            found.append(PoolBlock(target, block.units, block.pinned))
        found.sort(key=lambda placed: placed.at)
        return Compaction(moves, self.holding(self.capacity, found))

    def _cheapest_run(self, blocks: Sequence[PoolBlock], enough: int) -> range | None:
        """The neighbours that have the fewest units of all between and beside which `enough` are free. None where
        pinned blocks divide the free memory into less."""
        ends = [0, *(block.end for block in blocks)]
        starts = [*(block.at for block in blocks), self.capacity]
        gaps = [start - end for start, end in zip(starts, ends, strict=True)]
        best: tuple[int, range] | None = None
        first = free = moved = 0
        for behind, gap in enumerate(
            gaps
        ):  # the run is blocks[first:behind], with the gaps before, between and behind
            if behind and blocks[behind - 1].pinned:
                first, free, moved = behind, 0, 0
            elif behind:
                moved += blocks[behind - 1].units
            free += gap
            while free - gaps[first] >= enough and first < behind:
                free -= gaps[first]
                moved -= blocks[first].units
                first += 1
            if free >= enough and (best is None or moved < best[0]):
                best = moved, range(first, behind)
        return None if best is None else best[1]

    def _slid(self, blocks: Sequence[PoolBlock], run: range) -> Compaction:
        """Slides some neighbours to the block in front of them."""
        found = list(blocks)
        moves: list[tuple[int, int, int]] = []
        cursor = blocks[run.start - 1].end if run.start else 0
        for number in run:
            block = blocks[number]
            if block.at != cursor:
                moves.append((number, block.at, cursor))
            found[number] = PoolBlock(cursor, block.units)
            cursor += block.units
        return Compaction(moves, self.holding(self.capacity, found))

    def _smallest(self, units: int) -> tuple[int, int] | None:
        """Size and start of the smallest hole that fits, of equal ones the first."""
        own = size_class(units)
        members = self._classes.get(own, ())
        i = bisect_left(members, (units, 0))
        if i < len(members):
            return members[i]
        later = self._filled >> (own + 1)
        if not later:
            return None
        return self._classes[own + (later & -later).bit_length()][0]

    def _add(self, at: int, units: int) -> None:
        self._units[at] = units
        self._starts[at + units] = at
        number = size_class(units)
        insort(self._classes.setdefault(number, []), (units, at))
        self._filled |= 1 << number

    def _remove(self, at: int) -> int:
        """Forgets a hole; its units."""
        units = self._units.pop(at)
        del self._starts[at + units]
        number = size_class(units)
        members = self._classes[number]
        del members[bisect_left(members, (units, at))]
        if not members:
            self._filled ^= 1 << number
        return units
