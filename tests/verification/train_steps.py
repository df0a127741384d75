"""A training step of a small transformer: a scan over its layers, dropout, and the gradients of both."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LAYERS, WIDTH, HEADS, TOKENS, BATCH, VOCABULARY = 2, 64, 4, 16, 2, 61
KEEP = 0.9
RATE = 1e-2

Params = dict[str, Any]


def normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Layer norm over the last axis; x [b, t, d]."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale


def dropped(x: jax.Array, key: jax.Array) -> jax.Array:
    """Dropout; x of any shape."""
    return jnp.where(jax.random.bernoulli(key, KEEP, x.shape), x / KEEP, 0)


def attended(x: jax.Array, p: Params) -> jax.Array:
    """Causal attention on a norm; x [b, t, d]."""
    b, t, d = x.shape
    q, k, v = (
        part.reshape(b, t, HEADS, -1) for part in jnp.split(normalised(x, p["norm1"]) @ p["qkv"], 3, axis=-1)
    )
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) * (d // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e4)
    mixed = jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(scores), v).reshape(b, t, d)
    return mixed @ p["out"]


def layer(x: jax.Array, inputs: tuple[Params, jax.Array]) -> tuple[jax.Array, None]:
    """Attention where it has parameters, and a feed-forward block, each on a norm and with dropout; x [b, t, d]."""
    p, key = inputs
    first, second = jax.random.split(key)
    if "qkv" in p:
        x = x + dropped(attended(x, p), first)
    inner = jax.nn.gelu(normalised(x, p["norm2"]) @ p["up"])
    return x + dropped(inner @ p["down"], second), None


def loss(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array) -> jax.Array:
    """Mean cross-entropy of the next token; tokens and targets int32 [b, t]."""
    x = params["embedding"][tokens] + params["positions"]
    x, _ = jax.lax.scan(layer, x, (params["layers"], jax.random.split(key, LAYERS)))
    logits = normalised(x, params["norm"]) @ params["embedding"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    return -picked.mean()


def train_step(
    params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array
) -> tuple[jax.Array, Params]:
    """One step of gradient descent; the loss before it and the new parameters."""
    value, gradients = jax.value_and_grad(loss)(params, tokens, targets, key)
    return value, jax.tree.map(lambda p, g: p - RATE * g, params, gradients)


def train_step_inputs(attention: bool) -> tuple[Params, jax.Array, jax.Array, jax.Array]:
    """Random parameters, with or without those of attention, and a random batch."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, std: float = 0.1) -> jax.Array:
        return jnp.asarray(std * rng.standard_normal(shape, np.float32))

    attends = {
        "norm1": 1 + normal(LAYERS, WIDTH),
        "qkv": normal(LAYERS, WIDTH, 3 * WIDTH),
        "out": normal(LAYERS, WIDTH, WIDTH),
    }
    layers = {
        **(attends if attention else {}),
        "norm2": 1 + normal(LAYERS, WIDTH),
        "up": normal(LAYERS, WIDTH, 4 * WIDTH),
        "down": normal(LAYERS, 4 * WIDTH, WIDTH),
    }
    params = {
        "embedding": normal(VOCABULARY, WIDTH),
        "positions": normal(TOKENS, WIDTH),
        "layers": layers,
        "norm": 1 + normal(WIDTH),
    }
    tokens, targets = (jnp.asarray(rng.integers(0, VOCABULARY, (BATCH, TOKENS)), jnp.int32) for _ in range(2))
    return params, tokens, targets, jax.random.PRNGKey(3)
