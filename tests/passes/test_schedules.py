"""Tile sizes and grids: plain numbers, no IR."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import Machine
from tilewright.dialects.graph import CubeSchedule
from tilewright.dialects.graph.schedules import Schedule
from tilewright.dialects.npu.types import Pipe
from tilewright.kernels.builder import divide_grid
from tilewright.kernels.product import CubeProblem
from tilewright.kernels.vector_cost import VectorWork
from tilewright.passes import oracle
from tilewright.passes.lower.cube.cube_refusal import refusal
from tilewright.passes.lower.cube.cube_schedule import CubePlan, cube_schedules
from tilewright.passes.lower.schedule import choose_tile, merge_axes
from tilewright.passes.lower.scheduled import ScheduledKernel

EXTENTS = st.sampled_from([1, 2, 3, 5, 7, 13, 16, 31, 64, 97, 128, 257, 3000, 50257])
MACHINES = st.sampled_from(["ascend-910b1", "ascend-310"]).map(Machine.load)


@given(st.lists(EXTENTS, max_size=4), st.sampled_from([1, 2, 20, 24, 48]))
def test_divide_grid(counts: list[int], cores: int) -> None:
    """Every tile has a core, no core is idle, and there are enough cores."""
    split = divide_grid(counts, cores)
    assert math.prod(used for used, _ in split) <= cores
    for n, (used, each) in zip(counts, split, strict=True):
        assert used * each >= n > (used - 1) * each


@given(st.lists(EXTENTS, min_size=1, max_size=4), st.data(), st.sampled_from([64, 1000, 49152]))
def test_choose_tile(domain: list[int], draw: st.DataObject, capacity: int) -> None:
    """A tile fits, has its rows whole and no axis too long; there is none only where rows overflow."""
    rows = frozenset(draw.draw(st.sets(st.integers(0, len(domain) - 1))))
    tile = choose_tile(domain, rows, lambda t: math.prod(t) <= capacity, 4, 48)
    if tile is None:
        assert math.prod(domain[a] for a in rows) > capacity
        return
    assert math.prod(tile) <= capacity
    assert all(tile[a] == domain[a] for a in rows)
    assert all(1 <= t <= max(n, 8) for t, n in zip(tile, domain, strict=True))


@given(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=5), st.data())
def test_merge_axes(domain: list[int], draw: st.DataObject) -> None:
    """Merged axes are neighbours, and one step through the group is one stride of every access."""
    axes = range(len(domain))
    strides = []
    for _ in range(draw.draw(st.integers(1, 2))):
        order = draw.draw(st.sampled_from([list(axes), list(reversed(axes))]))
        steps, step = {}, 1
        for a in reversed(order):
            steps[a], step = step, step * domain[a]
        strides.append(steps)
    presence = [frozenset(draw.draw(st.sets(st.sampled_from(axes))) if domain else ()) for _ in range(2)]
    fixed = draw.draw(st.sets(st.sampled_from(axes), max_size=1)) if domain else set()
    groups = merge_axes(domain, strides, presence, fixed)
    assert [a for g in groups for a in g] == [a for a in axes if domain[a] != 1]
    for group in groups:
        assert len(group) == 1 or not fixed & set(group)
        assert all(len({a in p for a in group}) == 1 for p in presence)
        for steps in strides:
            flat = {sum(i * steps[a] for i, a in zip(at, group, strict=True)) for at in _box(domain, group)}
            assert flat == {i * steps[group[-1]] for i in range(len(flat))}


def _box(domain: list[int], group: list[int]) -> list[tuple[int, ...]]:
    points: list[tuple[int, ...]] = [()]
    for a in group:
        points = [(*p, i) for p in points for i in range(domain[a])]
    return points


@given(EXTENTS, EXTENTS, EXTENTS, st.sampled_from([1, 3, 24]), st.sampled_from([1, 2, 4]), MACHINES)
def test_cube_schedules(m: int, n: int, k: int, batch: int, itemsize: int, machine: Machine) -> None:
    """In each a mma step fits l0a, l0b and l0c, a load fits l1 twice, and the load is whole steps."""
    extents = [batch, m, n, k]

    def l1_bytes(lhs: Sequence[int], rhs: Sequence[int]) -> tuple[int, int]:
        return lhs[1] * lhs[3] * itemsize, rhs[2] * rhs[3] * itemsize

    dtype = {1: "i8", 2: "f16", 4: "f32"}[itemsize]
    problem = CubeProblem(extents, [0], [1], [2], [3], itemsize, dtype=dtype)
    assume(dtype in machine.cube)
    plans = [CubePlan.of(s) for s in cube_schedules(problem, (), machine, l1_bytes, CubeSchedule())]
    assert plans and len({(p.l0, p.lhs, p.rhs, p.grid) for p in plans}) == len(plans)
    for plan in plans:
        assert refusal(plan, problem, machine, l1_bytes, CubeSchedule()) is None
        assert 1 <= math.prod(plan.grid) <= machine.cube_cores
        assert all(n >= 1 for n in plan.l0)
        assert all(plan.l0[a] <= extents[a] or plan.l0[a] <= 16 for a in range(4))
        assert plan.l1[3] % plan.l0[3] == 0
        assert sum(l1_bytes(plan.lhs, plan.rhs)) * plan.slots["l1"] <= machine.spaces["l1"].bytes
        step = [-(-plan.l0[a] // 16) * 16 for a in (1, 2, 3)]
        assert step[0] * step[1] * 4 * plan.slots["l0c"] <= machine.spaces["l0c"].bytes
        assert step[0] * step[2] * itemsize * plan.slots["l0a"] <= machine.spaces["l0a"].bytes
        assert step[2] * step[1] * itemsize * plan.slots["l0b"] <= machine.spaces["l0b"].bytes


def test_no_cube_schedule_without_room() -> None:
    """No schedule where not even single rows, columns and window positions fit l1."""
    machine = Machine.load("ascend-910b1")
    spaces = machine.spaces | {"l1": dataclasses.replace(machine.spaces["l1"], bytes=64)}
    problem = CubeProblem([64, 64, 3, 64], [], [0], [1], [2, 3], 4, windows=frozenset({2}))

    def l1_bytes(lhs: Sequence[int], rhs: Sequence[int]) -> tuple[int, int]:
        return lhs[0] * lhs[2] * lhs[3] * 4, rhs[1] * rhs[2] * rhs[3] * 4

    tight = dataclasses.replace(machine, spaces=spaces)
    assert not list(cube_schedules(problem, (), tight, l1_bytes, CubeSchedule()))


@given(st.floats(0, 1e8), st.sampled_from(Machine.names()).map(Machine.load))
def test_worth_waking(cycles: float, machine: Machine) -> None:
    """No other number of cores ends sooner."""
    work = machine.cycles_to_microseconds(cycles)
    cores = VectorWork({Pipe.V: cycles}).worth_waking(machine)
    least = machine.vector_launch_microseconds(cores) + work / cores
    for n in range(1, machine.vector_cores + 1):
        assert least <= machine.vector_launch_microseconds(n) + work / n


@pytest.mark.parametrize(
    ("m", "k", "n", "dtype"),
    [
        (128, 768, 3072, "float32"),
        (1, 1024, 1024, "float16"),
        (1024, 1024, 1024, "float16"),
        (197, 640, 72, "float32"),
    ],
)
def test_choice_is_near_the_best(m: int, k: int, n: int, dtype: str) -> None:
    """The simulator finds no pinned tile much faster than the one that was chosen in closed form."""
    shapes = [jax.ShapeDtypeStruct(s, dtype) for s in [(m, k), (k, n)]]

    def us(schedule: tw.Schedule | None) -> float:
        options = tw.Options(schedule=schedule) if schedule else tw.Options()
        return tw.compile(jnp.matmul, *shapes, options=options).report().microseconds

    pins = [
        tw.Schedule(base_m=min(a, -(-m // 16) * 16), base_n=min(b, -(-n // 16) * 16))
        for a, b in itertools.product((64, 128, 256), repeat=2)
        if a * b <= 128 * 256
    ]
    assert us(None) <= 1.1 * min(us(pin) for pin in pins)


def test_gathers_do_not_go_one_by_one() -> None:
    """A gather of single elements of a table that does not fit on chip is worth several cores; positions of a shape
    with extents of 1 are those of a row. Of a table that fits, elements are picked there."""

    def kernel(fn: Any, x: tuple[int, ...], i: tuple[int, ...]) -> Any:
        args = (jax.ShapeDtypeStruct(x, jnp.float32), jax.ShapeDtypeStruct(i, jnp.int32))
        return next(k for k in tw.compile(fn, *args).report().kernels if "gather" in k.name)

    picked = kernel(lambda x, i: jnp.take(x, i, mode="clip"), (8192,), (1024,))
    flat = kernel(lambda x, i: jnp.take(x, i, mode="clip"), (1 << 22,), (1024,))
    rows = kernel(lambda x, i: jnp.take_along_axis(x, i, 1, mode="clip"), (1024, 8), (1024, 1))
    assert flat.cores > 4
    assert picked.microseconds < flat.microseconds
    assert rows.microseconds < 1.3 * flat.microseconds


class Together:
    """Judges schedules together, and holds that against the price of each. kernels: the classes of what it judged;
    most: schedules of one kernel."""

    def __init__(self) -> None:
        self.kernels: set[str] = set()
        self.most = 0

    def microseconds(self, kernel: ScheduledKernel, schedule: Schedule) -> float:
        return kernel.bound(schedule)

    def each(self, kernel: ScheduledKernel, schedules: Sequence[Schedule]) -> Sequence[float]:
        found, apart = kernel.price_many(schedules), [kernel.price(s) for s in schedules]
        np.testing.assert_allclose(found, [price.microseconds for price in apart], rtol=1e-12)
        for price in apart:
            if math.isfinite(price.microseconds):
                assert price.least_microseconds <= price.microseconds * (1 + 1e-12), type(kernel).__name__
        self.kernels.add(type(kernel).__name__)
        self.most = max(self.most, len(schedules))
        return list(found)


def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, axis=-1) @ v


def normed_product(x: jax.Array, w: jax.Array) -> jax.Array:
    y = x @ w
    return (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-3)


PRICED = {
    "ContractKernel": (lambda x, w: jax.nn.relu(x @ w) + 1, [(300, 520), (520, 640)]),
    "AttentionKernel": (attend, [(2, 512, 64)] * 3),
    "RowAttentionKernel": (attend, [(2, 1, 64), (2, 1024, 64), (2, 1024, 64)]),
    "BackToBackKernel": (lambda x, w, v: jax.nn.relu(x @ w.T) @ v, [(512, 64), (1024, 64), (1024, 64)]),
    "VectorKernel": (lambda x: jax.nn.softmax(x, axis=-1), [(700, 900)]),
    "VectorProductKernel": (lambda x, w: x @ w, [(1, 4096), (4096, 1024)]),
    "CumulateKernel": (lambda x: jnp.cumsum(x, axis=1), [(400, 300)]),
}
"""Programs of which one kernel is of a class."""


@pytest.mark.parametrize("name", PRICED)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310p3"])
def test_schedules_are_priced_together_as_one_by_one(name: str, target: str) -> None:
    """And no price is below its roofline."""
    fn, shapes = PRICED[name]
    judge = Together()
    oracle.register("together", judge)
    try:
        args = [jax.ShapeDtypeStruct(shape, "float16") for shape in shapes]
        tw.compile(fn, *args, target=target, options=tw.Options(oracle="together"))
    finally:
        oracle.unregister("together")
    assert judge.kernels
    if target == "ascend-910b1":
        assert name in judge.kernels
        assert judge.most > 1


def test_rows_behind_a_product_are_priced_together() -> None:
    """Their epilogue waits for all columns of a block of rows, and may have no room."""
    judge = Together()
    oracle.register("together", judge)
    try:
        args = [jax.ShapeDtypeStruct(shape, "float16") for shape in ((512, 256), (256, 768))]
        tw.compile(normed_product, *args, options=tw.Options(oracle="together"))
    finally:
        oracle.unregister("together")
    assert "ContractKernel" in judge.kernels and judge.most > 8
