"""Independent models of a pool: places found by trying all of them, contents as bytes, traces drawn by hypothesis."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from tilewright.backends.pool import Allocation, PoolCopy, PoolEvent

Interval = tuple[int, int]
"""First byte, and the one behind the last."""

ACTIONS = (*["allocate"] * 5, *["free"] * 3, "use", "grow", "grow", "pin", "unpin", "defragment")
Action = tuple[str, int, int]


def actions(kinds: Sequence[str] = ACTIONS, most: int = 60) -> st.SearchStrategy[list[Action]]:
    """What to do, to which of the allocations that there are, and a number of bytes."""
    small = st.integers(1, 40)
    sizes = st.one_of(small, small, st.integers(1, 200), st.integers(1, 900))
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 20), sizes), min_size=20, max_size=most)


def taken(allocations: Iterable[Allocation]) -> list[Interval]:
    """The bytes that blocks take, in order."""
    return sorted((a.offset, a.offset + a.reserved) for a in allocations if a.offset is not None)


def gaps(blocks: Sequence[Interval], capacity: int) -> list[Interval]:
    """The bytes between blocks that are sorted and do not overlap, the rest behind the last one included."""
    found, cursor = [], 0
    for start, end in [*blocks, (capacity, capacity)]:
        if start > cursor:
            found.append((cursor, start))
        cursor = max(cursor, end)
    return found


def rounded(policy: str, bytes: int, alignment: int) -> int:
    """What a block for some bytes takes."""
    size = alignment
    while size < bytes:
        size = 2 * size if policy == "buddy" else size + alignment
    return size


def roots(capacity: int, alignment: int) -> list[Interval]:
    """Powers of two times the alignment, largest first, that fill a memory of the policy `buddy`."""
    found, at = [], 0
    while capacity - at >= alignment:
        size = alignment
        while 2 * size <= capacity - at:
            size *= 2
        found.append((at, at + size))
        at += size
    return found


def free_buddies(blocks: Sequence[Interval], capacity: int, alignment: int) -> list[Interval]:
    """The largest free blocks of the policy `buddy`, by halving whatever is not free as a whole."""

    def halves(start: int, end: int) -> list[Interval]:
        inside = [b for b in blocks if b[0] < end and start < b[1]]
        if not inside:
            return [(start, end)]
        if inside[0][0] <= start and end <= inside[0][1]:
            return []
        middle = (start + end) // 2
        return halves(start, middle) + halves(middle, end)

    return [block for root in roots(capacity, alignment) for block in halves(*root)]


def free_blocks(policy: str, blocks: Sequence[Interval], capacity: int, alignment: int) -> list[Interval]:
    """Where requests may go."""
    usable = capacity // alignment * alignment
    if policy == "buddy":
        return free_buddies(blocks, usable, alignment)
    return gaps(blocks, usable)


def place(policy: str, blocks: Sequence[Interval], capacity: int, alignment: int, bytes: int) -> int | None:
    """Where a policy says that a request goes; None where nothing free is large enough."""
    size = rounded(policy, bytes, alignment)
    fitting = [b for b in free_blocks(policy, blocks, capacity, alignment) if b[1] - b[0] >= size]
    last = max((end for _, end in blocks), default=0)
    if policy == "best-fit":  # the rest behind the last block is taken last
        fitting = [b for b in fitting if b[0] < last] or fitting
    return min(fitting, key=lambda b: (b[1] - b[0], b[0]))[0] if fitting else None


def fill(seed: int, bytes: int) -> bytes:
    """Contents that no other allocation has."""
    return random.Random(seed).randbytes(bytes)


class Memory:
    """Device memory and host memory as bytes, which copies change as a pool says."""

    def __init__(self, capacity: int) -> None:
        self.device = bytearray(capacity)
        self.host: dict[Allocation, bytes] = {}
        self.expected: dict[Allocation, bytes] = {}
        self.copies: list[PoolCopy] = []
        self.seeds = 0

    def carry(self, copy: PoolCopy) -> None:
        self.copies.append(copy)
        if copy.kind == "move":
            for source, target, size in copy.pieces():
                assert abs(source - target) >= size, "a piece overlaps itself"
                self.device[target : target + size] = self.device[source : source + size]
        elif copy.kind == "spill":
            assert copy.source is not None and copy.target is None
            self.host[copy.allocation] = bytes(self.device[copy.source : copy.source + copy.bytes])
        else:
            assert copy.source is None and copy.target is not None
            self.device[copy.target : copy.target + copy.bytes] = self.host.pop(copy.allocation)

    def write(self, allocation: Allocation) -> None:
        """New contents for an allocation on the device."""
        assert allocation.offset is not None
        self.seeds += 1
        data = fill(self.seeds, allocation.bytes)
        self.expected[allocation] = data
        self.device[allocation.offset : allocation.offset + allocation.bytes] = data

    def check(self, allocation: Allocation, bytes: int | None = None) -> None:
        """Raises AssertionError unless an allocation has the contents that were written, or the first bytes of it."""
        if allocation.offset is None:
            found = self.host[allocation]
        else:
            found = self.device[allocation.offset : allocation.offset + allocation.bytes]
        assert found[:bytes] == self.expected[allocation][:bytes]


@st.composite
def traces(draw: st.DrawFn, most: int = 60) -> list[PoolEvent]:
    """Allocations and what is freed of them."""
    live: list[int] = []
    found: list[PoolEvent] = []
    for number, (kind, which, bytes) in enumerate(draw(actions(("allocate", "allocate", "free"), most))):
        if kind == "allocate":
            live.append(number)
            found.append(PoolEvent("allocate", number, bytes))
        elif live:
            found.append(PoolEvent("free", live.pop(which % len(live))))
    return found
