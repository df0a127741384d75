"""Ops that draw numbers. They are of the right distribution, and not those that another implementation draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import dtype_named, dtype_of, is_float


@rule("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike")
def _drawn(node: Node, like: Any = None) -> Any:
    import jax

    shape = tuple(node.get("shape", ())) if like is None else like.shape
    dtype = _dtype(node, np.dtype(np.float32) if like is None else dtype_of(like))
    if not is_float(np.zeros(0, dtype)):
        raise node.unsupported(f"the numbers it draws are floats, and it is to give {dtype}")
    if "Uniform" in node.op:
        return jax.random.uniform(
            _key(node), shape, dtype, minval=node.get("low", 0.0), maxval=node.get("high", 1.0)
        )
    return jax.random.normal(_key(node), shape, dtype) * np.asarray(
        node.get("scale", 1.0), dtype
    ) + np.asarray(node.get("mean", 0.0), dtype)


@rule("Bernoulli")
def _bernoulli(node: Node, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    chance = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (jax.random.uniform(_key(node), x.shape, chance.dtype) < chance).astype(_dtype(node, dtype_of(x)))


@rule("Multinomial")
def _multinomial(node: Node, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    scores = x.astype(jnp.promote_types(x.dtype, jnp.float32))[:, None, :]
    shape = (x.shape[0], node.get("sample_size", 1))
    return jax.random.categorical(_key(node), scores, axis=-1, shape=shape).astype(
        _dtype(node, np.dtype(np.int32))
    )


def _key(node: Node) -> Any:
    """The key of a node: that of its seed, if it has one."""
    import jax

    seed = node.get("seed")
    return node.random() if seed is None else jax.random.key(int(np.float32(seed).view(np.uint32)))


def _dtype(node: Node, default: np.dtype[Any]) -> np.dtype[Any]:
    number = node.get("dtype")
    return default if number is None else dtype_named(number)
