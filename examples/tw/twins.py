"""The JAX twins of the .tw programs in this folder: the same functions, and example inputs for each.

`mlp.tw` reads the weights of a small network trained here on scikit-learn's digits; running this file writes them.
"""

import math
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

FOLDER = Path(__file__).resolve().parent
WEIGHTS = FOLDER / "digits_mlp.safetensors"
HIDDEN = (96, 48)
HEADS = 4

Arrays = dict[str, np.ndarray]


def digits() -> tuple[np.ndarray, np.ndarray]:
    """images f32 [1797, 64] in 0..1 and labels i32 [1797], in scikit-learn's order."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return (np.asarray(pixels) / 16).astype(np.float32), np.asarray(labels).astype(np.int32)


def weights() -> Arrays:
    """The trained weights, from their file, which is written first where it is not there."""
    if not WEIGHTS.exists():
        handle, draft = tempfile.mkstemp(dir=FOLDER, suffix=".tmp")
        os.close(handle)
        save_file(train(), draft)
        os.replace(draft, WEIGHTS)
    return load_file(WEIGHTS)


def train(epochs: int = 30, seed: int = 0) -> Arrays:
    """Stochastic gradient descent with momentum on the first 1437 digits."""
    images, labels = (a[:1437] for a in digits())
    rng = np.random.default_rng(seed)
    sizes = [64, *HIDDEN, 10]
    params = {}
    for i, (m, n) in enumerate(pairwise(sizes), 1):
        params[f"w{i}"] = jnp.asarray(rng.standard_normal((m, n), np.float32) * math.sqrt(2 / m))
        params[f"b{i}"] = jnp.zeros(n, jnp.float32)

    def loss(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        found = jax.nn.log_softmax(_layers(params, x))
        return -jnp.mean(jnp.take_along_axis(found, y[:, None], axis=-1))

    @jax.jit
    def step(params: Any, speed: Any, x: jax.Array, y: jax.Array) -> Any:
        slope = jax.grad(loss)(params, x, y)
        speed = jax.tree.map(lambda s, g: 0.9 * s - 0.05 * g, speed, slope)
        return jax.tree.map(jnp.add, params, speed), speed

    speed = jax.tree.map(jnp.zeros_like, params)
    for _ in range(epochs):
        order = rng.permutation(1437)[:1408].reshape(-1, 64)
        for rows in order:
            params, speed = step(params, speed, images[rows], labels[rows])
    return {k: np.asarray(v) for k, v in params.items()}


def _layers(p: Any, images: jax.Array) -> jax.Array:
    h = jax.nn.relu(images @ p["w1"] + p["b1"])
    h = jax.nn.relu(h @ p["w2"] + p["b2"])
    return h @ p["w3"] + p["b3"]


def mlp(images: jax.Array) -> jax.Array:
    """images f32 [n, 64] in 0..1; logits f32 [n, 10]."""
    return _layers({k: jnp.asarray(v) for k, v in weights().items()}, images)


def mlp_inputs() -> tuple[np.ndarray]:
    """The 360 test images, f32 [360, 64]."""
    weights()
    return (digits()[0][1437:],)


def mlp_labels() -> np.ndarray:
    """The true digits of the test images, i32 [360]."""
    return digits()[1][1437:]


def _norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def block(
    x: jax.Array,
    norm1: jax.Array,
    wqkv: jax.Array,
    bqkv: jax.Array,
    wo: jax.Array,
    bo: jax.Array,
    norm2: jax.Array,
    w1: jax.Array,
    b1: jax.Array,
    w2: jax.Array,
    b2: jax.Array,
) -> jax.Array:
    """A decoder block on x f32 [s, e]; norms [2, e] hold scale and bias."""
    s, e = x.shape
    h = _norm(x, norm1[0], norm1[1]) @ wqkv + bqkv
    q, k, v = (t.reshape(s, HEADS, e // HEADS) for t in jnp.split(h, 3, axis=-1))
    scores = jnp.einsum("qhd,khd->hqk", q, k) / math.sqrt(e // HEADS)
    row = jax.lax.broadcasted_iota(jnp.int32, (s, s), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (s, s), 1)
    masked = jnp.where(column <= row, scores, jnp.float32(-1e9))
    heads = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(masked), v)
    x = x + (heads.reshape(s, e) @ wo + bo)
    h = jax.nn.gelu(_norm(x, norm2[0], norm2[1]) @ w1 + b1)
    return x + (h @ w2 + b2)


def block_inputs(s: int = 24, e: int = 64, f: int = 160) -> tuple[np.ndarray, ...]:
    """Random f32 activations and weights."""
    shapes = [(s, e), (2, e), (e, 3 * e), (3 * e,), (e, e), (e,), (2, e), (e, f), (f,), (f, e), (e,)]
    return _random(shapes)


def _random(shapes: list[tuple[int, ...]], seed: int = 1) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(
        rng.standard_normal(s, np.float32) / np.float32(math.sqrt(s[0]) if len(s) > 1 else 4) for s in shapes
    )


def lstm(
    xs: jax.Array, wx: jax.Array, wh: jax.Array, b: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """An LSTM over xs f32 [t, b, k]; all outputs, and the last h and c."""

    def step(state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], wh.shape[0]), xs.dtype)
    (h, c), outputs = jax.lax.scan(step, (zeros, zeros), xs)
    return outputs, h, c


def lstm_inputs(t: int = 12, b: int = 4, k: int = 32, h: int = 48) -> tuple[np.ndarray, ...]:
    """A random f32 sequence and weights."""
    return _random([(t, b, k), (k, 4 * h), (h, 4 * h), (4 * h,)])


def beam_step(
    beams: jax.Array, log_probs: jax.Array, done: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Of beams [k] and log_probs [k, v] the k best sums, their beams and words, and how many there are."""
    k, v = log_probs.shape
    words = jax.lax.broadcasted_iota(jnp.int32, (k, v), 1)
    kept = jnp.where(words == 0, jnp.float32(0), jnp.full((k, v), -jnp.inf, jnp.float32))
    scores = beams[:, None] + jnp.where(done[:, None], kept, log_probs)

    def going(state: Any) -> jax.Array:
        left, _, _, _, found = state
        return (found < k) & (jnp.max(left) > -jnp.inf)

    def pick(state: Any) -> Any:
        left, best, parents, tokens, found = state
        at = jax.lax.argmax(left, 0, jnp.int32)
        best = _put(best, jax.lax.dynamic_index_in_dim(left, at, keepdims=False), found)
        parents = _put(parents, at // v, found)
        tokens = _put(tokens, at % v, found)
        return _put(left, jnp.float32(-jnp.inf), at), best, parents, tokens, found + 1

    zeros = jnp.zeros(k, jnp.int32)
    best = jnp.full(k, -jnp.inf, jnp.float32)
    state = (scores.reshape(-1), best, zeros, zeros, jnp.int32(0))
    _, best, parents, tokens, found = jax.lax.while_loop(going, pick, state)
    return best, parents, tokens, found


def _put(x: jax.Array, value: jax.Array, at: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(x, value, at, 0)


def beam_step_inputs(k: int = 4, v: int = 50) -> tuple[np.ndarray, ...]:
    """Random scores of k beams and v words; the second beam is done."""
    rng = np.random.default_rng(2)
    logits = rng.standard_normal((k, v), np.float32)
    probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return rng.standard_normal(k, np.float32), probs.astype(np.float32), np.arange(k) == 1


PROGRAMS = {"mlp": mlp, "transformer": block, "lstm": lstm, "beam": beam_step}
"""The twin of the public function of each .tw file."""


def inputs(name: str) -> tuple[np.ndarray, ...]:
    """Example inputs of a program by the name of its file."""
    return getattr(sys.modules[__name__], f"{PROGRAMS[name].__name__}_inputs")()


if __name__ == "__main__":
    found = np.asarray(jax.jit(mlp)(*mlp_inputs())).argmax(-1)
    print(f"{WEIGHTS.name}: test accuracy {(found == mlp_labels()).mean():.4f}")
