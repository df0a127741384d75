"""Groups of ops that reduce whole rows, and what of them fits on chip at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from harness import check, data
from jax import lax


def test_parts_of_one_tensor_are_loads_of_their_own() -> None:
    """The gradient of a depthwise convolution takes 25 windows of one tensor, and the sums behind it whole images."""

    def loss(s: Any, b: Any, x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            jax.nn.swish(x * s + b),
            w,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=24,
        )
        return jnp.sum(y * y)

    args = (
        data("f32", (24,), 1),
        data("f32", (24,), 2),
        data("f32", (1, 16, 16, 24)),
        data("f32", (5, 5, 1, 24)),
    )
    check(jax.grad(loss, (0, 1)), *args, length=4096)


def test_broadcast_rows_take_room() -> None:
    """The gradient of a norm whose scale and input want sums over all axes between them."""

    def norm(x: Any, g: Any, b: Any) -> Any:
        mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
        return (x - mean) * (lax.rsqrt(square - mean * mean + 1e-6) * g) + b

    def loss(g: Any, b: Any, x: Any, w: Any) -> Any:
        return jnp.sum((norm(x, g, b).mean(1) @ w) ** 2)

    args = (data("f32", (32,), 1), data("f32", (32,), 2), data("f32", (3, 49, 32)), data("f32", (32, 10)))
    check(jax.grad(loss, (0, 1, 2)), *args, length=512)
