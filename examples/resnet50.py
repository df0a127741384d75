"""ResNet-50 v1.5 inference in plain JAX: `forward` (f32), `forward_f16` and `tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5
EXPANSION = 4


class Config(NamedTuple):
    """Shape of a bottleneck ResNet and of its example input."""

    blocks: tuple[int, ...]
    width: int
    size: int
    classes: int


RESNET50 = Config(blocks=(3, 4, 6, 3), width=64, size=224, classes=1000)
TINY = Config(blocks=(1, 1), width=16, size=32, classes=10)


def conv(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
    """Convolution of x [n, h, w, i] with w [kh, kw, i, o], zero-padded by half the kernel on each side."""
    # Explicit rather than "SAME": at stride 2 "SAME" pads unevenly, unlike the published weights expect.
    padding = [(k // 2, k // 2) for k in w.shape[:2]]
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: jax.Array, p: Params) -> jax.Array:
    """Inference batch norm over the channels; x [n, h, w, c], p mean, var, scale and bias [c]."""
    return (x - p["mean"]) * jax.lax.rsqrt(p["var"] + EPS) * p["scale"] + p["bias"]


def max_pool(x: jax.Array) -> jax.Array:
    """3x3 max pool with stride 2 and padding 1; x [n, h, w, c], result [n, h/2, w/2, c]."""
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]
    )


def bottleneck(x: jax.Array, p: Params, stride: int) -> jax.Array:
    """Residual block; x [n, h, w, i], result [n, h/stride, w/stride, o]."""
    y = jax.nn.relu(batch_norm(conv(x, p["conv1"]), p["bn1"]))
    # v1.5: the stride is in the 3x3 convolution, where v1 has it in the first 1x1.
    y = jax.nn.relu(batch_norm(conv(y, p["conv2"], stride), p["bn2"]))
    y = batch_norm(conv(y, p["conv3"]), p["bn3"])
    shortcut = batch_norm(conv(x, p["proj"], stride), p["proj_bn"]) if "proj" in p else x
    return jax.nn.relu(y + shortcut)


def classify(params: Params, image: jax.Array) -> jax.Array:
    """Logits [n, classes] in the dtype of the weights; image [n, h, w, 3]."""
    x = jax.nn.relu(batch_norm(conv(image, params["stem"], 2), params["stem_bn"]))
    x = max_pool(x)
    for i, stage in enumerate(params["stages"]):
        for j, block in enumerate(stage):
            # The max pool has already halved the first stage's input.
            x = bottleneck(x, block, 2 if i > 0 and j == 0 else 1)
    return jnp.mean(x, axis=(1, 2)) @ params["fc"]["w"] + params["fc"]["b"]


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights, He-scaled so that activations stay of order one, in `dtype`."""
    rng = np.random.default_rng(seed)

    def kernel(size: int, n_in: int, n_out: int) -> jax.Array:
        std = math.sqrt(2 / (size * size * n_in))
        return jnp.asarray(std * rng.standard_normal((size, size, n_in, n_out), dtype=np.float32), dtype)

    def uniform(low: float, high: float, n: int) -> jax.Array:
        return jnp.asarray(rng.uniform(low, high, n), dtype)

    def norm(n: int, low: float = 0.8, high: float = 1.2) -> Params:
        return {
            "mean": uniform(-0.1, 0.1, n),
            "var": uniform(0.8, 1.2, n),
            "scale": uniform(low, high, n),
            "bias": uniform(-0.1, 0.1, n),
        }

    def block(n_in: int, width: int, project: bool) -> Params:
        n_out = EXPANSION * width
        p: Params = {
            "conv1": kernel(1, n_in, width),
            "bn1": norm(width),
            "conv2": kernel(3, width, width),
            "bn2": norm(width),
            "conv3": kernel(1, width, n_out),
            # Small, because without real statistics nothing else bounds the sum along the shortcuts.
            "bn3": norm(n_out, 0.2, 0.5),
        }
        if project:
            p["proj"] = kernel(1, n_in, n_out)
            p["proj_bn"] = norm(n_out)
        return p

    stem = kernel(7, 3, config.width)
    stem_bn = norm(config.width)
    stages: list[list[Params]] = []
    channels = config.width
    for i, count in enumerate(config.blocks):
        width = config.width << i
        stage: list[Params] = []
        for j in range(count):
            stage.append(block(channels, width, project=j == 0))
            channels = EXPANSION * width
        stages.append(stage)
    w = rng.standard_normal((channels, config.classes), dtype=np.float32) / math.sqrt(channels)
    fc = {"w": jnp.asarray(w, dtype), "b": uniform(-0.1, 0.1, config.classes)}
    return {"stem": stem, "stem_bn": stem_bn, "stages": stages, "fc": fc}


def example_image(config: Config, dtype: Any, seed: int = 1) -> jax.Array:
    """A standardised random image [1, size, size, 3] in `dtype`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal((1, config.size, config.size, 3), dtype=np.float32), dtype)


def forward(params: Params, image: jax.Array) -> jax.Array:
    """ResNet-50; image f32 [1, 224, 224, 3], logits f32 [1, 1000]."""
    return classify(params, image)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 224, 224, 3] image."""
    return init(RESNET50, jnp.float32), example_image(RESNET50, jnp.float32)


def forward_f16(params: Params, image: jax.Array) -> jax.Array:
    """ResNet-50; image f16 [1, 224, 224, 3], logits f16 [1, 1000]."""
    return classify(params, image)


def forward_f16_inputs() -> tuple[Params, jax.Array]:
    """The inputs of `forward` rounded to f16."""
    return init(RESNET50, jnp.float16), example_image(RESNET50, jnp.float16)


def tiny(params: Params, image: jax.Array) -> jax.Array:
    """Two-block model for tests; image f32 [1, 32, 32, 3], logits f32 [1, 10]."""
    return classify(params, image)


def tiny_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 32, 32, 3] image."""
    return init(TINY, jnp.float32), example_image(TINY, jnp.float32)
