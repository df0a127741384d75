"""Scales of weights: where steps are finer, what is stored, and what gradient passes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw
from tilewright.passes.quantized.recipes import largest_stored


@pytest.mark.parametrize(("high", "many"), [(7, 22), (127, 382)])
def test_steps_are_finer_where_that_lessens_the_error(high: int, many: int) -> None:
    assert largest_stored(high, many - 1) == high
    assert largest_stored(high, many) == high + 0.5

    def error(count: int, top: float) -> float:
        w = np.random.default_rng(count).uniform(-1, 1, (400_000 // count, count))
        scale = np.abs(w).max(1, keepdims=True) / top
        return float(np.mean((np.clip(np.rint(w / scale), -high, high) * scale - w) ** 2))

    assert error(many // 4, high) < error(many // 4, high + 0.5)
    assert error(many * 4, high) > error(many * 4, high + 0.5)


def product(w: jax.Array, x: jax.Array) -> jax.Array:
    return x @ w


@pytest.mark.parametrize("group", [16, 32])
def test_stored_weights_are_those_of_numpy(group: int) -> None:
    w = np.random.default_rng(group).standard_normal((64, 24)).astype(np.float32)
    program = tw.compile(
        product, w, np.eye(64, dtype=np.float32), options=tw.Options(quantization=f"w4a16-g{group}", weights="w")
    )
    blocks = w.reshape(-1, group, 24)
    scale = np.abs(blocks).max(1, keepdims=True) * np.float32(1 / (7 if group == 16 else 7.5))
    wanted = np.clip(np.rint(blocks * (1 / scale)), -7, 7).astype(np.float32) * scale
    got = np.asarray(program(w, np.eye(64, dtype=np.float32)))
    np.testing.assert_array_equal(got, wanted.reshape(64, 24).astype(np.float16).astype(np.float32))


@sampled(3)
@pytest.mark.parametrize("mode", ["w4a16-g32", "w8a8-dynamic", "w4a8-dynamic"])
def test_a_gradient_passes_the_largest_weights(mode: str) -> None:
    w = jnp.asarray(np.random.default_rng(3).standard_normal((512, 8)), jnp.float32)
    function = tw.fake_quant(product, tw.QuantConfig(mode))
    gradient = jax.grad(lambda w: jnp.sum(function(w, jnp.ones((1, 512)))))(w)
    np.testing.assert_allclose(np.asarray(gradient), 1, rtol=1e-3)
