"""What a scatter computes: updates combined with rows of the target, one after the other, in order."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from . import values

_SCATTERS: dict[str, Callable[..., Array]] = {
    "set": lax.scatter,
    "sum": lax.scatter_add,
    "prod": lax.scatter_mul,
    "max": lax.scatter_max,
    "min": lax.scatter_min,
}


def scatter(x: Array, index: Array, updates: Array, kind: str) -> Array:
    """x [r, ...] with updates [n, ...] put into the rows that index [n] (integers) names; others are left out.

    XLA reads x at the nearest row for those, which goes wrong where it merges that with an x that is a slice itself.
    """
    x = lax.optimization_barrier(x)
    window = tuple(range(1, x.ndim))
    numbers = lax.ScatterDimensionNumbers(window, (0,), (0,))
    plain = kind == "set"
    moved = _SCATTERS[kind](
        values.raw(x) if plain else x,
        lax.expand_dims(index, [1]),
        values.raw(updates) if plain else updates,
        numbers,
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )
    return values.cooked(moved, x.dtype) if plain else moved


def hits(rows: int, index: Array) -> Array:
    """How many of index [n] name each of so many rows; i32 [rows]."""
    return scatter(jnp.zeros(rows, jnp.int32), index, jnp.ones(index.shape, jnp.int32), "sum")
