"""Llama 7B from shapes alone, in plain JAX with a KV cache: `token`, `prefill`, and their `tiny_` variants with values.

The inputs of `token` and `prefill` are shapes without arrays: `tilewright report` and `explain` need no more, and what
the weights would take (13 GB) is never made. Each layer is a call of one function, which is compiled once. The caches
are a pair of arrays for each layer, and donated: a new key and value go where the caller has the others.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5
THETA = 10000.0
MASKED = -1e4


class Config(NamedTuple):
    """Shape of a decoder and its inputs: positions of the caches, those that are filled before a token, and tokens of
    a prompt."""

    n_layers: int
    d_model: int
    n_heads: int
    d_ff: int
    vocab: int
    n_positions: int
    n_cached: int
    n_prompt: int


class Cache(NamedTuple):
    """Keys and values of a layer so far, each [positions, heads, head size]."""

    k: jax.Array
    v: jax.Array


FULL = Config(
    n_layers=32,
    d_model=4096,
    n_heads=32,
    d_ff=11008,
    vocab=32000,
    n_positions=2048,
    n_cached=2047,
    n_prompt=512,
)
TINY = Config(n_layers=3, d_model=48, n_heads=3, d_ff=88, vocab=61, n_positions=23, n_cached=17, n_prompt=17)


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square norm over the last axis with f32 statistics."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + EPS)
    return wide.astype(x.dtype) * scale


def angles(start: jax.Array, t: int, half: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines, each [t, 1, half], by which positions `start` to `start` + t - 1 are rotated."""
    positions = (start + jnp.arange(t, dtype=jnp.int32)).astype(jnp.float32)
    turns = positions[:, None, None] * THETA ** (-jnp.arange(half, dtype=jnp.float32) / half)
    return jnp.cos(turns).astype(dtype), jnp.sin(turns).astype(dtype)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotary embedding of x [t, heads, c]; cos and sin [t, 1, c / 2]."""
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


@partial(jax.jit, static_argnums=0)
def layer(
    n_heads: int, p: Params, cache: Cache, x: jax.Array, start: jax.Array, cos: jax.Array, sin: jax.Array
) -> tuple[jax.Array, Cache]:
    """One layer on x [t, d] at positions `start` on, and the cache with its keys and values."""
    t, d = x.shape
    y = rms_norm(x, p["norm1"])
    q, k, v = ((y @ p[name]).reshape(t, n_heads, d // n_heads) for name in "qkv")
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    cache = Cache(*(jax.lax.dynamic_update_slice(old, new, (start, 0, 0)) for old, new in zip(cache, (k, v))))
    scores = jnp.einsum("qhc,khc->hqk", q, cache.k) / math.sqrt(d // n_heads)
    seen = jnp.arange(cache.k.shape[0], dtype=jnp.int32) <= (start + jnp.arange(t, dtype=jnp.int32))[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, MASKED).astype(jnp.float32), axis=-1).astype(x.dtype)
    x = x + jnp.einsum("hqk,khc->qhc", weights, cache.v).reshape(t, d) @ p["o"]
    y = rms_norm(x, p["norm2"])
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"], cache


def run(
    n_heads: int, params: Params, caches: list[Cache], tokens: jax.Array, start: jax.Array
) -> tuple[jax.Array, list[Cache]]:
    """Logits of the last token [vocab], and the caches with `tokens` (int32 [t]) at position `start` on."""
    x = params["embedding"][tokens]
    cos, sin = angles(start, len(tokens), x.shape[1] // n_heads // 2, x.dtype)
    after = []
    for p, cache in zip(params["layers"], caches, strict=True):
        x, cache = layer(n_heads, p, cache, x, start, cos, sin)
        after.append(cache)
    return (rms_norm(x[-1:], params["norm"]) @ params["head"])[0], after


def shapes(config: Config) -> Params:
    """The shape of each weight."""
    d, ff = config.d_model, config.d_ff
    each = {"norm1": (d,), **dict.fromkeys("qkvo", (d, d)), "norm2": (d,)}
    each |= {"gate": (d, ff), "up": (d, ff), "down": (ff, d)}
    return {
        "embedding": (config.vocab, d),
        "layers": [each] * config.n_layers,
        "norm": (d,),
        "head": (d, config.vocab),
    }


def is_shape(x: Any) -> bool:
    """Whether a part of a tree is a shape, which is a leaf of it."""
    return isinstance(x, tuple) and all(isinstance(n, int) for n in x)


def inputs_from_shapes(config: Config, t: int) -> tuple[Params, list[Cache], Any, Any]:
    """Inputs for t tokens, as shapes: f16 weights and caches."""

    def half(shape: tuple[int, ...]) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float16)

    part = half((config.n_positions, config.n_heads, config.d_model // config.n_heads))
    params = jax.tree.map(half, shapes(config), is_leaf=is_shape)
    tokens, start = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((t,), ()))
    return params, [Cache(part, part)] * config.n_layers, tokens, start


def inputs(
    config: Config, t: int, start: int, dtype: Any, seed: int = 0
) -> tuple[Params, list[Cache], jax.Array, jax.Array]:
    """Random inputs for t tokens behind `start` positions of the caches; products keep the size of numbers."""
    rng = np.random.default_rng(seed)

    def values(shape: tuple[int, ...]) -> jax.Array:
        made = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:  # a norm: not exactly 1, so that a compiler which drops it is caught
            return jnp.asarray(1 + made / 8, dtype)
        return jnp.asarray(made / math.sqrt(shape[0]), dtype)

    def filled() -> jax.Array:
        shape = (config.n_positions, config.n_heads, config.d_model // config.n_heads)
        made = rng.standard_normal(shape, dtype=np.float32)
        made[start:] = 0
        return jnp.asarray(made, dtype)

    params = jax.tree.map(values, shapes(config), is_leaf=is_shape)
    caches = [Cache(filled(), filled()) for _ in range(config.n_layers)]
    tokens = jnp.asarray(rng.integers(0, config.vocab, t, dtype=np.int32))
    return params, caches, tokens, jnp.int32(start)


@partial(jax.jit, donate_argnums=1)
def token(
    params: Params, caches: list[Cache], tokens: jax.Array, start: jax.Array
) -> tuple[jax.Array, list[Cache]]:
    """One token, int32 [1], that sees 2,048 keys; logits f16 [32000] and the caches."""
    return run(FULL.n_heads, params, caches, tokens, start)


def token_inputs() -> tuple[Params, list[Cache], Any, Any]:
    """Shapes: f16 weights, caches of 2,048 positions, a token, and its position."""
    return inputs_from_shapes(FULL, 1)


@partial(jax.jit, donate_argnums=1)
def prefill(params: Params, caches: list[Cache], tokens: jax.Array) -> tuple[jax.Array, list[Cache]]:
    """A prompt, int32 [512], into empty caches; logits f16 [32000] of its last token and the caches."""
    return run(FULL.n_heads, params, caches, tokens, jnp.int32(0))


def prefill_inputs() -> tuple[Params, list[Cache], Any]:
    """Shapes: f16 weights, caches of 512 positions, and a prompt."""
    return inputs_from_shapes(FULL._replace(n_positions=FULL.n_prompt), FULL.n_prompt)[:3]


def tiny_token(
    params: Params, caches: list[Cache], tokens: jax.Array, start: jax.Array
) -> tuple[jax.Array, list[Cache]]:
    """Three layers for tests, f32; a token, int32 [1], behind 17."""
    return run(TINY.n_heads, params, caches, tokens, start)


def tiny_token_inputs() -> tuple[Params, list[Cache], jax.Array, jax.Array]:
    """f32 weights, caches of 23 positions of which 17 are filled, a token, and 17."""
    return inputs(TINY, 1, TINY.n_cached, jnp.float32)


def tiny_prefill(params: Params, caches: list[Cache], tokens: jax.Array) -> tuple[jax.Array, list[Cache]]:
    """Three layers for tests, f32; a prompt, int32 [17], into empty caches."""
    return run(TINY.n_heads, params, caches, tokens, jnp.int32(0))


def tiny_prefill_inputs() -> tuple[Params, list[Cache], jax.Array]:
    """f32 weights, empty caches of 23 positions, and a prompt."""
    return inputs(TINY, TINY.n_prompt, 0, jnp.float32)[:3]
