"""GPT-2 decoder in plain JAX: the forward pass `forward` (small, f32), `forward_f16` and `tiny`, and a token with a KV
cache, `token` (small, f16) and `tiny_token`."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5
# Finite, and inside the f16 range: -1e9 becomes -inf there, and a fully masked row would then be NaN.
MASKED = -1e4


class Config(NamedTuple):
    """Shape of a GPT-2 model and of its example input."""

    n_layers: int
    d_model: int
    n_heads: int
    n_tokens: int
    vocab: int
    n_positions: int
    n_cache: int = 512


class Cache(NamedTuple):
    """Keys and values of a layer so far, each [positions, heads, head size]."""

    k: jax.Array
    v: jax.Array


SMALL = Config(n_layers=12, d_model=768, n_heads=12, n_tokens=128, vocab=50257, n_positions=1024)
TINY = Config(n_layers=2, d_model=64, n_heads=4, n_tokens=16, vocab=211, n_positions=32, n_cache=19)


def layer_norm(x: jax.Array, p: Params) -> jax.Array:
    """Layer norm over the last axis; x [t, d], p scale [d] and bias [d], result in x's dtype."""
    # The sum of squares of d_model f16 values overflows easily, so the statistics are f32.
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + EPS)).astype(x.dtype) * p["scale"] + p["bias"]


def linear(x: jax.Array, p: Params) -> jax.Array:
    """Affine map; x [t, n], p w [n, m] and b [m], result [t, m]."""
    return x @ p["w"] + p["b"]


def attention(x: jax.Array, p: Params, n_heads: int) -> jax.Array:
    """Causal multi-head self-attention; x [t, d], result [t, d] in x's dtype."""
    t, d = x.shape
    q, k, v = (part.reshape(t, n_heads, d // n_heads) for part in jnp.split(linear(x, p["qkv"]), 3, axis=-1))
    scores = jnp.einsum("qhc,khc->hqk", q, k) / math.sqrt(d // n_heads)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, MASKED)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(x.dtype)
    mixed = jnp.einsum("hqk,khc->qhc", weights, v)
    return linear(mixed.reshape(t, d), p["out"])


def cached_attention(
    x: jax.Array, p: Params, cache: Cache, start: jax.Array, n_heads: int
) -> tuple[jax.Array, Cache]:
    """Attention of x [t, d] at positions `start` on over a cache, which takes their keys and values."""
    t, d = x.shape
    q, k, v = (part.reshape(t, n_heads, d // n_heads) for part in jnp.split(linear(x, p["qkv"]), 3, axis=-1))
    cache = Cache(*(jax.lax.dynamic_update_slice(old, new, (start, 0, 0)) for old, new in zip(cache, (k, v))))
    scores = jnp.einsum("qhc,khc->hqk", q, cache.k) / math.sqrt(d // n_heads)
    seen = jnp.arange(cache.k.shape[0], dtype=jnp.int32) <= (start + jnp.arange(t, dtype=jnp.int32))[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, MASKED).astype(jnp.float32), axis=-1).astype(x.dtype)
    mixed = jnp.einsum("hqk,khc->qhc", weights, cache.v)
    return linear(mixed.reshape(t, d), p["out"]), cache


def mlp(x: jax.Array, p: Params) -> jax.Array:
    """Feed-forward block with tanh-approximated gelu; x [t, d], result [t, d]."""
    return linear(jax.nn.gelu(linear(x, p["up"]), approximate=True), p["down"])


def decode(params: Params, tokens: jax.Array, n_heads: int) -> jax.Array:
    """Logits [t, vocab] in the dtype of the weights; tokens int32 [t]."""
    # All other sizes follow from the weights' shapes; the number of heads does not.
    x = params["wte"][tokens] + params["wpe"][: tokens.shape[0]]
    for layer in params["layers"]:
        x = x + attention(layer_norm(x, layer["ln1"]), layer["attn"], n_heads)
        x = x + mlp(layer_norm(x, layer["ln2"]), layer["mlp"])
    return layer_norm(x, params["ln_f"]) @ params["wte"].T


def extend(
    params: Params, caches: list[Cache], tokens: jax.Array, start: jax.Array, n_heads: int
) -> tuple[jax.Array, list[Cache]]:
    """Logits of the last of `tokens` (int32 [t]) at position `start` on, [vocab], and the caches with all of them."""
    positions = start + jnp.arange(tokens.shape[0], dtype=jnp.int32)
    x = params["wte"][tokens] + params["wpe"][positions]
    after = []
    for layer, cache in zip(params["layers"], caches, strict=True):
        mixed, cache = cached_attention(layer_norm(x, layer["ln1"]), layer["attn"], cache, start, n_heads)
        x = x + mixed
        x = x + mlp(layer_norm(x, layer["ln2"]), layer["mlp"])
        after.append(cache)
    return (layer_norm(x[-1:], params["ln_f"]) @ params["wte"].T)[0], after


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights with GPT-2's scales, in `dtype`."""
    rng = np.random.default_rng(seed)
    d = config.d_model

    def normal(*shape: int, std: float = 0.02, mean: float = 0.0) -> jax.Array:
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= std
        values += mean
        return jnp.asarray(values, dtype)

    def norm() -> Params:
        # Not exactly 1 and 0, so that a compiler which drops either is caught.
        return {"scale": normal(d, std=0.1, mean=1.0), "bias": normal(d)}

    def dense(n: int, m: int, std: float = 0.02) -> Params:
        return {"w": normal(n, m, std=std), "b": normal(m)}

    # GPT-2 shrinks what is added to the residual stream by the number of additions.
    residual = 0.02 / math.sqrt(2 * config.n_layers)
    layers = [
        {
            "ln1": norm(),
            "attn": {"qkv": dense(d, 3 * d), "out": dense(d, d, residual)},
            "ln2": norm(),
            "mlp": {"up": dense(d, 4 * d), "down": dense(4 * d, d, residual)},
        }
        for _ in range(config.n_layers)
    ]
    return {
        "wte": normal(config.vocab, d),
        "wpe": normal(config.n_positions, d, std=0.01),
        "layers": layers,
        "ln_f": norm(),
    }


def example_tokens(config: Config, seed: int = 1) -> jax.Array:
    """Random token ids, int32 [n_tokens]."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(0, config.vocab, config.n_tokens, dtype=np.int32))


def example_caches(config: Config, dtype: Any, filled: int, seed: int = 2) -> list[Cache]:
    """Caches of n_cache positions, of which the first `filled` hold random keys and values."""
    rng = np.random.default_rng(seed)

    def part() -> jax.Array:
        values = rng.standard_normal(
            (config.n_cache, config.n_heads, config.d_model // config.n_heads), dtype=np.float32
        )
        values[filled:] = 0
        return jnp.asarray(values, dtype)

    return [Cache(part(), part()) for _ in range(config.n_layers)]


def forward(params: Params, tokens: jax.Array) -> jax.Array:
    """GPT-2 small; tokens int32 [128], logits f32 [128, 50257]."""
    return decode(params, tokens, SMALL.n_heads)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and int32 [128] tokens."""
    return init(SMALL, jnp.float32), example_tokens(SMALL)


def forward_f16(params: Params, tokens: jax.Array) -> jax.Array:
    """GPT-2 small; tokens int32 [128], logits f16 [128, 50257]."""
    return decode(params, tokens, SMALL.n_heads)


def forward_f16_inputs() -> tuple[Params, jax.Array]:
    """The inputs of `forward` with the weights rounded to f16."""
    return init(SMALL, jnp.float16), example_tokens(SMALL)


def tiny(params: Params, tokens: jax.Array) -> jax.Array:
    """Two-layer model for tests; tokens int32 [16], logits f32 [16, 211]."""
    return decode(params, tokens, TINY.n_heads)


def tiny_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and int32 [16] tokens."""
    return init(TINY, jnp.float32), example_tokens(TINY)


@partial(jax.jit, donate_argnums=1)
def token(
    params: Params, caches: list[Cache], tokens: jax.Array, start: jax.Array
) -> tuple[jax.Array, list[Cache]]:
    """A token of GPT-2 small, int32 [1], at position `start`; logits f16 [50257] and the caches, which are donated."""
    return extend(params, caches, tokens, start, SMALL.n_heads)


def token_inputs() -> tuple[Params, list[Cache], jax.Array, jax.Array]:
    """f16 weights, caches of 512 positions of which 128 are filled, a token, and 128."""
    caches = example_caches(SMALL, jnp.float16, SMALL.n_tokens)
    return init(SMALL, jnp.float16), caches, example_tokens(SMALL)[:1], jnp.int32(SMALL.n_tokens)


def tiny_token(
    params: Params, caches: list[Cache], tokens: jax.Array, start: jax.Array
) -> tuple[jax.Array, list[Cache]]:
    """A token of the model for tests, int32 [1]; logits f32 [211] and the caches."""
    return extend(params, caches, tokens, start, TINY.n_heads)


def tiny_token_inputs() -> tuple[Params, list[Cache], jax.Array, jax.Array]:
    """f32 weights, caches of 19 positions of which 16 are filled, a token, and 16."""
    caches = example_caches(TINY, jnp.float32, TINY.n_tokens)
    return init(TINY, jnp.float32), caches, example_tokens(TINY)[:1], jnp.int32(TINY.n_tokens)
