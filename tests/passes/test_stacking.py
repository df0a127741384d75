"""Plans of device memory for all sizes: no overlap at any, the example's plan at the example, and little more than a
plan of their own at others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.open_sizes import assuming
from tilewright.dialects.size_order import aligned
from tilewright.dialects.sizes import Size, evaluate, times
from tilewright.packing import Buffer, PackingProblem
from tilewright.packing.greedy import fitted, skyline
from tilewright.passes.npu.plan_memory import Life
from tilewright.passes.npu.stacking import MOST_FORMS, NoOpenPlan, stacked

B, S, N = Symbol("b", 3, 4), Symbol("s", 33, 64), Symbol("n", 2)
EXAMPLE = {"b": 4, "s": 64, "n": 64}
TERMS: Sequence[Size] = [
    Expr(700),
    *(Expr.of(v, c) for v in (B, S, N) for c in (4, 48, 520)),
    times(Expr.of(S), Expr.of(S), Expr(4)),
    times(Expr.of(B), Expr.of(S), Expr(24)),
]

LIVES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.sampled_from(TERMS)), min_size=1, max_size=24
)


def meet(one: Life, other: Life) -> bool:
    return one.first <= other.last and other.first <= one.last


def problem(lives: Sequence[Life]) -> PackingProblem:
    return PackingProblem(tuple(Buffer(str(i), t.first, t.last + 1, t.size) for i, t in enumerate(lives)))


def top_of(lives: Sequence[Life], places: Sequence[int]) -> int:
    return problem(lives).height(places)


def in_order(lives: Sequence[Life]) -> list[int]:
    p = problem(lives)
    return fitted(p, np.argsort(p.starts, kind="stable")).tolist()


def by_size(lives: Sequence[Life]) -> list[int]:
    p = problem(lives)
    return fitted(p, np.argsort(-p.sizes, kind="stable")).tolist()


def in_lowest(lives: Sequence[Life]) -> list[int]:
    p = problem(lives)
    return skyline(p, np.argsort(p.starts - p.ends, kind="stable")).tolist()


def numbers(sizes: Sequence[Size], at: Mapping[str, int]) -> list[int]:
    return [evaluate(size, at) for size in sizes]


def planned(
    tensors: Sequence[tuple[int, int, Size]], way: Any
) -> tuple[list[Life], list[Size], list[int], Any]:
    sizes = [aligned(size, 512) for _, _, size in tensors]
    lives = [
        Life(first, first + more, evaluate(size, EXAMPLE))
        for (first, more, _), size in zip(tensors, sizes, strict=True)
    ]
    places = way(lives)
    with assuming(EXAMPLE) as assumed:
        found = stacked(lives, places, sizes)
    assert not assumed.made  # a plan for all sizes asks for none
    return lives, sizes, places, found


@settings(max_examples=60, deadline=None)
@given(LIVES, st.sampled_from([in_order, by_size, in_lowest]), st.integers(2, 500))
def test_no_two_tensors_that_are_needed_at_one_time_overlap(
    tensors: Sequence[tuple[int, int, Size]], way: Any, n: int
) -> None:
    tensors = sorted(tensors, key=lambda t: t[0])
    try:
        lives, sizes, places, (found, top) = planned(tensors, way)
    except NoOpenPlan:
        return
    assert numbers(found, EXAMPLE) == places and evaluate(top, EXAMPLE) == top_of(lives, places)
    for at in ({"b": 3, "s": 33, "n": n}, {"b": 4, "s": 51, "n": 2}, {"b": 3, "s": 64, "n": 500}):
        starts, lengths = numbers(found, at), numbers(sizes, at)
        assert all(start % 512 == 0 and start >= 0 for start in starts)
        assert evaluate(top, at) == max(s + n for s, n in zip(starts, lengths, strict=True))
        for i, one in enumerate(lives):
            for j in range(i):
                apart = starts[i] + lengths[i] <= starts[j] or starts[j] + lengths[j] <= starts[i]
                assert apart or not meet(one, lives[j])


def test_what_is_proportional_folds() -> None:
    sizes = [times(Expr.of(S), Expr(n)) for n in (512, 1024, 512, 2048, 1024)]
    lives = [Life(i, i + 1, evaluate(size, EXAMPLE)) for i, size in enumerate(sizes)]
    with assuming(EXAMPLE):
        found, top = stacked(lives, in_order(lives), sizes)
    assert not any("max" in str(size) for size in (*found, top))


def test_a_place_that_is_the_largest_of_too_many_sums_is_refused() -> None:
    symbols = [Symbol(f"n{i}", 2, 64) for i in range(MOST_FORMS + 1)]
    sizes = [Expr.of(symbol, 512) for symbol in symbols]
    # one after the other, each beside one that is needed all the time, under a last one that meets all of them
    lives = [*(Life(i, i, 512 * 64) for i in range(len(symbols))), Life(0, len(symbols), 512)]
    with (
        assuming({s.name: 64 for s in symbols}),
        pytest.raises(NoOpenPlan, match="more than 16 sums of sizes"),
    ):
        stacked(lives, [0] * len(symbols) + [512 * 64], [*sizes, Expr(512)])
    fewer = MOST_FORMS - 1
    with assuming({s.name: 64 for s in symbols}):
        found, _ = stacked([*lives[:fewer], lives[-1]], [0] * fewer + [512 * 64], [*sizes[:fewer], Expr(512)])
    assert evaluate(found[-1], {s.name: 2 + i for i, s in enumerate(symbols)}) == 512 * (2 + fewer - 1)


def test_at_other_sizes_a_plan_takes_little_more_than_their_own() -> None:
    rng, ratios = np.random.default_rng(0), []
    for _ in range(40):
        tensors = [(i, int(rng.integers(1, 5)), TERMS[int(rng.integers(len(TERMS)))]) for i in range(30)]
        _, sizes, _, (_, top) = planned(tensors, in_order)
        at = {"b": 3, "s": int(rng.integers(33, 64)), "n": int(rng.integers(33, 64))}
        alone = [Life(i, i + more, evaluate(s, at)) for (i, more, _), s in zip(tensors, sizes, strict=True)]
        ratios.append(evaluate(top, at) / top_of(alone, in_order(alone)))
    print(f"median {np.median(ratios):.3f}, largest {max(ratios):.3f}")
    assert np.median(ratios) <= 1.02 and max(ratios) <= 1.3  # sizes of nothing in common, at the other end
