"""A small vision transformer trained on scikit-learn's 8x8 digits in plain JAX; run the file to print its accuracy.

`forward(params(seed), images)` are logits, `data()` is the split of `digits_cnn.py`. Weights are trained when they are
first asked for, in half a minute, and cached.
"""

import math
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import digits_cnn
from trained import Adam, Params, Rows, adam, adam_step, cached_params, cross_entropy, warm_and_fall
from transformer import block, init_block, init_norm, layer_norm, normal

PATCH = 2
"""Pixels along each side of a patch: 16 of them are a digit."""


class Hyper(NamedTuple):
    """Everything that decides the trained weights; its hash names their cache file."""

    n_layers: int = 3
    d_model: int = 64
    n_heads: int = 4
    epochs: int = 50
    batch: int = 64
    rate: float = 2e-3
    warm: int = 60
    decay: float = 0.1
    shift: float = 0.6
    seed: int = 0


HYPER = Hyper()


def forward(params: Params, images: jax.Array) -> jax.Array:
    """images f32 [n, 8, 8, 1] in 0..1, logits f32 [n, 10]."""
    x = patches(images) @ params["embedding"] + params["positions"]
    for p in params["blocks"]:
        x = block(x, p, HYPER.n_heads, causal=False)
    return jnp.mean(layer_norm(x, params["norm"]), axis=1) @ params["head"]


def patches(images: jax.Array) -> jax.Array:
    """images [n, 8, 8, 1] as rows of 2 x 2 pixels each, [n, 16, 4]."""
    n, h, w, _ = images.shape
    x = images.reshape(n, h // PATCH, PATCH, w // PATCH, PATCH)
    return x.transpose(0, 1, 3, 2, 4).reshape(n, -1, PATCH * PATCH)


def params(seed: int = 0) -> Params:
    """The trained weights of a seed, all f32: 'embedding' and 'positions', 'blocks', 'norm', 'head'."""
    hyper = HYPER._replace(seed=seed)
    return cached_params("vit-digits", hyper, lambda: init(hyper), lambda: train(hyper))


def data() -> tuple[Rows, Rows]:
    """The digits for training and those for tests, each images f32 [n, 8, 8, 1] in 0..1 and labels int32 [n]."""
    return digits_cnn.data()


def forward_inputs() -> tuple[Params, jax.Array]:
    """The trained weights, all f32, and the test images f32 [360, 8, 8, 1]."""
    return params(), jnp.asarray(data()[1].inputs)


def init(hyper: Hyper = HYPER) -> Params:
    """Random f32 weights."""
    rng = np.random.default_rng(hyper.seed)
    d = hyper.d_model
    return {
        "embedding": normal(rng, PATCH * PATCH, d, std=1 / PATCH),
        "positions": normal(rng, (8 // PATCH) ** 2, d, std=0.3),
        "blocks": [init_block(rng, d, hyper.n_layers) for _ in range(hyper.n_layers)],
        "norm": init_norm(d),
        "head": normal(rng, d, 10, std=1 / math.sqrt(d)),
    }


def calibration() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Three batches of training images, each f32 [360, 8, 8, 1], and their digits, each int32 [360]: for `tilewright
    quantize --data`."""
    return digits_cnn.calibration()


def train(hyper: Hyper = HYPER) -> Params:
    """Trains from scratch on the first 1437 digits, moved by up to a pixel each, and returns the weights."""
    rng = np.random.default_rng(hyper.seed)
    digits, _ = data()
    each = len(digits.labels) // hyper.batch
    steps = each * hyper.epochs

    def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
        return cross_entropy(forward(params, images), labels)

    @jax.jit
    def epoch(state: Adam, images: jax.Array, labels: jax.Array) -> Adam:
        def step(state: Adam, batch: tuple[jax.Array, jax.Array]) -> tuple[Adam, None]:
            rate = warm_and_fall(state.step, steps, hyper.rate, hyper.warm)
            return adam_step(state, jax.grad(loss)(state.params, *batch), rate, hyper.decay), None

        return jax.lax.scan(step, state, (images, labels))[0]

    state = adam(init(hyper))
    for _ in range(hyper.epochs):
        order = rng.permutation(len(digits.labels))[: each * hyper.batch]
        images = digits_cnn.shifted(digits.inputs[order], hyper.shift, rng)
        state = epoch(
            state,
            jnp.asarray(images.reshape(each, hyper.batch, 8, 8, 1)),
            jnp.asarray(digits.labels[order].reshape(each, hyper.batch)),
        )
    return state.params


def accuracy(params: Params, images: jax.Array, labels: np.ndarray) -> float:
    """Share of images f32 [n, 8, 8, 1] that `forward` classifies as labelled."""
    return float((np.asarray(jax.jit(forward)(params, images)).argmax(axis=-1) == labels).mean())


if __name__ == "__main__":
    _, test = data()
    print(f"test accuracy {accuracy(params(), jnp.asarray(test.inputs), test.labels):.4f}")
