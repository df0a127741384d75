"""What is made in strips: values against JAX, what is cut along which axis, and what memory and time that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import FLOATS, check, data
from tiering import sampled
from xdsl.ir import Block

import tilewright as tw
from tilewright.dialects.dtypes import dtype_name, element_type, tensor
from tilewright.dialects.graph import ELEMENTWISE, ContractOp, DynamicUpdateSliceOp, ReduceOp, WhileOp
from tilewright.dialects.graph.interface import shape_of
from tilewright.passes.strips.strips import accumulator

SMALL = 1 << 14
"""Bytes of a strip here: tensors of some hundred rows are cut."""

Function = Callable[..., Any]


def attention(q: Any, k: Any, v: Any) -> Any:
    """[h, rows, d], with a causal mask and a softmax in f32."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32) / math.sqrt(q.shape[-1])
    seen = jnp.arange(k.shape[1]) <= jnp.arange(q.shape[1])[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
    return jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v)


def attention_step(q: Any, k: Any, v: Any) -> Any:
    """What stands between the forward half and the gradient needs all of the result: two levels."""
    return jax.value_and_grad(
        lambda *qkv: jnp.sum(jnp.tanh(attention(*qkv).astype(jnp.float32))), argnums=(0, 1, 2)
    )(q, k, v)


def attention_vjp(q: Any, k: Any, v: Any, d: Any) -> Any:
    """Forward half and gradient of one level."""
    out, back = jax.vjp(attention, q, k, v)
    return out, back(d)


def by_one_hot(h: Any, w: Any, labels: Any) -> Any:
    """The cross entropy of a vocabulary w, over all of its logarithms."""
    logs = jax.nn.log_softmax((h @ w.T).astype(jnp.float32))
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, w.shape[0]) * logs, -1))


def by_label(h: Any, w: Any, labels: Any) -> Any:
    """The same, of the one that is picked from each row."""
    logs = jax.nn.log_softmax((h @ w.T).astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], 1))


def every_kind(q: Any, k: Any, x: Any) -> Any:
    """Ops of all classes that stay in strips, and results that are combined in several ways; x: [rows, keys]."""
    e = jnp.tanh(q @ k.T)
    e = jnp.concatenate([e[:, : e.shape[1] // 2] * 2, e[:, e.shape[1] // 2 :]], 1) + x
    transposed = jnp.pad(e.T, ((1, 0), (0, 0)))[1:].T.reshape(e.shape[0], 1, -1)[:, 0]
    rows = transposed - jnp.take_along_axis(transposed, jnp.zeros((e.shape[0], 1), jnp.int32), 1)
    return rows.max(), rows.sum(0), rows.sum(1), rows.T @ q, jnp.einsum("rk,kd->dr", rows, k)


def cut(fn: Function, *args: Any, length: int, options: tw.Options | None = None) -> tw.Program:
    """Holds a program in small strips against JAX, in both memories. length: of its longest sum."""
    program = check(fn, *args, length=length, options=options or tw.Options(strips=SMALL))
    assert loops(program)
    return program


def loops(program: tw.Program) -> list[WhileOp]:
    return [op for op in program.module("graph").walk() if isinstance(op, WhileOp)]


def kernels(program: tw.Program) -> list[str]:
    return [kernel.name for kernel in program.report().kernels]


SHAPES = [(1, 256, 256, 16), (3, 200, 256, 8), (2, 131, 197, 16), (1, 67, 400, 4), (5, 96, 64, 2)]
"""Heads, rows, keys and the size of a head."""


@sampled(42)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fn", [attention_step, attention_vjp])
def test_gradient_of_attention(fn: Function, dtype: str, shape: tuple[int, ...]) -> None:
    heads, rows, keys, size = shape
    q, d = (data(dtype, (heads, rows, size), seed=i) for i in (0, 3))
    k, v = (data(dtype, (heads, keys, size), seed=i) for i in (1, 2))
    cut(fn, q, k, v, *[d] * (fn is attention_vjp), length=rows + keys)


@sampled(6)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loss", [by_one_hot, by_label])
def test_cross_entropy(loss: Function, dtype: str) -> None:
    h, w, labels = data(dtype, (70, 12)), data(dtype, (501, 12), seed=1), jnp.arange(70) * 7 % 501
    cut(jax.value_and_grad(loss, argnums=(0, 1)), h, w, labels, length=571)


@sampled(2)
@pytest.mark.parametrize("rows", [64, 97])
def test_every_kind_of_op(rows: int) -> None:
    q, k, x = data("f32", (rows, 8)), data("f32", (130, 8), seed=1), data("f32", (rows, 130))
    program = cut(every_kind, q, k, x, length=rows + 130)
    inside = {type(op) for loop in loops(program) for op in loop.walk()}
    assert {ContractOp, ReduceOp, DynamicUpdateSliceOp} <= inside


def test_integers_are_added_up_as_they_are() -> None:
    def fn(x: Any, y: Any) -> Any:
        products = jnp.einsum("id,jd->ij", x, y, preferred_element_type=jnp.int32) // 3
        return products.sum(0), products.max(0), products.max(1), (products > 5).any(0)

    cut(fn, data("i8", (150, 4)), data("i8", (120, 4), seed=1), length=150)


def test_the_forward_half_stays_one_kernel() -> None:
    x = jax.ShapeDtypeStruct((2, 256, 16), "float16")
    program, apart = (
        tw.compile(attention_step, x, x, x, options=tw.Options(strips=SMALL, without=out))
        for out in ((), "attention")
    )
    assert "attention_0" in kernels(program)
    assert "attention_0" not in kernels(apart)
    assert len(loops(apart)) > len(loops(program))


def test_heads_come_before_rows() -> None:
    """Nothing is added up over heads; a head that is too large is cut again."""

    def of(heads: int, rows: int, size: int) -> list[WhileOp]:
        x = jax.ShapeDtypeStruct((heads, rows, size), "float16")
        return loops(tw.compile(attention_vjp, x, x, x, x, options=tw.Options(strips=SMALL)))

    (loop,) = of(4, 64, 4)
    assert [shape_of(v) for v in loop.results[1:]] == 4 * [(4, 64, 4)]
    assert not any(
        isinstance(op, ELEMENTWISE["add"]) and shape_of(op.results[0]) for op in loop.body.block.ops
    )
    outer, inner = of(2, 256, 16)
    assert outer.is_ancestor(inner)


def test_chips_with_fused_cores_cut_the_forward_half_too() -> None:
    q, k, v = (data("f16", (2, 256, 16), seed=i) for i in range(3))
    program = check(attention, q, k, v, target="ascend-310", length=300, options=tw.Options(strips=SMALL))
    assert loops(program)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda x, w: jnp.tanh(x @ w) @ w.T, ((256, 64), (64, 256))),
        (lambda x, w: (y := jnp.tanh(x @ w), y @ w.T), ((256, 16), (16, 256))),
        (lambda x, w: jnp.cumsum(jnp.tanh(x @ w), 0) @ w.T, ((256, 16), (16, 256))),
        (attention, ((1, 256, 16), (1, 256, 16), (1, 256, 16))),
    ],
    ids=["a layer of a transformer", "needed whole", "running sums", "attention of one kernel"],
)
def test_what_is_made_in_one_piece(fn: Function, shapes: Sequence[tuple[int, ...]]) -> None:
    args = [data("f32", shape, seed=i) for i, shape in enumerate(shapes)]
    assert not loops(tw.compile(fn, *args, options=tw.Options(strips=SMALL)))


def test_none_are_made_where_none_are_asked_for() -> None:
    q = data("f16", (2, 256, 16))
    assert not loops(tw.compile(attention_step, q, q, q, options=tw.Options(strips=None)))
    assert not loops(tw.compile(attention_step, q, q, q))
    with pytest.raises(tw.CompileError, match="strips must be bytes or text"):
        tw.Options(strips="many")


def test_memory_is_linear_in_the_rows() -> None:
    """From 4,096 rows on; tensors of pairs of rows and keys would have four times the bytes at twice the rows."""

    def arena(rows: int, strips: int | None) -> int:
        x = jax.ShapeDtypeStruct((1, rows, 64), "float16")
        options = tw.Options(
            strips=strips
        , without={"attention"})  # else its gradient is kernels, with nothing large
        report = tw.compile(attention_step, x, x, x, options=options).report()
        return report.memory.arena_bytes

    default = tw.Options().strips
    assert arena(8192, default) < 2 * arena(4096, default) < 4 * arena(2048, default) * 1.1
    assert arena(16384, default) < 2 * arena(8192, default)
    assert arena(8192, default) < arena(8192, None) / 5


def test_strips_that_stay_in_the_cache_take_less_time() -> None:
    """Of attention with dropout, the gradient of which is no kernel: 1,673 us and 157 MiB, and not 2,188 and 965."""

    def dropped(q: Any, k: Any, v: Any, kept: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k).astype(jnp.float32) * 0.125
        weights = jnp.where(kept, jax.nn.softmax(scores) / 0.9, 0).astype(q.dtype)
        return jnp.einsum("hqk,hkd->hqd", weights, v).astype(jnp.float32).sum()

    x = jax.ShapeDtypeStruct((1, 8192, 64), "float16")
    kept = jax.ShapeDtypeStruct((1, 8192, 8192), "bool")
    whole, strips = (
        tw.compile(jax.grad(dropped, (0, 1, 2)), x, x, x, kept, options=options).report()
        for options in (tw.Options(strips=None), tw.Options())
    )
    assert strips.microseconds < 0.78 * whole.microseconds
    assert strips.memory.arena_bytes < whole.memory.arena_bytes / 6


def test_levels_count_results_one_behind_the_other() -> None:
    """Two tanh of scores, the second of what follows from the first one's result."""

    def fn(x: Any, w: Any) -> Any:
        first = jnp.tanh(x @ w)
        y = first @ w.T * 2
        return jnp.sum(jnp.tanh(y @ w) * first)

    program = cut(fn, data("f32", (128, 4)), data("f32", (4, 128), seed=1), length=256)
    assert len(loops(program)) == 2


@pytest.mark.parametrize(
    ("kind", "added_in"), [("f8E4M3FN", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64"), ("i8", "i8")]
)
def test_parts_of_narrow_floats_are_added_up_in_f32(kind: str, added_in: str) -> None:
    value = Block(arg_types=[tensor([4], element_type(kind))]).args[0]
    assert dtype_name(accumulator(value)) == added_in
