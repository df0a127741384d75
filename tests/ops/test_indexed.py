"""Indexed access: gather as embedding and take, dynamic slices and updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import DTYPES, check, data, shapes, subset, targets
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples, sampled

import tilewright as tw

TARGETS = targets()


def positions(limit: int, shape: tuple[int, ...], low: int = 0, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).integers(low, limit, shape), jnp.int32)


@examples(8)
@given(
    shape=shapes(1, 3, largest=4000),
    where=shapes(0, 2, largest=64),
    dtype=st.sampled_from(DTYPES),
    mode=st.sampled_from(["clip", "fill", "wrap"]),
    draw=st.data(),
    target=TARGETS,
)
def test_take(shape, where, dtype: str, mode: Any, draw: st.DataObject, target: str) -> None:
    axis = draw.draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    index = positions(2 * n, where, -2 * n)
    check(
        lambda x, i: jnp.take(x, i, axis=axis, mode=mode),
        data(dtype, shape),
        index,
        target=target,
    )


@examples(8)
@given(draw=st.data(), dtype=st.sampled_from(DTYPES))
def test_gather(draw: st.DataObject, dtype: str) -> None:
    """gather with any offset, collapsed, indexed and batch dimensions."""
    rank = draw.draw(st.integers(1, 4))
    shape = [draw.draw(st.sampled_from([2, 3, 7, 13])) for _ in range(rank)]
    start_map = draw.draw(st.permutations(draw.draw(subset(rank, 1))))
    where = draw.draw(shapes(0, 2, largest=32))
    others = [d for d in range(rank) if d not in start_map]
    batched = others[:1] if where and others and draw.draw(st.booleans()) else []
    if batched:
        shape[batched[0]] = where[0]
    sizes = [1 if d in batched else draw.draw(st.integers(1, n)) for d, n in enumerate(shape)]
    collapsed = [d for d in range(rank) if sizes[d] == 1 and d not in batched and draw.draw(st.booleans())]
    kept = rank - len(collapsed) - len(batched)
    out = len(where) + kept
    offsets = sorted(draw.draw(st.permutations(range(out)))[:kept])
    numbers = lax.GatherDimensionNumbers(
        tuple(offsets), tuple(collapsed), tuple(start_map), tuple(batched), (0,) if batched else ()
    )
    index = positions(15, (*where, len(start_map)), -2)

    def fn(x: Any, i: Any) -> Any:
        return lax.gather(x, i, numbers, tuple(sizes), mode="clip")

    check(fn, data(dtype, shape), index)


@examples(8)
@given(
    shape=shapes(1, 3, largest=4000),
    dtype=st.sampled_from(DTYPES),
    draw=st.data(),
    target=TARGETS,
)
def test_dynamic_slice_and_update(shape, dtype: str, draw: st.DataObject, target: str) -> None:
    sizes = [draw.draw(st.integers(1, n)) for n in shape]
    starts = [jnp.int32(draw.draw(st.integers(-3, n + 3))) for n in shape]

    def fn(x: Any, update: Any, *starts: Any) -> list[Any]:
        return [lax.dynamic_slice(x, starts, sizes), lax.dynamic_update_slice(x, update, starts)]

    check(fn, data(dtype, shape), data(dtype, sizes, 1), *starts, target=target)


@sampled(2)
@pytest.mark.parametrize(
    ("shape", "box", "starts"),
    [
        ((130, 33, 4), (97, 13, 3), (6, 4, 1)),  # a prime of rows, and short runs: work for several cores
        ((401, 331), (397, 330), (2, 1)),
        ((12, 64, 40), (7, 31, 40), (5, 33, 0)),
        ((3000,), (2999,), (1,)),
        ((64, 500), (64, 499), (0, 1)),
    ],
)
def test_boxes_that_no_cores_divide(shape: tuple[int, ...], box: tuple[int, ...], starts: tuple[int, ...]) -> None:
    """Nothing is written behind a box whose place is known only at run time, whatever the cores share out."""

    def fn(x: Any, update: Any, *starts: Any) -> list[Any]:
        return [lax.dynamic_slice(x, starts, box), lax.dynamic_update_slice(x, update, starts)]

    args = data("f16", shape), data("f16", box, 1), *map(jnp.int32, starts)
    check(fn, *args)


TABLE, ROWS = data("f32", (31, 17)), positions(31, (5, 3))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "an embedding": (lambda t, i: t[i], (TABLE, ROWS)),
    "an embedding and positions": (lambda t, i, p: t[i] * 2 + p, (TABLE, ROWS[:, 0], data("f32", (5, 17)))),
    "a large table": (lambda t, i: t[i], (data("f32", (3000, 130)), positions(3000, (97,)))),
    "rows beyond ub": (lambda t, i: t[i], (data("f32", (3, 100_000)), positions(3, (4,)))),
    "two indices": (
        lambda t, i, j: t[i, j],
        (data("f32", (13, 17, 3)), positions(13, (5,)), positions(17, (5,))),
    ),
    "indices apart": (
        lambda t, i, j: t[i, :, j],
        (data("f32", (3, 13, 17)), positions(3, (5,)), positions(17, (5,))),
    ),
    "along an axis": (lambda t, i: jnp.take_along_axis(t, i, axis=1), (TABLE, positions(17, (31, 5)))),
    "one element": (lambda t, i: t[i], (data("f32", (13,)), jnp.int32(3))),
    "bytes as indices": (lambda t, i: t[i], (TABLE, ROWS.astype(jnp.int8))),
    "a computed index": (lambda t, x: t[jnp.argmax(x, -1)], (TABLE, data("f32", (4, 31)))),
    "of everything": (lambda t, i: jnp.take(t, i), (TABLE, positions(500, (7,)))),
    "one hot": (lambda i: jax.nn.one_hot(i, 13), (positions(13, (7,)),)),
    "a slice of a transpose": (
        lambda t, i: lax.dynamic_slice(t.T, (i + 1, i * 2), (5, 7)) + 1,
        (TABLE, jnp.int32(1)),
    ),
    "a long slice": (
        lambda t, i: lax.dynamic_slice_in_dim(t, i, 2999, 0),
        (data("f32", (3001, 97)), jnp.int32(2)),
    ),
    "a long prime slice": (
        lambda t, i: lax.dynamic_slice_in_dim(t, i, 50021, 0),
        (data("f32", (50100,)), jnp.int32(9)),
    ),
    "an update of a value": (
        lambda t, u, i: (lambda y: (y, lax.dynamic_update_slice(y, u, (i, 0))))(t + 1),
        (TABLE, data("f32", (3, 17)), jnp.int32(30)),
    ),
    "an update by itself": (
        lambda t, i: (lambda y: lax.dynamic_update_slice(y, y, (i, 0)))(t + 1),
        (TABLE, jnp.int32(4)),
    ),
    "an update in place": (
        lambda t, u, i: lax.dynamic_update_slice(t + 1, u, (i, 0)),
        (TABLE, data("f32", (3, 17)), jnp.int32(4)),
    ),
}


@sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    fn, args = PROGRAMS[name]
    small = sum(a.size for a in args) < 10_000
    check(fn, *args, memories=None if small else ("typed",))


@pytest.mark.parametrize("count", [100_003, 300_000])
def test_very_many_single_elements(count: int) -> None:
    """Each single element that a gather brings has a row of ub to itself."""
    x = np.arange(999, dtype=np.float32)
    where = np.random.default_rng(1).integers(0, 999, count).astype(np.int32)
    program = tw.compile(lambda x, i: x.at[i].get(mode="clip"), x, where)
    np.testing.assert_array_equal(program(x, where), x[where])
