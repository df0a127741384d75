"""A mixture-of-experts feed-forward layer in plain JAX: `forward` and `tiny`, which bring tokens to experts by
products, `mixtral` and `tiny_mixtral`, which gather them, and `qwen3` and `tiny_qwen3`, which sort them by expert.

The products of all experts are one batched product, an expert's tokens padded to its capacity; sorted tokens are
multiplied in groups (`jax.lax.ragged_dot`), and none is dropped.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, jax.Array]


class Config(NamedTuple):
    """Shape of the layer and of its example input."""

    n_experts: int
    d_model: int
    d_ff: int
    n_tokens: int
    capacity: int
    """Tokens that an expert takes at most; where tokens are sorted, any number."""
    choices: int = 2
    """Experts of a token."""


MIXTRAL = Config(n_experts=8, d_model=4096, d_ff=14336, n_tokens=512, capacity=192)
SMALL = Config(n_experts=8, d_model=768, d_ff=3072, n_tokens=512, capacity=192)
QWEN3 = Config(n_experts=128, d_model=2048, d_ff=768, n_tokens=2048, capacity=2048, choices=8)
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


def slots(probabilities: jax.Array, capacity: int) -> tuple[jax.Array, jax.Array]:
    """Where tokens go, by the rule of `route`: weights [tokens, 2], and slots int32 [tokens, 2], counted over all
    experts; the slot behind all for what is dropped."""
    n_experts = probabilities.shape[-1]
    weights, experts = jax.lax.top_k(probabilities, 2)
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    chosen = jax.nn.one_hot(experts.T.reshape(-1), n_experts, dtype=jnp.int32)
    ahead = jnp.sum((jnp.cumsum(chosen, axis=0) - chosen) * chosen, axis=-1).reshape(2, -1).T
    return weights, jnp.where(ahead < capacity, experts * capacity + ahead, n_experts * capacity)


def gathered(config: Config, params: Params, x: jax.Array) -> jax.Array:
    """The layer with gated experts, whose tokens are gathered; x [tokens, d], result [tokens, d]."""
    t, d = x.shape
    scores = jax.nn.softmax((x @ params["router"]).astype(jnp.float32), axis=-1)
    weights, places = slots(scores, config.capacity)
    empty = jnp.full(config.n_experts * config.capacity + 1, t, jnp.int32)
    takes = empty.at[places].set(jnp.arange(t, dtype=jnp.int32)[:, None])[:-1]
    inputs = jnp.pad(x, [(0, 1), (0, 0)])[takes].reshape(config.n_experts, config.capacity, d)
    hidden = jax.nn.silu(jnp.einsum("ecd,edf->ecf", inputs, params["gate"]))
    hidden = hidden * jnp.einsum("ecd,edf->ecf", inputs, params["up"])
    outputs = jnp.einsum("ecf,efd->ecd", hidden, params["down"]).reshape(-1, d)
    return x + jnp.einsum("tj,tjd->td", weights.astype(x.dtype), jnp.pad(outputs, [(0, 1), (0, 0)])[places])


def dropless(config: Config, params: Params, x: jax.Array) -> jax.Array:
    """The layer with gated experts, each of which takes all tokens that choose it; x and result [tokens, d]."""
    t, d = x.shape
    scores = jax.nn.softmax((x @ params["router"]).astype(jnp.float32), axis=-1)
    weights, experts = jax.lax.top_k(scores, config.choices)
    weights = (weights / jnp.sum(weights, axis=-1, keepdims=True)).astype(x.dtype)
    order = jnp.argsort(experts.reshape(-1))
    sizes = jnp.sum(experts.reshape(-1, 1) == jnp.arange(config.n_experts), axis=0, dtype=jnp.int32)
    rows = x[order // config.choices]
    hidden = jax.nn.silu(jax.lax.ragged_dot(rows, params["gate"], sizes))
    hidden = hidden * jax.lax.ragged_dot(rows, params["up"], sizes)
    outputs = jax.lax.ragged_dot(hidden, params["down"], sizes)[jnp.argsort(order)]
    return x + jnp.einsum("tj,tjd->td", weights, outputs.reshape(t, config.choices, d))


def init(config: Config, dtype: Any, seed: int = 0) -> Params:
    """Random weights in `dtype`."""
    rng = np.random.default_rng(seed)
    e, d, f = config.n_experts, config.d_model, config.d_ff

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, dtype=np.float32) / math.sqrt(shape[-2]), dtype)

    return {"router": normal(d, e), "up": normal(e, d, f), "down": normal(e, f, d)}


def shapes(config: Config, dtype: Any) -> tuple[dict[str, Any], Any]:
    """Of the weights of gated experts and of activations, without arrays."""
    e, d, f = config.n_experts, config.d_model, config.d_ff
    weights = {"router": (d, e), "gate": (e, d, f), "up": (e, d, f), "down": (e, f, d)}
    params = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in weights.items()}
    return params, jax.ShapeDtypeStruct((config.n_tokens, d), dtype)


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


def mixtral(params: Params, x: jax.Array) -> jax.Array:
    """The layer of Mixtral 8x7B; x f16 [512, 4096], result f16 [512, 4096]."""
    return gathered(MIXTRAL, params, x)


def mixtral_inputs() -> tuple[dict[str, Any], Any]:
    """Shapes without arrays: f16 weights, 2.8 GB of them, and activations."""
    return shapes(MIXTRAL, jnp.float16)


def tiny_mixtral(params: Params, x: jax.Array) -> jax.Array:
    """Four experts for tests, of which each has room for few tokens; x f32 [13, 16]."""
    return gathered(TINY._replace(capacity=5), params, x)


def tiny_mixtral_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and activations."""
    params = init(TINY, jnp.float32)
    return {**params, "gate": init(TINY, jnp.float32, seed=2)["up"]}, example_tokens(TINY, jnp.float32)


def qwen3(params: Params, x: jax.Array) -> jax.Array:
    """The layer of Qwen3-30B-A3B; x bf16 [2048, 2048], result bf16 [2048, 2048]."""
    return dropless(QWEN3, params, x)


def qwen3_inputs() -> tuple[dict[str, Any], Any]:
    """Shapes without arrays: bf16 weights, 1.2 GB of them, and activations."""
    return shapes(QWEN3, jnp.bfloat16)


def tiny_qwen3(params: Params, x: jax.Array) -> jax.Array:
    """Four experts for tests, three for each token; x f32 [13, 16]."""
    return dropless(TINY._replace(choices=3), params, x)


tiny_qwen3_inputs = tiny_mixtral_inputs
