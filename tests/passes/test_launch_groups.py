"""Launch groups: no choice of ways and joins costs less; graph-schedule cuts kernels for the groups they will be in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, product
from operator import or_

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loading import load
from tiers import examples

import tilewright as tw
from tilewright.dialects.graph import VectorSchedule
from tilewright.dialects.graph.schedules import Schedule
from tilewright.dialects.npu.waking import Woken
from tilewright.machine import Machine
from tilewright.passes.errors import TooLarge
from tilewright.passes.launch_groups import PER_MICROSECOND, Groups, Neighbour, Way
from tilewright.passes.tile.choose import GraphSchedulePass
from tilewright.passes.tile.fronts import Front, best_ways

MACHINES = {name: Machine.load(name) for name in ("ascend-910b1", "ascend-310", "ascend-950pr")}
KINDS = [frozenset(k) for k in (("cube",), ("vector",), ("cube", "vector"))]
WAYS = st.lists(
    st.builds(Way, st.builds(Woken, st.integers(1, 24), st.sampled_from(KINDS)), st.integers(0, 12).map(float)),
    min_size=1,
    max_size=3,
).map(tuple)


def cost(ways: Sequence[Way], joined: Sequence[bool], machine: Machine) -> float:
    """Microseconds of launches, each run in one way."""
    starts = [i for i, a in enumerate(joined) if not a]
    total = sum(way.microseconds for way in ways)
    for start, end in pairwise([*starts, len(ways)]):
        woken = reduce(or_, (way.woken for way in ways[start:end]))
        total += woken.launch_microseconds(machine) + (end - start - 1) * woken.barrier_microseconds(machine)
    return total


@examples(150)
@given(
    st.sampled_from(sorted(MACHINES)),
    st.lists(st.builds(Neighbour, WAYS, st.sampled_from([False, False, True])), min_size=1, max_size=5),
)
def test_no_ways_and_joins_cost_less(name: str, launches: list[Neighbour]) -> None:
    """And the groups that are found cost what is said: each launch is run in its best way within its group."""
    machine = MACHINES[name]
    least, members = Groups(machine, launches).least()
    partitions = [
        joined
        for joined in product([False, True], repeat=len(launches))
        if not joined[0] and not any(a and n.first for a, n in zip(joined, launches, strict=True))
    ]
    choices = list(product(*(n.ways for n in launches)))
    best = min(cost(ways, joined, machine) for ways in choices for joined in partitions)
    assert least == pytest.approx(best, abs=1e-5)
    found = [
        min(
            (way for way in n.ways if way.woken | m.woken == m.woken),
            key=lambda way: (way.microseconds, way.woken.cores),
        )
        for n, m in zip(launches, members, strict=True)
    ]
    joined = [m.joined for m in members]
    assert joined in map(list, partitions)
    assert cost(found, joined, machine) <= best + len(launches) / PER_MICROSECOND


@examples(100)
@given(WAYS)
def test_ways_worth_having(ways: tuple[Way, ...]) -> None:
    """What is left out has one that wakes no more and works no longer; what is kept has none."""
    schedules = [VectorSchedule(cores=i + 1) for i in range(len(ways))]
    kept, theirs = best_ways(ways, schedules)
    assert [ways[schedules.index(s)] for s in theirs] == list(kept)

    def beats(a: Way, b: Way) -> bool:
        return a.woken | b.woken == b.woken and a.microseconds <= b.microseconds

    assert all(any(beats(a, b) for a in kept) for b in ways)
    assert not any(beats(a, b) for a in kept for b in kept if a is not b)


def chain(x: jax.Array, w: jax.Array) -> jax.Array:
    """Wide kernels, and between them narrow ones."""
    for _ in range(4):
        x = jnp.tanh(x @ w)
        narrow = jnp.exp(x[:64, :].T)
        x = x * jax.lax.cumsum(narrow, 1).sum()
    return x


ARGS = tuple(np.random.default_rng(i).standard_normal((1024, 1024)).astype(np.float16) / 32 for i in range(2))


@pytest.mark.parametrize("model", ["chain", "vit:forward_f16"])
def test_kernels_are_cut_for_their_groups(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes less time than joining what is cut for launches of its own."""
    fn, args = (chain, ARGS) if model == "chain" else load(model)
    grouped = tw.compile(fn, *args).report().microseconds
    ours = tw.Options.stages
    monkeypatch.setattr(
        tw.Options,
        "stages",
        lambda options: [replace(s, join=s.name != GraphSchedulePass.name) for s in ours(options)],
    )
    assert grouped < tw.compile(fn, *args).report().microseconds


def test_without_joins_kernels_are_cut_for_themselves() -> None:
    joined, alone = (tw.compile(chain, *ARGS, options=tw.Options(join=join)) for join in (True, False))
    assert joined.ir("tile") != alone.ir("tile")


def test_a_schedule_that_cannot_be_built_is_not_taken() -> None:
    """A launch keeps the schedule that it has."""

    def refuse(_: Schedule) -> Schedule:
        raise TooLarge("no")

    schedules = [VectorSchedule(cores=n) for n in (2, 4)]
    ways = tuple(Way(Woken(n, KINDS[1]), 5.0 - n) for n in (2, 4))
    front = Front(ways, schedules, schedules[0], refuse)
    front.take(ways[1])
    assert front.kept is schedules[0]
