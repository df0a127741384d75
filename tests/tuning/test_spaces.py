"""Spaces of plans: numbers give schedules that kernels obey, prices are those of kernels, and bounds are below them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forced_kinds import KINDS, TARGETS, largest_kernel, scheduled, struct
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples, sampled

from tilewright.frontends import lower_function
from tilewright.kernels.space import Box, PlanNumber, PlanSpace, parts_of, plans_in
from tilewright.passes.lower.chains.chain_space import ChainSpace
from tilewright.passes.lower.chains.row_space import RowSpace
from tilewright.passes.lower.cube.product_space import ProductSpace
from tilewright.passes.lower.scheduled import ScheduledKernel
from tilewright.passes.lower.spaces import KernelSpace, ListedSpace
from tilewright.passes.lower.vector_space import BoxSpace, VectorSpace
from tilewright.passes.pipeline import PIPELINE, run_stage
from tilewright.tuning.search.exact import exact

MOST_WHOLE = 30_000
"""Plans of a space that is looked through as a whole."""


def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any], type[KernelSpace]]] = {
    "product": (lambda x, w: x @ w, [struct(130, 96), struct(96, 72)], ProductSpace),
    "one row": (lambda x, w: x @ w, [struct(1, 7), struct(7, 5)], ProductSpace),
    "epilogue": (
        lambda x, w, b: jax.nn.relu(x @ w + b),
        [struct(64, 48), struct(48, 80), struct(80)],
        ProductSpace,
    ),
    "batch": (lambda x, w: jnp.einsum("bij,bjk->bik", x, w), [struct(6, 33, 64), struct(6, 64, 50)], ProductSpace),
    "convolution": (convolution, [struct(1, 14, 14, 32), struct(3, 3, 32, 48)], ProductSpace),
    "integers": (
        lambda x, w: jax.lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32),
        [struct(48, 64, dtype="int8"), struct(64, 32, dtype="int8")],
        ProductSpace,
    ),
    "elementwise": (lambda x, y: x * y + 1, [struct(13, 700, dtype="float32")] * 2, VectorSpace),
    "rows": (lambda x: jax.nn.softmax(x, -1), [struct(37, 77, dtype="float32")], VectorSpace),
    "columns": (lambda x: x.sum(0), [struct(37, 77, dtype="float32")], VectorSpace),
    "transpose": (lambda x: x.T * 2, [struct(37, 100)], VectorSpace),
    "one number": (lambda x: x + 1, [struct()], VectorSpace),
    "sort": (lambda x: jnp.sort(x, -1), [struct(9, 33, dtype="float32")], BoxSpace),
    "gather": (lambda x, i: x[i], [struct(100, 80), struct(60, dtype="int32")], VectorSpace),
    "windows": (
        lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        [struct(1, 20, 20, 32)],
        BoxSpace,
    ),
    "sums of places before": (lambda x: jnp.cumsum(x, 0), [struct(40, 60, dtype="float32")], BoxSpace),
    "attention": (
        lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v,
        [struct(2, 128, 64)] * 3,
        ChainSpace,
    ),
    "keys in pieces": (
        lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v,
        [struct(3, 176, 64), struct(3, 700, 64), struct(3, 700, 64)],
        ChainSpace,
    ),
    "chained products": (
        lambda q, k, v: jax.nn.sigmoid(q @ k.swapaxes(-1, -2) / 8) @ v,
        [struct(8, 4096, 64)] * 3,
        ChainSpace,
    ),
    "attention of a row": (
        lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v,
        [struct(4, 1, 64), struct(4, 256, 64), struct(4, 256, 64)],
        RowSpace,
    ),
}


@cache
def kernel_of(name: str, target: str) -> tuple[ScheduledKernel, KernelSpace]:
    if name in KINDS:
        return largest_kernel(scheduled(KINDS[name], target), target)
    fn, args, _ = PROGRAMS[name]
    return made(fn, args, target)


def made(fn: Callable[..., Any], args: Sequence[Any], target: str) -> tuple[ScheduledKernel, KernelSpace]:
    """The largest kernel of a program, and its space."""
    module = lower_function(fn, args).module
    for stage in PIPELINE:
        if stage.name == "graph-schedule":
            break
        if not stage.optional:
            run_stage(stage, module, target)
    return largest_kernel(module, target)


def some(space: KernelSpace, count: int, seed: int) -> np.ndarray:
    return space.space.drawn(count, np.random.default_rng(seed))


CASES = [
    *((name, target) for name in PROGRAMS for target in ("ascend-910b1", "ascend-310", "ascend-950pr")),
    *((name, target) for name in KINDS for target in TARGETS),
]


@sampled(13)
@pytest.mark.parametrize(("name", "target"), CASES)
def test_prices_are_those_of_the_kernel(name: str, target: str) -> None:
    kernel, space = kernel_of(name, target)
    if target == "ascend-910b1":
        assert type(space) is (KINDS[name].space if name in KINDS else PROGRAMS[name][2])
    plans, seen = some(space, 3000, 0), 0
    prices = space.price(plans)
    for i in np.argsort(prices, kind="stable")[:60].tolist():
        schedule = space.schedule(tuple(plans[i]))
        if schedule is not None:
            seen += 1
            assert prices[i] == pytest.approx(kernel.bound(schedule), rel=1e-9)
            kernel.check("k", schedule)
    assert seen
    whole = (s for s in kernel.candidates("k") if s.parts is None)
    best = min(whole, key=kernel.bound)
    numbers = space.numbers(kernel.completed("k", best))
    if numbers is not None:
        assert space.schedule(numbers) == kernel.completed("k", best)
    assert numbers is not None or name not in KINDS


@sampled(13)
@pytest.mark.parametrize(("name", "target"), CASES)
@pytest.mark.parametrize("joined", [False, True])
def test_no_plan_takes_less_than_its_bounds(name: str, target: str, joined: bool) -> None:
    _, space = kernel_of(name, target)
    space.joined = joined
    random = np.random.default_rng(1)
    try:
        plans = some(space, 2000, 1)
        plans = plans[space.valid(plans)][:150]
        for plan, us in zip(plans.tolist(), space.price(plans).tolist(), strict=True):
            if not np.isfinite(us) or space.schedule(tuple(plan)) is None:
                continue
            for _ in range(4):
                assert space.bound(around(space, plan, random)) <= us * (1 + 1e-9)
    finally:
        space.joined = False


def around(space: KernelSpace, plan: Sequence[int], random: np.random.Generator) -> Box:
    """A box that has a plan: of the first choices its own numbers, of others these and some beside them."""
    alone = int(random.integers(0, len(plan)))
    low, high = [*plan], [*plan]
    for i, choice in enumerate(space.space.choices):
        if i >= alone:
            low[i] = int(random.integers(0, plan[i] + 1))
            high[i] = int(random.integers(plan[i], len(choice.values)))
    return tuple(low), tuple(high)


@sampled(8)
@pytest.mark.parametrize(("name", "target"), CASES)
def test_the_search_finds_the_best_of_all(name: str, target: str) -> None:
    _, space = kernel_of(name, target)
    for space.joined in (True, False):
        found = exact(space, partial(fits, space), most=200_000)
        assert found.certified and found.bound == found.microseconds
        if space.space.size <= MOST_WHOLE:
            assert found.microseconds == pytest.approx(least(space), rel=1e-9)
        assert found.evaluations <= space.space.size + 1


SIZES = (1, 5, 16, 24, 48, 60, 96)


@examples(60)
@given(
    m=st.sampled_from(SIZES),
    k=st.sampled_from(SIZES),
    n=st.sampled_from(SIZES),
    kind=st.sampled_from(["product", "epilogue", "elementwise", "rows", "columns", "transpose"]),
    dtype=st.sampled_from(["float16", "float32"]),
    target=st.sampled_from(["ascend-910b1", "ascend-310", "ascend-950pr"]),
    joined=st.booleans(),
)
def test_the_search_finds_what_enumeration_does(
    m: int, k: int, n: int, kind: str, dtype: str, target: str, joined: bool
) -> None:
    fn: Callable[..., Any]
    if kind in ("product", "epilogue"):
        fn = PROGRAMS[kind][0]
        args = [struct(m, k), struct(k, n), struct(n)][: 2 + (kind == "epilogue")]
    else:
        fn = {
            "elementwise": lambda x: x * 2 + 1,
            "rows": lambda x: jax.nn.softmax(x, -1),
            "columns": lambda x: x - x.max(0),
            "transpose": lambda x: x.T + 1,
        }[kind]
        args = [struct(m * 3, n, dtype=dtype)]
    kernel, space = made(fn, args, target)
    space.joined = joined
    first = kernel.completed("k", min(kernel.candidates("k"), key=kernel.bound))
    start = [n for n in (space.numbers(first),) if n is not None]
    found = exact(space, partial(fits, space), start)
    assert found.certified and found.microseconds == pytest.approx(least(space), rel=1e-9)


def test_few_plans_are_looked_at() -> None:
    """Of spaces with a hundred thousand plans and more, less than a hundredth of them."""
    for fn, args in (
        (lambda x, w: x @ w, [struct(512, 384), struct(384, 768)]),
        (lambda x: x * 2 + 1, [struct(32, 256, 2048)]),
    ):
        kernel, space = made(fn, args, "ascend-910b1")
        first = kernel.completed("k", min(kernel.candidates("k"), key=kernel.bound))
        start = [n for n in (space.numbers(first),) if n is not None]
        found = exact(space, partial(fits, space), start)
        assert found.certified and space.space.size > 10_000
        assert found.evaluations < 0.01 * space.space.size


def fits(space: KernelSpace, plan: Sequence[int]) -> bool:
    return space.schedule(plan) is not None


def least(space: KernelSpace) -> float:
    """The least price of a plan that fits, of all plans."""
    best = np.inf
    for plans in space.space.chunks(8192):
        plans = plans[space.valid(plans)]
        prices = space.price(plans)
        for i in np.argsort(prices, kind="stable").tolist():
            if prices[i] >= best:
                break
            if space.schedule(tuple(plans[i])) is not None:
                best = float(prices[i])
                break
    return best


@sampled(6)
@pytest.mark.parametrize(("name", "target"), CASES)
def test_a_plan_of_this_kernel_is_nearest_to_itself(name: str, target: str) -> None:
    _, space = kernel_of(name, target)
    for plan in some(space, 300, 2).tolist():
        schedule = space.schedule(tuple(plan))
        if schedule is not None:
            near = space.near(schedule)
            assert near is not None and space.schedule(near) == schedule


@sampled(6)
@pytest.mark.parametrize(("name", "target"), CASES)
def test_rows_that_are_no_plans_have_no_price(name: str, target: str) -> None:
    _, space = kernel_of(name, target)
    plans = some(space, 500, 3)
    able = space.valid(plans)
    assert not any(space.schedule(tuple(p)) for p in plans[~able].tolist())


def test_plans_of_other_sizes_are_made_to_fit() -> None:
    _, small = kernel_of("product", "ascend-910b1")
    _, space = made(lambda x, w: x @ w, [struct(200, 150), struct(150, 96)], "ascend-910b1")
    fitted = 0
    for numbers in some(small, 200, 4).tolist():
        schedule = small.schedule(tuple(numbers))
        near = None if schedule is None else space.near(schedule)
        fitted += near is not None and space.schedule(near) is not None
    assert fitted


@pytest.mark.parametrize("name", ["elementwise", "attention of a row"])
def test_schedules_that_are_listed(name: str) -> None:
    """A kernel without a space of its own has the schedules that graph-schedule judges."""
    kernel, _ = kernel_of(name, "ascend-910b1")
    space = ListedSpace(kernel, "k")
    (plans,) = space.space.chunks(10_000)
    schedules = [space.schedule(tuple(plan)) for plan in plans.tolist()]
    assert None not in schedules and len({*schedules}) == len(plans)
    assert [space.numbers(s) for s in schedules if s is not None] == [tuple(plan) for plan in plans.tolist()]
    whole = space.price(plans)
    assert whole.tolist() == pytest.approx([kernel.bound(s) for s in schedules if s is not None], rel=1e-9)
    space.joined = True
    assert (space.price(plans) < whole).all()


def test_parts() -> None:
    for extent in (*range(1, 70), 100, 777, 1000, 4096):
        for multiple in (1, 8, 16):
            lengths = parts_of(extent, multiple)
            assert list(lengths) == sorted({*lengths}, reverse=True)
            assert lengths[0] == extent
            assert all(n % multiple == 0 or n == extent for n in lengths)
            counts = [-(-extent // n) for n in lengths]
            assert len({*counts}) == len(counts)
            for n in range(multiple, extent + 1, multiple):
                assert -(-extent // n) in counts
    assert parts_of(0) == (1,) and parts_of(4096, 16, 64)[0] == 64 and parts_of(5, 16, 8) == (5,)


def test_rows_of_a_space() -> None:
    space = PlanSpace((PlanNumber("a", (1, 2, 3)), PlanNumber("b", ("x", "y")), PlanNumber("c", (0, 5), 1)))
    assert space.size == plans_in(space.whole) == 12
    both = space.plans(space.whole)
    chunks = [row for chunk in space.chunks(5) for row in chunk.tolist()]
    assert both.tolist() == chunks and len(chunks) == 12
    assert space.values(both[-1]) == {"a": 3, "b": "y", "c": 5} and space.values([1]) == {"a": 2}
    assert ((space.drawn(100, np.random.default_rng(0)) < [3, 2, 2]).all(axis=0)).all()
    assert PlanSpace(()).size == 1 and PlanSpace(()).plans(PlanSpace(()).whole).shape == (1, 0)


def test_boxes_are_taken_apart() -> None:
    space = PlanSpace((PlanNumber("a", (1, 2, 3)), PlanNumber("b", ("x", "y")), PlanNumber("c", (0, 5), 1)))
    assert space.halves(space.whole) == (((0, 0, 0), (1, 1, 1)), ((2, 0, 0), (2, 1, 1)))
    assert space.halves(((2, 0, 0), (2, 0, 1))) == (((2, 0, 0), (2, 0, 0)), ((2, 0, 1), (2, 0, 1)))
    for parts in (space.halves(space.whole), space.around(space.whole, 0, 1), space.around(space.whole, 0, 2)):
        rows = [row for box in parts for row in space.plans(box).tolist()]
        assert sorted(rows) == space.plans(space.whole).tolist()
    assert space.around(space.whole, 0, 2)[0] == ((2, 0, 0), (2, 1, 1))


def rising(pairs: Iterator[tuple[int, float]]) -> bool:
    return all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(pairs))


def test_a_budget_leaves_a_gap() -> None:
    _, space = kernel_of("product", "ascend-910b1")
    whole = exact(space, partial(fits, space), keep=5)
    part = exact(space, partial(fits, space), [p for _, p in whole.best[-1:]], most=10)
    assert part.plan is not None and not part.certified and 0 < part.gap <= 1
    assert part.bound <= whole.microseconds <= part.microseconds
    assert [us for us, _ in whole.best] == sorted(us for us, _ in whole.best) and len(whole.best) == 5
    assert rising(iter(whole.trace)) and whole.gap == 0
    none = exact(space, lambda p: False, most=1000)
    assert none.plan is None and not none.certified
