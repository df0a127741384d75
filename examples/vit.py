"""Vision Transformer, ViT-B/16, in plain JAX: `forward` (f32), `forward_f16` and `tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-6


class Config(NamedTuple):
    """Shape of a ViT and of its example input."""

    n_layers: int
    d_model: int
    n_heads: int
    patch: int
    size: int
    classes: int


VIT_B16 = Config(n_layers=12, d_model=768, n_heads=12, patch=16, size=224, classes=1000)
TINY = Config(n_layers=2, d_model=64, n_heads=4, patch=4, size=16, classes=10)


def layer_norm(x: jax.Array, p: Params) -> jax.Array:
    """Layer norm over the last axis with f32 statistics; p scale [d] and bias [d]."""
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + EPS)).astype(x.dtype) * p["scale"] + p["bias"]


def linear(x: jax.Array, p: Params) -> jax.Array:
    """Affine map; x [..., n], p w [n, m] and b [m]."""
    return x @ p["w"] + p["b"]


def attention(x: jax.Array, p: Params, n_heads: int) -> jax.Array:
    """Full multi-head self-attention; x [b, t, d]."""
    b, t, d = x.shape
    qkv = linear(x, p["qkv"]).reshape(b, t, 3, n_heads, d // n_heads)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) / math.sqrt(d // n_heads)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(x.dtype)
    return linear(jnp.einsum("bhqk,bkhc->bqhc", weights, v).reshape(b, t, d), p["out"])


def classify(params: Params, image: jax.Array, n_heads: int) -> jax.Array:
    """Logits [n, classes] in the dtype of the weights; image [n, h, w, 3]."""
    patch = params["patch"]["w"].shape[0]
    x = jax.lax.conv_general_dilated(
        image, params["patch"]["w"], (patch, patch), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = (x + params["patch"]["b"]).reshape(x.shape[0], -1, x.shape[-1])
    token = jnp.broadcast_to(params["token"], (x.shape[0], 1, x.shape[-1]))
    x = jnp.concatenate([token, x], axis=1) + params["positions"]
    for layer in params["layers"]:
        x = x + attention(layer_norm(x, layer["ln1"]), layer["attn"], n_heads)
        hidden = jax.nn.gelu(linear(layer_norm(x, layer["ln2"]), layer["up"]), approximate=False)
        x = x + linear(hidden, layer["down"])
    return linear(layer_norm(x[:, 0], params["ln_f"]), params["head"])


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
            "ln1": norm(),
            "attn": {"qkv": dense(d, 3 * d), "out": dense(d, d)},
            "ln2": norm(),
            "up": dense(d, 4 * d),
            "down": dense(4 * d, d),
        }
        for _ in range(config.n_layers)
    ]
    patch, tokens = config.patch, (config.size // config.patch) ** 2 + 1
    return {
        "patch": {"w": normal(patch, patch, 3, d, std=1 / (patch * math.sqrt(3))), "b": normal(d)},
        "token": normal(d),
        "positions": normal(tokens, d),
        "layers": layers,
        "ln_f": norm(),
        "head": dense(d, config.classes),
    }


def example_image(config: Config, dtype: Any, seed: int = 1) -> jax.Array:
    """A standardised random image [1, size, size, 3] in `dtype`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal((1, config.size, config.size, 3), dtype=np.float32), dtype)


def forward(params: Params, image: jax.Array) -> jax.Array:
    """ViT-B/16; image f32 [1, 224, 224, 3], logits f32 [1, 1000]."""
    return classify(params, image, VIT_B16.n_heads)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 224, 224, 3] image."""
    return init(VIT_B16, jnp.float32), example_image(VIT_B16, jnp.float32)


def forward_f16(params: Params, image: jax.Array) -> jax.Array:
    """ViT-B/16; image f16 [1, 224, 224, 3], logits f16 [1, 1000]."""
    return classify(params, image, VIT_B16.n_heads)


def forward_f16_inputs() -> tuple[Params, jax.Array]:
    """The inputs of `forward` rounded to f16."""
    return init(VIT_B16, jnp.float16), example_image(VIT_B16, jnp.float16)


def tiny(params: Params, image: jax.Array) -> jax.Array:
    """Two-layer model for tests; image f32 [1, 16, 16, 3], logits f32 [1, 10]."""
    return classify(params, image, TINY.n_heads)


def tiny_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 16, 16, 3] image."""
    return init(TINY, jnp.float32), example_image(TINY, jnp.float32)
