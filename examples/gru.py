"""A two-layer GRU over a sequence with `lax.scan`: `forward` (f32) and `tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = list[dict[str, jax.Array]]


class Config(NamedTuple):
    """Shape of the network and of its example input."""

    n_layers: int
    steps: int
    batch: int
    n_input: int
    hidden: int


SMALL = Config(n_layers=2, steps=32, batch=8, n_input=128, hidden=256)
TINY = Config(n_layers=2, steps=5, batch=3, n_input=7, hidden=12)


def cell(p: dict[str, jax.Array], h: jax.Array, x: jax.Array) -> jax.Array:
    """One step; state h [batch, hidden], projected input x [batch, 3 * hidden], result the next h."""
    xr, xz, xn = jnp.split(x, 3, axis=-1)
    hr, hz, hn = jnp.split(h @ p["wh"] + p["bh"], 3, axis=-1)
    z = jax.nn.sigmoid(xz + hz)
    n = jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn)
    return (1 - z) * n + z * h


def unroll(params: Params, xs: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """From zero states; xs [steps, batch, input], result all h of the last layer and the last h of each."""
    last = []
    for p in params:

        def step(h: jax.Array, x: jax.Array, p: dict[str, jax.Array] = p) -> tuple[jax.Array, jax.Array]:
            h = cell(p, h, x)
            return h, h

        zeros = jnp.zeros((xs.shape[1], p["wh"].shape[0]), xs.dtype)
        # The product with the inputs does not wait for the state, so it is one for all steps.
        h, xs = jax.lax.scan(step, zeros, xs @ p["wx"] + p["bx"])
        last.append(h)
    return xs, last


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights in `dtype`, with gates in the order reset, update, new."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        scale = 0.1 if len(shape) == 1 else 1 / math.sqrt(shape[0])
        return jnp.asarray(scale * rng.standard_normal(shape, dtype=np.float32), dtype)

    h = config.hidden
    sizes = [config.n_input] + [h] * (config.n_layers - 1)
    return [
        {"wx": normal(n, 3 * h), "wh": normal(h, 3 * h), "bx": normal(3 * h), "bh": normal(3 * h)}
        for n in sizes
    ]


def example_sequence(config: Config, dtype: Any, seed: int = 1) -> jax.Array:
    """A random sequence [steps, batch, input] in `dtype`."""
    rng = np.random.default_rng(seed)
    shape = (config.steps, config.batch, config.n_input)
    return jnp.asarray(rng.standard_normal(shape, dtype=np.float32), dtype)


def forward(params: Params, xs: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """xs f32 [32, 8, 128]; outputs f32 [32, 8, 256] and the last h of both layers, f32 [8, 256]."""
    return unroll(params, xs)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [32, 8, 128] sequence."""
    return init(SMALL, jnp.float32), example_sequence(SMALL, jnp.float32)


def tiny(params: Params, xs: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """For tests; xs f32 [5, 3, 7]."""
    return unroll(params, xs)


def tiny_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and an f32 [5, 3, 7] sequence."""
    return init(TINY, jnp.float32), example_sequence(TINY, jnp.float32)
