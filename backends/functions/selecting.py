"""What select-and-scatter computes: the positions that windows select, and the values added there."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import scattering, values


def selected(
    x: Array,
    counts: Sequence[int],
    select: str,
    window: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
) -> Array:
    """The flat position in x that each of `counts` windows selects, -1 where it lies in the border; i32 [counts]."""
    flat, compare = lax.reshape(x, (x.size,)), values.SCALAR[select]

    def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        best, place = state
        at, exists = _place(i, x.shape, counts, window, strides, low)
        new = flat[jnp.where(exists, at, 0)]
        take = exists & ((place < 0) | ~compare(best, new))
        return jnp.where(take, new, best), jnp.where(take, at, place)

    none = jnp.full(tuple(counts), -1, np.int32)
    if x.size == 0:
        return none
    _, place = lax.fori_loop(
        np.int32(0), np.int32(np.prod(window)), step, (jnp.zeros(none.shape, x.dtype), none)
    )
    return place


def scattered(place: Array, source: Array, shape: Sequence[int], kind: str) -> Array:
    """[shape]: each element of `source` at its flat `place`, combined by `kind` in the order they come."""
    n = int(np.prod(shape, dtype=np.int64))
    start = jnp.broadcast_to(values.neutral(kind, np.dtype(source.dtype)), (n, 1))
    rows = lax.reshape(source, (source.size, 1))
    return lax.reshape(scattering.scatter(start, lax.reshape(place, (place.size,)), rows, kind), tuple(shape))


def rivals(
    x: Array,
    best: Array,
    off: Array,
    window: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
) -> Array:
    """How many elements of x each window has within `off` of `best`; i32 of its shape."""

    def near(i: Array, found: Array) -> Array:
        at, exists = _place(i, x.shape, best.shape, window, strides, low)
        close = jnp.abs(lax.reshape(x, (x.size,))[jnp.where(exists, at, 0)] - best) <= off
        return found + (exists & close).astype(np.int32)

    count = np.int32(np.prod(window))
    return lax.fori_loop(np.int32(0), count, near, jnp.zeros(best.shape, np.int32))


def covered(
    e: Array, shape: Sequence[int], window: Sequence[int], strides: Sequence[int], low: Sequence[int]
) -> Array:
    """[shape]: for each element the largest of e, 0 or more, over the windows that cover it."""
    n = int(np.prod(shape))

    def spread(i: Array, found: Array) -> Array:
        at, exists = _place(i, shape, e.shape, window, strides, low)
        place = jnp.where(exists, at, -1)
        rows = lax.reshape(e, (e.size, 1))
        return scattering.scatter(found, lax.reshape(place, (place.size,)), rows, "max")

    made = lax.fori_loop(np.int32(0), np.int32(np.prod(window)), spread, jnp.zeros((n, 1), e.dtype))
    return lax.reshape(made, tuple(shape))


def _place(
    i: Array,
    shape: Sequence[int],
    counts: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
) -> tuple[Array, Array]:
    """The flat position in `shape` of the i-th element, in row order, of each window, and whether it exists."""
    taps = np.stack([t.reshape(-1) for t in np.indices(tuple(window), np.int32)])
    at, exists = jnp.zeros(tuple(counts), np.int32), jnp.ones(tuple(counts), np.bool_)
    for d, (n, count, stride, lo) in enumerate(zip(shape, counts, strides, low, strict=True)):
        starts = np.arange(count, dtype=np.int32) * np.int32(stride) - np.int32(lo)
        p = lax.broadcast_in_dim(jnp.asarray(starts) + jnp.asarray(taps)[d, i], tuple(counts), (d,))
        exists &= (p >= 0) & (p < n)
        at = at * np.int32(n) + p
    return at, exists
