"""Traces on pools against bounds: live bytes, Robson's, and what best fit needs at most."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_models import rounded, traces

from tilewright.backends.pool import (
    POLICIES,
    Allocation,
    Pool,
    PoolError,
    PoolEvent,
    best_fit_bound,
    peak_of_live,
    replay,
    robson_bound,
)

both = pytest.mark.parametrize("policy", sorted(POLICIES))


@both
@settings(max_examples=100)
@given(traces(), st.sampled_from([1, 4, 32]))
def test_memory_in_use_lies_between_the_bounds(policy: str, trace: list[PoolEvent], alignment: int) -> None:
    pool = Pool(1 << 20, alignment, policy, moves=False, spills=False)
    found = replay(trace, pool)
    blocks = peak_of_live(trace, lambda bytes: rounded(policy, bytes, alignment) if bytes else 0)
    assert found.refused == ()
    assert found.statistics.peak_bytes == found.peak_bytes <= blocks <= found.statistics.watermark_bytes
    if policy == "best-fit":
        assert found.statistics.watermark_bytes <= best_fit_bound(trace, alignment)
        most = [-(-max((e.bytes for e in trace), default=0) // alignment), -(-blocks // alignment)]
        assert best_fit_bound(trace, alignment) <= most[0] * most[1] * alignment
    assert found.overhead >= 1


@settings(max_examples=60)
@given(traces(), st.sampled_from([1, 4, 32]))
def test_blocks_of_buddies_are_less_than_twice_what_is_asked(trace: list[PoolEvent], alignment: int) -> None:
    pool = Pool(1 << 20, alignment, "buddy")
    live: dict[int, Allocation] = {}
    for event, id, bytes in trace:
        if event == "allocate":
            live[id] = pool.allocate(bytes)
            assert live[id].reserved < 2 * (-(-bytes // alignment) * alignment)
        else:
            pool.free(live.pop(id))
        if alignment == 1:
            assert pool.statistics().internal_fragmentation < 0.5


def adversary(pool: Pool, live: int, orders: int) -> list[PoolEvent]:
    """The trace by which Robson forces memory on an allocator that moves nothing, of `live` units at most, in blocks
    of 2^orders units at most.

    It keeps one block in each stretch of 2^i units, as seen from an offset that wastes most, frees all others, and asks
    for blocks of 2^i units, which fit into none of the holes.
    """
    trace: list[PoolEvent] = []
    blocks: dict[int, Allocation] = {}

    def allocate(size: int) -> None:
        trace.append(PoolEvent("allocate", len(trace), size))
        blocks[len(trace) - 1] = pool.allocate(size)

    def covers(block: Allocation, offset: int, step: int) -> bool:
        assert block.offset is not None
        return (offset - block.offset) % step < block.bytes

    for _ in range(live):
        allocate(1)
    offset = 0
    for order in range(1, orders + 1):
        step = 1 << order
        wasted = {
            o: sum(step - b.bytes for b in blocks.values() if covers(b, o, step))
            for o in (offset, offset + step // 2)
        }
        offset = max(wasted, key=lambda o: wasted[o])
        for id in [id for id, b in blocks.items() if not covers(b, offset, step)]:
            trace.append(PoolEvent("free", id))
            pool.free(blocks.pop(id))
        for _ in range((live - sum(b.bytes for b in blocks.values())) // step):
            allocate(step)
    return trace


@both
@pytest.mark.parametrize(("live", "orders"), [(64, 3), (256, 4), (512, 6)])
def test_robsons_trace_forces_robsons_bound(policy: str, live: int, orders: int) -> None:
    pool = Pool(1 << 20, 1, policy, moves=False, spills=False)
    trace = adversary(pool, live, orders)
    bound = robson_bound(trace, 1)
    assert bound is not None
    assert bound.forced_bytes == bound.enough_bytes == live + live * orders // 2 - (1 << orders) + 1
    used = pool.statistics().watermark_bytes
    assert bound.forced_bytes <= used
    if policy == "best-fit":
        assert used <= best_fit_bound(trace, 1)
    again = replay(trace, Pool(1 << 20, 1, policy, moves=False, spills=False))
    assert again.statistics.watermark_bytes == used and again.robson == bound
    moving = replay(trace, Pool(live, 1, policy, spills=False))
    assert moving.refused == () and moving.robson is None and moving.statistics.defragmentations
    stuck = replay(trace, Pool(live, 1, policy, moves=False, spills=False))
    assert stuck.refused and stuck.statistics.failures == len(stuck.refused)


def test_robsons_bound_rounds_sizes_apart() -> None:
    trace = [PoolEvent("allocate", n, 5 * 64 - 3) for n in range(4)]  # 5 units of 64 bytes: 4 or 8
    bound = robson_bound(trace, 64)
    assert bound is not None
    assert bound.forced_bytes == (20 + 20 - 4 + 1) * 64
    assert bound.enough_bytes == (32 + 48 - 8 + 1) * 64
    assert robson_bound([], 64) is None


def test_the_bound_of_best_fit_can_be_reached() -> None:
    """Holes of one unit less than is asked for, one before each block."""
    trace = [PoolEvent("allocate", n, 1) for n in range(32)]
    trace += [PoolEvent("free", n) for n in range(32) if n % 4 != 3]
    trace += [PoolEvent("allocate", 32, 4)]
    found = replay(trace, Pool(1000, 1, "best-fit", moves=False, spills=False))
    assert found.statistics.watermark_bytes == best_fit_bound(trace, 1) == 36


@both
def test_growth_that_finds_no_room_moves(policy: str) -> None:
    trace = [("allocate", 0, 64), ("allocate", 1, 64), ("grow", 0, 128), ("use", 1, 0), ("free", 0, 0)]
    found = replay(trace, Pool(1024, 64, policy))
    assert found.peak_bytes == 192
    assert found.statistics.peak_bytes == 256, "the old place is freed after the new one is found"
    assert found.statistics.live_bytes == 64


def test_refused_allocations_are_left_out() -> None:
    trace = [("allocate", 0, 60), ("allocate", 1, 200), ("use", 1, 0), ("free", 1, 0), ("allocate", 2, 40)]
    found = replay(trace, Pool(100, 1, "best-fit"))
    assert found.refused == (1,)
    assert found.statistics.live_bytes == found.statistics.peak_bytes == 100
    assert found.peak_bytes == 260
    grown = replay([("allocate", 0, 60), ("grow", 0, 101), ("free", 0, 0)], Pool(100, 1, "best-fit"))
    assert grown.refused == (0,) and grown.statistics.live_bytes == 0


def test_fragmentation_is_the_mean_over_events() -> None:
    found = replay([("allocate", 0, 32), ("allocate", 1, 64), ("free", 0, 0)], Pool(192, 64, "best-fit"))
    assert found.internal_fragmentation == pytest.approx((1 / 2 + 1 / 4 + 0) / 3)
    assert found.external_fragmentation == pytest.approx((0 + 0 + 1 / 2) / 3)


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ([("take", 0, 1)], "event 0 of the trace is 'take', not one of allocate, free, use, grow"),
        ([("free", 7, 0)], "event 0 of the trace is free of allocation 7, which is not live"),
        (
            [("allocate", 1, 8), ("allocate", 1, 8)],
            "event 1 .* allocate of allocation 1, which is live already",
        ),
        ([("allocate", 1, 0)], "allocate of allocation 1 to 0 bytes, which takes 1 at least"),
        ([("allocate", 1, 8), ("grow", 1, 7)], "grow of allocation 1 to 7 bytes, which takes 8 at least"),
    ],
)
def test_traces_that_make_no_sense(trace: list[tuple[str, int, int]], said: str) -> None:
    with pytest.raises(PoolError, match=said):
        replay(trace, Pool(100, 1))


def test_the_bound_of_best_fit_is_not_about_growth() -> None:
    with pytest.raises(PoolError, match="traces without growth"):
        best_fit_bound([PoolEvent("allocate", 0, 1), PoolEvent("grow", 0, 2)], 1)
