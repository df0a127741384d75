"""Whole functions of JAX's library that need the host: linear algebra, transforms, custom calls, random draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from jax import lax
from jax.experimental import io_callback
from tiering import sampled

import tilewright as tw

A, S = data("f32", (6, 4)), data("f32", (5, 5))


def positive(a: jax.Array) -> jax.Array:
    return a @ a.T + 5 * jnp.eye(a.shape[0])


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (lambda a, b: jnp.linalg.solve(positive(a), b), (S, S[:, :2])),
    "cholesky, inverse, determinant": (
        lambda a: (
            jnp.linalg.cholesky(positive(a)),
            jnp.linalg.inv(positive(a)),
            jnp.linalg.det(positive(a)),
        ),
        (S,),
    ),
    "singular values, eigenvalues": (
        lambda a: (jnp.linalg.svd(a, compute_uv=False), jnp.linalg.eigvalsh(a.T @ a)),
        (A,),
    ),
    "fft": (lambda a: jnp.abs(jnp.fft.fft2(a)), (S,)),
    "a convolution by fft": (lambda a: jnp.fft.irfft(jnp.fft.rfft(a) * jnp.fft.rfft(a[::-1])), (A,)),
    "approximate top k": (lambda a: lax.approx_max_k(a, 3), (data("f32", (5, 64)),)),
    "a loop of draws": (lambda k, a: jax.random.gamma(k, jnp.abs(a) + 1), (jax.random.key(3), A[0])),
    "a shuffle": (
        lambda k, a: (jax.random.permutation(k, a), jax.random.choice(k, 9, (3,), replace=False)),
        (jax.random.key(3), A[0]),
    ),
}


@sampled(12)
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_the_library(name: str) -> None:
    fn, args = PROGRAMS[name]
    check(fn, *args, length=100, host=True)


def test_python_functions() -> None:
    """jax.pure_callback: alone, in a loop, mapped, with several results; the text of the program calls them too."""

    def sums(v: Any, k: Any) -> Any:
        return np.cumsum(v, dtype=np.float32), np.float32(v.sum() * k)

    def fn(x: jax.Array) -> Any:
        row, scalar = jax.ShapeDtypeStruct((4,), np.float32), jax.ShapeDtypeStruct((), np.float32)
        first, total = jax.pure_callback(sums, (row, scalar), x[0], 3.0)
        looped = lax.fori_loop(0, 3, lambda k, c: c + jax.pure_callback(lambda v, k: v * k, row, c, k), first)
        each = jax.vmap(lambda r: jax.pure_callback(np.max, scalar, r, vmap_method="sequential"))(x)
        return (
            jnp.tanh(looped) + total,
            each,
            jax.pure_callback(lambda v: v > 0, row.update(dtype=bool), x[1]),
        )

    program = check(fn, A, host=True)
    want = jax.tree.leaves(jax.jit(fn)(A))
    for got, expected in zip(tw.compile(program.ir("npu"))(A), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_python_function_of_another_process_is_named() -> None:
    def fn(x: jax.Array) -> jax.Array:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    text = re.sub(r"(python_callback = )\d+", r"\g<1>999999", tw.compile(fn, A).ir("npu"))
    with pytest.raises(tw.CompileError, match="calls Python function 999999 of the process that compiled it"):
        tw.compile(text)(A)


def test_effects_in_python_are_refused() -> None:
    def fn(x: jax.Array) -> jax.Array:
        return io_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(
        tw.CompileError, match=r"'stablehlo.custom_call' \(.*test_host.py:\d+\) has effects in Python"
    ):
        tw.compile(fn, A)


@sampled(2)
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"])
def test_packed_types_in_both_memories(dtype: str) -> None:
    """XLA packs them; in memory each has a byte."""

    def fn(x: jax.Array, y: jax.Array) -> Any:
        rolled = lax.fori_loop(0, 3, lambda k, c: jnp.roll(c, 1), y)
        return (
            x.astype(dtype),
            y[::-1].reshape(1, -1),
            rolled,
            y.astype(jnp.float32) * x,
            jnp.where(x > 0, y, y[0]),
        )

    x = jnp.arange(5.0) - 2
    program = tw.compile(fn, x, x.astype(dtype))
    want = jax.tree.leaves(jax.jit(fn)(x, x.astype(dtype)))
    for memory in ("typed", "bytes"):
        got = program.executable(memory)(*program.flatten((x, x.astype(dtype))))
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(np.asarray(a).astype(np.float32), np.asarray(b).astype(np.float32))
