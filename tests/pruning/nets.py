"""Small nets whose units are coupled: a CNN, and attention with separate or joined projections."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilewright.pruning import Coupled

CHANNELS = Coupled([("['conv1']", 3), ("['b1']", 0), ("['conv2']", 2)])
FLATTENED = Coupled([("['conv2']", -1), ("['b2']", 0), ("['dense']['w']", 0, 4)])
HEADS = Coupled([("['q']", 1), ("['k']", 1), ("['v']", 1), ("['out']", 0)], units=3)
JOINED = Coupled([("['qkv']", 1, 3), ("['out']", 0)], units=3)


def numbers(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def cnn_params() -> Any:
    return {
        "conv1": numbers(1, 3, 3, 2, 6),
        "b1": numbers(2, 6),
        "conv2": numbers(3, 3, 3, 6, 8),
        "b2": numbers(4, 8),
        "dense": {"w": numbers(5, 32, 5), "b": numbers(6, 5)},
    }


def cnn(params: Any, x: jax.Array) -> jax.Array:
    """x [n, 4, 4, 2]; logits [n, 5]."""
    for w, b in ((params["conv1"], params["b1"]), (params["conv2"], params["b2"])):
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + b)
    x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(x.shape[0], -1) @ params["dense"]["w"] + params["dense"]["b"]


def attention_params(joined: bool = False) -> Any:
    q, k, v = (numbers(i, 10, 12) for i in (1, 2, 3))
    inner = {"qkv": jnp.concatenate([q, k, v], axis=1)} if joined else {"q": q, "k": k, "v": v}
    return inner | {"out": numbers(4, 12, 10)}


def attention(params: Any, x: jax.Array, heads: int) -> jax.Array:
    """x [t, 10]; heads of 4 columns."""
    parts = jnp.split(x @ params["qkv"], 3, axis=1) if "qkv" in params else [x @ params[n] for n in "qkv"]
    q, k, v = (p.reshape(len(x), heads, 4) for p in parts)
    weights = jax.nn.softmax(jnp.einsum("qhc,khc->hqk", q, k) / 2)
    return jnp.einsum("hqk,khc->qhc", weights, v).reshape(len(x), -1) @ params["out"]
