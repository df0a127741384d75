"""U-Net segmentation in plain JAX, with transposed convolutions on the way up: `forward` (f32) and `tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]


class Config(NamedTuple):
    """Shape of a U-Net and of its example input; channels double at each of `depth` halvings."""

    width: int
    depth: int
    size: int
    classes: int


UNET = Config(width=64, depth=4, size=128, classes=2)
TINY = Config(width=8, depth=2, size=16, classes=3)

LAYOUT = ("NHWC", "HWIO", "NHWC")


def double_conv(x: jax.Array, p: Params) -> jax.Array:
    """Two 3x3 convolutions with relu; x [n, h, w, i], result [n, h, w, o]."""
    for name in ("first", "second"):
        x = jax.lax.conv_general_dilated(x, p[name]["w"], (1, 1), "SAME", dimension_numbers=LAYOUT)
        x = jax.nn.relu(x + p[name]["b"])
    return x


def max_pool(x: jax.Array) -> jax.Array:
    """2x2 max pool; x [n, h, w, c], result [n, h/2, w/2, c]."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def segment(params: Params, image: jax.Array) -> jax.Array:
    """Logits [n, h, w, classes] in the dtype of the weights; image [n, h, w, 3]."""
    x, skipped = image, []
    for p in params["down"]:
        x = double_conv(x, p)
        skipped.append(x)
        x = max_pool(x)
    x = double_conv(x, params["middle"])
    for p, skip in zip(params["up"], reversed(skipped), strict=True):
        x = jax.lax.conv_transpose(x, p["up"]["w"], (2, 2), "VALID", dimension_numbers=LAYOUT) + p["up"]["b"]
        x = double_conv(jnp.concatenate([skip, x], axis=-1), p)
    return x @ params["head"]["w"] + params["head"]["b"]


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights, He-scaled, in `dtype`."""
    rng = np.random.default_rng(seed)

    def layer(*shape: int, taps: int) -> Params:
        std = math.sqrt(2 / (taps * shape[-2]))
        w = std * rng.standard_normal(shape, dtype=np.float32)
        b = rng.uniform(-0.1, 0.1, shape[-1])
        return {"w": jnp.asarray(w, dtype), "b": jnp.asarray(b, dtype)}

    def double(n_in: int, n_out: int) -> Params:
        return {"first": layer(3, 3, n_in, n_out, taps=9), "second": layer(3, 3, n_out, n_out, taps=9)}

    widths = [config.width << i for i in range(config.depth + 1)]
    down = [double(i, o) for i, o in zip([3, *widths], widths[:-1])]
    up = [{"up": layer(2, 2, 2 * w, w, taps=1), **double(2 * w, w)} for w in reversed(widths[:-1])]
    return {
        "down": down,
        "middle": double(widths[-2], widths[-1]),
        "up": up,
        "head": layer(config.width, config.classes, taps=1),
    }


def example_image(config: Config, dtype: Any, seed: int = 1) -> jax.Array:
    """A standardised random image [1, size, size, 3] in `dtype`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal((1, config.size, config.size, 3), dtype=np.float32), dtype)


def forward(params: Params, image: jax.Array) -> jax.Array:
    """The original's 31 M parameters with padded convolutions; image f32 [1, 128, 128, 3], logits [1, 128, 128, 2]."""
    return segment(params, image)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 128, 128, 3] image."""
    return init(UNET, jnp.float32), example_image(UNET, jnp.float32)


def tiny(params: Params, image: jax.Array) -> jax.Array:
    """Two levels for tests; image f32 [1, 16, 16, 3], logits f32 [1, 16, 16, 3]."""
    return segment(params, image)


def tiny_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 16, 16, 3] image."""
    return init(TINY, jnp.float32), example_image(TINY, jnp.float32)
