"""Searches that ask and are told: all find a good plan, a seed says what is asked, and one that broke off goes on."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest

from tilewright.kernels.space import PlanNumber, Plans, PlanSpace
from tilewright.tuning.search.sampled import SEARCHES, RandomSearch, Search, resumed, run

SPACE = PlanSpace(tuple(PlanNumber(name, tuple(range(12)), level) for level, name in enumerate("abcd")))
BEST = (3, 7, 1, 10)


def times(plans: Plans) -> Sequence[float]:
    """One valley, with places that do not fit."""
    far = np.abs(plans - np.array(BEST)).sum(axis=1)
    return np.where(plans.sum(axis=1) % 7 == 6, inf, 10.0 + far).tolist()


def made(name: str, seed: int = 0, start: Sequence[tuple[int, ...]] = ()) -> Search:
    if name == "tpe":
        pytest.importorskip("optuna")
    return SEARCHES[name](SPACE, seed, start)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_good_plan_is_found(name: str) -> None:
    many = 120 if name == "tpe" else 300  # whose model takes its time
    found = run(made(name), times, many)
    by_chance = np.mean([run(RandomSearch(SPACE, seed), times, many).microseconds for seed in range(8)])
    assert found.plan is not None and found.priced == many
    assert found.microseconds == times(np.array([found.plan]))[0] == found.best[0][0] == found.trace[-1][1]
    assert name == "random" or found.microseconds < by_chance
    assert not found.certified


@pytest.mark.parametrize("name", SEARCHES)
def test_a_seed_says_what_is_asked(name: str) -> None:
    first, second, other = (made(name, seed) for seed in (1, 1, 2))
    for _ in range(3):
        plans = first.ask(8)
        assert plans.tolist() == second.ask(8).tolist()
        assert len({tuple(p) for p in plans.tolist()}) == 8
        first.tell(plans, times(plans))
        second.tell(plans, times(plans))
        other.tell(plans, times(plans))
    assert first.ask(8).tolist() != other.ask(8).tolist()
    assert not {tuple(p) for p in first.ask(8).tolist()} & first.told.keys()


@pytest.mark.parametrize("name", SEARCHES)
def test_one_that_broke_off_goes_on(name: str) -> None:
    whole = made(name)
    run(whole, times, 48, batch=8)
    part = made(name)
    run(part, times, 24, batch=8)
    again = resumed(made(name), [*part.told.items()], 8)
    assert again.told == part.told
    run(again, times, 24, batch=8)
    assert [*again.told] == [*whole.told]


def test_what_a_heuristic_has_is_asked_first() -> None:
    for name in ("random", "genetic", "tree"):
        assert made(name, 0, [BEST]).ask(1).tolist() == [[*BEST]]
        assert run(made(name, 0, [BEST]), times, 1).microseconds == 10.0


def test_a_space_is_asked_for_once() -> None:
    small = PlanSpace((PlanNumber("a", (1, 2, 3)), PlanNumber("b", (1, 2))))
    for cls in (SEARCHES["random"], SEARCHES["genetic"], SEARCHES["tree"]):
        found = run(cls(small), lambda plans: plans.sum(axis=1).astype(float).tolist(), 1000)
        assert found.priced == 6 and found.plan == (0, 0)
    assert run(RandomSearch(small), lambda plans: [inf] * len(plans), 1000).plan is None
