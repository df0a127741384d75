"""A small CNN trained on scikit-learn's 8x8 digits in plain JAX; run the file to print its test accuracy.

`forward(params(seed), images)` are logits, `data()` is the split; `vit_digits.py` and `char_lm.py` offer the same
names. Weights are trained when they are first asked for, in 10 s, and cached.
"""

import math
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from trained import Adam, Rows, adam, adam_step, cached, cached_params, cross_entropy

Params = dict[str, jax.Array]

N_TRAIN = 1437
"""The first digits of the file are for training, the other 360 for tests: they were written by other people."""


class Hyper(NamedTuple):
    """Everything that decides the trained weights; its hash names their cache file."""

    conv1: int = 24
    conv2: int = 48
    dense: int = 128
    epochs: int = 25
    batch: int = 64
    rate: float = 2e-3
    shift: float = 0.6
    seed: int = 0


HYPER = Hyper()


def data() -> tuple[Rows, Rows]:
    """The digits for training and those for tests, each images f32 [n, 8, 8, 1] in 0..1 and labels int32 [n]."""
    # Cached only because importing scikit-learn takes longer than everything else here.
    found = cached("digits-data.npz", _load_digits)
    images, labels = found["images"], found["labels"]
    return Rows(images[:N_TRAIN], labels[:N_TRAIN]), Rows(images[N_TRAIN:], labels[N_TRAIN:])


def conv_block(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """3x3 convolution, relu and 2x2 max pool; x [n, h, w, i], w [3, 3, i, o], result [n, h/2, w/2, o]."""
    x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.lax.reduce_window(
        jax.nn.relu(x + b), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    )


def forward(params: Params, images: jax.Array) -> jax.Array:
    """images f32 [n, 8, 8, 1] in 0..1, logits f32 [n, 10]."""
    x = conv_block(images, params["conv1_w"], params["conv1_b"])
    x = conv_block(x, params["conv2_w"], params["conv2_b"])
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["dense1_w"] + params["dense1_b"])
    return x @ params["dense2_w"] + params["dense2_b"]


def params(seed: int = 0) -> Params:
    """The trained weights of a seed, all f32."""
    hyper = HYPER._replace(seed=seed)
    return cached_params("digits-cnn", hyper, lambda: init(hyper), lambda: train(hyper))


def forward_inputs() -> tuple[Params, jax.Array]:
    """The trained weights, all f32, and the test images f32 [360, 8, 8, 1]."""
    return params(), jnp.asarray(data()[1].inputs)


def test_labels() -> np.ndarray:
    """The true digits of the test images, int32 [360]."""
    return data()[1].labels


def calibration() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Three batches of training images, each f32 [360, 8, 8, 1], and their digits, each int32 [360]: for `tilewright
    quantize --data`."""
    digits, _ = data()
    starts = range(0, 1080, 360)
    return [digits.inputs[i : i + 360] for i in starts], [digits.labels[i : i + 360] for i in starts]


def train(hyper: Hyper = HYPER) -> Params:
    """Train from scratch on the first 1437 digits and return the weights."""
    rng = np.random.default_rng(hyper.seed)
    digits, _ = data()
    # A shorter last batch would need a second compilation; another epoch sees what this one drops.
    steps = N_TRAIN // hyper.batch

    @jax.jit
    def epoch(state: Adam, images: jax.Array, labels: jax.Array) -> Adam:
        def step(state: Adam, batch: tuple[jax.Array, jax.Array]) -> tuple[Adam, None]:
            # Falling linearly to zero, so that the result depends little on where the last few batches pull.
            rate = hyper.rate * (1 - state.step / (hyper.epochs * steps))
            return adam_step(state, jax.grad(loss)(state.params, *batch), rate), None

        return jax.lax.scan(step, state, (images, labels))[0]

    state = adam(init(hyper, rng))
    for _ in range(hyper.epochs):
        order = rng.permutation(N_TRAIN)[: steps * hyper.batch]
        images = shifted(digits.inputs[order], hyper.shift, rng)
        state = epoch(
            state,
            jnp.asarray(images.reshape(steps, hyper.batch, 8, 8, 1)),
            jnp.asarray(digits.labels[order].reshape(steps, hyper.batch)),
        )
    return state.params


def accuracy(params: Params, images: jax.Array) -> float:
    """Share of the test images f32 [360, 8, 8, 1] that `forward` classifies as labelled."""
    predicted = np.asarray(jax.jit(forward)(params, images)).argmax(axis=-1)
    return float((predicted == test_labels()).mean())


def init(hyper: Hyper = HYPER, rng: np.random.Generator | None = None) -> Params:
    """He-initialised f32 weights and zero biases; random numbers from `rng`, or from the seed."""
    rng = rng or np.random.default_rng(hyper.seed)

    def he(*shape: int) -> jax.Array:
        std = math.sqrt(2 / math.prod(shape[:-1]))
        return jnp.asarray(std * rng.standard_normal(shape, dtype=np.float32))

    # Two 2x2 pools leave 2x2 of the 8x8 pixels.
    weights = {
        "conv1": he(3, 3, 1, hyper.conv1),
        "conv2": he(3, 3, hyper.conv1, hyper.conv2),
        "dense1": he(2 * 2 * hyper.conv2, hyper.dense),
        "dense2": he(hyper.dense, 10),
    }
    biases = {f"{name}_b": jnp.zeros(w.shape[-1], jnp.float32) for name, w in weights.items()}
    return {f"{name}_w": w for name, w in weights.items()} | biases


def shifted(images: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """images f32 [n, 8, 8, 1], each moved by -1, 0 or 1 pixels along each axis, zero-filled."""
    # Digits far apart in the file, probably by other people, differ more than neighbours, also in placement.
    start = np.clip(np.rint(rng.normal(1, scale, (2, len(images)))), 0, 2).astype(int)
    rows, columns = start[:, :, None] + np.arange(8)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]


def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross entropy, f32 []; images f32 [n, 8, 8, 1], labels int32 [n]."""
    return cross_entropy(forward(params, images), labels)


def _load_digits() -> dict[str, np.ndarray]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = (np.asarray(pixels) / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    return {"images": images, "labels": np.asarray(labels).astype(np.int32)}


if __name__ == "__main__":
    print(f"test accuracy {accuracy(*forward_inputs()):.4f}")
