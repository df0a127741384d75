"""Launch groups: no choice of points and joins costs less; graph-schedule cuts kernels for the groups they will be
in."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, product
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loading import load
from tiering import examples, sampled
from xdsl.dialects.builtin import StringAttr, TensorType, f32
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

import tilewright as tw
from tilewright.backends.simulator import simulate
from tilewright.dialects.base import ints
from tilewright.dialects.graph import FusionOp, ReshapeOp, VectorSchedule
from tilewright.dialects.graph.schedules import Schedule
from tilewright.dialects.npu.occupancy import Occupancy
from tilewright.dialects.npu.structure import LaunchOp
from tilewright.machine import Machine
from tilewright.passes.choose.choose import GraphSchedulePass
from tilewright.passes.choose.pareto import ParetoFront, pareto_points
from tilewright.passes.errors import TooLarge
from tilewright.passes.launch_groups import PARTS, PER_MICROSECOND, Groups, LaunchPoint, Neighbour
from tilewright.passes.npu.check import check
from tilewright.passes.order.independent_order import order_independent
from tilewright.passes.order.launch_order import bytes_of

MACHINES = {name: Machine.load(name) for name in ("ascend-910b1", "ascend-310", "ascend-950pr")}
KINDS = [frozenset(k) for k in (("cube",), ("vector",), ("cube", "vector"))]


def points_on(machine: Machine) -> st.SearchStrategy[tuple[LaunchPoint, ...]]:
    """One to three points of a launch, none with more cores than the chip has."""
    occupancies = st.builds(Occupancy, st.integers(1, machine.cube_cores), st.sampled_from(KINDS))
    point = st.builds(LaunchPoint, occupancies, st.integers(0, 12).map(float))
    return st.lists(point, min_size=1, max_size=3).map(tuple)


def neighbours_on(machine: Machine) -> st.SearchStrategy[list[Neighbour]]:
    """One to five launches of a chip."""
    neighbour = st.builds(Neighbour, points_on(machine), st.sampled_from([False, False, True]), st.booleans())
    return st.lists(neighbour, min_size=1, max_size=5)


def together(points: Sequence[LaunchPoint], cores: int) -> float:
    """Microseconds of independent launches on so many cores: one after the other, or some at a time side by side."""

    def on_parts(parts: int) -> float:
        if any(point.occupancy.cores > cores // parts for point in points):
            return math.inf
        return sum(max(point.microseconds for point in points[i : i + parts]) for i in range(0, len(points), parts))

    return min(on_parts(int(parts)) for parts in PARTS)


def cost(points: Sequence[LaunchPoint], joined: Sequence[bool], free: Sequence[bool], machine: Machine) -> float:
    """Microseconds of launches, each run at one point, in groups that occupy what is best for them; those that are free
    wait for no barrier."""
    starts = [i for i, a in enumerate(joined) if not a]
    total = 0.0
    for start, end in pairwise([*starts, len(points)]):
        occupancy = reduce(or_, (point.occupancy for point in points[start:end]))
        sets = [start, *(i for i in range(start + 1, end) if not free[i]), end]
        each: list[float] = []
        for cores in range(occupancy.cores, max(occupancy.cores, machine.cube_cores) + 1):
            group = Occupancy(cores, occupancy.kinds)
            us = group.launch_microseconds(machine) + (len(sets) - 2) * group.barrier_microseconds(machine)
            each.append(us + sum(together(points[a:b], cores) for a, b in pairwise(sets)))
        total += min(each)
    return total


@examples(150)
@given(st.sampled_from(sorted(MACHINES)).flatmap(lambda n: st.tuples(st.just(n), neighbours_on(MACHINES[n]))))
def test_no_points_and_joins_cost_less(case: tuple[str, list[Neighbour]]) -> None:
    """And the groups that are found cost what is said: each launch is run at its best point within its part of its
    group."""
    name, launches = case
    machine = MACHINES[name]
    least, members = Groups(machine, launches).least()
    partitions = [
        joined
        for joined in product([False, True], repeat=len(launches))
        if not joined[0] and not any(a and n.first for a, n in zip(joined, launches, strict=True))
    ]
    choices = list(product(*(n.points for n in launches)))
    free = [n.free for n in launches]
    best = min(cost(points, joined, free, machine) for points in choices for joined in partitions)
    assert least == pytest.approx(best, abs=1e-5)
    found = [
        min(
            (point for point in n.points if point.occupancy | m.occupancy == m.occupancy),
            key=lambda point: (point.microseconds, point.occupancy.cores),
        )
        for n, m in zip(launches, members, strict=True)
    ]
    joined = [m.joined for m in members]
    assert joined in map(list, partitions)
    assert cost(found, joined, free, machine) <= best + len(launches) / PER_MICROSECOND


@examples(100)
@given(points_on(MACHINES["ascend-910b1"]))
def test_points_worth_having(points: tuple[LaunchPoint, ...]) -> None:
    """What is left out has one that occupies no more and works no longer; what is kept has none."""
    schedules = [VectorSchedule(cores=i + 1) for i in range(len(points))]
    kept, theirs = pareto_points(points, schedules)
    assert [points[schedules.index(s)] for s in theirs] == list(kept)

    def beats(a: LaunchPoint, b: LaunchPoint) -> bool:
        return a.occupancy | b.occupancy == b.occupancy and a.microseconds <= b.microseconds

    assert all(any(beats(a, b) for a in kept) for b in points)
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
        lambda options: [
            replace(s, choices=replace(s.choices, without=("join",))) if s.name == GraphSchedulePass.name else s
            for s in ours(options)
        ],
    )
    assert grouped < tw.compile(fn, *args).report().microseconds


def test_without_joins_kernels_are_cut_for_themselves() -> None:
    joined, alone = (tw.compile(chain, *ARGS, options=tw.Options(without=out)) for out in ((), "join"))
    assert joined.ir("tile") != alone.ir("tile")


def test_a_schedule_that_cannot_be_built_is_not_taken() -> None:
    """A launch keeps the schedule that it has."""

    def refuse(_: Schedule) -> Schedule:
        raise TooLarge("no")

    schedules = [VectorSchedule(cores=n) for n in (2, 4)]
    points = tuple(LaunchPoint(Occupancy(n, KINDS[1]), 5.0 - n) for n in (2, 4))
    front = ParetoFront(points, schedules, schedules[0], refuse)
    front.take(1)
    assert front.kept is schedules[0]


# -- launches that need nothing of each other ------------------------------------------------------------------


def heads(x: jax.Array, w: jax.Array) -> jax.Array:
    """Products of one input, each with work of its own behind it; and what needs all of them."""
    parts = [jnp.tanh(x @ w[i]) @ w[i] for i in range(3)]
    return jnp.stack(parts).sum(0) @ w[0]


HEADS = (ARGS[0][:256], np.stack([ARGS[1]] * 3))


def launches(program: tw.Program) -> list[LaunchOp]:
    return [op for op in program.module("npu").walk() if isinstance(op, LaunchOp)]


@sampled(2)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_independent_launches_wait_for_no_barrier(memory: Any) -> None:
    """They are side by side, in memory of their own, and compute what JAX does."""
    program = tw.compile(heads, *HEADS, options=tw.Options(memory=memory))
    found = launches(program)
    assert sum(op.nowait is not None for op in found) >= 4
    assert check(program.module("npu"), MACHINES["ascend-910b1"]) == []
    want = np.asarray(heads(*HEADS), np.float32)
    np.testing.assert_allclose(np.asarray(program(*HEADS), np.float32), want, atol=2e-2 * np.abs(want).max())


def test_they_take_less_time() -> None:
    program = tw.compile(heads, *HEADS)
    module = program.module("npu").clone()
    for op in module.walk():
        if isinstance(op, LaunchOp):
            op.properties.pop("nowait", None)
    machine = MACHINES["ascend-910b1"]
    assert simulate(program.module("npu"), machine).microseconds < simulate(module, machine).microseconds


def test_the_program_needs_no_more_memory() -> None:
    """Than with launches of their own, and nothing to be apart for."""
    joined, alone = (tw.compile(heads, *HEADS, options=tw.Options(without=out)) for out in ((), "join"))
    assert joined.report().memory.arena_bytes <= alone.report().memory.arena_bytes * 1.01


def graph_of(needs: Sequence[Sequence[int]], widths: Sequence[int]) -> Block:
    """A block of fusions of rows of so many elements, each of which uses the results of some before it."""
    block = Block(arg_types=[TensorType(f32, [8])])
    made: list[SSAValue] = []
    for number, (each, width) in enumerate(zip(needs, widths, strict=True)):
        inputs = [made[i] for i in each] or [block.args[0]]
        if number % 3 == 2:  # seen through a view
            view = ReshapeOp.create(operands=inputs[:1], result_types=[inputs[0].type])
            block.add_op(view)
            inputs[0] = view.result
        body = Block(arg_types=[v.type for v in inputs])
        op = FusionOp.create(
            operands=inputs,
            result_types=[TensorType(f32, [width])],
            properties={"kind": StringAttr("vector"), "domain": ints([width])},
            regions=[Region(body)],
        )
        block.add_op(op)
        made.append(op.results[0])
    shown = ReshapeOp.create(operands=made[:1], result_types=[made[0].type])
    block.insert_op_after(shown, made[0].owner)
    block.add_op(ReturnOp(shown.result, *made[-1:]))
    return block


def needed(order: Sequence[Operation]) -> int:
    """The most bytes that fusions have made, and what follows needs, in this order."""
    at = {op: i for i, op in enumerate(order)}

    def last(value: SSAValue) -> int:
        users = [u.operation for u in value.uses]
        seen = [last(r) for u in users if isinstance(u, ReshapeOp) for r in u.results]
        return max([at[value.owner], *(at[u] for u in users if not isinstance(u, ReshapeOp)), *seen])

    lives = [(at[op], last(r), bytes_of(r.type)) for op in order if isinstance(op, FusionOp) for r in op.results]
    return max(sum(n for first, last, n in lives if first <= i <= last) for i in range(len(order)))

@examples(150)
@given(
    st.lists(st.lists(st.integers(0, 10**6), max_size=3), min_size=1, max_size=12).map(
        lambda rows: [sorted({n % i for n in row}) if i else [] for i, row in enumerate(rows)]
    ),
    st.data(),
)
def test_orders_keep_dependences_and_the_peak(needs: list[list[int]], data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.sampled_from([8, 64, 1024]), min_size=len(needs), max_size=len(needs)))
    block = graph_of(needs, widths)
    before = list(block.ops)
    peak = needed(before)
    few = data.draw(st.sampled_from([0, 8192]))
    order_independent(block, few)
    after = list(block.ops)
    assert set(after) == set(before) and after[-1] is before[-1]
    place = {op: i for i, op in enumerate(after)}
    assert all(place[v.owner] < place[op] for op in after for v in op.operands if isinstance(v.owner, Operation))
    assert needed(after) <= max(peak, few)


def test_products_in_parts_stand_before_what_adds_them_up() -> None:
    """Three products of a row: no barrier parts them, nor the sums of their parts."""

    def fn(x: jax.Array, *ws: jax.Array) -> list[jax.Array]:
        return [x @ w for w in ws]

    args = [jax.ShapeDtypeStruct(shape, "float16") for shape in [(1, 4096), *[(4096, 4096)] * 3]]
    launched = re.findall(r"tile.launch @(\w+?)_\d", tw.compile(fn, *args).ir("tile"))
    assert launched == ["contract"] * 3 + ["contract_part_reduce"] * 3
