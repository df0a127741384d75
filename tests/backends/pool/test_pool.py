"""Pools under random calls: places, contents, books, and what is refused, against models that try everything."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_models import (
    Action,
    Memory,
    actions,
    free_blocks,
    place,
    roots,
    rounded,
    taken,
)

from tilewright.backends.pool import POLICIES, Allocation, Pool, PoolFullError, RequestTooLargeError

both = pytest.mark.parametrize("policy", sorted(POLICIES))
ALIGNMENTS = st.sampled_from([1, 4, 32])
CAPACITIES = st.integers(1, 1500)


class Driver:
    """Calls a pool as actions say and checks everything that is known after each."""

    def __init__(self, pool: Pool, memory: Memory) -> None:
        self.pool, self.memory = pool, memory
        self.live: list[Allocation] = []
        self.pinned: dict[Allocation, int | None] = {}
        self.failures = self.peak = 0

    def blocks(self) -> list[tuple[int, int]]:
        return taken(self.live)

    def room(self, blocks: list[tuple[int, int]], bytes: int) -> bool:
        pool = self.pool
        return place(pool.policy, blocks, pool.capacity_bytes, pool.alignment, bytes) is not None

    def act(self, action: Action) -> None:
        kind, which, bytes = action
        chosen = self.live[which % len(self.live)] if self.live else None
        if kind == "allocate":
            self.allocate(bytes)
        elif kind == "defragment":
            self.defragment()
        elif chosen is None:
            return
        elif kind == "free":
            self.live.remove(chosen)
            self.pinned.pop(chosen, None)
            self.memory.host.pop(chosen, None)
            self.pool.free(chosen)
        elif kind in ("use", "pin"):
            self.bring(kind, chosen)
        elif kind == "grow":
            self.grow(chosen, bytes)
        elif chosen.pinned:
            self.pool.unpin(chosen)
            del self.pinned[chosen]
        self.check()

    def allocate(self, bytes: int) -> None:
        before, copies = self.blocks(), len(self.memory.copies)
        had_room = self.room(before, bytes)
        try:
            new = self.pool.allocate(bytes)
        except RequestTooLargeError:
            assert not self.room([], bytes), "it fits into the empty pool"
            self.failures += 1
            return
        except PoolFullError:
            self.refused(bytes, had_room)
            return
        self.live.append(new)
        self.memory.write(new)
        assert had_room == (len(self.memory.copies) == copies), "moves and spills are for what has no room"

    def refused(self, bytes: int, had_room: bool) -> None:
        """A full pool has no room beside what is pinned if it may spill, or beside what there is if it may nothing."""
        self.failures += 1
        assert not had_room
        if self.pool.spills:
            assert not self.room(taken(a for a in self.live if a.pinned), bytes)
        elif self.pool.moves and not any(a.pinned for a in self.live):
            assert self.pool.statistics().free_bytes < rounded(self.pool.policy, bytes, self.pool.alignment)

    def bring(self, kind: str, chosen: Allocation) -> None:
        try:
            self.pool.use(chosen) if kind == "use" else self.pool.pin(chosen)
        except PoolFullError:
            assert chosen.state == "host"
            self.refused(chosen.bytes, False)
            return
        assert chosen.state == "device"
        if kind == "pin":
            self.pinned[chosen] = chosen.offset

    def grow(self, chosen: Allocation, more: int) -> None:
        bytes, had, state = chosen.bytes + more, chosen.bytes, chosen.state
        try:
            grown = self.pool.grow(chosen, bytes)
        except (RequestTooLargeError, PoolFullError):
            self.failures += 1
            assert state == "host" or not self.room([], bytes)
            return
        assert chosen.offset is not None
        wanted = rounded(self.pool.policy, bytes, self.pool.alignment)
        others = taken(a for a in self.live if a is not chosen)
        end = chosen.offset + wanted
        usable = self.pool.capacity_bytes // self.pool.alignment * self.pool.alignment
        possible = end <= usable and not any(s < end and chosen.offset < e for s, e in others)
        if self.pool.policy == "buddy":
            inside = any(
                start <= chosen.offset and end <= stop for start, stop in roots(usable, self.pool.alignment)
            )
            possible = possible and inside and chosen.offset % wanted == self.start(chosen) % wanted
        assert grown == possible
        assert chosen.bytes == (bytes if grown else had)
        self.memory.check(chosen, had)
        if grown:
            self.memory.write(chosen)

    def start(self, chosen: Allocation) -> int:
        """The start of the root that a block is in: multiples of sizes count from there."""
        usable = self.pool.capacity_bytes // self.pool.alignment * self.pool.alignment
        assert chosen.offset is not None
        return max(start for start, _ in roots(usable, self.pool.alignment) if start <= chosen.offset)

    def defragment(self) -> None:
        before = self.pool.statistics()
        moves = self.pool.defragment()
        after = self.pool.statistics()
        assert after.moved_bytes - before.moved_bytes == sum(m.bytes for m in moves)
        assert (after.largest_free_bytes > before.largest_free_bytes) == bool(moves)
        assert after.largest_free_bytes >= before.largest_free_bytes
        if not self.pinned and self.pool.policy == "best-fit":
            assert after.largest_free_bytes == after.free_bytes
        if not self.pinned and self.pool.policy == "buddy":
            most = [n for n in self.buddies() if n <= after.free_bytes]
            assert after.largest_free_bytes == max(most, default=0)

    def buddies(self) -> list[int]:
        """The sizes that blocks may have."""
        first = roots(self.pool.capacity_bytes, self.pool.alignment)[0]
        return [size for i in range(12) if (size := self.pool.alignment << i) <= first[1]]

    def check(self) -> None:
        pool, blocks = self.pool, self.blocks()
        assert {a: a.offset for a in self.live if a.pinned} == self.pinned
        capacity, alignment = pool.capacity_bytes, pool.alignment
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(blocks))
        assert all(start >= 0 and end <= capacity and start % alignment == 0 for start, end in blocks)
        for allocation in self.live:
            self.memory.check(allocation)
            assert allocation.reserved == rounded(pool.policy, allocation.bytes, alignment)
        free = free_blocks(pool.policy, blocks, capacity, alignment)
        here = [a for a in self.live if a.state == "device"]
        self.peak = max(self.peak, sum(a.bytes for a in here))
        found = pool.statistics()
        assert pool.allocations() == sorted(here, key=lambda a: a.offset or 0)
        assert found.live_allocations == len(here)
        assert found.live_bytes == sum(a.bytes for a in here)
        assert found.reserved_bytes == sum(a.reserved for a in here)
        assert found.host_bytes == sum(a.bytes for a in self.live if a.state == "host")
        assert found.free_bytes == sum(end - start for start, end in free)
        assert found.largest_free_bytes == max((end - start for start, end in free), default=0)
        assert found.failures == self.failures
        assert self.peak <= found.peak_bytes <= found.watermark_bytes <= capacity
        by_kind = {
            kind: [c.bytes for c in self.memory.copies if c.kind == kind] for kind in ("spill", "restore")
        }
        assert [found.spills, found.spilled_bytes] == [len(by_kind["spill"]), sum(by_kind["spill"])]
        assert [found.restores, found.restored_bytes] == [len(by_kind["restore"]), sum(by_kind["restore"])]


@both
@settings(max_examples=200)
@given(actions(), CAPACITIES, ALIGNMENTS, st.booleans(), st.booleans())
def test_contents_and_books_survive_any_calls(
    policy: str, todo: list[Action], capacity: int, alignment: int, moves: bool, spills: bool
) -> None:
    memory = Memory(capacity + alignment)
    pool = Pool(capacity + alignment, alignment, policy, moves=moves, spills=spills, carry=memory.carry)
    driver = Driver(pool, memory)
    for action in todo:
        driver.act(action)
    for allocation in driver.live:
        pool.free(allocation)
    empty = pool.statistics()
    assert empty.free_bytes == capacity // alignment * alignment + alignment
    assert empty.largest_free_bytes == max(
        end - start for start, end in free_blocks(policy, [], capacity + alignment, alignment)
    )
    assert pool.allocate(empty.largest_free_bytes).offset == 0


@both
@settings(max_examples=150)
@given(actions(("allocate", "allocate", "free"), 60), CAPACITIES, ALIGNMENTS)
def test_places_are_those_of_the_naive_policy(
    policy: str, todo: list[Action], capacity: int, alignment: int
) -> None:
    pool = Pool(capacity + alignment, alignment, policy, moves=False, spills=False)
    live: list[Allocation] = []
    for kind, which, bytes in todo:
        if kind == "free":
            if live:
                pool.free(live.pop(which % len(live)))
            continue
        at = place(policy, taken(live), pool.capacity_bytes, alignment, bytes)
        try:
            live.append(pool.allocate(bytes))
            assert live[-1].offset == at
        except (PoolFullError, RequestTooLargeError):
            assert at is None


@both
@pytest.mark.parametrize("alignment", [1, 16])
def test_places_are_those_of_the_naive_policy_where_sizes_are_alike(policy: str, alignment: int) -> None:
    """Many holes of nearly the same size, which share a class."""
    rng = random.Random(alignment)
    pool = Pool(1 << 18, alignment, policy, moves=False, spills=False)
    live: list[Allocation] = []
    for _ in range(1200):
        if rng.random() < len(live) / 120:
            pool.free(live.pop(rng.randrange(len(live))))
        else:
            bytes = rng.randint(400, 600)
            at = place(policy, taken(live), pool.capacity_bytes, alignment, bytes)
            live.append(pool.allocate(bytes))
            assert live[-1].offset == at


@both
@settings(max_examples=75)
@given(actions(("allocate", "allocate", "free"), 60), st.integers(1, 900))
def test_compaction_serves_what_is_free(policy: str, todo: list[Action], bytes: int) -> None:
    """Without pinned blocks all that is free can be had, so nothing is spilled that compaction has room for."""
    memory = Memory(1000)
    pool = Pool(1000, 4, policy, carry=memory.carry)
    driver = Driver(pool, memory)
    for action in todo:
        driver.act(action)
    before = pool.statistics()
    wanted = rounded(policy, bytes, 4)
    if wanted <= min(before.free_bytes, 512 if policy == "buddy" else 1000):
        driver.act(("allocate", 0, bytes))
        assert pool.statistics().spills == before.spills
        assert pool.statistics().allocations == before.allocations + 1
