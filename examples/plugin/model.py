"""Programs that use the plugin's ops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from acme_npu.jax_functions import mish, prefix_xor


def decode(x: jax.Array, y: jax.Array) -> jax.Array:
    """Two Gray codes in rows, decoded and compared."""
    return prefix_xor(x) ^ prefix_xor(y)


def decode_inputs() -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0))
    return [jax.random.bits(key, (96, 500), jnp.uint32) for key in keys]


def gate(x: jax.Array, w: jax.Array) -> jax.Array:
    """A layer with mish."""
    return mish(x @ w)


def gate_inputs() -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0))
    return [jax.random.normal(key, (64, 64), jnp.float32) for key in keys]
