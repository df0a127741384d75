"""Llama-style decoder in plain JAX, with RoPE, grouped queries and a KV cache: `prefill`, `decode`, both as `extend`,
whose cache grows, and their `tiny_` variants."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5
THETA = 10000.0
MASKED = -1e4


class Config(NamedTuple):
    """Shape of a decoder and of its example input."""

    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    vocab: int
    n_positions: int
    n_prompt: int
    batch: int


class Cache(NamedTuple):
    """Keys and values so far, each [layers, batch, positions, kv heads, head size]."""

    k: jax.Array
    v: jax.Array


SMALL = Config(
    n_layers=8,
    d_model=1024,
    n_heads=16,
    n_kv_heads=4,
    d_ff=2816,
    vocab=32000,
    n_positions=512,
    n_prompt=128,
    batch=1,
)
TINY = Config(
    n_layers=2, d_model=64, n_heads=4, n_kv_heads=2, d_ff=96, vocab=97, n_positions=16, n_prompt=7, batch=2
)


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square norm over the last axis with f32 statistics."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + EPS)
    return wide.astype(x.dtype) * scale


def rotate(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary embedding; x [b, t, heads, c], positions int32 [t]."""
    half = x.shape[-1] // 2
    frequencies = THETA ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions[:, None].astype(jnp.float32) * frequencies
    cos, sin = (f(angles)[None, :, None, :].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    low, high = x[..., :half], x[..., half:]
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def attention(
    x: jax.Array, p: Params, cache: Cache, layer: int, start: jax.Array, n_heads: int, n_kv_heads: int
) -> tuple[jax.Array, Cache]:
    """Attention of x [b, t, d] at positions start... over the cache, which takes its keys and values."""
    b, t, d = x.shape
    c, groups = d // n_heads, n_heads // n_kv_heads
    positions = start + jnp.arange(t, dtype=jnp.int32)
    q = rotate((x @ p["q"]).reshape(b, t, n_heads, c), positions)
    k = rotate((x @ p["k"]).reshape(b, t, n_kv_heads, c), positions)
    v = (x @ p["v"]).reshape(b, t, n_kv_heads, c)
    cache = Cache(
        *(
            jax.lax.dynamic_update_slice(old, new[None].astype(old.dtype), (layer, 0, start, 0, 0))
            for old, new in zip(cache, (k, v), strict=True)
        )
    )
    keys, values = cache.k[layer], cache.v[layer]
    q = q.reshape(b, t, n_kv_heads, groups, c)
    scores = jnp.einsum("bqhgc,bkhc->bhgqk", q, keys) / math.sqrt(c)
    seen = jnp.arange(keys.shape[1], dtype=jnp.int32) <= positions[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, MASKED).astype(jnp.float32), axis=-1).astype(x.dtype)
    mixed = jnp.einsum("bhgqk,bkhc->bqhgc", weights, values).reshape(b, t, d)
    return mixed @ p["o"], cache


def run(
    config: Config, params: Params, cache: Cache, tokens: jax.Array, start: jax.Array
) -> tuple[jax.Array, Cache]:
    """Logits of the last token [b, vocab] and the cache with `tokens` (int32 [b, t]) at position `start` on."""
    x = params["embedding"][tokens]
    for i, p in enumerate(params["layers"]):
        mixed, cache = attention(
            rms_norm(x, p["norm1"]), p, cache, i, start, config.n_heads, config.n_kv_heads
        )
        x = x + mixed
        y = rms_norm(x, p["norm2"])
        x = x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]
    return rms_norm(x[:, -1], params["norm"]) @ params["head"], cache


def grow(config: Config, params: Params, cache: Cache, tokens: jax.Array) -> tuple[jax.Array, Cache]:
    """`run` behind all positions of a cache, which grows by those of `tokens`: one program for any number of both."""
    past, more = cache.k.shape[2], tokens.shape[1]
    longer = Cache(*(jnp.pad(part, [(0, 0), (0, 0), (0, more), (0, 0), (0, 0)]) for part in cache))
    return run(config, params, longer, tokens, jnp.asarray(past, jnp.int32))


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights in `dtype`."""
    rng = np.random.default_rng(seed)
    d, kv = config.d_model, config.d_model // config.n_heads * config.n_kv_heads

    def matrix(n: int, m: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal((n, m), dtype=np.float32) / math.sqrt(n), dtype)

    def scale() -> jax.Array:
        return jnp.asarray(rng.uniform(0.8, 1.2, d), dtype)

    layers = [
        {
            "norm1": scale(),
            "q": matrix(d, d),
            "k": matrix(d, kv),
            "v": matrix(d, kv),
            "o": matrix(d, d),
            "norm2": scale(),
            "gate": matrix(d, config.d_ff),
            "up": matrix(d, config.d_ff),
            "down": matrix(config.d_ff, d),
        }
        for _ in range(config.n_layers)
    ]
    embedding = rng.standard_normal((config.vocab, d), dtype=np.float32)
    return {
        "embedding": jnp.asarray(embedding, dtype),
        "layers": layers,
        "norm": scale(),
        "head": matrix(d, config.vocab),
    }


def empty_cache(config: Config, dtype: Any, positions: int | None = None) -> Cache:
    """A cache of zeros, for as many positions as the model has unless said."""
    head = config.d_model // config.n_heads
    positions = config.n_positions if positions is None else positions
    shape = (config.n_layers, config.batch, positions, config.n_kv_heads, head)
    return Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def example_tokens(config: Config, n: int, seed: int = 1) -> jax.Array:
    """Random token ids, int32 [batch, n]."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(0, config.vocab, (config.batch, n), dtype=np.int32))


def _prefill_inputs(config: Config, dtype: Any) -> tuple[Params, Cache, jax.Array]:
    return init(config, dtype), empty_cache(config, dtype), example_tokens(config, config.n_prompt)


def _decode_inputs(config: Config, dtype: Any, seed: int = 2) -> tuple[Params, Cache, jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    empty, past = empty_cache(config, dtype), config.n_prompt
    filled = (rng.standard_normal(part.shape, dtype=np.float32) for part in empty)
    parts = zip(empty, filled, strict=True)
    cache = Cache(*(old.at[:, :, :past].set(new[:, :, :past].astype(old.dtype)) for old, new in parts))
    return init(config, dtype), cache, example_tokens(config, 1), jnp.int32(past)


def _extend_inputs(config: Config, dtype: Any) -> tuple[Params, Cache, jax.Array]:
    params, cache, tokens, _ = _decode_inputs(config, dtype)
    return params, Cache(*(part[:, :, : config.n_prompt] for part in cache)), tokens


def prefill(params: Params, cache: Cache, tokens: jax.Array) -> tuple[jax.Array, Cache]:
    """Eight layers; tokens int32 [1, 128] into an empty cache of 512, logits f16 [1, 32000] and the cache."""
    return run(SMALL, params, cache, tokens, jnp.int32(0))


def prefill_inputs() -> tuple[Params, Cache, jax.Array]:
    """f16 weights, an empty cache and a prompt."""
    return _prefill_inputs(SMALL, jnp.float16)


def decode(params: Params, cache: Cache, tokens: jax.Array, start: jax.Array) -> tuple[jax.Array, Cache]:
    """One token, int32 [1, 1], at position `start`; logits f16 [1, 32000] and the cache."""
    return run(SMALL, params, cache, tokens, start)


def decode_inputs() -> tuple[Params, Cache, jax.Array, jax.Array]:
    """f16 weights, a cache with 128 positions filled, a token, and 128."""
    return _decode_inputs(SMALL, jnp.float16)


def extend(params: Params, cache: Cache, tokens: jax.Array) -> tuple[jax.Array, Cache]:
    """Tokens int32 [1, t] behind those of a cache of p positions; logits f16 [1, 32000] and a cache of p + t."""
    return grow(SMALL, params, cache, tokens)


def extend_inputs() -> tuple[Params, Cache, jax.Array]:
    """f16 weights, a cache of 128 positions, and a token."""
    return _extend_inputs(SMALL, jnp.float16)


def tiny_prefill(params: Params, cache: Cache, tokens: jax.Array) -> tuple[jax.Array, Cache]:
    """Two layers for tests, f32; tokens int32 [2, 7]."""
    return run(TINY, params, cache, tokens, jnp.int32(0))


def tiny_prefill_inputs() -> tuple[Params, Cache, jax.Array]:
    """f32 weights, an empty cache and a prompt."""
    return _prefill_inputs(TINY, jnp.float32)


def tiny_decode(params: Params, cache: Cache, tokens: jax.Array, start: jax.Array) -> tuple[jax.Array, Cache]:
    """Two layers for tests, f32; tokens int32 [2, 1]."""
    return run(TINY, params, cache, tokens, start)


def tiny_decode_inputs() -> tuple[Params, Cache, jax.Array, jax.Array]:
    """f32 weights, a cache with 7 positions filled, a token for each sequence, and 7."""
    return _decode_inputs(TINY, jnp.float32)


def tiny_extend(params: Params, cache: Cache, tokens: jax.Array) -> tuple[jax.Array, Cache]:
    """Two layers for tests, f32; tokens int32 [2, t] behind those of a cache of p positions."""
    return grow(TINY, params, cache, tokens)


def tiny_extend_inputs() -> tuple[Params, Cache, jax.Array]:
    """f32 weights, a cache of 7 positions, and a token for each sequence."""
    return _extend_inputs(TINY, jnp.float32)
