"""Prices: plain numbers, no IR. The array form is the scalar form, element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import Machine
from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.npu.types import Pipe
from tilewright.dialects.open_sizes import OpenSize, assuming, choosing
from tilewright.kernels.chain_cost import ChainFacts, ChainPlans
from tilewright.kernels.columns import launching, launching_vectors, missing, moving
from tilewright.kernels.price import LAUNCH, SHARED, Price, SharedTraffic
from tilewright.kernels.product import CubeProblem
from tilewright.kernels.product_cost import (
    CubeCost,
    FusedEpilogue,
    LoadCost,
    Outside,
    ProductPlans,
    ProductRun,
    TileCosts,
    on_cores,
    shared_loops,
)
from tilewright.kernels.vector_cost import VectorWork

SPLIT, FUSED = Machine.load("ascend-910b1"), Machine.load("ascend-310p3")
CYCLES = st.floats(0, 1e7)
PIPES = (Pipe.MTE2, Pipe.MTE1, Pipe.M, Pipe.FIX, Pipe.V, Pipe.MTE3)
TURN = st.dictionaries(st.sampled_from(PIPES[:3]), CYCLES, min_size=1)
LATE = st.dictionaries(st.sampled_from(PIPES[3:]), CYCLES)


@st.composite
def prices(draw: st.DrawFn) -> Price:
    """Prices of one plan; what is late of the last turn is behind it."""
    late = draw(LATE)
    return Price(
        launch=draw(st.floats(0, 50)),
        turn=draw(TURN),
        turns=draw(st.integers(1, 1000)),
        clock_mhz=1800.0,
        late=late,
        before=draw(CYCLES),
        behind=sum(late.values()) + draw(CYCLES),
        overlap=draw(st.booleans()) or bool(late),
        waits=draw(st.sampled_from([0.0, 1e4])),
        shared=SharedTraffic(draw(CYCLES), draw(st.sampled_from([1.0, 512.0]))),
        further=draw(st.sampled_from([0.0, 3.0])),
    )


def same(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=1e-12)


@given(prices())
def test_no_price_is_below_its_roofline(price: Price) -> None:
    assert price.microseconds >= price.least_microseconds * (1 - 1e-12)


@given(prices(), st.sampled_from(PIPES), st.floats(1, 1e6))
def test_more_work_never_costs_less(price: Price, pipe: Pipe, more: float) -> None:
    """More cycles of a pipe, turns, bytes, or of what stands before and behind."""
    grown = [
        replace(price, turns=price.turns + 1),
        replace(price, before=price.before + more),
        replace(price, shared=SharedTraffic(price.shared.bytes + more, price.shared.bytes_per_cycle)),
        replace(price, launch=price.launch + more),
    ]
    if pipe in price.turn:
        grown.append(replace(price, turn={**price.turn, pipe: price.turn[pipe] + more}))
    if pipe in price.late:
        grown.append(replace(price, late={**price.late, pipe: price.late[pipe] + more}))
    for each in grown:
        assert each.microseconds >= price.microseconds * (1 - 1e-12)
    assert grown[1].microseconds > price.microseconds or price.shared.cycles > price.cycles - more


@given(prices())
def test_pipes_side_by_side_take_no_longer_than_one_by_one(price: Price) -> None:
    price = replace(price, late={}, waits=0.0, shared=SharedTraffic())
    beside, behind = (replace(price, overlap=overlap).microseconds for overlap in (True, False))
    assert beside <= behind * (1 + 1e-12)


@given(prices())
def test_what_binds_is_what_takes_longest(price: Price) -> None:
    times = {str(pipe): price.busy(pipe) for pipe in price.pipes}
    times |= {LAUNCH: (price.launch + price.further) * price.clock_mhz, SHARED: price.shared.cycles}
    assert times[str(price.binds)] == max(times.values())


@given(st.lists(prices(), min_size=2, max_size=6))
def test_many_prices_in_one(found: Sequence[Price]) -> None:
    """A price of arrays is those of its elements, and says of each what binds it."""
    alike = [
        replace(p, overlap=True, turn={Pipe.M: sum(p.turn.values())}, late={Pipe.FIX: 2.0}) for p in found
    ]
    shared = SharedTraffic(np.array([p.shared.bytes for p in alike]), 512.0)
    alike = [replace(p, shared=SharedTraffic(p.shared.bytes, 512.0)) for p in alike]
    numbers = {
        f.name: np.array([getattr(p, f.name) for p in alike])
        for f in fields(Price)
        if f.name not in ("turn", "late", "shared", "overlap", "clock_mhz")
    }
    turn = {Pipe.M: np.array([p.turn[Pipe.M] for p in alike])}
    many = Price(**numbers, turn=turn, late={Pipe.FIX: 2.0}, clock_mhz=1800.0, shared=shared)
    assert list(many.microseconds) == [p.microseconds for p in alike]
    assert list(many.least_microseconds) == [p.least_microseconds for p in alike]
    assert list(many.binds) == [p.binds for p in alike]


def test_what_does_not_fit_takes_forever() -> None:
    """An epilogue that has no room has infinite cycles; what that leaves of a number is no price."""
    none = Price(1.0, {Pipe.M: 5.0}, 1, 1000.0, late={Pipe.V: math.inf}, behind=math.inf - math.inf)
    assert none.microseconds == math.inf
    with np.errstate(invalid="ignore"):
        several = replace(none, turns=np.array([1, 2]))
        assert list(several.microseconds) == [math.inf, math.inf]


@pytest.mark.parametrize("machine", [SPLIT, FUSED], ids=["split", "fused"])
def test_numbers_of_machines_for_many(machine: Machine) -> None:
    """Moves and launches for arrays are those for each number."""
    move, numbers = machine.moves["gm", "l1"], np.array([0, 1, 100, 4097, 1 << 20])
    assert list(moving(move, numbers, 3)) == [move.cycles(int(n), 3) for n in numbers]
    step = machine.moves["l1", "l0a"]
    assert list(moving(step, numbers, overlapped=True)) == [
        step.cycles(int(n), overlapped=True) for n in numbers
    ]
    assert list(missing(move, numbers, numbers / 7)) == [move.missed_cycles(n, n / 7) for n in numbers]
    cores = np.arange(1, machine.vector_cores + 1)
    assert list(launching_vectors(machine, cores)) == [
        machine.vector_launch_microseconds(int(n)) for n in cores
    ]
    mixed = cores % 2 == 0
    expected = [machine.launch_microseconds(int(n), bool(m)) for n, m in zip(cores, mixed, strict=True)]
    assert list(launching(machine, cores, mixed)) == expected


# -- products --------------------------------------------------------------------------------------------------

MULTIPLES = st.sampled_from([16, 32, 48, 64, 128, 256])


def loads_of(problem: CubeProblem, box: Sequence[int]) -> list[LoadCost]:
    """Loads of matrices with rows of k and of n side by side."""
    sizes = [math.prod(box[a] for a in axes) for axes in ((*problem.m, *problem.k), (*problem.k, *problem.n))]
    return [LoadCost(20 + n / 200, 2 * n, 2.5 * n, n / 1000) for n in sizes]


def problems(draw: st.DrawFn) -> CubeProblem:
    extents = [draw(st.sampled_from([1, 3, 24])), *(draw(st.integers(1, 5000)) for _ in range(3))]
    epilogue = draw(st.sampled_from([0.0, 0.02]))
    whole = frozenset({2}) if draw(st.booleans()) else frozenset[int]()
    return CubeProblem(
        extents,
        [0],
        [1],
        [2],
        [3],
        2,
        dtype="f16",
        stored=2,
        epilogue=epilogue,
        epilogue_head=60.0,
        whole=whole,
    )


@st.composite
def product_plans(draw: st.DrawFn) -> tuple[Machine, CubeProblem, Outside, list[TileCosts], list[Any], str]:
    """A product, tiles of it, and for each of many plans which tiles it has, its grid, and whether the next tile begins
    while the sums of one leave."""
    machine, problem = draw(st.sampled_from([SPLIT, FUSED])), problems(draw)
    tiles: list[TileCosts] = []
    for _ in range(draw(st.integers(1, 4))):
        step = [1, *(draw(MULTIPLES) for _ in range(3))]
        lhs, rhs = ([*step[:3], step[3] * draw(st.sampled_from([1, 2, 100]))] for _ in range(2))
        fused = FusedEpilogue(900.0, 300.0, 200.0, 1e4, draw(st.integers(1, 5))) if machine.fused else None
        cost = CubeCost.of(problem, step, lhs, rhs, machine, partial(loads_of, problem), fused, 2)
        flags = [[draw(st.integers(0, 1)) for _ in range(3)] for _ in range(2)]
        counts = problem.counts(step)
        tiles.append(
            TileCosts(cost, counts, (flags[0], flags[1]), draw(st.sampled_from([0.0, 5e4, math.inf])))
        )
    plan = st.tuples(
        st.integers(0, len(tiles) - 1), st.tuples(*(st.integers(1, 6) for _ in range(3))), st.booleans()
    )
    sizes = [2.0 * math.prod(problem.extents[a] for a in axes) for axes in ((0, 1, 3), (0, 3, 2))]
    outside = Outside(sizes, draw(st.sampled_from([0.0, 1e6])), bool(problem.whole) and not machine.fused)
    plans = draw(st.lists(plan, min_size=2, max_size=8))
    return machine, problem, outside, tiles, plans, draw(st.sampled_from("mn"))


def run_of(found: Any, numbers: Sequence[int]) -> ProductRun:
    """The plans of these numbers on their cores, as arrays where there are several."""
    machine, problem, outside, tiles, plans, inner = found
    some = [plans[i] for i in numbers]
    which, grid, overlaps = [n for n, _, _ in some], some[0][1], some[0][2]
    if len(some) > 1:
        grid, overlaps = list(np.array([grid for _, grid, _ in some]).T), np.array([o for *_, o in some])
    return on_cores(ProductPlans(tiles, which, grid, inner, overlaps), problem, outside, machine)


@given(product_plans())
def test_many_products_are_each_of_them(found: Any) -> None:
    machine, plans = found[0], found[4]
    with np.errstate(invalid="ignore"):
        many = run_of(found, range(len(plans)))
        price = many.price(machine)
        behind = np.broadcast_to(many.behind_barriers(1, [3, 1], [0.0, 7.5], machine), len(plans))
        times = np.broadcast_to(price.microseconds, len(plans))
        roof = np.broadcast_to(price.least_microseconds, len(plans))
    for i in range(len(plans)):
        one = run_of(found, [i])
        assert one.price(machine).microseconds == times[i]
        assert np.array_equal(one.behind_barriers(1, [3, 1], [0.0, 7.5], machine), behind[i], equal_nan=True)
        if math.isfinite(times[i]):
            assert roof[i] == one.price(machine).least_microseconds
            assert roof[i] <= times[i] * (1 + 1e-12)


@given(product_plans(), st.floats(1, 100))
def test_waiting_at_a_barrier_costs_nothing_more(found: Any, waited: float) -> None:
    """The longer a core waits, the more of a load is there when it goes on."""
    machine = found[0]
    run = run_of(found, [0])
    if math.isfinite(run.price(machine).microseconds):
        short, long = (run.behind_barriers(0, [1], [each], machine) for each in (0.0, waited))
        assert long <= short


@given(
    st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4), st.sets(st.integers(0, 3))
)
def test_loops_that_share_a_load(order: list[int], own: list[int], shared: set[int]) -> None:
    """They are the innermost ones with several tiles, up to the first along which a load is not the same."""
    loops, tiles = 0, 1
    for a in reversed(order):
        if own[a] > 1 and a not in shared:
            break
        loops, tiles = loops + (own[a] > 1), tiles * own[a]
    flags = {a: int(a in shared) for a in order}
    assert shared_loops(order, dict(enumerate(own)), flags) == (loops, tiles)


def test_longer_sums_cost_more() -> None:
    """Of the same tiles and loads."""
    found = []
    for k in (512, 1024, 4096):
        problem = CubeProblem([2048, 2048, k], [], [0], [1], [2], 2, dtype="f16", stored=2)
        box = [128, 256, 128]
        cost = CubeCost.of(problem, [128, 256, 64], box, box, SPLIT, partial(loads_of, problem))
        plans = ProductPlans([TileCosts(cost, problem.counts(box), ([0, 1], [1, 0]))], [0], [6, 4], "m", True)
        outside = Outside([2.0 * 2048 * k] * 2, 0.0)
        found.append(on_cores(plans, problem, outside, SPLIT).price(SPLIT).microseconds)
    assert found == sorted(found) and found[0] < found[1] < found[2]


# -- chained products ------------------------------------------------------------------------------------------

CHAINED = st.fixed_dictionaries(
    {
        "rows": MULTIPLES,
        "parts": st.sampled_from([1, 2, 4]),
        "scored": MULTIPLES,
        "columns": st.sampled_from([32, 64, 128]),
        "buffered": st.integers(1, 2),
        "features": st.sampled_from([16, 32, 64]),
        "summed": st.sampled_from([16, 32]),
        "places": st.integers(1, 2),
        "l0c": st.integers(1, 2),
        "pieces": st.sampled_from([1, 2, 6]),
        "masked": st.integers(0, 1),
        "grid": st.tuples(st.integers(1, 6), st.integers(1, 4)),
    }
)


def chain(softmax: bool) -> ChainFacts:
    rate = SPLIT.cube["f16"]
    return ChainFacts(SPLIT, [12, 2048], 1, [(64, 2)], [4], 2, 128, [rate, rate], 2, 5, softmax)


def chain_plans(choices: Sequence[dict[str, Any]]) -> ChainPlans:
    """Plans of these choices, as arrays where there are several."""
    rows = [{**c, "keys": c["scored"] * c["parts"]} for c in choices]
    names = [f.name for f in fields(ChainPlans) if f.name != "grid"]
    if len(rows) == 1:
        return ChainPlans(**{name: rows[0][name] for name in names}, grid=rows[0]["grid"])
    grid = list(np.array([row["grid"] for row in rows]).T)
    return ChainPlans(**{name: np.array([row[name] for row in rows]) for name in names}, grid=grid)


@given(st.lists(CHAINED, min_size=2, max_size=8), st.booleans())
def test_many_chains_are_each_of_them(choices: list[dict[str, Any]], softmax: bool) -> None:
    facts = chain(softmax)
    price = facts.price(chain_plans(choices))
    for i, each in enumerate(choices):
        one = facts.price(chain_plans([each]))
        assert same(one.microseconds, price.microseconds[i])
        assert one.binds == price.binds[i]
        assert one.least_microseconds <= one.microseconds * (1 + 1e-12)


@given(CHAINED)
def test_more_steps_between_products_cost_no_less(choice: dict[str, Any]) -> None:
    facts, plan = chain(True), chain_plans([choice])
    assert replace(facts, steps=9).price(plan).microseconds >= facts.price(plan).microseconds


# -- vector kernels --------------------------------------------------------------------------------------------


@given(CYCLES, CYCLES, st.integers(1, 300), st.integers(1, 48))
def test_work_of_vector_cores(loaded: float, computed: float, tiles: int, cores: int) -> None:
    """More cores never lengthen the work itself, and pipes side by side take no longer."""
    work = VectorWork({Pipe.MTE2: loaded, Pipe.V: computed})
    price = work.price([tiles], [cores], SPLIT)
    share = -(-tiles // cores) / tiles
    expected = SPLIT.vector_launch_microseconds(cores) + SPLIT.cycles_to_microseconds(
        (loaded + computed) * share
    )
    assert same(price.microseconds, expected)
    assert work.price([tiles], [cores], SPLIT, overlap=True).microseconds <= price.microseconds * (1 + 1e-12)
    assert price.least_microseconds <= price.microseconds * (1 + 1e-12)


@given(st.integers(1, 5000), st.integers(1, 48))
def test_open_sizes_are_priced_at_the_example(extent: int, cores: int) -> None:
    """A price of an open size is that of the number it has in the example."""
    work = VectorWork({Pipe.MTE2: 1e5, Pipe.V: 2e4})
    known = work.price([-(-extent // 8)], [cores], SPLIT).microseconds
    with assuming({"n": extent}), choosing():
        n = OpenSize.of(Expr.of(Symbol("n", 1, 5000)))
        assert work.price([-(-n // 8)], [cores], SPLIT).microseconds == known
