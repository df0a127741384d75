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


def chain(x, w, v):
    """Tensors that live over several kernels."""
    a = x @ w
    b = jnp.tanh(a) @ v
    return (a + 1) @ w + b


def update(x, u):
    """An update that needs the old contents again."""
    return jax.lax.dynamic_update_slice(x, u, (2, 3)), x * 2


MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, (data(24, 70), data(70, 50, seed=1), data(50))),
    "softmax": (softmax, (data(40, 50),)),
    "norm": (norm, (data(40, 50), data(50))),
    "moves": (moves, (data(12, 24),)),
    "square": (square, (data(48, 48), data(48, 48, seed=3))),
    "causal": (causal, (data(30, 30),)),
    "apart": (apart, (data(70, 100), data(70, 100, seed=5))),
    "deep": (deep, (data(32, 1500), data(1500, 48, seed=1))),
    "wide": (wide, (data(900, 40), data(40, 900, seed=1))),
    "long": (long, (data(9, 60001),)),
    "chain": (chain, (data(32, 32), data(32, 32, seed=1), data(32, 32, seed=2))),
    "update": (update, (data(20, 30), data(4, 5))),
}
