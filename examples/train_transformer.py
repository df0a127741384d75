"""One training step of a decoder-only transformer in plain JAX: `adam` and `sgd`, and their `tiny_` variants."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5
RATE, BETA1, BETA2, ADAM_EPS = 1e-3, 0.9, 0.999, 1e-8
SGD_RATE = 1e-2
MASKED = -1e9


class Config(NamedTuple):
    """Shape of the model and of its example batch."""

    n_layers: int
    d_model: int
    n_heads: int
    vocab: int
    n_tokens: int
    batch: int


SMALL = Config(n_layers=4, d_model=512, n_heads=8, vocab=8192, n_tokens=128, batch=4)
TINY = Config(n_layers=2, d_model=32, n_heads=4, vocab=61, n_tokens=9, batch=2)


class Adam(NamedTuple):
    """Weights, their first and second moment estimates, and the number of steps taken (int32 [])."""

    params: Params
    mean: Params
    square: Params
    step: jax.Array


def layer_norm(x: jax.Array, p: Params) -> jax.Array:
    """Layer norm over the last axis; p scale [d] and bias [d]."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPS) * p["scale"] + p["bias"]


def attention(x: jax.Array, p: Params, n_heads: int) -> jax.Array:
    """Causal multi-head self-attention; x [b, t, d]."""
    b, t, d = x.shape
    q, k, v = (y.reshape(b, t, n_heads, d // n_heads) for y in jnp.split(x @ p["qkv"], 3, axis=-1))
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) / math.sqrt(d // n_heads)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, MASKED)
    mixed = jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(scores, axis=-1), v)
    return mixed.reshape(b, t, d) @ p["out"]


def loss(params: Params, tokens: jax.Array, n_heads: int) -> jax.Array:
    """Mean cross entropy of each next token, f32 []; tokens int32 [b, t + 1]."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = params["words"][inputs] + params["positions"]
    for p in params["layers"]:
        x = x + attention(layer_norm(x, p["ln1"]), p, n_heads)
        x = x + jax.nn.gelu(layer_norm(x, p["ln2"]) @ p["up"]) @ p["down"]
    # The embedding is also the output matrix: its gradient is a scatter and a product.
    log_probs = jax.nn.log_softmax(layer_norm(x, params["ln_f"]) @ params["words"].T, axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_probs, targets[..., None], axis=-1))


def adam_step(state: Adam, tokens: jax.Array, n_heads: int) -> tuple[Adam, jax.Array]:
    """One update with bias correction; the new state and the loss before it."""
    value, grads = jax.value_and_grad(loss)(state.params, tokens, n_heads)
    step = state.step + 1
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.mean, grads)
    square = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state.square, grads)
    rate = RATE * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + ADAM_EPS), state.params, mean, square)
    return Adam(params, mean, square, step), value


def sgd_step(params: Params, tokens: jax.Array, n_heads: int) -> tuple[Params, jax.Array]:
    """One plain update; the new weights and the loss before it."""
    value, grads = jax.value_and_grad(loss)(params, tokens, n_heads)
    return jax.tree.map(lambda p, g: p - SGD_RATE * g, params, grads), value


def init(config: Config, seed: int = 0) -> Params:
    """Random f32 weights."""
    rng = np.random.default_rng(seed)
    d = config.d_model

    def normal(*shape: int, std: float = 0.02, mean: float = 0.0) -> jax.Array:
        return jnp.asarray(mean + std * rng.standard_normal(shape, dtype=np.float32))

    def norm() -> Params:
        return {"scale": normal(d, std=0.1, mean=1.0), "bias": normal(d)}

    def matrix(n: int, m: int) -> jax.Array:
        return normal(n, m, std=1 / math.sqrt(n))

    layers = [
        {
            "ln1": norm(),
            "qkv": matrix(d, 3 * d),
            "out": matrix(d, d),
            "ln2": norm(),
            "up": matrix(d, 4 * d),
            "down": matrix(4 * d, d),
        }
        for _ in range(config.n_layers)
    ]
    return {
        "words": normal(config.vocab, d),
        "positions": normal(config.n_tokens, d),
        "layers": layers,
        "ln_f": norm(),
    }


def adam_state(params: Params) -> Adam:
    """The state before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Adam(params, zeros, zeros, jnp.zeros((), jnp.int32))


def example_tokens(config: Config, seed: int = 1) -> jax.Array:
    """Random tokens, int32 [b, t + 1]; some come twice, so that their gradients add up."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(0, config.vocab, (config.batch, config.n_tokens + 1), dtype=np.int32))


def adam(state: Adam, tokens: jax.Array) -> tuple[Adam, jax.Array]:
    """Four layers; tokens int32 [4, 129]."""
    return adam_step(state, tokens, SMALL.n_heads)


def adam_inputs() -> tuple[Adam, jax.Array]:
    """The first state and a batch."""
    return adam_state(init(SMALL)), example_tokens(SMALL)


def sgd(params: Params, tokens: jax.Array) -> tuple[Params, jax.Array]:
    """Four layers; tokens int32 [4, 129]."""
    return sgd_step(params, tokens, SMALL.n_heads)


def sgd_inputs() -> tuple[Params, jax.Array]:
    """The weights and a batch."""
    return init(SMALL), example_tokens(SMALL)


def tiny_adam(state: Adam, tokens: jax.Array) -> tuple[Adam, jax.Array]:
    """Two layers for tests; tokens int32 [2, 10]."""
    return adam_step(state, tokens, TINY.n_heads)


def tiny_adam_inputs() -> tuple[Adam, jax.Array]:
    """The first state and a batch."""
    return adam_state(init(TINY)), example_tokens(TINY)


def tiny_sgd(params: Params, tokens: jax.Array) -> tuple[Params, jax.Array]:
    """Two layers for tests; tokens int32 [2, 10]."""
    return sgd_step(params, tokens, TINY.n_heads)


def tiny_sgd_inputs() -> tuple[Params, jax.Array]:
    """The weights and a batch."""
    return init(TINY), example_tokens(TINY)
