"""The exact search against brute force, both ways: offsets where there are some, and none where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.packing import Budget, Buffer, PackingError, PackingProblem, solve, within
from tilewright.packing.exact import OffsetSearch, OutOfBudget
from tilewright.packing.rankings import WORDS, ranking

NO_END = Budget(nodes=10**6)


def problem(*buffers: tuple[int, ...]) -> PackingProblem:
    """Buffers of (start, end, size) or (start, end, size, alignment)."""
    return PackingProblem(tuple(Buffer(f"b{i}", *b) for i, b in enumerate(buffers)))


def fits(p: PackingProblem, capacity: int) -> bool:
    """Whether there are offsets within a capacity: all are tried."""

    def meet(a: Buffer, b: Buffer) -> bool:
        return a.start < b.end and b.start < a.end

    def rest(at: list[int]) -> bool:
        if len(at) == len(p.buffers):
            return True
        b = p.buffers[len(at)]
        for offset in range(0, capacity - b.size + 1, b.alignment):
            apart = (
                offset + b.size <= o or o + other.size <= offset
                for o, other in zip(at, p.buffers, strict=False)
                if meet(b, other)
            )
            if all(apart) and rest([*at, offset]):
                return True
        return False

    return rest([])


def filled(spans: list[tuple[int, int, int]], times: int = 5) -> PackingProblem:
    """Buffers and more for each time, so that equally many bytes are in use at all: few orders fit."""
    live = [sum(n for s, e, n in spans if s <= t < e) for t in range(times)]
    return problem(*spans, *((t, t + 1, max(live) - n) for t, n in enumerate(live) if n < max(live)))


def hard(n: int = 40, times: int = 24) -> PackingProblem:
    """Buffers of which equally many bytes are in use at each of some times."""
    rng = np.random.default_rng(3)
    starts, width, sizes = rng.integers(0, times, n), rng.integers(1, 12, n), rng.integers(1, 100, n)
    ends = np.minimum(starts + width, times)
    return filled(list(zip(starts.tolist(), ends.tolist(), sizes.tolist(), strict=True)), times)


SPANS = st.tuples(st.integers(0, 7), st.integers(1, 5), st.integers(1, 4))
PLAIN = st.lists(SPANS, min_size=0, max_size=6).map(lambda bs: problem(*((s, s + w, n) for s, w, n in bs)))
FULL = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 3)), min_size=2, max_size=5
).map(lambda bs: filled([(s, min(s + w, 5), n) for s, w, n in bs]))
ALIGNED = st.lists(st.tuples(SPANS, st.sampled_from([1, 2, 3, 4])), min_size=1, max_size=5).map(
    lambda bs: problem(*((s, s + w, n, a) for (s, w, n), a in bs))
)


@settings(max_examples=150, deadline=None)
@given(PLAIN | ALIGNED | FULL, st.integers(-1, 4), st.sampled_from(WORDS))
def test_a_search_finds_offsets_where_there_are_some(p: PackingProblem, more: int, word: str) -> None:
    capacity = max(p.bound + more, 0)
    search = OffsetSearch(p, capacity, ranking(p, word, np.ones(len(p.buffers))), 10**6)
    found = search.run()
    assert (found is not None) == fits(p, capacity)
    if found is not None:
        p.check(found)
        assert p.height(found) <= capacity


@settings(max_examples=60, deadline=None)
@given(PLAIN | ALIGNED | FULL)
def test_the_lowest_height_is_the_lowest(p: PackingProblem) -> None:
    found = solve(p, NO_END)
    p.check(found.offsets)
    assert found.proved and found.height == p.height(found.offsets) >= found.bound
    assert fits(p, found.height)
    assert found.height == 0 or not fits(p, found.height - 1)


@settings(max_examples=60, deadline=None)
@given(PLAIN | ALIGNED | FULL, st.integers(-1, 4))
def test_within_says_which_capacities_do(p: PackingProblem, more: int) -> None:
    capacity = max(p.bound + more, 0)
    found = within(p, capacity, NO_END)
    assert (found is not None) == fits(p, capacity)
    if found is not None:
        p.check(found.offsets)
        assert found.height <= capacity


STAIRS = problem((0, 3, 2), (1, 5, 1), (2, 7, 2), (4, 8, 1), (0, 2, 1), (5, 9, 2), (3, 6, 1), (7, 9, 1))


@pytest.mark.parametrize(
    ("p", "height"),
    [
        (problem(), 0),
        (problem((0, 1, 5)), 5),
        (problem((0, 4, 3), (4, 8, 3), (8, 9, 3)), 3),  # they only touch
        (problem((0, 5, 2), (0, 5, 2), (0, 5, 2)), 6),  # all alike
        (problem((0, 5, 0), (0, 5, 4)), 4),  # no bytes
        (problem((3, 3, 9), (0, 5, 4)), 4),  # no time
        (problem((-4, -1, 2), (-2, 3, 2)), 4),
        (problem((0, 2, 3, 4), (0, 2, 3, 4)), 7),
        (problem((0, 2, 1, 8), (1, 3, 1, 8), (2, 4, 1, 8)), 9),
        (problem((0, 4, 4), (2, 6, 4), (4, 8, 4), (0, 8, 4)), 12),
        (problem((0, 2, 2), (1, 4, 1), (3, 6, 2), (5, 7, 1), (0, 1, 1), (4, 7, 1)), 4),
    ],
    ids=str,
)
def test_odd_cases(p: PackingProblem, height: int) -> None:
    found = solve(p, NO_END)
    p.check(found.offsets)
    assert found.height == height and found.proved


TIGHT = problem(
    (1, 3, 1), (0, 2, 3), (2, 4, 1), (1, 4, 2), (3, 5, 3), (0, 1, 3), (2, 3, 2), (4, 5, 3)
)  # six bytes are in use at each time, and no six bytes are enough


def test_offsets_need_more_than_the_bound_where_they_must() -> None:
    found = solve(TIGHT, NO_END)
    assert (found.bound, found.height, found.proved) == (6, 7, True)
    assert within(TIGHT, 6, NO_END) is None and not fits(TIGHT, 6)


def test_a_search_is_the_same_in_each_run() -> None:
    first, second = (solve(hard(), Budget(nodes=3000)) for _ in range(2))
    assert first.offsets.tolist() == second.offsets.tolist()
    assert 0 < first.nodes == second.nodes <= 3000
    assert first.bound <= first.height <= first.greedy


def test_sizes_are_divided_by_what_they_are_multiples_of() -> None:
    """A search of aligned sizes is one of small numbers, and finds the same."""
    small = problem((0, 3, 2), (1, 5, 3), (2, 7, 2), (4, 8, 1))
    large = problem(*((b.start, b.end, b.size * 512, 512) for b in small.buffers))
    assert (solve(small, NO_END).offsets * 512).tolist() == solve(large, NO_END).offsets.tolist()


def test_a_budget_ends_a_search() -> None:
    search = OffsetSearch(STAIRS, STAIRS.bound, ranking(STAIRS, "TWA", np.ones(8)), 1)
    with pytest.raises(OutOfBudget):
        search.run()
    with pytest.raises(PackingError, match=r"no offsets within \d+ bytes were found after \d+ placements"):
        within(hard(), hard().bound, Budget(nodes=20))
    wide = hard(120, 60)
    late = OffsetSearch(wide, wide.bound, ranking(wide, "TWA", np.ones(len(wide.buffers))), 10**9, deadline=0.0)
    with pytest.raises(OutOfBudget):
        late.run()
    assert late.seen == 255


def test_what_is_no_problem() -> None:
    for buffer, said in {
        (0, 1, -1): "b0 has a negative size, -1",
        (5, 4, 1): "b0 ends at 4, before it starts at 5",
        (0, 1, 1, 0): "the alignment 0; it must be at least 1",
        (0, 1, 1 << 62): "more bytes than 64 bits count",
        (0, 1 << 63, 1): "a time that 64 bits do not hold",
    }.items():
        with pytest.raises(PackingError, match=said):
            problem(buffer)


def test_a_wrong_plan_is_found() -> None:
    p = problem((0, 3, 2), (2, 5, 2, 2))
    p.check([0, 2])
    for offsets, said in {
        (0, 0): "b0 and b1 share",
        (1, 2): "b0 and b1 share",
        (-1, 2): "b0 has the offset -1",
    }.items():
        with pytest.raises(PackingError, match=said):
            p.check(offsets)
    with pytest.raises(PackingError, match="b1 has the offset 3, no multiple of 2"):
        p.check([0, 3])


def test_the_fullest_time() -> None:
    p = problem((0, 4, 2), (2, 6, 3), (3, 5, 1), (7, 9, 4))
    assert (p.bound, p.fullest) == (6, 3)
    assert [b.name for b in p.live_at(3)] == ["b1", "b0", "b2"]
    assert problem().fullest is None
