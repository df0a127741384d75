"""Programs whose kernels are placed in different ways: what `explain` says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from explain_models import arrays

import tilewright as tw
from tilewright.explain import compile_with_levels, page_data
from tilewright.explain.levels import LevelView

Json = dict[str, Any]
HERE = Path(__file__)
"""The file of the functions below."""


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x)


def epilogue(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w + b)


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


def pooled(x: jax.Array, w: jax.Array) -> jax.Array:
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.lax.reduce_window(jax.nn.relu(y), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T / 8.0) @ v


def copy(x: jax.Array, at: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice(x, x[:8] * 2, (at, 0))


def sort(x: jax.Array) -> jax.Array:
    return jnp.sort(x)


def running(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x, 1)


def scattered(x: jax.Array, at: jax.Array, updates: jax.Array) -> jax.Array:
    return x.at[at].set(updates)


def windows(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (9, 5), (1, 1), "SAME")


heads = jax.vmap(attention)

CASES: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "softmax": (softmax, arrays((512, 1024)), "ascend-910b1"),
    "long": (softmax, arrays((64, 300_000), dtype=jnp.float32), "ascend-910b1"),
    "epilogue": (epilogue, arrays((512, 256), (256, 384), (384,)), "ascend-910b1"),
    "drained": (epilogue, arrays((512, 256), (256, 384), (384,)), "ascend-310p3"),
    "product": (product, arrays((1024, 512), (512, 2048)), "ascend-910b1"),
    "pooled": (pooled, arrays((8, 32, 32, 32), (3, 3, 32, 64)), "ascend-910b1"),
    "attention": (attention, arrays((2048, 64), (2048, 64), (2048, 64)), "ascend-910b1"),
    "decoding": (heads, arrays((16, 1, 64), (16, 2048, 64), (16, 2048, 64)), "ascend-910b1"),
    "copy": (copy, [*arrays((64, 512)), *arrays((), dtype=jnp.int32)], "ascend-910b1"),
    "sort": (sort, arrays((64, 512)), "ascend-910b1"),
    "running": (running, arrays((3, 300_000)), "ascend-910b1"),
    "scattered": (
        scattered,
        [*arrays((101, 37)), *arrays((5300,), dtype=jnp.int32), *arrays((5300, 37))],
        "ascend-910b1",
    ),
    "windows": (windows, arrays((57, 61)), "ascend-910b1"),
}
cases = pytest.mark.parametrize("name", CASES)


@cache
def made(name: str) -> tuple[tw.Program, list[LevelView], Json]:
    fn, args, target = CASES[name]
    compiled, views = compile_with_levels(fn, *args, target=target)
    return compiled, views, page_data(compiled, views=views)


def plans(name: str) -> dict[str, Json]:
    return {kernel: found["plan"] for kernel, found in made(name)[2]["kernels"].items()}


def plan(name: str, stem: str) -> Json:
    (found,) = (each for kernel, each in plans(name).items() if kernel.startswith(stem))
    return found
