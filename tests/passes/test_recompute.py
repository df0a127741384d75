"""Recomputation of producers: kernels make small rows that they read themselves, and the values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import assert_close, data, tolerance
from hypothesis import given, settings
from hypothesis import strategies as st
from memories import outputs

import tilewright as tw
from tilewright.dialects.graph import FusionOp
from tilewright.passes.lower.recomputed import nested_in

NORMS = {
    "rms": lambda x: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5),
    "layer": lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "none": jnp.tanh,
}


def layer(norm: str, residual: bool) -> Any:
    """Two products, each of a row that a norm makes."""

    def fn(x: jax.Array, w: jax.Array, v: jax.Array, b: jax.Array) -> Any:
        h = NORMS[norm]((x + b).astype(jnp.float32)).astype(x.dtype)
        y = jnp.maximum(h @ w, 0) @ v
        y = x + y if residual else y
        return NORMS[norm](y.astype(jnp.float32)).astype(x.dtype), y

    return fn


def arguments(dtype: str, summed: int, hidden: int) -> tuple[jax.Array, ...]:
    shapes = (1, summed), (summed, hidden), (hidden, summed), (summed,)
    return tuple(data(dtype, shape, seed=i) * 0.3 for i, shape in enumerate(shapes))


def kernels(fn: Any, args: Any, **options: Any) -> int:
    return len(tw.compile(fn, *args, options=tw.Options(**options)).report().kernels)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(NORMS)),
    st.booleans(),
    st.sampled_from(["f16", "bf16", "f32"]),
    st.sampled_from([1, 7, 48, 129, 512]),
    st.sampled_from([3, 32, 257, 768]),
)
def test_values(norm: str, residual: bool, dtype: str, summed: int, hidden: int) -> None:
    fn, args = layer(norm, residual), arguments(dtype, summed, hidden)
    wide = jax.jit(fn)(*(a.astype(jnp.float32) for a in args))
    for got, want in zip(outputs(tw.compile(fn, *args), args), wide, strict=True):
        assert_close(got, want.astype(args[0].dtype), tolerance([args[0].dtype], summed + hidden))


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_a_norm_is_made_by_the_product_that_reads_it(norm: str) -> None:
    fn, args = layer(norm, True), arguments("f16", 768, 3072)
    ours, theirs = (
        tw.compile(fn, *args, options=tw.Options(without=out)).report() for out in ((), "recompute")
    )
    assert ours.microseconds < theirs.microseconds
    assert len(ours.kernels) < len(theirs.kernels)


def batch_norm(x: jax.Array, g: jax.Array) -> jax.Array:
    """What sums over many rows give is read by kernels of all rows."""
    centred = x - x.mean((0, 1))
    return centred * jax.lax.rsqrt((centred * centred).mean((0, 1)) + 1e-5) * g


def weighted(x: jax.Array, s: jax.Array, w: jax.Array) -> jax.Array:
    """The row is read by the epilogue of a product on the cube."""
    return (x @ w) * jax.nn.softmax(s, axis=-1)


def scaled(x: jax.Array, y: jax.Array) -> jax.Array:
    """The row is one number."""
    return y * jnp.sqrt((x * x).sum())


READERS: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "batch norm": (batch_norm, (data("f32", (16, 64, 128)), data("f32", (128,), seed=1))),
    "epilogue": (
        weighted,
        tuple(data("f16", s, seed=i) for i, s in enumerate([(512, 256), (1, 512), (256, 512)])),
    ),
    "number": (scaled, (data("f32", (4, 256)), data("f32", (64, 256), seed=1))),
}


@pytest.mark.parametrize("name", sorted(READERS))
def test_kernels_of_all_kinds_make_rows(name: str) -> None:
    """A fusion inside another one makes a row there, and the values stay."""
    fn, args = READERS[name]
    program = tw.compile(fn, *args)
    fusions = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    assert any(nested_in(fusion) for fusion in fusions)
    apart = tw.compile(fn, *args, options=tw.Options(without="recompute")).report()
    assert program.report().microseconds < apart.microseconds
    wants = jax.tree.leaves(jax.jit(fn)(*(a.astype(jnp.float32) for a in args)))
    for got, want in zip(outputs(program, args), wants, strict=True):
        assert_close(got, want.astype(args[0].dtype), tolerance([args[0].dtype], 1024))


def test_a_row_that_is_a_result_stays() -> None:
    """Its kernel is there besides, and no barrier parts the two."""

    def fn(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        row = jnp.tanh(x.sum(0))
        return row, y * (row / row.max())

    args = data("f32", (4, 640)), data("f32", (96, 640), seed=1)
    program = tw.compile(fn, *args)
    made = [nested_in(op) for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    assert any(made) and kernels(fn, args) == kernels(fn, args, without="recompute")
    for got, want in zip(outputs(program, args), fn(*args), strict=True):
        assert_close(got, want, tolerance([jnp.float32], 640))


def test_rows_with_a_place_in_a_cache() -> None:
    """The kernel that stores a row in a cache, at a place that is an argument, adds up its parts itself."""

    def fn(x: jax.Array, w: jax.Array, cache: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = x @ w
        return jax.lax.dynamic_update_slice(cache, y * 2, (at, 0)), (y @ w.T)

    args = (
        data("f32", (1, 512)),
        data("f32", (512, 384), seed=1) * 0.1,
        data("f32", (64, 384), seed=2),
        jnp.int32(5),
    )
    for got, want in zip(outputs(tw.compile(fn, *args), args), fn(*args), strict=True):
        assert_close(got, want, tolerance([jnp.float32], 1024))


@pytest.mark.parametrize(
    "fn", [lambda x: jnp.roll(x[:, ::2], 5, 1), lambda x: jax.lax.associative_scan(jnp.maximum, x.T)]
)
def test_updates_of_what_others_began_are_verified(fn: Callable[[jax.Array], jax.Array]) -> None:
    """Parts that are stored into one tensor, of rows that the kernels make themselves: verify runs them as they are."""
    x = np.random.default_rng(0).standard_normal((1, 97)).astype(np.float16)
    assert tw.verify(fn, x).ok


def test_what_many_kernels_read_is_made_once() -> None:
    """A row that twenty products read, each of which would make it again for longer than they wait for it."""

    def fn(x: jax.Array, w: jax.Array) -> list[jax.Array]:
        h = NORMS["layer"](x)
        return [jnp.tanh(h @ w[i]) for i in range(20)]

    args = data("f32", (1, 1024)), data("f32", (20, 1024, 64))
    assert kernels(fn, args) == kernels(fn, args, without="recompute")


def test_rows_in_loops_are_made_in_the_loop() -> None:
    """A step of a loop that carries a row: its kernels make what they read of a step themselves."""

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, x: NORMS["rms"](x) @ w + x, x)

    args = data("f32", (1, 512)), data("f32", (512, 512)) * 0.05
    (found,) = outputs(tw.compile(fn, *args), args)
    assert_close(found, fn(*args), tolerance([jnp.float32], 3 * 512))
    assert kernels(fn, args) <= kernels(fn, args, without="recompute")
