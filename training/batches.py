"""Gradients of a batch from those of its parts, for batches that are too large for the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def micro_batches(count: int, *batch: Any) -> Any:
    """A batch cut into `count` parts of one size: each array [count * n, ...] becomes one [count, n, ...].

    Returns the tree of one argument, a tuple of trees for several. Raises ValueError where `count` does not divide
    the first dimension of an array.
    """

    def cut(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        if count < 1 or x.ndim == 0 or x.shape[0] % count:
            raise ValueError(
                f"an array {list(x.shape)} cannot be cut into {count}: say a divisor of its first dimension"
            )
        return x.reshape(count, x.shape[0] // count, *x.shape[1:])

    parts = jax.tree.map(cut, batch)
    return parts[0] if len(batch) == 1 else parts


def accumulate(grad_fn: Callable[..., Any], *batches: Any) -> Any:
    """The mean of `grad_fn` over micro-batches, one after the other (`lax.scan`).

    grad_fn: makes a tree of floats of a micro-batch: gradients, or the loss and gradients; of several micro-batches,
    as many arguments. batches: trees of arrays [count, ...], such as `micro_batches` makes. Sums are formed in f32 at
    least, in the order of the micro-batches, and divided once. So for a loss that is a mean, the result is the
    gradient of the whole batch up to the order of its additions. An infinity or a NaN of any part stays one.

    Raises ValueError where the arrays have no common first dimension, TypeError where `grad_fn` gives integers.
    """
    counts = {jnp.shape(x)[:1] for x in jax.tree.leaves(batches)}
    if len(counts) != 1 or counts & {(), (0,)}:
        said = ", ".join(str(list(jnp.shape(x))) for x in jax.tree.leaves(batches))
        raise ValueError(
            f"micro-batches need one first dimension of 1 or more, their number; these are {said or 'none'}"
        )
    ((count,),) = counts

    def start(x: jax.ShapeDtypeStruct) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            raise TypeError(f"a mean of {x.dtype} is not one: let grad_fn give floats only")
        return jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32))

    def add(total: Any, batch: Any) -> tuple[Any, None]:
        return jax.tree.map(lambda t, g: t + g.astype(t.dtype), total, grad_fn(*batch)), None

    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)), batches)
    total, _ = jax.lax.scan(add, jax.tree.map(start, jax.eval_shape(grad_fn, *first)), batches)
    return jax.tree.map(lambda t: t / count, total)
