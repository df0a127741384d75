"""BERT-base encoder with pooler in plain JAX: `forward` (f32), `forward_f16` and `tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-12
# Inside the f16 range, so that a fully masked row is uniform and not NaN.
MASKED = -1e4


class Config(NamedTuple):
    """Shape of a BERT and of its example input."""

    n_layers: int
    d_model: int
    n_heads: int
    n_tokens: int
    batch: int
    vocab: int
    n_positions: int


BASE = Config(n_layers=12, d_model=768, n_heads=12, n_tokens=128, batch=2, vocab=30522, n_positions=512)
TINY = Config(n_layers=2, d_model=64, n_heads=4, n_tokens=12, batch=2, vocab=101, n_positions=16)


def layer_norm(x: jax.Array, p: Params) -> jax.Array:
    """Layer norm over the last axis with f32 statistics; p scale [d] and bias [d]."""
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + EPS)).astype(x.dtype) * p["scale"] + p["bias"]


def linear(x: jax.Array, p: Params) -> jax.Array:
    """Affine map; x [..., n], p w [n, m] and b [m]."""
    return x @ p["w"] + p["b"]


def attention(x: jax.Array, mask: jax.Array, p: Params, n_heads: int) -> jax.Array:
    """Self-attention over the tokens of `mask` (bool [b, t]); x [b, t, d]."""
    b, t, d = x.shape
    q, k, v = (linear(x, p[name]).reshape(b, t, n_heads, d // n_heads) for name in ("q", "k", "v"))
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) / math.sqrt(d // n_heads)
    scores = jnp.where(mask[:, None, None, :], scores, MASKED)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(x.dtype)
    return linear(jnp.einsum("bhqk,bkhc->bqhc", weights, v).reshape(b, t, d), p["out"])


def encode(
    params: Params, tokens: jax.Array, segments: jax.Array, mask: jax.Array, n_heads: int
) -> tuple[jax.Array, jax.Array]:
    """Hidden states [b, t, d] and pooled first token [b, d]; tokens and segments int32 [b, t], mask bool [b, t]."""
    x = params["words"][tokens] + params["positions"][: tokens.shape[1]] + params["segments"][segments]
    x = layer_norm(x, params["ln"])
    for layer in params["layers"]:
        x = layer_norm(x + attention(x, mask, layer["attn"], n_heads), layer["ln1"])
        hidden = jax.nn.gelu(linear(x, layer["up"]), approximate=False)
        x = layer_norm(x + linear(hidden, layer["down"]), layer["ln2"])
    return x, jnp.tanh(linear(x[:, 0], params["pooler"]))


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights in `dtype`."""
    rng = np.random.default_rng(seed)
    d = config.d_model

    def normal(*shape: int, std: float = 0.02, mean: float = 0.0) -> jax.Array:
        return jnp.asarray(mean + std * rng.standard_normal(shape, dtype=np.float32), dtype)

    def norm() -> Params:
        return {"scale": normal(d, std=0.1, mean=1.0), "bias": normal(d)}

    def dense(n: int, m: int) -> Params:
        return {"w": normal(n, m, std=1 / math.sqrt(n)), "b": normal(m)}

    layers = [
        {
            "attn": {name: dense(d, d) for name in ("q", "k", "v", "out")},
            "ln1": norm(),
            "up": dense(d, 4 * d),
            "down": dense(4 * d, d),
            "ln2": norm(),
        }
        for _ in range(config.n_layers)
    ]
    return {
        "words": normal(config.vocab, d),
        "positions": normal(config.n_positions, d),
        "segments": normal(2, d),
        "ln": norm(),
        "layers": layers,
        "pooler": dense(d, d),
    }


def example_batch(config: Config, seed: int = 1) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Random tokens and segments (int32 [b, t]) and a mask (bool [b, t]) of sequences of several lengths."""
    rng = np.random.default_rng(seed)
    shape = (config.batch, config.n_tokens)
    tokens = rng.integers(0, config.vocab, shape, dtype=np.int32)
    lengths = rng.integers(config.n_tokens // 2, config.n_tokens + 1, (config.batch, 1))
    at = np.arange(config.n_tokens)
    segments = (at >= lengths // 2).astype(np.int32)
    return jnp.asarray(tokens), jnp.asarray(segments), jnp.asarray(at < lengths)


def forward(
    params: Params, tokens: jax.Array, segments: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """BERT-base; int32 [2, 128] twice and bool [2, 128], hidden f32 [2, 128, 768] and pooled f32 [2, 768]."""
    return encode(params, tokens, segments, mask, BASE.n_heads)


def forward_inputs() -> tuple[Any, ...]:
    """f32 weights, tokens, segments and mask."""
    return init(BASE, jnp.float32), *example_batch(BASE)


def forward_f16(
    params: Params, tokens: jax.Array, segments: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`forward` in f16."""
    return encode(params, tokens, segments, mask, BASE.n_heads)


def forward_f16_inputs() -> tuple[Any, ...]:
    """The inputs of `forward` with the weights rounded to f16."""
    return init(BASE, jnp.float16), *example_batch(BASE)


def tiny(
    params: Params, tokens: jax.Array, segments: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Two-layer model for tests; int32 [2, 12] twice and bool [2, 12]."""
    return encode(params, tokens, segments, mask, TINY.n_heads)


def tiny_inputs() -> tuple[Any, ...]:
    """f32 weights, tokens, segments and mask."""
    return init(TINY, jnp.float32), *example_batch(TINY)
