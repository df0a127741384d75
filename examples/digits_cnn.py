"""A small CNN trained on scikit-learn's 8x8 digits in plain JAX; run the file to print its test accuracy."""

import hashlib
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, jax.Array]
Arrays = dict[str, np.ndarray]

N_TRAIN = 1437


class Hyper(NamedTuple):
    """Everything that decides the trained weights; its hash names their cache file."""

    conv1: int = 24
    conv2: int = 48
    dense: int = 128
    epochs: int = 25
    batch: int = 64
    rate: float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    shift: float = 0.6
    seed: int = 0


HYPER = Hyper()


class Adam(NamedTuple):
    """Weights, their first and second moment estimates, and the number of steps taken (int32 [])."""

    params: Params
    mean: Params
    square: Params
    step: jax.Array


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


def forward_inputs() -> tuple[Params, jax.Array]:
    """The trained weights, all f32, and the test images f32 [360, 8, 8, 1]."""
    weights = _cached(_weights_name(HYPER), lambda: {k: np.asarray(v) for k, v in train().items()})
    return {k: jnp.asarray(v) for k, v in weights.items()}, jnp.asarray(_digits()["images"][N_TRAIN:])


def test_labels() -> np.ndarray:
    """The true digits of the test images, int32 [360]."""
    return _digits()["labels"][N_TRAIN:]


def train(hyper: Hyper = HYPER) -> Params:
    """Train from scratch on the first 1437 digits and return the weights."""
    rng = np.random.default_rng(hyper.seed)
    data = _digits()
    params = _init(hyper, rng)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = Adam(params, zeros, zeros, jnp.zeros((), jnp.int32))

    @jax.jit
    def epoch(state: Adam, images: jax.Array, labels: jax.Array) -> Adam:
        def step(state: Adam, batch: tuple[jax.Array, jax.Array]) -> tuple[Adam, None]:
            return _adam_step(state, jax.grad(_loss)(state.params, *batch), hyper), None

        return jax.lax.scan(step, state, (images, labels))[0]

    # A shorter last batch would need a second compilation; another epoch sees what this one drops.
    steps = N_TRAIN // hyper.batch
    for _ in range(hyper.epochs):
        order = rng.permutation(N_TRAIN)[: steps * hyper.batch]
        images = _shifted(data["images"][order], hyper.shift, rng)
        state = epoch(
            state,
            jnp.asarray(images.reshape(steps, hyper.batch, 8, 8, 1)),
            jnp.asarray(data["labels"][order].reshape(steps, hyper.batch)),
        )
    return state.params


def accuracy(params: Params, images: jax.Array) -> float:
    """Share of the test images f32 [360, 8, 8, 1] that `forward` classifies as labelled."""
    predicted = np.asarray(jax.jit(forward)(params, images)).argmax(axis=-1)
    return float((predicted == test_labels()).mean())


def _init(hyper: Hyper, rng: np.random.Generator) -> Params:
    """He-initialised f32 weights and zero biases."""

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


def _shifted(images: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """images f32 [n, 8, 8, 1], each moved by -1, 0 or 1 pixels along each axis, zero-filled."""
    # Digits far apart in the file, probably by other people, differ more than neighbours, also in placement.
    start = np.clip(np.rint(rng.normal(1, scale, (2, len(images)))), 0, 2).astype(int)
    rows, columns = start[:, :, None] + np.arange(8)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]


def _loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross entropy, f32 []; images f32 [n, 8, 8, 1], labels int32 [n]."""
    log_probs = jax.nn.log_softmax(forward(params, images))
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], axis=-1))


def _adam_step(state: Adam, grads: Params, hyper: Hyper) -> Adam:
    """One Adam update with bias correction."""
    step = state.step + 1
    mean = jax.tree.map(lambda m, g: hyper.beta1 * m + (1 - hyper.beta1) * g, state.mean, grads)
    square = jax.tree.map(lambda v, g: hyper.beta2 * v + (1 - hyper.beta2) * g * g, state.square, grads)
    # Falling linearly to zero, so that the result depends little on where the last few batches pull.
    decay = 1 - state.step / (hyper.epochs * (N_TRAIN // hyper.batch))
    rate = hyper.rate * decay * jnp.sqrt(1 - hyper.beta2**step) / (1 - hyper.beta1**step)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + hyper.epsilon), state.params, mean, square
    )
    return Adam(params, mean, square, step)


def _digits() -> Arrays:
    """images f32 [1797, 8, 8, 1] in 0..1 and labels int32 [1797], in scikit-learn's order."""
    # Cached only because importing scikit-learn takes longer than everything else here.
    return _cached("digits-data.npz", _load_digits)


def _load_digits() -> Arrays:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = (np.asarray(pixels) / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    return {"images": images, "labels": np.asarray(labels).astype(np.int32)}


def _weights_name(hyper: Hyper) -> str:
    digest = hashlib.sha256(repr(hyper).encode()).hexdigest()[:12]
    return f"digits-cnn-{digest}.npz"


def _cached(name: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays of the cache file `name`, which `make` fills when it does not exist."""
    folder = Path(os.environ.get("TILEWRIGHT_CACHE") or Path.home() / ".cache" / "tilewright")
    path = folder / name
    if not path.exists():
        with jax.ensure_compile_time_eval():  # only the shapes of the inputs may be asked for, by `jax.eval_shape`
            arrays = make()
        folder.mkdir(parents=True, exist_ok=True)
        # Tests may run in parallel: nobody may see half a file, and the last complete one wins.
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    with np.load(path) as stored:
        return dict(stored)


if __name__ == "__main__":
    print(f"test accuracy {accuracy(*forward_inputs()):.4f}")
