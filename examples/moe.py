"""A mixture-of-experts feed-forward layer with top-2 routing and expert capacity, in plain JAX: `forward` and
`tiny`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, jax.Array]


class Config(NamedTuple):
    """Shape of the layer and of its example input; an expert takes `capacity` tokens."""

    n_experts: int
    d_model: int
    d_ff: int
    n_tokens: int
    capacity: int


SMALL = Config(n_experts=8, d_model=768, d_ff=3072, n_tokens=512, capacity=192)
TINY = Config(n_experts=4, d_model=16, d_ff=24, n_tokens=13, capacity=8)


def route(probabilities: jax.Array, capacity: int) -> jax.Array:
    """Weights [tokens, experts, capacity] with which a slot's result enters a token, from [tokens, experts].

    Each token goes to its two most probable experts, with weights that add up to 1. An expert serves tokens in
    order, first choices before second ones; a token beyond its capacity is dropped there.
    """
    n_experts = probabilities.shape[-1]
    weights, experts = jax.lax.top_k(probabilities, 2)
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    chosen = jax.nn.one_hot(experts.T, n_experts, dtype=probabilities.dtype)
    ahead = jnp.cumsum(chosen.reshape(-1, n_experts), axis=0).reshape(chosen.shape) - chosen
    slots = jax.nn.one_hot(ahead.astype(jnp.int32), capacity, dtype=probabilities.dtype)
    return jnp.einsum("jt,jte,jtec->tec", weights.T, chosen, slots)


def layer(config: Config, params: Params, x: jax.Array) -> jax.Array:
    """x [tokens, d], result [tokens, d]."""
    combine = route(jax.nn.softmax(x @ params["router"], axis=-1), config.capacity)
    dispatch = (combine > 0).astype(x.dtype)
    inputs = jnp.einsum("tec,td->ecd", dispatch, x)
    hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", inputs, params["up"]))
    outputs = jnp.einsum("ecf,efd->ecd", hidden, params["down"])
    return x + jnp.einsum("tec,ecd->td", combine, outputs)


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights in `dtype`."""
    rng = np.random.default_rng(seed)
    e, d, f = config.n_experts, config.d_model, config.d_ff

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, dtype=np.float32) / math.sqrt(shape[-2]), dtype)

    return {"router": normal(d, e), "up": normal(e, d, f), "down": normal(e, f, d)}


def example_tokens(config: Config, dtype: Any, seed: int = 1) -> jax.Array:
    """Random activations [tokens, d] in `dtype`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal((config.n_tokens, config.d_model), dtype=np.float32), dtype)


def forward(params: Params, x: jax.Array) -> jax.Array:
    """Eight experts; x f32 [512, 768], result f32 [512, 768]."""
    return layer(SMALL, params, x)


def forward_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and activations."""
    return init(SMALL, jnp.float32), example_tokens(SMALL, jnp.float32)


def tiny(params: Params, x: jax.Array) -> jax.Array:
    """Four experts for tests; x f32 [13, 16]."""
    return layer(TINY, params, x)


def tiny_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and activations."""
    return init(TINY, jnp.float32), example_tokens(TINY, jnp.float32)
