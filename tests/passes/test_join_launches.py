"""npu-join-launches: the groups cost least, values stay, and what happens between launches parts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.api.sizes.templates import Version
from tilewright.dialects.npu.occupancy import Occupancy
from tilewright.dialects.npu.structure import LaunchOp, ToHostOp
from tilewright.machine import Machine
from tilewright.passes.launch_groups import PER_MICROSECOND, LaunchPoint, Neighbour
from tilewright.passes.npu.check import check
from tilewright.passes.npu.join_launches import groups

MACHINES = {name: Machine.load(name) for name in ("ascend-910b1", "ascend-310", "ascend-950pr")}
KINDS = [frozenset(k) for k in (("cube",), ("vector",), ("cube", "vector"))]


def alone(occupancy: Occupancy, first: bool = False) -> Neighbour:
    return Neighbour((LaunchPoint(occupancy),), first)


def joins(launches: Sequence[Neighbour], machine: Machine) -> list[bool]:
    return [member.joined for member in groups(launches, machine)]


def cost(launches: Sequence[Neighbour], joined: Sequence[bool], machine: Machine) -> tuple[int, int] | None:
    """Picoseconds of launches and barriers, and how many are joined; None for what may not be joined."""
    if joined[0] or any(a and launch.first for a, launch in zip(joined, launches, strict=True)):
        return None
    starts = [i for i, a in enumerate(joined) if not a]
    total = 0
    for start, end in pairwise([*starts, len(launches)]):
        occupancy = reduce(or_, (launch.points[0].occupancy for launch in launches[start:end]))
        total += round(occupancy.launch_microseconds(machine) * PER_MICROSECOND)
        total += (end - start - 1) * round(occupancy.barrier_microseconds(machine) * PER_MICROSECOND)
    return total, sum(joined)


@examples(200)
@given(
    st.sampled_from(sorted(MACHINES)),
    st.lists(
        st.builds(
            alone,
            st.builds(Occupancy, st.integers(1, 24), st.sampled_from(KINDS)),
            st.sampled_from([False, False, False, True]),
        ),
        min_size=1,
        max_size=9,
    ),
)
def test_no_partition_costs_less(name: str, launches: list[Neighbour]) -> None:
    """Nor are there fewer joins for the same."""
    machine = MACHINES[name]
    found = cost(launches, joins(launches, machine), machine)
    ways = (cost(launches, way, machine) for way in product([False, True], repeat=len(launches)))
    assert found == min(way for way in ways if way is not None)


def test_a_launch_is_preferred_to_a_barrier_that_costs_as_much() -> None:
    machine = replace(MACHINES["ascend-910b1"], barrier_share=1.0)
    alike = [alone(Occupancy(24, KINDS[1]))] * 5
    assert joins(alike, machine) == [False] * 5


def test_a_program_may_be_one_group() -> None:
    alike = [alone(Occupancy(24, KINDS[1]))] * 1000
    assert joins(alike, MACHINES["ascend-910b1"]) == [False] + [True] * 999


# -- programs ------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).standard_normal((640, 640)).astype(np.float32) / 16


def chain(x: Any) -> Any:
    """Launches on many cores that only a product parts."""
    for _ in range(3):
        x = jnp.tanh(x @ x) / jnp.abs(x).sum(-1, keepdims=True)
    return x


def chain_of_rows(x: Any) -> Any:
    for _ in range(3):
        x = jnp.tanh(x @ jnp.ones((640, 640))) / jnp.abs(x).sum(-1, keepdims=True)
    return x


def with_host(x: Any) -> Any:
    y = chain(x)
    return chain(y * jnp.linalg.qr(y[:4, :4])[1][0, 0])


def with_loop(x: Any) -> Any:
    return chain(jax.lax.fori_loop(0, 3, lambda _, a: chain(a), x))


def with_update(x: Any, i: Any) -> Any:
    """A number of the host says where rows are written."""
    y = chain(x)
    return chain(jax.lax.dynamic_update_slice(y, y[:8] * 2, (i, 0)))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (chain, (X,)),
    "host": (with_host, (X,)),
    "loop": (with_loop, (X,)),
    "update": (with_update, (X, 16)),
}


def launches_of(module: ModuleOp) -> list[LaunchOp]:
    return [op for op in module.walk() if isinstance(op, LaunchOp)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_become_faster_and_stay_safe(name: str) -> None:
    fn, args = PROGRAMS[name]
    joined = tw.compile(fn, *args)
    alone = tw.compile(fn, *args, options=tw.Options(without={"join"}))
    assert any(op.joined is not None for op in launches_of(joined.module()))
    assert all(op.joined is None for op in launches_of(alone.module()))
    assert not check(joined.module(), joined.machine)
    counts, before = joined.report().counts, alone.report().counts
    assert counts.launches + counts.joined == before.launches
    assert joined.report().microseconds < alone.report().microseconds
    assert len(launches_of(joined.module())) == len(launches_of(alone.module()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_happens_between_launches_parts_them(name: str) -> None:
    """Each group is a row of launches on one stream in one block, with tensors and views alone between them. Numbers of
    the device are arguments of its first one, too."""
    fn, args = PROGRAMS[name]
    for op in launches_of(tw.compile(fn, *args).module()):
        if op.joined is None:
            continue
        read_back = {v for v in op.at_issue() if isinstance(v.owner, ToHostOp)}
        assert read_back <= {v for stage in op.group()[: op.group().index(op)] for v in stage.at_issue()}
        before = op.prev_op
        while before is not None and before.name in ("npu.gm_alloc", "npu.gm_constant", "npu.view"):
            before = before.prev_op
        assert isinstance(before, LaunchOp)
        assert before.queue == op.queue == "compute"


@sampled(6)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("model", ["gpt2:tiny", "chain", "host"])
def test_values_are_the_same(model: str, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs that differ in nothing else: with the option off, kernels are cut for launches of their own."""
    fn, args = PROGRAMS[model] if model in PROGRAMS else load(model)
    options, ours = tw.Options(memory=memory), tw.Options.stages
    with_ = tw.compile(fn, *args, options=options)
    assert with_.report().counts.joined > 0
    apart = [s for s in ours(options) if s.name != "npu-join-launches"]
    monkeypatch.setattr(tw.Options, "stages", lambda _: apart)
    without = tw.compile(fn, *args, options=options)
    assert without.report().counts.joined == 0
    found, expected = (jax.tree.leaves(p(*args)) for p in (with_, without))
    for a, b in zip(found, expected, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_range_of_sizes_has_the_groups_of_its_example() -> None:
    """Which groups cost least is a choice: nothing more is assumed of the sizes."""
    b, *_ = jax.export.symbolic_shape("b")
    templates = []
    for join in (True, False):
        program = tw.compile(
            chain_of_rows, jax.ShapeDtypeStruct((b, 640), "float32"), options=tw.Options(without=() if join else "join")
        )
        assert isinstance(program, tw.DynamicProgram)
        for rows in (700, 640):
            assert (program.at(b=rows).report().counts.joined > 0) is join
        (version,) = program.ranges.values()
        assert isinstance(version, Version)
        templates.append(version.template)
    joined, alone = templates
    assert any(op.joined is not None for op in launches_of(joined.module))
    assert joined.constraints == alone.constraints


def test_the_text_of_a_joined_program_compiles_to_itself() -> None:
    joined = tw.compile(chain, X)
    again = tw.compile(joined.ir())
    assert again.report().counts == joined.report().counts
    alone = tw.compile(chain, X, options=tw.Options(without={"join"}))
    assert tw.compile(alone.ir(), options=tw.Options(without={"join"})).report().counts.joined == 0
