"""Fused kernels: random chains of ops, the usual blocks of networks, and how much of each runs on the NPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import FLOATS, check, data, targets
from hypothesis import given, note
from hypothesis import strategies as st
from jax import lax
from programs import STEPS, STEPS_FOLDED, RandomProgram, programs
from tiering import covering, examples, sampled

import tilewright as tw

TARGETS = targets()


@examples(6)
@given(programs(STEPS_FOLDED), st.sampled_from(FLOATS), TARGETS)
def test_folded_chains(program: RandomProgram, dtype: str, target: str) -> None:
    note(f"{program}\n{dtype} {target}")
    check(program, *program.arguments(dtype), target=target, length=program.length)


@examples(6)
@given(programs(STEPS), st.sampled_from(FLOATS), TARGETS)
def test_chains(program: RandomProgram, dtype: str, target: str) -> None:
    note(f"{program}\n{dtype} {target}")
    check(program, *program.arguments(dtype), target=target, length=program.length)


@examples(6)
@given(programs(), st.sampled_from(FLOATS), TARGETS)
def test_chains_with_products(program: RandomProgram, dtype: str, target: str) -> None:
    note(f"{program}\n{dtype} {target}")
    check(program, *program.arguments(dtype), target=target, length=program.length)


def layer_norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    masked = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e4)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(masked), v)


def rotary(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    return x * cos + jnp.concatenate([-x[..., 8:], x[..., :8]], -1) * sin


def batch_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5) * scale


def group_norm(x: jax.Array) -> jax.Array:
    y = x.reshape(2, 9, 2, 3)
    return ((y - y.mean((1, 3), keepdims=True)) * 2).reshape(2, 9, 6)


BLOCKS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax": (jax.nn.softmax, ((7, 5, 13),)),
    "softmax over rows": (lambda x: jax.nn.softmax(x, 0), ((130, 97),)),
    "log softmax loss": (lambda x, y: -(jax.nn.log_softmax(x) * y).sum(-1).mean(), ((13, 17), (13, 17))),
    "layer norm": (layer_norm, ((7, 97), (97,), (97,))),
    "rms norm": (lambda x: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6), ((3, 7, 97),)),
    "batch norm": (batch_norm, ((2, 9, 11, 3), (3,))),
    "group norm": (group_norm, ((2, 9, 6),)),
    "gelu": (jax.nn.gelu, ((7, 97),)),
    "mlp": (lambda x, w, b, v: jax.nn.gelu(x @ w + b) @ v + x, ((17, 31), (31, 64), (64,), (64, 31))),
    "attention": (attention, ((2, 13, 3, 16),) * 3),
    "rotary positions": (rotary, ((5, 3, 16), (5, 1, 16), (5, 1, 16))),
    "outer sum and product": (lambda x, y: (x[:, None] + y, x[:, None] * y), ((17,), (13,))),
    "several reductions": (lambda x: (x.sum(0) + 1, x.max(1) * 2, x.mean()), ((17, 13),)),
    "a reduction of a reduction": (lambda x: (x - x.mean(1, keepdims=True)).sum(0), ((17, 13),)),
    "products of a value with itself": (
        lambda x, s: jnp.tensordot(jnp.abs(s) + x, jnp.abs(s) + x, (1, 1)),
        ((17, 3), ()),
    ),
}


@covering(3)
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
def test_blocks(name: str, dtype: str, target: str) -> None:
    fn, shapes = BLOCKS[name]
    check(fn, *(data(dtype, s, i) for i, s in enumerate(shapes)), target=target, length=100)


@sampled(2)
@pytest.mark.parametrize(
    "fn", [jax.nn.softmax, lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)]
)
def test_rows_beyond_ub(fn: Callable[..., Any]) -> None:
    check(fn, data("f32", (2, 50257)), length=50257)


def test_gradients() -> None:
    def loss(w: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
        return (jnp.tanh(x @ w) @ v).sum()

    check(
        jax.grad(loss, (0, 1)), data("f32", (31, 13)), data("f32", (13, 7)), data("f32", (17, 31)), length=64
    )


def test_layout_of_an_intermediate_is_read_twice() -> None:
    """The broadcast of an index is a tensor for the gather, and folded in the kernel that makes the index."""
    table, index = data("f32", (31, 17)), jnp.arange(7) * 11 - 40
    check(lambda t, i: jnp.take(t, i, axis=1, mode="fill", fill_value=1), table, index)


@covering(2)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("n", [97, 200])
def test_reductions_across_short_rows(n: int, dtype: str) -> None:
    """Two numbers take a whole block on chip, so that what a kernel holds of them does not fit."""

    def fn(x: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(jnp.where(x > 0, x, x * 2), axis=(0, 1))

    check(fn, data(dtype, (n, 13, 2)), length=13 * n)


@pytest.mark.parametrize("n", [1, 7, 40])
def test_an_operand_of_a_product_that_its_epilogue_reads_too(n: int) -> None:
    check(lambda c, w: jnp.tanh(c @ w) - jnp.sqrt(abs(w)), data("f32", (n, n)), data("f32", (n, n)), length=n)


@covering()
@pytest.mark.parametrize("make", [jnp.tanh, lambda x: jnp.cumsum(x, 0) + 1, lambda x: jnp.where(x > 0, x, 1)])
@pytest.mark.parametrize("n", [1, 16])
def test_an_operand_of_a_product_that_could_be_computed_again(make: Callable[..., Any], n: int) -> None:
    """One column: small enough to be computed for each tile behind the product, but the product needs a tensor."""

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        y = make(x)
        return jnp.maximum(y, y @ w)

    check(fn, data("f32", (5, 1)), data("f32", (1, n)), length=8)


def test_a_pad_by_the_constant_that_it_pads() -> None:
    """Zeros around zeros: one constant is the data and the value of the pad."""
    check(lambda x: x + jnp.pad(jnp.zeros((3, 4)), ((0, 2), (1, 0))), data("f32", (5, 5)))


@sampled(2)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
def test_more_results_than_events(target: str) -> None:
    """A pair of pipes has 8 events: the stores of one kernel's many results share them."""

    def fn(x: jax.Array, t: jax.Array) -> list[jax.Array]:
        total = x.sum(-1, keepdims=True)
        return [*(jnp.full_like(x, k) + t for k in range(11)), *(total * k + x for k in range(11))]

    check(fn, data("f32", (5, 7)), data("f32", ()), target=target, length=7)


@sampled(6)
@pytest.mark.parametrize(("count", "rows", "columns"), [(9, 128, 10), (3, 128, 10), (9, 64, 48)])
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
def test_a_reduction_to_one_number_decides_over_many_tensors(
    count: int, rows: int, columns: int, target: str
) -> None:
    """They do not fit together, so that the fusion is cut. Its parts have results that lack an axis which no op of
    theirs reduces."""
    shapes = [(rows, columns), (columns,), (rows,)] * count + [()]

    def fn(x: jax.Array, old: list[jax.Array], new: list[jax.Array]) -> Any:
        chosen = jnp.all(x > -2)
        return chosen, [jnp.where(chosen, a, b) for a, b in zip(new, old, strict=True)]

    old, new = ([data("f32", s, seed) for s in shapes] for seed in (1, 2))
    for low in (-1, -3):
        x = data("f32", (rows, columns)).clip(-1)
        check(fn, x.at[rows // 2, 3].set(low), old, new, target=target)


@sampled(3)
@pytest.mark.parametrize(("rows", "columns"), [(576, 96), (960, 160), (3001, 16)])
def test_columns_that_pieces_of_rows_and_what_follows_them_use(rows: int, columns: int) -> None:
    """What is computed for each column is needed in the loop over the pieces and behind it."""

    def scales(w: jax.Array, m: jax.Array, v: jax.Array, mean: jax.Array, g: jax.Array, b: jax.Array) -> Any:
        s = lax.rsqrt(v + 1e-5) * g
        y = w * m[:, None] * s
        top = jnp.max(jnp.abs(y), axis=0) * 0.0078
        shift = (0.0 - mean) * s + b
        return y, jnp.maximum(top, jnp.abs(shift) * 2e-6), shift * s + g

    shapes = ((rows, columns), (rows,), *[(columns,)] * 4)
    check(scales, *(jnp.abs(data("f32", s, i)) + 0.5 for i, s in enumerate(shapes)))


def test_no_value_is_used_outside_of_the_loop_that_computes_it() -> None:
    """The same at the tile level, for the kernel that found it: weights and a batch norm, packed."""

    def layer(params: Any, x: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            x, params["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        n = params["norm"]
        return (y - n["mean"]) * lax.rsqrt(n["var"] + 1e-5) * n["scale"] + n["bias"]

    vector = jax.ShapeDtypeStruct((96,), jnp.float32)
    norm = dict.fromkeys(("mean", "var", "scale", "bias"), vector)
    params = {"w": jax.ShapeDtypeStruct((1, 1, 576, 96), jnp.float32), "norm": norm}
    balance = np.linspace(0.5, 2, 576).astype(np.float32)
    choice = tw.ProductChoice("w8a8", 0.03, balance=balance)
    options = tw.Options(quantization=tw.QuantConfig(products={"params['w']": choice}), weights="params")
    x = jax.ShapeDtypeStruct((1, 4, 4, 576), jnp.float32)
    assert tw.compile(layer, params, x, options=options).report().packing_microseconds
