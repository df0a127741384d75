"""Programs whose pages the tests look at: shared kernels, a loop with a host call, hand-written levels."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.explain import page_data


def layers(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """Two equal layers, which share a kernel, and a softmax."""
    for _ in range(2):
        x = jax.nn.relu(x @ w + b)
    return jax.nn.softmax(x)


def loop(x: jax.Array) -> jax.Array:
    """A loop with a test on the host and an op that has no kernel."""
    x = jax.lax.while_loop(lambda v: jnp.sum(v) < 100.0, lambda v: v * 1.5 + 1.0, x)
    return jnp.linalg.cholesky(x @ x.T + jnp.eye(x.shape[0], dtype=x.dtype))


def big(x: jax.Array, w: jax.Array) -> jax.Array:
    """A product that re-reads its right side."""
    return x @ w


def arrays(*shapes: tuple[int, ...], dtype: Any = jnp.float16) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(s, dtype) for s in shapes]


CASES: dict[str, tuple[Any, list[Any], str]] = {
    "layers": (layers, arrays((300, 256), (256, 256), (256,)), "ascend-910b1"),
    "fused": (layers, arrays((300, 256), (256, 256), (256,)), "ascend-310"),
    "loop": (loop, arrays((24, 24), dtype=jnp.float32), "ascend-910b1"),
    "big": (big, arrays((1024, 512), (512, 2048)), "ascend-910b1"),
}


@cache
def program(name: str) -> tw.Program:
    fn, args, target = CASES[name]
    return tw.compile(fn, *args, target=target)


@cache
def data(name: str) -> dict[str, Any]:
    return page_data(program(name))
