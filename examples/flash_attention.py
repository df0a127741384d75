"""Causal attention over blocks of keys with a running softmax, written with `lax.scan`: `forward`, `gradient` and
`tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Config(NamedTuple):
    """Shape of the example input, and keys per block."""

    heads: int
    tokens: int
    head_size: int
    block: int


SMALL = Config(heads=8, tokens=1024, head_size=64, block=128)
TINY = Config(heads=2, tokens=24, head_size=8, block=8)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, block: int) -> jax.Array:
    """q, k and v [heads, tokens, head size], tokens a multiple of `block`; result of their shape.

    The scores of one block are there at a time; after Milakov and Gimelshein (2018), Dao et al. (2022).
    """
    heads, tokens, c = q.shape
    rows = jnp.arange(tokens, dtype=jnp.int32)[:, None]

    def blocks(x: jax.Array) -> jax.Array:
        return x.reshape(heads, tokens // block, block, c).swapaxes(0, 1)

    def visit(
        state: tuple[jax.Array, jax.Array, jax.Array], part: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        top, total, mixed = state
        k, v, first = part
        scores = jnp.einsum("hqc,hkc->hqk", q, k, preferred_element_type=jnp.float32) / math.sqrt(c)
        columns = first + jnp.arange(block, dtype=jnp.int32)
        scores = jnp.where(columns <= rows, scores, -jnp.inf)
        higher = jnp.maximum(top, jnp.max(scores, axis=-1, keepdims=True))
        shrink, weights = jnp.exp(top - higher), jnp.exp(scores - higher)
        total = total * shrink + jnp.sum(weights, axis=-1, keepdims=True)
        new = jnp.einsum("hqk,hkc->hqc", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
        return (higher, total, mixed * shrink + new), None

    start = (
        jnp.full((heads, tokens, 1), -1e30, jnp.float32),
        jnp.zeros((heads, tokens, 1), jnp.float32),
        jnp.zeros((heads, tokens, c), jnp.float32),
    )
    firsts = jnp.arange(0, tokens, block, dtype=jnp.int32)
    (_, total, mixed), _ = jax.lax.scan(visit, start, (blocks(k), blocks(v), firsts))
    return (mixed / total).astype(q.dtype)


def example_heads(config: Config, dtype: Any, seed: int = 0) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Random q, k and v [heads, tokens, head size] in `dtype`."""
    rng = np.random.default_rng(seed)
    shape = (3, config.heads, config.tokens, config.head_size)
    q, k, v = (jnp.asarray(x, dtype) for x in rng.standard_normal(shape, dtype=np.float32))
    return q, k, v


def forward(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """q, k, v f16 [8, 1024, 64]; result f16 [8, 1024, 64]."""
    return attend(q, k, v, SMALL.block)


def forward_inputs() -> tuple[jax.Array, jax.Array, jax.Array]:
    """f16 q, k and v."""
    return example_heads(SMALL, jnp.float16)


def gradient(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of a sum of squares of the result with respect to q, k and v, all f32 [8, 1024, 64]."""
    return jax.grad(lambda *x: jnp.sum(jnp.square(attend(*x, SMALL.block))), (0, 1, 2))(q, k, v)


def gradient_inputs() -> tuple[jax.Array, jax.Array, jax.Array]:
    """f32 q, k and v."""
    return example_heads(SMALL, jnp.float32)


def tiny(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """For tests; q, k, v f32 [2, 24, 8]."""
    return attend(q, k, v, TINY.block)


def tiny_inputs() -> tuple[jax.Array, jax.Array, jax.Array]:
    """f32 q, k and v."""
    return example_heads(TINY, jnp.float32)


def tiny_gradient(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """For tests; `gradient` on f32 [2, 24, 8]."""
    return jax.grad(lambda *x: jnp.sum(jnp.square(attend(*x, TINY.block))), (0, 1, 2))(q, k, v)


def tiny_gradient_inputs() -> tuple[jax.Array, jax.Array, jax.Array]:
    """f32 q, k and v."""
    return example_heads(TINY, jnp.float32)
