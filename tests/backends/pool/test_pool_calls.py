"""Single calls of a pool: victims, pins, growth, the order of moves, what is refused and how, and what is printed."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict

import pytest
from pool_models import Memory

from tilewright.backends.pool import (
    POLICIES,
    Allocation,
    Pool,
    PoolCopy,
    PoolError,
    PoolFullError,
    RequestTooLargeError,
)
from tilewright.machine import Machine

both = pytest.mark.parametrize("policy", sorted(POLICIES))


def filled(pool: Pool, bytes: int, count: int) -> list[Allocation]:
    return [pool.allocate(bytes) for _ in range(count)]


@both
def test_the_least_recently_used_is_spilled(policy: str) -> None:
    memory = Memory(256)
    pool = Pool(256, 64, policy, carry=memory.carry)
    a, b, c, d = filled(pool, 64, 4)
    for allocation in (a, b, c, d):
        memory.write(allocation)
    pool.use(a)
    pool.pin(b)
    e = pool.allocate(50)
    assert [(copy.kind, copy.allocation) for copy in memory.copies] == [("spill", c)]
    assert (c.state, c.offset, e.offset) == ("host", None, 128)
    pool.use(c)
    assert [(x.kind, x.allocation, x.bytes) for x in memory.copies[1:]] == [
        ("spill", d, 64),
        ("restore", c, 64),
    ]
    memory.check(c)
    pool.free(d)
    assert pool.statistics().host_bytes == 0
    assert pool.statistics().link_bytes == 3 * 64
    assert pool.statistics().live_bytes == 3 * 64 + 50


@both
def test_what_is_used_together_stays_together(policy: str) -> None:
    pool = Pool(256, 64, policy)
    a, b, c, d = filled(pool, 64, 4)
    filled(pool, 64, 3)  # spills a, b and c
    assert [x.state for x in (a, b, c, d)] == ["host", "host", "host", "device"]
    pool.use(d, a, b, c)
    assert [x.state for x in (a, b, c, d)] == ["device"] * 4
    e = pool.allocate(64)
    assert d.state == "host", "of those used together the first was used first"
    with pytest.raises(PoolFullError, match="a request of 64 bytes does not fit into the pool of 256 bytes"):
        pool.use(a, b, c, d, e)


@both
def test_pinned_allocations_refuse_before_anything_is_spilled(policy: str) -> None:
    pool = Pool(512, 64, policy)
    blocks = filled(pool, 64, 8)
    for allocation in blocks[::2]:
        pool.pin(allocation)
    with pytest.raises(
        PoolFullError, match="0 bytes are free, 0 of them in one block, and 256 bytes are pinned"
    ):
        pool.allocate(128)
    found = pool.statistics()
    assert (found.spills, found.failures, found.live_allocations) == (0, 1, 8)
    pool.unpin(blocks[0])
    assert pool.allocate(128).offset == 0


@both
def test_spilling_makes_room_only_as_far_as_needed(policy: str) -> None:
    pool = Pool(512, 64, policy)
    blocks = filled(pool, 64, 8)
    pool.use(*blocks[:2], *blocks[4:])
    pool.allocate(100)
    assert [x.state for x in blocks] == ["device"] * 2 + ["host"] * 2 + ["device"] * 4
    assert pool.statistics().moved_bytes == 0


def test_a_pinned_block_stays_and_the_hole_before_it_is_filled() -> None:
    memory = Memory(1000)
    pool = Pool(1000, 1, "best-fit", carry=memory.carry)
    first, pinned, large, small, tiny = (pool.allocate(n) for n in (100, 50, 300, 60, 40))
    pool.pin(pinned)
    for allocation in (pinned, large, small, tiny):
        memory.write(allocation)
    pool.free(first)
    moves = pool.defragment()
    assert moves == [PoolCopy("move", small, 450, 0, 60), PoolCopy("move", tiny, 510, 60, 40)]
    assert (pinned.offset, large.offset) == (100, 150)
    for allocation in (pinned, large, small, tiny):
        memory.check(allocation)


def test_nothing_moves_where_the_largest_free_block_would_shrink() -> None:
    pool = Pool(30, 1, "best-fit")
    first, front, between, back = (pool.allocate(n) for n in (10, 2, 6, 12))
    pool.pin(front)
    pool.pin(back)
    pool.free(first)
    assert pool.defragment() == [] and between.offset == 12
    assert pool.statistics().defragmentations == 0


def test_a_request_moves_the_cheapest_neighbours() -> None:
    pool = Pool(100, 1, "best-fit", spills=False)
    blocks = [pool.allocate(n) for n in (10, 30, 10, 5, 10, 35)]
    for freed in (0, 2, 4):
        pool.free(blocks[freed])
    assert pool.allocate(20).offset == 45
    assert [b.offset for b in blocks if b.state == "device"] == [10, 40, 65]
    assert pool.statistics().moved_bytes == 5


def test_a_buddy_moves_as_little_as_makes_room() -> None:
    pool = Pool(32, 1, "buddy", spills=False)
    blocks = [pool.allocate(n) for n in (1, 1, 2, 1, 1, 2, 4, 4, *[1] * 16)]
    for freed in (0, 2, 3, 8, 10):
        pool.free(blocks[freed])
    assert pool.allocate(4).offset == 0
    assert pool.statistics().moved_bytes == 1, "the unit at 1 went to another hole"


def test_the_half_beside_a_pinned_block_is_filled() -> None:
    pool = Pool(4, 1, "buddy")
    blocks = [pool.allocate(1) for _ in range(4)]
    pool.pin(blocks[1])
    pool.free(blocks[0])
    pool.free(blocks[2])
    assert pool.defragment() == [PoolCopy("move", blocks[3], 3, 0, 1)]
    pool.pin(blocks[3])
    pool.free(pool.allocate(2))
    assert pool.defragment() == []


def test_an_overlapping_move_goes_in_pieces() -> None:
    pool = Pool(1000, 10, "best-fit", spills=False)
    first, second = pool.allocate(100), pool.allocate(250)
    pool.free(first)
    (move,) = pool.defragment()
    assert move == PoolCopy("move", second, 100, 0, 250)
    assert move.overlaps
    assert [*move.pieces()] == [(100, 0, 100), (200, 100, 100), (300, 200, 50)]
    assert pool.statistics().moved_bytes == 250
    apart = PoolCopy("move", second, 250, 0, 250)
    assert not apart.overlaps and [*apart.pieces()] == [(250, 0, 250)]
    with pytest.raises(PoolError, match="a spill crosses the host link and has no pieces on the device"):
        [*PoolCopy("spill", second, 0, None, 250).pieces()]


def test_growth_takes_the_hole_behind() -> None:
    pool = Pool(1000, 10, "best-fit", moves=False, spills=False)
    a, b, c = pool.allocate(100), pool.allocate(100), pool.allocate(100)
    assert pool.grow(a, 100) and not pool.grow(a, 101)
    pool.free(b)
    assert pool.grow(a, 145) and a.reserved == 150
    assert pool.grow(a, 150), "its own block has as much"
    assert pool.statistics().largest_free_bytes == 700
    assert pool.grow(a, 190) and pool.allocate(10).offset == 190
    assert pool.grow(c, 800) and not pool.grow(c, 801)
    assert pool.statistics().free_bytes == 0


def test_a_block_grows_where_its_buddies_are_free() -> None:
    pool = Pool(1024, 64, "buddy")
    a, b = pool.allocate(64), pool.allocate(64)
    assert not pool.grow(a, 65) and not pool.grow(b, 65)
    pool.free(a)
    assert not pool.grow(b, 65), "it is the second half"
    a, c, d = pool.allocate(64), pool.allocate(64), pool.allocate(64)
    pool.free(c)
    assert not pool.grow(b, 65), "what is free behind it is the half of another"
    for allocation in (a, d):
        pool.free(allocation)
    pool.free(b)
    c = pool.allocate(1)
    assert pool.grow(c, 1024) and c.reserved == 1024
    assert pool.statistics().internal_fragmentation == 0


@both
def test_a_spilled_allocation_is_brought_back_to_grow(policy: str) -> None:
    memory = Memory(256)
    pool = Pool(256, 64, policy, carry=memory.carry)
    a = pool.allocate(64)
    memory.write(a)
    b = pool.allocate(256)
    assert a.state == "host"
    assert pool.grow(a, 128)
    assert b.state == "host"
    memory.check(a, 64)


@both
def test_mistakes_get_one_sentence(policy: str) -> None:
    pool, other = Pool(1000, 64, policy), Pool(1000, 64, policy)
    a = pool.allocate(10)
    for wrong in (0, -1, 1.5, True, "10"):
        with pytest.raises(PoolError, match=f"a request is for a positive number of bytes, not {wrong!r}"):
            pool.allocate(wrong)  # type: ignore[arg-type]
    for call in (other.free, other.use, other.pin, other.unpin, lambda x: other.grow(x, 20)):
        with pytest.raises(PoolError, match="an allocation of this pool, and this one is of another"):
            call(a)
    with pytest.raises(PoolError, match="free takes an allocation of the pool, not 0"):
        pool.free(0)  # type: ignore[arg-type]
    with pytest.raises(PoolError, match="unpin takes a pinned allocation, and this one is not"):
        pool.unpin(a)
    with pytest.raises(PoolError, match="an allocation of 10 bytes does not grow to 9"):
        pool.grow(a, 9)
    pool.free(a)
    for call in (pool.free, pool.use, pool.pin, pool.unpin, lambda x: pool.grow(x, 20)):
        with pytest.raises(PoolError, match="takes a live allocation, and this one of 10 bytes was freed"):
            call(a)
    with pytest.raises(
        RequestTooLargeError, match="a request of 1001 bytes is larger than the pool of 1000 bytes"
    ):
        pool.allocate(1001)
    assert pool.statistics().failures == 1, "mistakes are no failures of the pool"
    assert pool.statistics().live_allocations == 0


def test_a_block_that_no_empty_pool_has_is_too_large() -> None:
    said = "a request of 600 bytes takes a block of 1024 bytes, but the largest one of the pool of 1000 bytes has 512"
    for policy in POLICIES:
        with pytest.raises(RequestTooLargeError, match=said):
            Pool(1000, 512, policy).allocate(600)
    with pytest.raises(RequestTooLargeError, match=r"takes a block of 1024 bytes, but .* has 512"):
        Pool(1000, 4, "buddy").allocate(600)
    assert Pool(1000, 4, "best-fit").allocate(600).reserved == 600


def test_a_pool_that_makes_no_sense() -> None:
    for capacity, alignment, policy, said in (
        (0, 1, "buddy", "the capacity of a pool is a positive number of bytes, not 0"),
        (10, -1, "buddy", "the alignment of a pool is a positive number of bytes, not -1"),
        (10, 16, "buddy", "a pool of 10 bytes has no block of its alignment, 16 bytes"),
        (10, 1, "worst-fit", "a pool's policy is best-fit or buddy, not 'worst-fit'"),
    ):
        with pytest.raises(PoolError, match=said):
            Pool(capacity, alignment, policy)


def test_statistics_are_data_and_a_table() -> None:
    pool = Pool(1000, 100, "best-fit")
    a, b, c = pool.allocate(150), pool.allocate(100), pool.allocate(100)
    pool.free(b)
    pool.pin(a)
    pool.pin(c)
    found = pool.statistics()
    data = json.loads(found.to_json())
    assert data == {
        "schema": "tilewright.pool/1",
        **asdict(found),
        "internal_fragmentation": pytest.approx(50 / 300),
        "external_fragmentation": pytest.approx(100 / 700),
        "link_bytes": 0,
    }
    assert (data["live_bytes"], data["peak_bytes"], data["watermark_bytes"]) == (250, 350, 400)
    assert (data["free_bytes"], data["largest_free_bytes"]) == (700, 600)
    with pytest.raises(FrozenInstanceError):
        found.live_bytes = 0  # type: ignore[misc]
    assert str(found).startswith("best-fit pool of 1,000 bytes, aligned to 100\n")
    assert str(found) == found.table()
    assert repr(found) == (
        "<PoolStatistics best-fit pool of 1,000 bytes, aligned to 100: 250 bytes in 2 allocations, watermark 400>"
    )
    text = found.table(borders=False)
    for words in (
        "live 2 250 25.0%",
        "external fragmentation 100 14.3%",
        "watermark 400 40.0%",
        "allocations 3",
    ):
        assert words in [" ".join(line.split()) for line in text.splitlines()]


def test_bytes_over_the_link_have_the_price_of_the_simulator() -> None:
    machine = Machine.load("ascend-910b1")
    pool = Pool(1 << 20, machine.gm_align)
    a = pool.allocate(1 << 20)
    pool.allocate(1 << 20)
    pool.use(a)
    found = pool.statistics()
    assert (found.spills, found.restores, found.link_bytes) == (2, 1, 3 << 20)
    assert found.link_microseconds(machine) == pytest.approx((3 << 20) / 25e3)
