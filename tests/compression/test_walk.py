"""The steps of a search: by hand, and properties of any."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

from tilewright.compression.walk import GreedyWalk, in_order, reference_of, walk_down


def silent(said: str, done: int = 0, steps: int = 0) -> None:
    """Shows nothing."""


def walk_of(losses: Mapping[str, list[float]], saved: Mapping[str, list[float]], start: float) -> GreedyWalk:
    """A walk where losses add up: losses[part][i - 1] is that of level i against the whole."""

    def measure(levels: Mapping[str, int]) -> float:
        return start - sum(losses[n][i - 1] for n, i in levels.items() if i)

    ladders = {n: [str(i) for i in range(len(ls) + 1)] for n, ls in losses.items()}
    return walk_down(ladders, measure, lambda n, i: saved[n][i - 1], lambda n, i: 100 - i, silent)


def test_steps_by_hand() -> None:
    """a loses 1 for 10 bytes (0.1 each) and 6 for 10 more (0.6); b loses 2 for 4 (0.5)."""
    walk = walk_of({"a": [1.0, 6.0], "b": [2.0]}, {"a": [10.0, 10.0], "b": [4.0]}, 50.0)
    assert walk.states == (
        ({"a": 0, "b": 0}, 50.0),
        ({"a": 1, "b": 0}, 49.0),
        ({"a": 1, "b": 1}, 47.0),
        ({"a": 2, "b": 1}, 42.0),
    )
    assert [(r.part, r.change, r.metric, r.drop, r.weight_bytes) for r in walk.sensitivity] == [
        ("a", "1", 49.0, 1.0, 99),
        ("a", "2", 44.0, 6.0, 98),
        ("b", "1", 48.0, 2.0, 99),
    ]
    assert walk.places(50.0, 3.5, 9) == [0, 1, 2, 3]
    assert walk.places(50.0, 3.5, 2) == [0, 2, 3]
    assert walk.places(50.0, -1.0, 2) == [0, 3]


@st.composite
def walks(draw: st.DrawFn) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    numbers = st.floats(-10, 10, allow_nan=False)
    saved = st.floats(0.5, 100)
    losses = {f"p{n}": draw(st.lists(numbers, min_size=k, max_size=k)) for n, k in enumerate(lengths)}
    return losses, {n: [draw(saved) for _ in ls] for n, ls in losses.items()}


@given(walks(), st.integers(2, 9), st.floats(0, 20))
@examples(60)
def test_each_step_goes_one_level_down(
    case: tuple[dict[str, list[float]], dict[str, list[float]]], count: int, max_drop: float
) -> None:
    losses, saved = case
    walk = walk_of(losses, saved, 7.0)
    levels = [s for s, _ in walk.states]
    assert levels[0] == dict.fromkeys(losses, 0) and levels[-1] == {n: len(ls) for n, ls in losses.items()}
    for before, after in pairwise(levels):
        assert sorted(after[n] - before[n] for n in losses) == [0] * (len(losses) - 1) + [1]
    places = walk.places(7.0, max_drop, count)
    assert places[0] == 0 and places[-1] == len(levels) - 1 and len(places) <= count + 1
    allowed = [i for i, (_, v) in enumerate(walk.states) if 7.0 - v <= max_drop]
    assert max(allowed) in places


def test_equal_rates_take_shallow_levels_first() -> None:
    alone = {("a", 1): 3.0, ("a", 2): 3.0, ("b", 1): 3.0}
    assert in_order(alone, 5.0, lambda n, i: 1.0) == [("a", 1), ("b", 1), ("a", 2)]


def test_an_infinite_metric_is_counted_from_the_best_finite_one() -> None:
    assert reference_of(3.0, [9.0]) == 3.0
    assert reference_of(math.inf, [20.0, 40.0, math.inf]) == 40.0
    assert reference_of(math.inf, [math.inf]) == 0.0
    walk = walk_of({"a": [math.inf]}, {"a": [1.0]}, 3.0)
    assert walk.start == 3.0 and walk.sensitivity[0].drop == pytest.approx(math.inf)
