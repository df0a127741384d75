"""Small nets that quantization is tested on: each a function of weights and an input, with both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NUMBERS = ("NHWC", "HWIO", "NHWC")
Net = tuple[Callable[..., Any], Any, jax.Array]


def array(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> jax.Array:
    """Normal numbers, over the square root of what a product sums."""
    return jnp.asarray(rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[:-1]))), dtype)


def mlp(seed: int, dtype: str = "float32") -> Net:
    """Two products with biases and a relu; odd sizes."""
    rng = np.random.default_rng(seed)
    n, k, m, o = (int(v) for v in rng.integers(1, 40, 4))
    params = {
        "w1": array(rng, k, m, dtype=dtype),
        "b1": array(rng, m, dtype=dtype),
        "w2": array(rng, m, o, dtype=dtype),
    }

    def net(params: Any, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"]

    return net, params, jnp.asarray(rng.standard_normal((n, k)), dtype)


def heads(seed: int, dtype: str = "float32") -> Net:
    """Products with several free and several summed dimensions."""
    rng = np.random.default_rng(seed)
    t, d, h, c = (int(v) for v in rng.integers(1, 12, 4))
    params = {"q": array(rng, d, h, c, dtype=dtype), "o": array(rng, h, c, d, dtype=dtype)}

    def net(params: Any, x: jax.Array) -> jax.Array:
        y = jnp.tanh(jnp.einsum("btd,dhc->bthc", x, params["q"]))
        return jnp.einsum("bthc,hcd->btd", y, params["o"])

    return net, params, jnp.asarray(rng.standard_normal((2, t, d)), dtype)


def convs(seed: int, dtype: str = "float32") -> Net:
    """A convolution with groups, strides and dilation, and a batch norm with negative and zero scales; one more."""
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 2, 4]))
    i, o = groups * int(rng.integers(1, 5)), groups * int(rng.integers(1, 6))
    stride, dilation, kernel = int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    scale = rng.standard_normal(o)
    scale[: len(scale) // 3] = 0
    params = {
        "w1": array(rng, kernel, kernel, i // groups, o, dtype=dtype),
        "scale": jnp.asarray(scale, dtype),
        "shift": array(rng, o, dtype=dtype),
        "w2": array(rng, 1, 1, o, 3, dtype=dtype),
    }

    def net(params: Any, x: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            x, params["w1"], (stride, stride), "SAME", rhs_dilation=(dilation, dilation),
            dimension_numbers=NUMBERS, feature_group_count=groups,
        )  # fmt: skip
        y = jax.nn.relu(y * params["scale"] + params["shift"])
        return lax.conv_general_dilated(y, params["w2"], (1, 1), "VALID", dimension_numbers=NUMBERS)

    return net, params, jnp.asarray(rng.standard_normal((2, 9, 7, i)), dtype)


def layers(seed: int, dtype: str = "float32") -> Net:
    """Equal functions called twice, tied weights, weights that are constants, and a layer of zeros."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 20))
    params = {"w": array(rng, d, d, dtype=dtype), "zero": jnp.zeros((d, 5), dtype)}
    fixed = array(rng, d, d, dtype=dtype)

    @jax.jit
    def layer(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w)

    def net(params: Any, x: jax.Array) -> Any:
        y = layer(params["w"], layer(params["w"], x)) @ fixed
        return y @ params["w"].T, y @ params["zero"]

    return net, params, jnp.asarray(rng.standard_normal((3, d)), dtype)


def scanned(seed: int, dtype: str = "float32") -> Net:
    """Layers whose weights are stacked, in a loop."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 16)), int(rng.integers(1, 4))
    params = {"stack": array(rng, n, d, d, dtype=dtype), "out": array(rng, d, 3, dtype=dtype)}

    def net(params: Any, x: jax.Array) -> jax.Array:
        def step(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ w), None

        return lax.scan(step, x, params["stack"])[0] @ params["out"]

    return net, params, jnp.asarray(rng.standard_normal((4, d)), dtype)


NETS = {net.__name__: net for net in (mlp, heads, convs, layers, scanned)}
