"""Attention of few rows on the vector cores, a step of decoding: from plain JAX, with the current length, shared heads,
odd lengths, every type, keys in parts; both memories."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from tiering import covering, sampled

import tilewright as tw
from tilewright.api.program import Program

NEVER = float("-inf")


def kernels(program: Program) -> list[str]:
    return [kernel.name for kernel in program.report().kernels]


def inputs(dtype: str, *shapes: tuple[int, ...]) -> list[jax.Array]:
    return [data(dtype, shape, seed) for seed, shape in enumerate(shapes)]


def pinned(**choices: Any) -> tw.Options:
    """Something is pinned, so attention is one kernel."""
    return tw.Options(schedule=tw.Schedule(**choices))


def grouped(q: Any, k: Any, v: Any) -> Any:
    """q [batch, kv heads, queries of each, d]; k, v [batch, keys, kv heads, d]."""
    scores = jnp.einsum("bhgd,bkhd->bhgk", q, k, preferred_element_type=jnp.float32) / math.sqrt(q.shape[-1])
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bhgk,bkhd->bhgd", weights, v)


def cached(q: Any, k: Any, v: Any, length: Any) -> Any:
    scores = jnp.einsum("bhgd,bkhd->bhgk", q, k, preferred_element_type=jnp.float32) * 0.25
    scores = jnp.where(jnp.arange(k.shape[1]) < length, scores, NEVER)
    return jnp.einsum("bhgk,bkhd->bhgd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)


@covering(1)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(
    ("batch", "heads", "group", "keys", "size"),
    [
        (1, 1, 1, 16, 16),
        (1, 2, 1, 97, 24),
        (2, 3, 1, 64, 16),
        (1, 2, 4, 130, 40),
        (1, 2, 7, 31, 8),
        (2, 1, 15, 257, 3),
    ],
)
def test_lengths(dtype: str, batch: int, heads: int, group: int, keys: int, size: int) -> None:
    q, k, v = inputs(
        dtype, (batch, heads, group, size), (batch, keys, heads, size), (batch, keys, heads, size)
    )
    program = check(grouped, q, k, v, length=keys + size, options=pinned(ub=2))
    assert kernels(program) == ["attention_0"]
    assert all(kernel.kind == "vector" for kernel in program.report().kernels)


@sampled(8)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize(("rows", "keys"), [(1, 24), (4, 24), (4, 96), (1, 40)])
def test_pinned_tiles(dtype: str, rows: int, keys: int) -> None:
    """What is left behind the last whole piece of the keys is a piece of its own."""
    q, k, v = inputs(dtype, (1, 3, 4, 16), (1, 96, 3, 16), (1, 96, 3, 16))
    program = check(grouped, q, k, v, length=112, options=pinned(rows=rows, keys=keys))
    assert f"row_attention_schedule<rows = {rows}, keys = {keys}" in program.ir("graph")
    assert "tile.mask" not in program.ir("tile")


@sampled(12)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("parts", "keys", "piece"), [(2, 64, 32), (3, 99, 16), (8, 128, 16), (5, 160, 24)])
def test_keys_in_parts(dtype: str, parts: int, keys: int, piece: int) -> None:
    q, k, v = inputs(dtype, (1, 2, 3, 16), (1, keys, 2, 16), (1, keys, 2, 16))
    program = check(grouped, q, k, v, length=keys + 16, options=pinned(split_keys=parts, keys=piece))
    assert kernels(program)[0] == "attention_0" and f"split_keys = {parts}" in program.ir("graph")


@sampled(4)
@pytest.mark.parametrize("length", [1, 5, 33, 64])
@pytest.mark.parametrize("parts", [None, 4])
def test_keys_behind_the_current_length(length: int, parts: int | None) -> None:
    """Whole pieces, and whole parts, are masked: their largest score is minus infinity."""
    q, k, v = inputs("f32", (1, 2, 2, 16), (1, 64, 2, 16), (1, 64, 2, 16))
    options = pinned(keys=8) if parts is None else pinned(keys=8, split_keys=parts)
    assert "attention_0" in kernels(check(cached, q, k, v, jnp.int32(length), length=80, options=options))


def test_a_row_without_keys_is_no_number() -> None:
    q, k, v = inputs("f32", (1, 2, 2, 16), (1, 64, 2, 16), (1, 64, 2, 16))
    for options in (pinned(keys=16), pinned(keys=16, split_keys=2)):
        program = tw.compile(cached, q, k, v, jnp.int32(0), options=options)
        assert np.isnan(np.asarray(program(q, k, v, jnp.int32(0)))).all()


def softcap(q: Any, k: Any, v: Any, bias: Any) -> Any:
    scores = jnp.einsum("hqd,hkd->hqk", q, k)
    scores = jnp.tanh(scores * 0.1) * 10 + bias[None, None]
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


@sampled(3)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_soft_cap_and_a_bias(rows: int) -> None:
    q, k, v, bias = inputs("f32", (3, rows, 16), (3, 75, 16), (3, 75, 24), (75,))
    assert kernels(check(softcap, q, k, v, bias, length=100, options=pinned(keys=32))) == ["attention_0"]


def test_without_a_batch_and_all_in_the_types_of_the_inputs() -> None:
    def plain(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T, axis=-1) @ v

    for dtype in ("f16", "f32"):
        q, k, v = (x / 4 for x in inputs(dtype, (2, 16), (50, 16), (50, 8)))
        assert kernels(check(plain, q, k, v, length=66, options=pinned(ub=2))) == ["attention_0"]


def test_what_stands_behind_it_may_turn_its_result() -> None:
    def transposed(q: Any, k: Any, v: Any) -> Any:
        return jnp.einsum("bhgk,bkhd->bgdh", jax.nn.softmax(jnp.einsum("bhgd,bkhd->bhgk", q, k), axis=-1), v)

    q, k, v = inputs("f32", (1, 3, 2, 16), (1, 64, 3, 16), (1, 64, 3, 16))
    for choices in ({"keys": 24}, {"keys": 24, "split_keys": 2}):
        check(transposed, q, k, v, length=80, options=pinned(**choices))


# -- choice -------------------------------------------------------------------------------------------------


def cost(heads: int, keys: int, size: int, **options: Any) -> tuple[float, list[str]]:
    shapes = [(1, heads, 1, size), (1, keys, heads, size), (1, keys, heads, size)]
    args = [jax.ShapeDtypeStruct(shape, "float16") for shape in shapes]
    program = tw.compile(grouped, *args, options=tw.Options(**options))
    return program.report().microseconds, kernels(program)


def test_it_is_one_kernel_where_that_takes_less_time() -> None:
    one, names = cost(32, 2048, 128)
    parts, others = cost(32, 2048, 128, without="attention")
    assert one < parts and "attention_0" in names and "attention_0" not in others


def test_it_is_left_in_parts_where_these_take_less_time() -> None:
    one, names = cost(1, 16, 16, schedule=tw.Schedule(keys=8, split_keys=2))
    free, found = cost(1, 16, 16)
    assert "attention_0" in names and free <= one, found


def test_it_is_left_in_parts_where_a_piece_of_the_keys_does_not_fit() -> None:
    q, k, v = (
        jax.ShapeDtypeStruct(s, "float32") for s in ((1, 1, 1, 9000), (1, 32, 1, 9000), (1, 32, 1, 9000))
    )
    assert "attention_0" not in kernels(tw.compile(grouped, q, k, v))


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"rows": 2}, "a tile has 1 row or all 3, not 2"),
        ({"split_keys": 7}, "split_keys=7 does not cut 64 keys into equal parts"),
        ({"split_keys": 2, "grid": (2, 3), "rows": 1, "cores": 48}, None),
        ({"grid": (5, 1)}, "cannot be split over 5 cores"),
        ({"split_keys": 32, "grid": (2, 1)}, "a grid of 64 is more than the 48 vector cores"),
        ({"grid": (2,)}, "has 2 axes of tiles, and the grid 1"),
        ({"keys": 4096, "rows": 3}, None),
        ({"features": 16}, "no such choice"),
    ],
)
def test_pins_are_obeyed_or_refused_with_a_reason(choices: dict[str, Any], why: str | None) -> None:
    q, k, v = inputs("f16", (1, 2, 3, 16), (1, 64, 2, 16), (1, 64, 2, 16))
    options = tw.Options(schedule={"attention_0": tw.Schedule(**choices)})
    compiled: Callable[[], Program] = lambda: tw.compile(grouped, q, k, v, options=options)  # noqa: E731
    if why is None:
        assert "attention_0" in kernels(compiled())
        return
    with pytest.raises(tw.CompileError, match=why):
        compiled()
