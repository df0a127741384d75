"""One training step of a CNN in plain JAX: `adam` and `sgd` on a ResNet-like network with batch norm and max pool,
`digits` on scikit-learn's digits, and `tiny_` variants."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5
RATE, BETA1, BETA2, ADAM_EPS = 1e-3, 0.9, 0.999, 1e-8
SGD_RATE, MOMENTUM = 1e-2, 0.9


class Config(NamedTuple):
    """Channels of each stage, each halving the image, and the example batch."""

    widths: tuple[int, ...]
    batch: int
    size: int
    channels: int
    classes: int


SMALL = Config(widths=(64, 128, 256), batch=32, size=32, channels=3, classes=10)
DIGITS = Config(widths=(16, 32), batch=64, size=8, channels=1, classes=10)
TINY = Config(widths=(4, 6), batch=3, size=8, channels=2, classes=5)


class Adam(NamedTuple):
    """Weights, their first and second moment estimates, and the number of steps taken (int32 [])."""

    params: Params
    mean: Params
    square: Params
    step: jax.Array


class Sgd(NamedTuple):
    """Weights and their momentum."""

    params: Params
    momentum: Params


def conv(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
    """Convolution of x [n, h, w, i] with w [k, k, i, o], zero-padded by half the kernel."""
    padding = [(k // 2, k // 2) for k in w.shape[:2]]
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: jax.Array, p: Params) -> jax.Array:
    """Batch norm with the batch's own statistics; x [n, h, w, c], p scale and bias [c]."""
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean(jnp.square(x - mean), axis=(0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + EPS) * p["scale"] + p["bias"]


def max_pool(x: jax.Array) -> jax.Array:
    """2x2 max pool; x [n, h, w, c], result [n, h/2, w/2, c]."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def logits(params: Params, images: jax.Array) -> jax.Array:
    """images [n, h, w, c], result [n, classes]."""
    x = images
    for i, p in enumerate(params["stages"]):
        x = jax.nn.relu(batch_norm(conv(x, p["conv1"]), p["bn1"]))
        y = batch_norm(conv(x, p["conv2"], 2), p["bn2"])
        # One stage pools its shortcut by maximum, the next projects it with a stride.
        shortcut = max_pool(x) if i % 2 == 0 else conv(x, p["project"], 2)
        x = jax.nn.relu(y + shortcut)
    return jnp.mean(x, axis=(1, 2)) @ params["fc"]["w"] + params["fc"]["b"]


def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross entropy, f32 []; labels int32 [n]."""
    log_probs = jax.nn.log_softmax(logits(params, images))
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], axis=-1))


def adam_step(state: Adam, images: jax.Array, labels: jax.Array) -> tuple[Adam, jax.Array]:
    """One update with bias correction; the new state and the loss before it."""
    value, grads = jax.value_and_grad(loss)(state.params, images, labels)
    step = state.step + 1
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.mean, grads)
    square = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state.square, grads)
    rate = RATE * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + ADAM_EPS), state.params, mean, square)
    return Adam(params, mean, square, step), value


def sgd_step(state: Sgd, images: jax.Array, labels: jax.Array) -> tuple[Sgd, jax.Array]:
    """One update with momentum; the new state and the loss before it."""
    value, grads = jax.value_and_grad(loss)(state.params, images, labels)
    momentum = jax.tree.map(lambda m, g: MOMENTUM * m + g, state.momentum, grads)
    params = jax.tree.map(lambda p, m: p - SGD_RATE * m, state.params, momentum)
    return Sgd(params, momentum), value


def init(config: Config, seed: int = 0) -> Params:
    """Random He-scaled f32 weights."""
    rng = np.random.default_rng(seed)

    def kernel(size: int, n_in: int, n_out: int) -> jax.Array:
        std = math.sqrt(2 / (size * size * n_in))
        return jnp.asarray(std * rng.standard_normal((size, size, n_in, n_out), dtype=np.float32))

    def norm(n: int) -> Params:
        return {"scale": jnp.ones(n), "bias": jnp.zeros(n)}

    stages: list[Params] = []
    for i, (n_in, n) in enumerate(zip([config.channels, *config.widths], config.widths)):
        stage = {"conv1": kernel(3, n_in, n), "bn1": norm(n), "conv2": kernel(3, n, n), "bn2": norm(n)}
        stages.append(stage | ({"project": kernel(1, n, n)} if i % 2 else {}))
    last = config.widths[-1]
    fc = rng.standard_normal((last, config.classes), dtype=np.float32) / math.sqrt(last)
    return {"stages": stages, "fc": {"w": jnp.asarray(fc), "b": jnp.zeros(config.classes)}}


def adam_state(params: Params) -> Adam:
    """The state before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Adam(params, zeros, zeros, jnp.zeros((), jnp.int32))


def sgd_state(params: Params) -> Sgd:
    """The state before the first step."""
    return Sgd(params, jax.tree.map(jnp.zeros_like, params))


def example_batch(config: Config, seed: int = 1) -> tuple[jax.Array, jax.Array]:
    """Random images f32 [n, h, w, c] and labels int32 [n]."""
    rng = np.random.default_rng(seed)
    shape = (config.batch, config.size, config.size, config.channels)
    images = rng.standard_normal(shape, dtype=np.float32)
    return jnp.asarray(images), jnp.asarray(rng.integers(0, config.classes, config.batch, dtype=np.int32))


def digits_batches(steps: int, seed: int = 2) -> tuple[jax.Array, jax.Array]:
    """Batches of scikit-learn's digits: images f32 [steps, 64, 8, 8, 1] in 0..1 and labels int32 [steps, 64]."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    picked = rng.integers(0, len(labels), (steps, DIGITS.batch))
    images = (np.asarray(pixels) / 16).astype(np.float32).reshape(-1, 8, 8, 1)[picked]
    return jnp.asarray(images), jnp.asarray(np.asarray(labels).astype(np.int32)[picked])


def adam(state: Adam, images: jax.Array, labels: jax.Array) -> tuple[Adam, jax.Array]:
    """images f32 [32, 32, 32, 3], labels int32 [32]."""
    return adam_step(state, images, labels)


def adam_inputs() -> tuple[Adam, jax.Array, jax.Array]:
    """The first state and a batch."""
    return adam_state(init(SMALL)), *example_batch(SMALL)


def sgd(state: Sgd, images: jax.Array, labels: jax.Array) -> tuple[Sgd, jax.Array]:
    """images f32 [32, 32, 32, 3], labels int32 [32]."""
    return sgd_step(state, images, labels)


def sgd_inputs() -> tuple[Sgd, jax.Array, jax.Array]:
    """The first state and a batch."""
    return sgd_state(init(SMALL)), *example_batch(SMALL)


def digits(state: Adam, images: jax.Array, labels: jax.Array) -> tuple[Adam, jax.Array]:
    """images f32 [64, 8, 8, 1], labels int32 [64]."""
    return adam_step(state, images, labels)


def digits_inputs() -> tuple[Adam, jax.Array, jax.Array]:
    """The first state and a batch of digits."""
    images, labels = digits_batches(1)
    return adam_state(init(DIGITS)), images[0], labels[0]


def tiny_adam(state: Adam, images: jax.Array, labels: jax.Array) -> tuple[Adam, jax.Array]:
    """For tests; images f32 [3, 8, 8, 2], labels int32 [3]."""
    return adam_step(state, images, labels)


def tiny_adam_inputs() -> tuple[Adam, jax.Array, jax.Array]:
    """The first state and a batch."""
    return adam_state(init(TINY)), *example_batch(TINY)


def tiny_sgd(state: Sgd, images: jax.Array, labels: jax.Array) -> tuple[Sgd, jax.Array]:
    """For tests; images f32 [3, 8, 8, 2], labels int32 [3]."""
    return sgd_step(state, images, labels)


def tiny_sgd_inputs() -> tuple[Sgd, jax.Array, jax.Array]:
    """The first state and a batch."""
    return sgd_state(init(TINY)), *example_batch(TINY)
