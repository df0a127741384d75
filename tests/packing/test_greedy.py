"""Greedy plans: none overlaps, and each follows its rule."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.packing import Budget, Buffer, PackingProblem, solve
from tilewright.packing.greedy import fitted, plans, skyline

BUFFERS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 40), st.sampled_from([1, 1, 4, 6])),
    min_size=1,
    max_size=24,
).map(lambda bs: PackingProblem(tuple(Buffer(f"b{i}", s, s + w, n, a) for i, (s, w, n, a) in enumerate(bs))))


@settings(max_examples=100, deadline=None)
@given(BUFFERS)
def test_no_plan_overlaps(p: PackingProblem) -> None:
    found = [p.height(offsets) for offsets in plans(p) if p.check(offsets) is None]
    assert len(found) == 10 and min(found) >= p.bound


@settings(max_examples=100, deadline=None)
@given(BUFFERS, st.booleans(), st.randoms(use_true_random=False))
def test_a_buffer_lies_in_the_smallest_gap_or_the_lowest(p: PackingProblem, lowest: bool, random) -> None:
    order = list(range(len(p.buffers)))
    random.shuffle(order)
    offsets = fitted(p, np.array(order), lowest).tolist()
    for n, i in enumerate(order):
        b = p.buffers[i]
        taken = sorted(
            (offsets[j], offsets[j] + p.buffers[j].size)
            for j in order[:n]
            if p.buffers[j].start < b.end and b.start < p.buffers[j].end
        )
        gaps, end = [], 0
        for begin, top in [*taken, (1 << 62, 0)]:
            at = -(-end // b.alignment) * b.alignment
            if begin - at >= b.size:
                gaps.append((0 if lowest else begin - at, at))
            end = max(end, top)
        assert offsets[i] == min(gaps)[1]


def test_a_skyline_takes_what_can_lie_lowest() -> None:
    p = PackingProblem(
        (
            Buffer("a", 0, 4, 5),
            Buffer("b", 0, 2, 2),
            Buffer("c", 2, 4, 3),
            Buffer("d", 4, 6, 1),
            Buffer("e", 3, 5, 9),
        )
    )
    assert skyline(p, np.array([1, 0, 2, 3, 4])).tolist() == [3, 0, 0, 0, 8]


@pytest.mark.parametrize("n", [60_000])
def test_many_buffers_take_seconds(n: int) -> None:
    """A plan of a program of 60,000 buffers, a tenth of them in use at a time of any, in a few seconds."""
    rng = np.random.default_rng(1)
    starts = np.sort(rng.integers(0, n, n))
    times = np.minimum(rng.geometric(0.01, n), 4000)
    sizes = 512 * rng.integers(1, 4000, n)
    p = PackingProblem(
        tuple(
            Buffer(str(i), int(s), int(s + t), int(b))
            for i, (s, t, b) in enumerate(zip(starts, times, sizes))
        )
    )
    began = time.process_time()
    offsets = fitted(p, np.argsort(p.starts, kind="stable"))
    assert time.process_time() - began < 30
    assert p.height(offsets) < 1.5 * p.bound
    p.check(offsets)


def test_a_part_with_too_many_buffers_is_not_searched() -> None:
    rng = np.random.default_rng(2)
    n = 2100
    starts, times, sizes = rng.integers(0, 300, n), rng.integers(1, 30, n), rng.integers(1, 100, n)
    p = PackingProblem(
        tuple(
            Buffer(str(i), int(s), int(s + t), int(b))
            for i, (s, t, b) in enumerate(zip(starts, times, sizes))
        )
    )
    found = solve(p, Budget(nodes=100))
    p.check(found.offsets)
    assert found.nodes == 0 and not found.proved and found.height == found.greedy > found.bound
