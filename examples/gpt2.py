"""GPT-2 decoder forward pass in plain JAX: `forward` (small, f32), `forward_f16` and `tiny`."""

import math
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


SMALL = Config(n_layers=12, d_model=768, n_heads=12, n_tokens=128, vocab=50257, n_positions=1024)
TINY = Config(n_layers=2, d_model=64, n_heads=4, n_tokens=16, vocab=211, n_positions=32)


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
