"""Blocks of a small transformer in plain JAX, for `vit_digits.py` and `char_lm.py`.

Products have no bias, so each is one array: `block['attention']['q']`, 'k', 'v' and 'out' [d, d], `block['mlp']['up']`
[d, m] and `['down']` [m, d]. Norms have a scale and a bias [d] each.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5


def layer_norm(x: jax.Array, p: Params) -> jax.Array:
    """Layer norm over the last axis with f32 statistics; p scale [d] and bias [d]."""
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + EPS)).astype(x.dtype) * p["scale"] + p["bias"]


def attention(x: jax.Array, p: Params, n_heads: int, causal: bool) -> jax.Array:
    """Multi-head self-attention; x [b, t, d]. causal: no token sees a later one."""
    b, t, d = x.shape
    q, k, v = ((x @ p[name]).reshape(b, t, n_heads, d // n_heads) for name in ("q", "k", "v"))
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) / math.sqrt(d // n_heads)
    scores = scores.astype(jnp.float32)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    return jnp.einsum("bhqk,bkhc->bqhc", weights, v).reshape(b, t, d) @ p["out"]


def mlp(x: jax.Array, p: Params) -> jax.Array:
    """Two products with a GELU between them; x [b, t, d]."""
    return jax.nn.relu(x @ p["up"]) @ p["down"]


def block(x: jax.Array, p: Params, n_heads: int, causal: bool) -> jax.Array:
    """Attention and an MLP, each behind a norm and beside a shortcut; x [b, t, d]."""
    x = x + attention(layer_norm(x, p["norm1"]), p["attention"], n_heads, causal)
    return x + mlp(layer_norm(x, p["norm2"]), p["mlp"])


def init_norm(d: int) -> Params:
    """The norm that changes nothing but mean and variance."""
    return {"scale": jnp.ones(d), "bias": jnp.zeros(d)}


def normal(rng: np.random.Generator, *shape: int, std: float) -> jax.Array:
    """Random f32 numbers."""
    return jnp.asarray(std * rng.standard_normal(shape, dtype=np.float32))


def init_block(rng: np.random.Generator, d: int, n_layers: int, wide: int = 4) -> Params:
    """Random f32 weights of one of `n_layers` blocks of width `d`, with an MLP `wide` times as wide. What is added
    to the shortcuts is smaller the more blocks there are (Radford et al. 2019)."""
    std, last = 1 / math.sqrt(d), 1 / math.sqrt(2 * n_layers)
    inner = {name: normal(rng, d, d, std=std) for name in ("q", "k", "v")}
    return {
        "norm1": init_norm(d),
        "attention": inner | {"out": normal(rng, d, d, std=std * last)},
        "norm2": init_norm(d),
        "mlp": {
            "up": normal(rng, d, wide * d, std=std),
            "down": normal(rng, wide * d, d, std=last / math.sqrt(wide * d)),
        },
    }
