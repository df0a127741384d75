"""Quantized layers that are written in plain JAX: their products are products of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check
from tiering import sampled

import tilewright as tw

RNG = np.random.default_rng(0)


def whole(*shape: int, dtype: Any = np.int8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.01, 0.1, shape).astype(np.float32)


def convolved(x: jax.Array, w: jax.Array, **options: Any) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **options
    )


CASES: dict[str, tuple[Callable[..., jax.Array], list[Any]]] = {
    "per tensor": (
        lambda x, w: (x.astype("f4") * 0.05) @ (w.astype("f4") * 0.02),
        [whole(17, 33), whole(33, 20)],
    ),
    "affine, per channel": (
        lambda x, w, s: ((x.astype("f4") - 3) * 0.05) @ (w.astype("f4") * s),
        [whole(5, 64), whole(64, 7), positive(7)],
    ),
    "zero points of integers": (
        lambda x, w: ((x.astype("i4") + 128).astype("f4") * 0.5) @ ((w.astype("i4") - 7).astype("f4") * 0.1),
        [whole(6, 31), whole(31, 9)],
    ),
    "per token": (
        lambda x, s, w, t: (x.astype("f4") * s[:, None]) @ (w.astype("f4") * t[:, None]).T,
        [whole(13, 40), positive(13), whole(24, 40), positive(24)],
    ),
    "unsigned": (
        lambda x, w: ((x.astype("f4") - 128) * 0.05) @ (0.25 * w.astype("f4")),
        [whole(9, 16, dtype=np.uint8), whole(16, 5)],
    ),
    "heads": (
        lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q.astype("f4") * 0.1, k.astype("f4") * 0.2),
        [whole(2, 6, 3, 8), whole(2, 5, 3, 8)],
    ),
    "f16": (
        lambda x, w: (x.astype("f2") * jnp.float16(0.01)) @ (w.astype("f2") * jnp.float16(0.01)),
        [whole(8, 32), whole(32, 16)],
    ),
    "a convolution": (
        lambda x, w, s: convolved((x.astype("f4") - 4) * 0.1, w.astype("f4") * s),
        [whole(2, 9, 8, 5), whole(3, 3, 5, 6), positive(6)],
    ),
    "groups": (
        lambda x, w, s: convolved((x.astype("f4") + 9) * 0.1, w.astype("f4") * s, feature_group_count=2),
        [whole(1, 7, 7, 32), whole(3, 3, 16, 6), positive(6)],
    ),
}


def products(program: tw.Program) -> list[str]:
    """The results of the products of a program."""
    walked = program.module("graph").walk()
    return [str(op.results[0].type) for op in walked if op.name in ("graph.contract", "graph.conv")]


@sampled(9)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize("name", CASES)
def test_products_are_of_integers(name: str, target: str) -> None:
    fn, args = CASES[name]
    program = check(fn, *args, target=target, length=64)
    assert products(program) and all("xi32>" in kind for kind in products(program))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, s: (x.astype("f4") * s) @ w.astype("f4"),  # a scale along what is added up
        lambda x, w, s: jnp.exp(x.astype("f4")) @ w.astype("f4"),
        lambda x, w, s: (x.astype("f4") - 200) @ w.astype("f4"),  # no number that is stored stands for 0
        lambda x, w, s: (x.astype("f4") - 0.5) @ w.astype("f4"),
    ],
)
def test_others_stay_products_of_floats(fn: Callable[..., jax.Array]) -> None:
    program = check(fn, whole(4, 8) // 64, whole(8, 3), positive(8), length=8)
    assert all("xf32>" in kind for kind in products(program))


def test_a_layer_is_verified() -> None:
    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        scale = jnp.abs(w).max(0) / 127
        whole_w = jnp.round(w / scale).astype(jnp.int8)
        q = jnp.clip(jnp.round(x / 0.04) + 3, -128, 127).astype(jnp.int8)
        return jax.nn.relu(((q.astype("f4") - 3) * 0.04) @ (whole_w.astype("f4") * scale) + b)

    args = [RNG.standard_normal(s).astype(np.float32) for s in [(12, 30), (30, 18), (18,)]]
    assert tw.verify(layer, *args).ok
    assert products(tw.compile(layer, *args)) == ["tensor<12x18xi32>"]
