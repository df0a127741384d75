"""Scatter on the vector cores: any dimension numbers and bodies, and what real models make of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import DTYPES, INTEGERS, check, data, host_ops, shapes, subset, targets
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples, sampled

import tilewright as tw
from tilewright.backends.functions.host import run_text
from tilewright.machine import Machine
from tilewright.passes.lower.indexed.scatter import parts_of

TARGETS = targets()
BODIES = (lax.scatter, lax.scatter_add, lax.scatter_mul, lax.scatter_min, lax.scatter_max)


def positions(limit: int, shape: tuple[int, ...], low: int = 0, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).integers(low, limit, shape), jnp.int32)


@examples(8)
@given(
    draw=st.data(),
    dtype=st.sampled_from((*DTYPES[:-1], *INTEGERS)),
    body=st.sampled_from(BODIES),
    mode=st.sampled_from(["drop", "clip"]),
    target=TARGETS,
)
def test_scatter(draw: st.DataObject, dtype: str, body: Any, mode: Any, target: str) -> None:
    """Any window, inserted, indexed and batch dimensions; starts that fit, that do not, and that meet."""
    rank = draw.draw(st.integers(1, 4))
    shape = [draw.draw(st.sampled_from([1, 2, 3, 7])) for _ in range(rank)]
    named = draw.draw(st.permutations(draw.draw(subset(rank, 1))))
    where = draw.draw(shapes(0, 2, largest=24))
    others = [d for d in range(rank) if d not in named]
    batched = others[:1] if where and others and draw.draw(st.booleans()) else []
    if batched:
        shape[batched[0]] = where[0]
    inserted = [d for d in range(rank) if d not in batched and draw.draw(st.booleans())]
    window = [draw.draw(st.integers(1, shape[d])) for d in range(rank) if d not in (*batched, *inserted)]
    out = len(where) + len(window)
    at = sorted(draw.draw(st.permutations(range(out)))[: len(window)])
    rest, inner = iter(where), iter(window)
    updates = tuple(next(inner) if d in at else next(rest) for d in range(out))
    numbers = lax.ScatterDimensionNumbers(
        tuple(at), tuple(inserted), tuple(named), tuple(batched), (0,) if batched else ()
    )
    index = positions(9, (*where, len(named)), -2)
    if body is lax.scatter:  # where updates meet, any may win: here they are equal
        values = jnp.full(updates, 5, data(dtype, ()).dtype)
    else:
        values = data(dtype, updates, 1)
    check(
        lambda x, i, u: body(x, i, u, numbers, mode=mode),
        data(dtype, shape),
        index,
        values,
        target=target,
        length=math.prod(updates),
    )


TABLE, ROWS = data("f32", (31, 17)), positions(31, (5, 3))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an embedding's gradient": (jax.grad(lambda t, i: jnp.sum(jnp.sin(t[i]))), (TABLE, ROWS)),
    "a gradient of float16": (jax.grad(lambda t, i: jnp.sum(t[i] ** 2)), (data("f16", (31, 17)), ROWS)),
    "set": (lambda t, i: t.at[i[:, 0]].set(1.5), (TABLE, ROWS)),
    "elements of two dimensions": (lambda t, i, j: t.at[i, j].add(2), (TABLE, ROWS[:, 0], ROWS[:, 1] % 17)),
    "columns": (lambda t, i: t.at[:, i].max(0.5), (TABLE, positions(17, (3,)))),
    "a batch along another axis": (
        jax.grad(lambda t, i: jnp.sum(jnp.take_along_axis(t, i, 1) ** 2)),
        (data("f32", (6, 50, 7)), positions(50, (6, 30, 7))),
    ),
    "a batch of scatters": (
        jax.vmap(lambda x, i, u: x.at[i].add(u), (1, 0, 2), 1),
        (data("f32", (100, 7, 12)), positions(110, (7, 33)), data("f32", (33, 12, 7), 1)),
    ),
    "a batch of batches": (
        jax.vmap(jax.vmap(lambda x, i, u: x.at[:, i].max(u), (0, None, 0)), (0, 0, None)),
        (data("f32", (3, 5, 4, 20)), positions(20, (3, 11)), data("f32", (5, 4, 11), 1)),
    ),
    "many updates of few rows": (
        lambda x, i, u: x.at[i].add(u),
        (data("f32", (32, 4)), positions(34, (3001,), -2), data("f32", (3001, 4), 1)),
    ),
    "many updates of few integers": (
        lambda x, i, u: x.at[i].min(u, mode="drop"),
        (data("i32", (50,)), positions(60, (4096,)), data("i32", (4096,), 1)),
    ),
    "a slice apart": (lambda t, i: t.at[i, 3:9].multiply(2), (TABLE, ROWS[:, 0])),
    "bools": (lambda m, i: m.at[i].set(True), (data("i1", (31,)), ROWS)),
    "take_along_axis": (
        jax.grad(lambda t, i: jnp.sum(jnp.take_along_axis(t, i, 1) ** 2)),
        (TABLE, positions(17, (31, 5))),
    ),
    "segments": (
        lambda x, i: [f(x, i, 7) for f in (jax.ops.segment_sum, jax.ops.segment_max, jax.ops.segment_min)],
        (data("f32", (1000,)), jnp.sort(positions(7, (1000,)))),
    ),
    "segments of rows": (
        lambda x, i: jax.ops.segment_prod(x, i, 5),
        (data("f32", (97, 13)), positions(6, (97,))),
    ),
    "a histogram": (lambda i: jnp.bincount(i, length=13), (positions(15, (3000,)),)),
    "a cache of keys at each one's place": (
        lambda c, k, p: c.at[jnp.arange(3), p].set(k),
        (data("f32", (3, 16, 2, 8)), data("f32", (3, 2, 8), 1), positions(16, (3,))),
    ),
    "experts": (
        lambda x, e: jnp.zeros((4, 17)).at[e].add(x)[e],
        (TABLE, positions(4, (31,))),
    ),
    "gradient of a dynamic slice": (
        jax.grad(lambda t, i: jnp.sum(lax.dynamic_slice(t, (i, i), (5, 7)) ** 2)),
        (TABLE, jnp.int32(28)),
    ),
    "no updates": (lambda t, i: t.at[i].add(1.0), (TABLE, positions(3, (0,)))),
    "several parts of the target": (
        lambda t, i, u: t.at[i].add(u),
        (data("f32", (3000, 130)), positions(3000, (97,)), data("f32", (97, 130), 1)),
    ),
    "a slice without the row": (
        lambda t, start, i: lax.dynamic_slice(t, (start,), (6,)).at[i].add(100, mode="drop"),
        (jnp.arange(7) + 1, jnp.int32(7), jnp.int32([10])),
    ),
    "many elements": (lambda t, i: t.at[i].add(1), (data("i32", (50_021,)), positions(50_021, (3001,)))),
}


@sampled(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    fn, args = PROGRAMS[name]
    small = sum(a.size for a in args) < 10_000
    check(fn, *args, memories=None if small else ("typed",), length=100)


def test_among_equal_places_the_last_wins() -> None:
    """As XLA on the CPU has it; StableHLO leaves it open."""
    places = jnp.asarray([2, 2, 0, 2], jnp.int32)
    check(lambda x, u: x.at[places].set(u), jnp.zeros(3), jnp.arange(4.0))


def test_other_bodies() -> None:
    """A difference is a sum; any body runs on the device where no two updates meet, otherwise on the host."""
    text = """func.func @main(%x: tensor<5xf32>, %i: tensor<2x1xi32>, %u: tensor<2xf32>) -> tensor<5xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
          inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %r = stablehlo.subtract %a, %b : tensor<f32>
          stablehlo.return %r : tensor<f32>
      }) : (tensor<5xf32>, tensor<2x1xi32>, tensor<2xf32>) -> tensor<5xf32>
      return %0 : tensor<5xf32>
    }"""
    x, i, u = np.arange(5, dtype=np.float32), np.array([[1], [9]], np.int32), np.ones(2, np.float32)
    other = text.replace("subtract", "power")
    unique = other.replace("index_vector_dim = 1>", "index_vector_dim = 1>, unique_indices = true")
    assert len({text, other, unique}) == 3
    for module, hosted in ((text, []), (other, ["stablehlo.scatter"]), (unique, [])):
        program = tw.compile(module)
        assert host_ops(program) == hosted
        (want,) = run_text(module, [x, i, u])
        np.testing.assert_array_equal(np.asarray(program(x, i, u)), np.asarray(want))


def test_a_scatter_costs_what_its_updates_do() -> None:
    def microseconds(n: int) -> float:
        args = data("f32", (64, 64)), positions(64, (n,)), data("f32", (n, 64))
        return tw.compile(lambda x, i, u: x.at[i].add(u), *args).report().microseconds

    assert microseconds(4000) > 2 * microseconds(400)


def test_a_batch_of_scatters_shares_its_updates_out() -> None:
    """Each part of the target reads the updates of its own batches, not all."""
    args = data("f32", (2, 4, 64, 64)), positions(64, (2, 4, 64, 64))
    program = tw.compile(jax.grad(lambda x, i: jnp.sum(jnp.take_along_axis(x, i, -1) ** 2)), *args)
    (kernel,) = (k for k in program.report().kernels if k.name.startswith("scatter"))
    assert kernel.cores >= 32
    assert kernel.bytes["read"] < 1.2 * (args[0].nbytes + 2 * args[1].nbytes)


def test_many_updates_of_few_rows_use_the_cores() -> None:
    program = tw.compile(lambda i: jnp.zeros(100, jnp.int32).at[i].add(1), positions(100, (20000,)))
    (kernel,) = (k for k in program.report().kernels if k.name.startswith("scatter"))
    assert kernel.cores >= 32
    assert program.report().microseconds < 40


@pytest.mark.parametrize("count", [10**5, 10**7, 10**8])
def test_any_number_of_updates_fits_ub(count: int) -> None:
    index, updates = (jax.ShapeDtypeStruct((count,), dtype) for dtype in ("int32", "float32"))
    tw.compile(lambda i, u: jnp.zeros(1000).at[i].add(u), index, updates)
    tw.compile(lambda x: jnp.nonzero(x, size=100)[0], updates)


def test_rows_too_long_for_one_part_to_each_core() -> None:
    """They are cut into more parts than there are cores, each of which reads its part of the updates once."""
    shape = jax.ShapeDtypeStruct
    rows, columns = 128, 2048 * 768

    def add(x: Any, at: Any, updates: Any) -> Any:
        return x.at[at].add(updates)

    args = shape((rows, columns), "float32"), shape((64,), "int32"), shape((64, columns), "float32")
    (kernel,) = [k for k in tw.compile(add, *args).report().kernels if k.name == "scatter_0"]
    assert kernel.cores == 48
    assert kernel.bytes["read"] < 1.1 * (rows + 64) * columns * 4


def test_parts_of_long_rows() -> None:
    machine = Machine.load("ascend-910b1")
    room = machine.spaces["ub"].bytes
    for columns in (50_000, 1_000_003, 5_000_000):
        found = parts_of(3, columns, 7, 4, machine)
        assert found is not None
        high, wide, _ = found
        assert high == 3 and high * wide * 4 < room
