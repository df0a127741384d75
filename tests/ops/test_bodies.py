"""Reductions, windows, cumulative ops, maps, sorts and scatters with bodies of any scalar functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import SIZES, assert_close, check, data, host_ops, shapes
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples, sampled

import tilewright as tw
from tilewright.backends.functions.host import run_text

LOW = np.float32(-np.inf)


@examples(6)
@given(
    shape=shapes(1, 3, largest=3000),
    dtype=st.sampled_from(["f32", "f16", "bf16"]),
    place=st.integers(0, 2),
    reverse=st.booleans(),
)
def test_cumlogsumexp(shape: tuple[int, ...], dtype: str, place: int, reverse: bool) -> None:
    axis = place % len(shape)
    check(
        lambda x: lax.cumlogsumexp(x, axis=axis, reverse=reverse),
        data(dtype, shape),
        length=shape[axis],
    )


def last_set(a: Any, b: Any) -> Any:
    """Associative, and not commutative: the last element that is not 0."""
    return jnp.where(b != 0, b, a)


def affine(a: Any, b: Any) -> Any:
    """Functions x -> m x + c, one after the other; on integers, where nothing is rounded."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def moments(a: Any, b: Any) -> Any:
    """Count, mean and squared distances of two samples."""
    n, d = a[0] + b[0], b[1] - a[1]
    share = b[0] / jnp.maximum(n, 1)
    return n, a[1] + d * share, a[2] + b[2] + d * d * a[0] * share


@examples(6)
@given(n=st.sampled_from((*SIZES, 1009)), rows=st.integers(1, 3), axis=st.integers(0, 1))
def test_order_is_kept(n: int, rows: int, axis: int) -> None:
    shape = (n, rows) if axis == 0 else (rows, n)
    x = data("i32", shape) * (data("i32", shape, 1) > 50)
    check(lambda x: lax.reduce(x, np.int32(0), last_set, (axis,)), x)
    check(
        lambda a, b: lax.reduce((a, b), (np.int32(1), np.int32(0)), affine, (axis,)),
        data("i32", shape) % 5,
        data("i32", shape, 1),
        memories=("typed",),
    )


@examples(5)
@given(
    shape=st.tuples(st.integers(3, 13), st.integers(4, 31)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 9)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    low=st.tuples(st.integers(0, 2), st.integers(0, 5)),
    dilation=st.integers(1, 2),
)
def test_windows(shape: Any, window: Any, strides: Any, low: Any, dilation: int) -> None:
    """Windows that stick out, step and have holes. The start value is no neutral element."""
    check(
        lambda x: lax.reduce_window(
            x,
            np.float32(0.5),
            jnp.logaddexp,
            window,
            strides,
            ((low[0], 1), (low[1], 8)),
            window_dilation=(1, dilation),
        ),
        data("f32", shape),
        length=math.prod(window),
    )


def xor(x: jax.Array) -> jax.Array:
    return lax.reduce_xor(x, axes=(0, 1))


def absolute_argmax(x: jax.Array) -> Any:
    def larger(a: Any, b: Any) -> Any:
        keep = (jnp.abs(a[0]) > jnp.abs(b[0])) | ((jnp.abs(a[0]) == jnp.abs(b[0])) & (a[1] < b[1]))
        return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])

    places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return lax.reduce((x, places), (np.float32(0), np.int32(2**31 - 1)), larger, (1,))


def statistics(x: jax.Array) -> Any:
    zero = np.float32(0)
    return lax.reduce((jnp.ones_like(x), x, jnp.zeros_like(x)), (zero, zero, zero), moments, (0, 1))


X = data("f32", (13, 97))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "logsumexp": (lambda x: lax.reduce(x, LOW, jnp.logaddexp, (0, 1)), (X[:, :31],)),
    "an axis without elements": (lambda x: lax.reduce(x, LOW, jnp.logaddexp, (0,)), (data("f32", (0, 7)),)),
    "xor": (xor, (data("i32", (31, 130)),)),
    "the largest magnitude": (absolute_argmax, (jnp.round(X[:, :31]),)),
    "mean and variance": (statistics, (X[:7, :31],)),
    "gradient of cumlogsumexp": (jax.grad(lambda x: jnp.sum(lax.cumlogsumexp(x, axis=1) ** 2)), (X[:3, :13],)),
    "base dilation": (
        lambda x: lax.reduce_window(
            x, LOW, jnp.logaddexp, (3, 2), (2, 1), ((1, 1), (0, 3)), base_dilation=(2, 3)
        ),
        (X[:5, :11],),
    ),
    "scatter of differences": (lambda x, i: x.at[i].add(-x[:5]), (X, jnp.asarray([3, 1, 3, 99, 12]))),
}


@sampled(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    fn, args = PROGRAMS[name]
    check(fn, *args, length=100)


def test_map() -> None:
    text = """func.func @main(%x: tensor<5x7xf32>, %y: tensor<5x7xf32>) -> tensor<5x7xf32> {
      %0 = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %half = stablehlo.constant dense<0.5> : tensor<f32>
          %s = stablehlo.multiply %a, %half : tensor<f32>
          %r = stablehlo.add %s, %b : tensor<f32>
          stablehlo.return %r : tensor<f32>
      }) : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x7xf32>
      return %0 : tensor<5x7xf32>
    }"""
    program, (x, y) = tw.compile(text), (data("f32", (5, 7)), data("f32", (5, 7), 1))
    assert not host_ops(program)
    assert_close(program(x, y), run_text(text, [x, y])[0], 1e-6)


def test_few_launches() -> None:
    """A long row takes a few kernels, whose number grows with the logarithm of its length."""
    x = data("f32", (8, 4096))
    launches = [
        sum(k.launches for k in tw.compile(f, x).report().kernels)
        for f in (lambda x: lax.reduce(x, LOW, jnp.logaddexp, (1,)), lambda x: lax.cumlogsumexp(x, axis=1))
    ]
    assert launches[0] <= 4
    assert launches[1] <= 7
