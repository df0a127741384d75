"""Launches side by side: a core runs its own in order, bandwidth is shared and not lost, and programs end sooner."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples, sampled

import tilewright as tw
from tilewright.backends.simulator import simulate
from tilewright.backends.simulator.independent import Beside, ends
from tilewright.dialects.npu.occupancy import Occupancy
from tilewright.dialects.npu.structure import LaunchOp
from tilewright.machine import Machine
from tilewright.passes.launch_groups import first_cores
from tilewright.passes.npu.check import check

B1 = Machine.load("ascend-910b1")
KINDS = [frozenset(k) for k in (("cube",), ("vector",), ("cube", "vector"))]
OCCUPIED = st.builds(Occupancy, st.integers(1, 24), st.sampled_from(KINDS))


def beside(occupancy: Occupancy, first: int, work: float, bound: float) -> Beside:
    """A launch of which the share `bound` of its work is at a bandwidth that all cores share."""
    return Beside(
        occupancy.places(first), occupancy.cores, lambda others: work * (1 + bound * others / max(occupancy.cores, 1))
    )


@examples(200)
@given(st.lists(st.tuples(OCCUPIED, st.integers(0, 24), st.floats(0.1, 50), st.floats(0, 1)), min_size=1, max_size=6))
def test_when_launches_begin_and_end(drawn: list[tuple[Occupancy, int, float, float]]) -> None:
    launches = [beside(*each) for each in drawn]
    found = ends(launches)
    last, alone = max(end for _, end in found), sum(launch.alone for launch in launches)
    assert max(launch.alone for launch in launches) <= last * (1 + 1e-6)
    assert last <= alone * (1 + 1e-6)
    for (i, a), (j, b) in combinations(enumerate(launches), 2):
        if a.places & b.places:
            assert found[i][1] <= found[j][0] * (1 + 1e-6)


def test_two_that_share_nothing_are_side_by_side() -> None:
    kinds = KINDS[0]
    launches = [beside(Occupancy(8, kinds), 0, 6.0, 0.0), beside(Occupancy(8, kinds), 8, 4.0, 0.0)]
    assert ends(launches) == [(0.0, 6.0), (0.0, 4.0)]
    assert ends([launches[0], launches[0]]) == [(0.0, 6.0), (6.0, 12.0)]


def test_two_that_share_a_bandwidth_take_as_long_as_one_after_the_other() -> None:
    kinds = KINDS[0]
    launches = [beside(Occupancy(8, kinds), first, 4.0, 1.0) for first in (0, 8)]
    assert ends(launches) == [(0.0, 8.0), (0.0, 8.0)]


@examples(100)
@given(st.lists(OCCUPIED, min_size=1, max_size=8), st.integers(24, 32))
def test_cores_of_launches(launches: list[Occupancy], room: int) -> None:
    """All are within the room, and each begins behind the one before it, or on the first core."""
    found = first_cores(launches, room)
    assert found[0] == 0
    for occupancy, first in zip(launches, found, strict=True):
        assert 0 <= first <= room - occupancy.cores
    for (one, at), (two, behind) in zip(
        zip(launches, found, strict=True), [*zip(launches, found, strict=True)][1:], strict=False
    ):
        if behind and one.kinds == two.kinds == KINDS[2]:
            assert behind == at + one.cores


def branches(x: jax.Array, w: jax.Array) -> jax.Array:
    """Products of one input, each with one of its own behind it, and what needs all of them."""
    parts = [jnp.tanh(x @ w[i]) @ w[i] for i in range(3)]
    return jnp.stack(parts).sum(0) @ w[0]


X = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float16) / 32
W = np.random.default_rng(1).standard_normal((3, 1024, 1024)).astype(np.float16) / 32


@pytest.fixture(scope="module")
def program() -> tw.Program:
    return tw.compile(branches, X, W)


def test_independent_products_are_side_by_side(program: tw.Program) -> None:
    """And the same program with each of them on the first cores, one after the other, takes longer."""
    module = program.module("npu").clone()
    launches = [op for op in module.walk() if isinstance(op, LaunchOp)]
    moved = [op for op in launches if op.begins_on]
    assert moved == launches[1:3]  # of the first three products; those behind them have 16 of the 24 cores each
    assert check(program.module("npu"), B1) == []
    for op in moved:
        op.properties.pop("first_core")
    ours, theirs = simulate(program.module("npu"), B1), simulate(module, B1)
    assert ours.microseconds < theirs.microseconds
    saved = sum(step.saved for step in ours.steps if hasattr(step, "saved"))
    assert saved > theirs.microseconds - ours.microseconds > 0  # more cores take longer to start


def test_the_report_says_the_whole_time(program: tw.Program) -> None:
    report = program.report()
    assert sum(k.microseconds for k in report.kernels) == pytest.approx(report.microseconds)
    assert all(k.launch_microseconds >= -1e-9 for k in report.kernels)


@sampled(2)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_values(program: tw.Program, memory: str) -> None:
    want = np.asarray(jax.jit(branches)(X, W), np.float32)
    got = np.asarray(program.executable(memory)(*program.flatten((X, W)))[0], np.float32)
    np.testing.assert_allclose(got, want, atol=2e-2 * np.abs(want).max())


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
def test_no_share_of_the_time_is_below_a_floor(target: str) -> None:
    """Two products of one core each, beside each other: one that HBM binds takes less than all of its bytes would."""

    def forward(x: jax.Array, w: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jax.nn.gelu(x @ w)
        return y @ v[:, :256] + 1, y @ v[:, 256:]

    shapes = [jax.ShapeDtypeStruct(s, "float16") for s in ((98, 512), (512, 2048), (2048, 512))]
    report = tw.compile(forward, *shapes, target=target).report()
    assert all(k.floor_microseconds <= k.microseconds * (1 + 1e-9) for k in report.kernels)
    assert report.floor_microseconds <= report.microseconds
