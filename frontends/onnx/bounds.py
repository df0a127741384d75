"""Results that have as many elements as data says: bounded where JAX traces, and cut where values are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..bounding import mark


def first(x: Any, n: Any, axis: int = 0) -> Any:
    """The first n elements of x along an axis: x marked so where JAX traces either, a slice otherwise."""
    import jax
    import jax.numpy as jnp
    from jax.core import Tracer

    axis %= x.ndim
    if isinstance(x, Tracer) or isinstance(n, Tracer):
        return mark(x, jnp.asarray(n), axis)
    return jax.lax.slice_in_dim(x, 0, min(int(n), x.shape[axis]), axis=axis)


def packed(mask: Any, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
    """The rows of arrays that a mask [n] selects, one after the other, with zeros behind them, and their i32 count."""
    import jax.numpy as jnp

    n = mask.shape[0]
    if isinstance(n, int) and not n:
        return list(arrays), jnp.int32(0)
    ends = jnp.cumsum(mask, dtype=jnp.int32)
    places = jnp.where(mask, ends - 1, n)
    return [jnp.zeros_like(a).at[places].set(a, mode="drop") for a in arrays], ends[-1]


def compressed(mask: Any, arrays: Sequence[Any], to: int = 0) -> list[Any]:
    """The rows of arrays that a mask [n] selects, as many as there are; their dimension is moved to `to`."""
    import jax.numpy as jnp

    rows, count = packed(mask, arrays)
    return [first(jnp.moveaxis(r, 0, to), count, to) for r in rows]
