"""MobileNetV2 inference in plain JAX: `forward` (f32), `forward_f16` and `tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5


class Stage(NamedTuple):
    """A row of table 2 of the paper: expansion t, output channels c, repeats n, first stride s."""

    expansion: int
    channels: int
    repeats: int
    stride: int


class Config(NamedTuple):
    """Shape of a MobileNetV2 and of its example input."""

    stages: tuple[Stage, ...]
    stem: int
    last: int
    size: int
    classes: int


MOBILENET_V2 = Config(
    stages=(
        Stage(1, 16, 1, 1),
        Stage(6, 24, 2, 2),
        Stage(6, 32, 3, 2),
        Stage(6, 64, 4, 2),
        Stage(6, 96, 3, 1),
        Stage(6, 160, 3, 2),
        Stage(6, 320, 1, 1),
    ),
    stem=32,
    last=1280,
    size=224,
    classes=1000,
)
TINY = Config(stages=(Stage(1, 8, 1, 1), Stage(3, 12, 2, 2)), stem=8, last=24, size=32, classes=10)


def conv(x: jax.Array, w: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    """Convolution of x [n, h, w, i] with w [kh, kw, i / groups, o], zero-padded by half the kernel."""
    padding = [(k // 2, k // 2) for k in w.shape[:2]]
    return jax.lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def batch_norm(x: jax.Array, p: Params) -> jax.Array:
    """Inference batch norm over the channels; x [n, h, w, c], p mean, var, scale and bias [c]."""
    return (x - p["mean"]) * jax.lax.rsqrt(p["var"] + EPS) * p["scale"] + p["bias"]


def inverted_residual(x: jax.Array, p: Params, stride: int) -> jax.Array:
    """Expand by 1x1, filter each channel by 3x3, project by 1x1; x [n, h, w, i]."""
    y = x
    if "expand" in p:
        y = jax.nn.relu6(batch_norm(conv(y, p["expand"]), p["expand_bn"]))
    y = jax.nn.relu6(batch_norm(conv(y, p["depth"], stride, y.shape[-1]), p["depth_bn"]))
    y = batch_norm(conv(y, p["project"]), p["project_bn"])
    return x + y if stride == 1 and x.shape == y.shape else y


def classify(config: Config, params: Params, image: jax.Array) -> jax.Array:
    """Logits [n, classes] in the dtype of the weights; image [n, h, w, 3]."""
    x = jax.nn.relu6(batch_norm(conv(image, params["stem"], 2), params["stem_bn"]))
    for stage, blocks in zip(config.stages, params["stages"], strict=True):
        for i, block in enumerate(blocks):
            x = inverted_residual(x, block, stage.stride if i == 0 else 1)
    x = jax.nn.relu6(batch_norm(conv(x, params["last"]), params["last_bn"]))
    return jnp.mean(x, axis=(1, 2)) @ params["fc"]["w"] + params["fc"]["b"]


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights, He-scaled so that activations stay of order one, in `dtype`."""
    rng = np.random.default_rng(seed)

    def kernel(size: int, n_in: int, n_out: int) -> jax.Array:
        std = math.sqrt(2 / (size * size * n_in))
        return jnp.asarray(std * rng.standard_normal((size, size, n_in, n_out), dtype=np.float32), dtype)

    def norm(n: int) -> Params:
        ranges = {"mean": (-0.1, 0.1), "var": (0.8, 1.2), "scale": (0.8, 1.2), "bias": (-0.1, 0.1)}
        return {name: jnp.asarray(rng.uniform(*limits, n), dtype) for name, limits in ranges.items()}

    def block(n_in: int, n_out: int, expansion: int) -> Params:
        wide = expansion * n_in
        p: Params = {
            "depth": kernel(3, 1, wide),
            "depth_bn": norm(wide),
            "project": kernel(1, wide, n_out),
            "project_bn": norm(n_out),
        }
        if expansion > 1:
            p |= {"expand": kernel(1, n_in, wide), "expand_bn": norm(wide)}
        return p

    stages: list[list[Params]] = []
    channels = config.stem
    for stage in config.stages:
        blocks: list[Params] = []
        for _ in range(stage.repeats):
            blocks.append(block(channels, stage.channels, stage.expansion))
            channels = stage.channels
        stages.append(blocks)
    fc = rng.standard_normal((config.last, config.classes), dtype=np.float32) / math.sqrt(config.last)
    return {
        "stem": kernel(3, 3, config.stem),
        "stem_bn": norm(config.stem),
        "stages": stages,
        "last": kernel(1, channels, config.last),
        "last_bn": norm(config.last),
        "fc": {"w": jnp.asarray(fc, dtype), "b": jnp.asarray(rng.uniform(-0.1, 0.1, config.classes), dtype)},
    }


def example_image(config: Config, dtype: Any, seed: int = 1) -> jax.Array:
    """A standardised random image [1, size, size, 3] in `dtype`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal((1, config.size, config.size, 3), dtype=np.float32), dtype)


def forward(params: Params, image: jax.Array) -> jax.Array:
    """MobileNetV2 1.0; image f32 [1, 224, 224, 3], logits f32 [1, 1000]."""
    return classify(MOBILENET_V2, params, image)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 224, 224, 3] image."""
    return init(MOBILENET_V2, jnp.float32), example_image(MOBILENET_V2, jnp.float32)


def forward_f16(params: Params, image: jax.Array) -> jax.Array:
    """MobileNetV2 1.0; image f16 [1, 224, 224, 3], logits f16 [1, 1000]."""
    return classify(MOBILENET_V2, params, image)


def forward_f16_inputs() -> tuple[Params, jax.Array]:
    """The inputs of `forward` rounded to f16."""
    return init(MOBILENET_V2, jnp.float16), example_image(MOBILENET_V2, jnp.float16)


def tiny(params: Params, image: jax.Array) -> jax.Array:
    """Three-block model for tests; image f32 [1, 32, 32, 3], logits f32 [1, 10]."""
    return classify(TINY, params, image)


def tiny_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [1, 32, 32, 3] image."""
    return init(TINY, jnp.float32), example_image(TINY, jnp.float32)
