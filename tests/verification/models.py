"""Small programs for the wrong passes: each has what one kind of mistake needs to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def data(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed + len(shape)).standard_normal(shape, np.float32))


def mlp(x, w, b):
    return jnp.maximum(x @ w + b, 0)


def layers(x, w, v):
    return jnp.maximum(x @ w, 0.25) @ v


def softmax(x):
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def norm(x, s):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + 0.0123) * s + 0.5


def moves(x):
    return jax.lax.pad(x[1:9, 2:20], 0.0, ((1, 2, 0), (3, 0, 0))) * 2


def square(x, w):
    return x @ w + x.T


def causal(x):
    n = x.shape[-1]
    keep = jnp.arange(n)[:, None] >= jnp.arange(n)[None, :]
    return jnp.where(keep, x, -1.0) * 3


def apart(x, y):
    """Two results, so that one may be taken for the other."""
    return jnp.exp((x - y) * 0.5), x * y - x


def deep(x, w):
    """A product over many steps of k."""
    return x @ w


def wide(x, w):
    """A product of many tiles for each core."""
    return x @ w


def long(x):
    """Rows that do not fit on chip."""
    return x.sum(axis=-1)


def turned(x, y):
    """Complex numbers, multiplied."""
    z = jax.lax.complex(x, y) * jax.lax.complex(y, x + 1)
    return jnp.real(z), jnp.imag(z)


def chain(x, w, v):
    """Tensors that live over several kernels."""
    a = x @ w
    b = jnp.tanh(a) @ v
    return (a + 1) @ w + b


def update(x, u):
    """An update that needs the old contents again."""
    return jax.lax.dynamic_update_slice(x, u, (2, 3)), x * 2


def quadratic(x, w):
    """Much more between two products than goes in and comes out, cut by rows: one result is put together, the other
    added up."""
    e = jnp.tanh(x @ w.T)
    return e @ w, e.T @ x


def rounds(x, w):
    """Rounds of a product with a weight that is the same in each."""

    def body(_, c):
        return jnp.tanh((c * 0.5) @ jnp.exp(w * 0.1).cumsum(0)) + c

    return jax.lax.fori_loop(0, 3, body, x)


def slices(x):
    """Each round takes the rows that its number says."""

    def body(i, c):
        return jnp.tanh(c + jax.lax.dynamic_slice(x, (i * 2 + 1, 0), (2, 24)))

    return jax.lax.fori_loop(0, 4, body, x[:2])


def choice(x):
    return jax.lax.cond(x.sum() > 1e6, lambda x: jnp.exp(x), lambda x: x * 3 - 1, x)


@jax.jit
def block(x, y):
    """Large enough to stay a function."""
    for i in range(20):
        x = jnp.sin(x) * (1 + i / 8) - y
    z = x.sum(axis=-1, keepdims=True) + y
    return jnp.exp(-(z * z)) @ y.T @ x


def calls(x, y):
    a = block(x, y)
    return block(a, x) + a


def ordered(x):
    return jnp.sort(x, axis=-1)


def scattered(x, i, u):
    return x.at[i].add(u)


def hosted(x):
    y = x @ x.T
    return jnp.linalg.cholesky(y + 90 * jnp.eye(len(y), dtype=y.dtype)) @ jnp.tanh(x)


def running(x):
    return jnp.cumsum(x, axis=0)


QUANTIZED = """func.func @main(%x: tensor<20x30xf32>) -> tensor<20x30xf32> {
  %q = stablehlo.uniform_quantize %x : (tensor<20x30xf32>) -> tensor<20x30x!quant.uniform<i8:f32, 0.05:3>>
  %y = stablehlo.uniform_dequantize %q : (tensor<20x30x!quant.uniform<i8:f32, 0.05:3>>) -> tensor<20x30xf32>
  return %y : tensor<20x30xf32>
}
"""
"""StableHLO: JAX has no quantized tensors."""

def token(x: jax.Array, w: jax.Array) -> jax.Array:
    """A norm of one row, and a product that reads it."""
    y = x - x.mean(axis=-1, keepdims=True)
    return (y * jax.lax.rsqrt((y * y).mean(axis=-1, keepdims=True) + 1e-5)) @ w


def window(x: jax.Array, w: jax.Array) -> jax.Array:
    """A convolution with a window of 3 x 3."""
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


MODELS: dict[str, tuple[Callable[..., Any] | str, tuple[Any, ...]]] = {
    "quantized": (QUANTIZED, (data(20, 30),)),
    "mlp": (mlp, (data(24, 70), data(70, 50, seed=1), data(50))),
    "layers": (layers, (data(24, 70), data(70, 50, seed=1), data(50, 30, seed=2))),
    "softmax": (softmax, (data(40, 50),)),
    "norm": (norm, (data(40, 50), data(50))),
    "moves": (moves, (data(12, 24),)),
    "square": (square, (data(48, 48), data(48, 48, seed=3))),
    "causal": (causal, (data(30, 30),)),
    "apart": (apart, (data(70, 100), data(70, 100, seed=5))),
    "deep": (deep, (data(32, 1500), data(1500, 48, seed=1))),
    "wide": (wide, (data(900, 40), data(40, 900, seed=1))),
    "quadratic": (quadratic, (data(64, 4), data(64, 4, seed=1))),
    "window": (window, (data(1, 8, 8, 4), data(3, 3, 4, 8, seed=1))),
    "long": (long, (data(25, 50021),)),
    "turned": (turned, (data(20, 30), data(20, 30, seed=1))),
    "chain": (chain, (data(32, 32), data(32, 32, seed=1), data(32, 32, seed=2))),
    "update": (update, (data(20, 30), data(4, 5))),
    "rounds": (rounds, (data(20, 30), data(30, 30, seed=2))),
    "slices": (slices, (data(12, 24),)),
    "choice": (choice, (data(20, 30),)),
    "calls": (calls, (data(20, 20), data(20, 20, seed=4))),
    "ordered": (ordered, (data(20, 50),)),
    "scattered": (scattered, (data(40, 20), jnp.asarray([3, 7, 3, 30]), data(4, 20, seed=1))),
    "hosted": (hosted, (data(24, 40),)),
    "token": (token, (data(1, 512), data(512, 512, seed=1))),
    "running": (running, (data(30, 20),)),
}
