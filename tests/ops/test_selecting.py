"""Select-and-scatter on the vector cores, and the gradients of pooling that it is made for."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import FLOATS, assert_close, check, data, host_ops, targets, tolerance
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from memories import outputs
from tiering import examples, sampled

import tilewright as tw
from tilewright.backends.functions.host import run_text
from tilewright.dialects.graph.reductions import window_count

BODIES = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
NAMES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "i32": "i32", "i8": "i8", "ui16": "ui16"}


def module(
    dtype: str,
    shape: list[int],
    window: list[int],
    strides: list[int],
    padding: list[list[int]],
    select: str,
    kind: str,
    init: str,
) -> tuple[str, list[int]]:
    """StableHLO of one select_and_scatter, and the shape of its source."""
    spec = zip(shape, window, strides, padding, strict=True)
    counts = [window_count(n + lo + hi, w, s, 1) for n, w, s, (lo, hi) in spec]
    x, y = ("x".join([*map(str, s), NAMES[dtype]]) for s in (shape, counts))
    e = NAMES[dtype]
    text = f"""func.func @main(%x: tensor<{x}>, %s: tensor<{y}>) -> tensor<{x}> {{
      %init = stablehlo.constant dense<{init}> : tensor<{e}>
      %0 = "stablehlo.select_and_scatter"(%x, %s, %init) <{{
          padding = dense<{padding}> : tensor<{len(shape)}x2xi64>,
          window_dimensions = array<i64: {str(window)[1:-1]}>,
          window_strides = array<i64: {str(strides)[1:-1]}>}}> ({{
        ^bb0(%a: tensor<{e}>, %b: tensor<{e}>):
          %r = stablehlo.compare {select.upper()}, %a, %b : (tensor<{e}>, tensor<{e}>) -> tensor<i1>
          stablehlo.return %r : tensor<i1>
      }}, {{
        ^bb0(%a: tensor<{e}>, %b: tensor<{e}>):
          %r = stablehlo.{BODIES[kind]} %a, %b : tensor<{e}>
          stablehlo.return %r : tensor<{e}>
      }}) : (tensor<{x}>, tensor<{y}>, tensor<{e}>) -> tensor<{x}>
      return %0 : tensor<{x}>
    }}"""
    return text, counts


def compare(text: str, x: Any, source: Any, target: str = "ascend-910b1") -> None:
    """The program on the device in each memory is what XLA makes of it."""
    program = tw.compile(text, target=target)
    assert not host_ops(program)
    (want,) = run_text(text, [x, source])
    (got,) = outputs(program, [x, source])
    assert_close(got, want, tolerance([np.asarray(x).dtype], 16))


def ties(dtype: str, shape: list[int], seed: int = 0) -> jax.Array:
    """Few different values, so that windows have several largest ones."""
    values = np.random.default_rng(seed).integers(0, 4, shape)
    return jnp.asarray(values).astype(data(dtype, ()).dtype)


def apart(dtype: str, shape: list[int]) -> jax.Array:
    """Values that all differ."""
    values = np.random.default_rng(0).permutation(math.prod(shape)).reshape(shape)
    return jnp.asarray(values).astype(data(dtype, ()).dtype)


@examples(6)
@given(
    draw=st.data(),
    dtype=st.sampled_from(tuple(NAMES)),
    select=st.sampled_from(("ge", "gt", "le", "lt")),
    kind=st.sampled_from(tuple(BODIES)),
    target=targets(),
)
def test_any_window(draw: st.DataObject, dtype: str, select: str, kind: str, target: str) -> None:
    """Windows that overlap, leave gaps, stick out on either side; ties; start values. Which of equal elements XLA
    selects is the first one only where windows have no border, so that there are no ties where they have."""
    rank = draw.draw(st.integers(1, 3))
    shape, window, strides, padding = [], [], [], []
    for _ in range(rank):
        w = draw.draw(st.integers(1, 4 if math.prod(window) < 4 else 1))
        lo, hi = (draw.draw(st.integers(0, w - 1)) for _ in range(2))
        n = draw.draw(st.sampled_from((2, 5, 7, 13)))
        shape.append(max(n, w - lo - hi))
        window.append(w)
        strides.append(draw.draw(st.integers(1, 5)))
        padding.append([lo, hi])
    bordered = any(lo or hi for lo, hi in padding)
    if bordered:
        dtype = "f32" if dtype in FLOATS else "i32"
    init = draw.draw(st.sampled_from(("0", "3"))) + (".0" if dtype in FLOATS else "")
    text, counts = module(dtype, shape, window, strides, padding, select, kind, init)
    source = ties(dtype, counts, 1) if kind == "prod" else data(dtype, counts, 1)
    x = ties(dtype, shape) if not bordered else apart(dtype, shape)
    compare(text, x, source, target)


POOLS = {
    "2x2": ((2, 8, 8, 5), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    "2x2 over odd sizes": ((2, 7, 9, 5), (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
    "3x3 by 2": ((2, 13, 9, 5), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "3x3 by 1, channels first": ((1, 3, 7, 11), (1, 1, 3, 3), (1, 1, 1, 1), "VALID"),
    "gaps": ((17, 13), (2, 3), (3, 5), "VALID"),
    "all of the image": ((3, 9, 11, 2), (1, 9, 11, 1), (1, 1, 1, 1), "VALID"),
    "large windows": ((2, 31, 40), (1, 10, 9), (1, 7, 9), "SAME"),
    "no windows": ((3, 5), (1, 7), (1, 1), "VALID"),
}


@sampled(8)
@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_pooling(name: str) -> None:
    """Rounded inputs have ties: the first of equal elements gets all, as with XLA."""
    shape, window, strides, padding = POOLS[name]

    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding) ** 2)

    x = jnp.round(2 * data("f32", shape))
    check(jax.grad(loss), x, length=16)


def test_cropped_windows() -> None:
    """Negative padding. XLA takes a window's elements in another order there, so that there are no ties here."""
    text, counts = module("f32", [7, 13], [2, 3], [2, 2], [[-1, 0], [-1, 1]], "ge", "sum", "0.0")
    compare(text, data("f32", (7, 13)), data("f32", counts, 1))


def test_nan_and_infinities() -> None:
    """Of a window's NaN and the number after it, the later one is selected, whatever the border is."""
    text, counts = module("f32", [4, 7], [2, 3], [1, 2], [[1, 0], [1, 1]], "ge", "sum", "0.0")
    x = data("f32", (4, 7)).at[0, 2].set(jnp.nan).at[2].set(-jnp.inf).at[3, 6].set(jnp.nan)
    compare(text, x, data("f32", counts, 1))


def test_any_selection() -> None:
    """By magnitude, which is a function of its own."""
    text, counts = module("f32", [9, 7], [3, 2], [2, 2], [[0, 0], [1, 0]], "ge", "sum", "0.0")
    compared = "%r = stablehlo.compare GE, %a, %b"
    by_size = """%c = stablehlo.abs %a : tensor<f32>
          %d = stablehlo.abs %b : tensor<f32>
          %r = stablehlo.compare GE, %c, %d"""
    assert compared in text
    compare(text.replace(compared, by_size), data("f32", (9, 7)), data("f32", counts, 1))


def test_one_kernel_reads_once() -> None:
    """Neither a scatter nor a copy of the padded input."""

    def backward(x: jax.Array, y: jax.Array) -> jax.Array:
        def pool(v: jax.Array) -> jax.Array:
            return lax.reduce_window(v, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

        return jax.vjp(pool, x)[1](y)[0]

    x, y = data("f32", (4, 56, 56, 32)), data("f32", (4, 28, 28, 32))
    report = tw.compile(backward, x, y).report()
    assert [k.name for k in report.kernels][:1] == ["select_and_scatter_0"]
    assert len(report.kernels) <= 2
    # rows at the border of two tiles are read for both
    assert report.kernels[0].bytes["read"] < 2.6 * (x.nbytes + y.nbytes)
    assert report.kernels[0].bytes["write"] < 1.1 * x.nbytes
