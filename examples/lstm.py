"""A single-layer LSTM over a sequence with `lax.scan`: `forward` (f32) and `forward_f16`."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]
State = tuple[jax.Array, jax.Array]

STEPS, BATCH, INPUT, HIDDEN = 32, 8, 128, 256


def cell(params: Params, state: State, x: jax.Array) -> State:
    """One step; state h and c [batch, hidden], x [batch, input], result the next h and c."""
    h, c = state
    i, f, g, o = jnp.split(x @ params["wx"] + h @ params["wh"] + params["b"], 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def unroll(params: Params, xs: jax.Array) -> tuple[jax.Array, State]:
    """From a zero state; xs [steps, batch, input], result all h [steps, batch, hidden] and last (h, c)."""

    def step(state: State, x: jax.Array) -> tuple[State, jax.Array]:
        state = cell(params, state, x)
        return state, state[0]

    zeros = jnp.zeros((xs.shape[1], params["wh"].shape[0]), xs.dtype)
    last, outputs = jax.lax.scan(step, (zeros, zeros), xs)
    return outputs, last


def init(dtype: Any, seed: int = 0) -> Params:
    """Random wx [128, 1024], wh [256, 1024] and b [1024] in `dtype`, with gates in the order i, f, g, o."""
    rng = np.random.default_rng(seed)

    def normal(n: int) -> np.ndarray:
        return rng.standard_normal((n, 4 * HIDDEN), dtype=np.float32) / math.sqrt(n)

    wx, wh = normal(INPUT), normal(HIDDEN)
    b = 0.1 * rng.standard_normal(4 * HIDDEN, dtype=np.float32)
    # The customary open forget gate, so that early inputs still show in the last state.
    b[HIDDEN : 2 * HIDDEN] += 1.0
    return {"wx": jnp.asarray(wx, dtype), "wh": jnp.asarray(wh, dtype), "b": jnp.asarray(b, dtype)}


def example_sequence(dtype: Any, seed: int = 1) -> jax.Array:
    """A random sequence [32, 8, 128] in `dtype`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal((STEPS, BATCH, INPUT), dtype=np.float32), dtype)


def forward(params: Params, xs: jax.Array) -> tuple[jax.Array, State]:
    """xs f32 [32, 8, 128]; outputs f32 [32, 8, 256] and the last (h, c), each f32 [8, 256]."""
    return unroll(params, xs)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [32, 8, 128] sequence."""
    return init(jnp.float32), example_sequence(jnp.float32)


def forward_f16(params: Params, xs: jax.Array) -> tuple[jax.Array, State]:
    """xs f16 [32, 8, 128]; outputs f16 [32, 8, 256] and the last (h, c), each f16 [8, 256]."""
    return unroll(params, xs)


def forward_f16_inputs() -> tuple[Params, jax.Array]:
    """The inputs of `forward` rounded to f16."""
    return init(jnp.float16), example_sequence(jnp.float16)
